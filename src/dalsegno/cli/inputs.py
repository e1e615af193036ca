"""What people type or put in files, as values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean


def pairs(given: Iterable[str], option: str) -> dict[str, Any]:
    """`key=value` options. A value is JSON where it reads as JSON, else the text itself."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputInvalid(problem=f'{option} takes key=value, not "{text}".')
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def items_from(file: Path | None) -> list[Any] | None:
    """One item a line: a plain key, or a JSON object with "key" and "params"."""
    if file is None:
        return None
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputInvalid(problem=f"{file} cannot be read: {error}.") from None
    found: list[Any] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("{"):
            try:
                found.append(json.loads(text))
            except json.JSONDecodeError as error:
                raise InputInvalid(problem=f"{file}, line {number}: not JSON: {error}.") from None
        elif text:
            found.append(text)
    if not found:
        raise InputInvalid(problem=f"{file} holds no items: write one key a line.")
    return found


def time_from(text: str | None) -> datetime | None:
    """An ISO time; without a zone it is the reader's own."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        problem = f'"{text}" is not a time; write for example 2026-01-31T22:00 or 2026-01-31T22:00+01:00.'
        raise InputInvalid(problem=problem) from None
    return at if at.tzinfo is not None else at.astimezone()


def choices(text: str | None, known: Iterable[str], what: str) -> list[str]:
    """A comma-separated choice, each checked."""
    allowed = [str(name) for name in known]
    chosen = [part.strip() for part in (text or "").split(",") if part.strip()]
    for name in chosen:
        if name not in allowed:
            raise InputInvalid(problem=f'There is no {what} "{name}".{did_you_mean(name, allowed)}')
    return chosen
