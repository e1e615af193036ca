"""How values are written in the file, and what they are read as."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeFloat
from pydantic_settings import NoDecode

from dalsegno.settings.keys import KEPT

HASHED = re.compile(r"scrypt:(\d{1,8}):(\d{1,3}):(\d{1,3}):([\w-]{16,}):([\w-]{32,})", re.ASCII)
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(\d{1,5}))?", re.IGNORECASE | re.ASCII)
"""A name or an address, and perhaps its port."""


def _names(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _labels(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in _names(value)]
    bad = [name for name, equals, _ in pairs if not equals or not name.strip()]
    if bad:
        raise ValueError(f'"{bad[0]}" is not name=value; write for example gpu=true,zone=eu')
    return {name.strip(): text.strip() for name, _, text in pairs}


def _commands(value: Any) -> Any:
    """`musicdl=python bridge.py; other=…` as name and command."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(";") if part.strip()]
    bad = [name for name, equals, command in pairs if not equals or not name.strip() or not command.strip()]
    if bad:
        raise ValueError(f'"{bad[0].strip()}" is not name=command; write for example musicdl=python3 bridge.py')
    return {name.strip(): command.strip() for name, _, command in pairs}


def _bytes(value: Any) -> Any:
    """`500MB`, `1.5 GiB` or a plain number, as bytes."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", value.lower())
    if found is None:
        raise ValueError(f'"{value:.60}" is not a size; write for example 500MB or 2GiB')
    return int(float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2] or " "))


def _home(text: str) -> str:
    """A place of this machine, with `~` read as a shell would."""
    if not text.startswith("~"):
        return text
    try:
        return str(Path(text).expanduser())
    except RuntimeError:
        raise ValueError("there is no such home folder") from None


def _of_a_lane(key: str) -> str:
    if not any(key.endswith(end) and key != end for end in KEPT):
        ends = ", ".join(end[1:].upper() for end in KEPT)
        raise ValueError(f"it ends with none of {ends}")
    return key


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]
Labels = Annotated[dict[str, str], NoDecode, BeforeValidator(_labels)]
Commands = Annotated[dict[str, str], NoDecode, BeforeValidator(_commands)]
LaneRules = Annotated[dict[Annotated[str, AfterValidator(_of_a_lane)], NonNegativeFloat], NoDecode]
Place = Annotated[str, AfterValidator(_home)]
"""A path, or an address of the kind `file:///…`."""
Places = Annotated[tuple[Place, ...], NoDecode, BeforeValidator(_names)]
Folder = Annotated[Path, AfterValidator(lambda path: Path(_home(str(path))))]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]
