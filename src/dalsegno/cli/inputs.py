"""What people type or put in files, as values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta
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


_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}")
_PARTS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d{{1,9}}){unit})?" for unit in _PARTS))


def end_from(until: str | None, lasts: str | None, now: datetime) -> datetime | None:
    """When something ends, from `--until WHEN` or `--for DURATION`. A time of day is the next one to come."""
    if until is not None and lasts is not None:
        raise InputInvalid(problem="--until and --for say the same in two ways: give one of them.")
    if lasts is not None:
        return _after(lasts, now)
    if until is None:
        return None
    if _CLOCK_TIME.match(until):
        return _next(until, now)
    end = time_from(until)
    if end is not None and end <= now:
        problem = f'--until "{until}" is in the past: it is {now.astimezone():%Y-%m-%dT%H:%M:%S} now.'
        raise InputInvalid(problem=problem)
    return end


def _after(text: str, now: datetime) -> datetime:
    found = _DURATION.fullmatch(text.strip().lower())
    seconds = sum(int(found[unit] or 0) * size for unit, size in _PARTS.items()) if found else 0
    if not seconds:
        raise InputInvalid(problem=f'"{text}" is not a length of time; write for example 90m, 2h, 1h30m, 45s or 3d.')
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        raise InputInvalid(problem=f'"{text}" is longer than the calendar.') from None


def _next(text: str, now: datetime) -> datetime:
    try:
        at = time.fromisoformat(text.zfill(5) if len(text) < 5 else text)
    except ValueError:
        raise InputInvalid(problem=f'"{text}" is not a time of day; write for example 08:00 or 23:30.') from None
    today = now.astimezone(at.tzinfo)
    end = datetime.combine(today, at).astimezone(UTC)  # without a zone: the reader's own
    return end if end > now else datetime.combine(today + timedelta(days=1), at).astimezone(UTC)


def choices(text: str | None, known: Iterable[str], what: str) -> list[str]:
    """A comma-separated choice, each checked."""
    allowed = [str(name) for name in known]
    chosen = [part.strip() for part in (text or "").split(",") if part.strip()]
    for name in chosen:
        if name not in allowed:
            raise InputInvalid(problem=f'There is no {what} "{name}".{did_you_mean(name, allowed)}')
    return chosen
