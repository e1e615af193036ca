"""A song's place in the library: a name that every filesystem takes, whatever the song is called."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from dalsegno.errors import InputInvalid
from dalsegno.model.naming import parsed

PART_MAX = 240
"""Bytes: filesystems take 255, and " (2)" must still fit."""
PATH_MAX = 1000
NAMELESS = "untitled"
RESERVED = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"]
    + [port + number for port in ("COM", "LPT") for number in "0123456789¹²³"]
)
INSTEAD = str.maketrans({"/": "-", "\\": "-", "|": "-", ":": "-", '"': "'", "<": "(", ">": ")", "?": None, "*": None})
_SUFFIX = re.compile(r"\.[a-z0-9]{1,10}")
_JOINTS = " -–_.,·"
_EMPTY_BRACKETS = re.compile(r"\(\s*\)|\[\s*\]|\{\s*\}")


def place(template: str, fields: Mapping[str, object], suffix: str) -> PurePosixPath:
    """Where a song belongs, relative to the library's root."""
    suffix = suffix.lower() if _SUFFIX.fullmatch(suffix.lower()) else ""
    texts = [text for part in parsed(template) if (text := _fill(part, fields))]
    texts = texts or [_text("id", fields.get("id")) or NAMELESS]
    room = min(PART_MAX, PATH_MAX // len(texts) - 1)
    if room < 40:
        raise InputInvalid(problem=f'The name template "{template:.60}…" has too many folders.')
    folders = [legal(text, room) for text in texts[:-1]]
    return PurePosixPath(*folders, legal(texts[-1], room - len(suffix)) + suffix)


def legal(text: str, room: int = PART_MAX) -> str:
    """One part of a path: never empty, never `..`, at most `room` bytes."""
    kept = _trim(_plain(text.translate(INSTEAD)))
    if not kept:
        kept = _trim(_plain("".join("_" if char in "?*" else char for char in text))) or "_"
    if kept.partition(".")[0].rstrip().upper() in RESERVED:
        kept = f"_{kept}"
    return kept if len(kept.encode()) <= room else _cut(kept, room)


def _fill(part: list[tuple[str, str | None]], fields: Mapping[str, object]) -> str:
    """The part with its fields; empty when all of them are, and without what joined a missing one."""
    values = [literal if name is None else _text(name, fields.get(name)) for literal, name in part]
    asked = [value for value, (_, name) in zip(values, part, strict=True) if name]
    text = "".join(values)
    if asked and not any(asked):
        return ""
    if not all(asked):
        text = _EMPTY_BRACKETS.sub("", text).strip(_JOINTS)
    return text.strip()


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and name in ("track", "disc", "year"):
        return "" if value <= 0 else f"{value:02}" if name == "track" else str(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return ", ".join(filter(None, (str(one).strip() for one in value)))
    return str(value).strip()


def _plain(text: str) -> str:
    """Without controls, invisible and half characters; one kind of space."""
    if text.isascii() and text.isprintable():
        return text
    shown = []
    for char in unicodedata.normalize("NFC", text):
        kind = unicodedata.category(char)
        if kind in ("Zs", "Zl", "Zp") or char in "\t\n\r\v\f":
            shown.append(" ")
        elif kind[0] != "C" and not "\ufe00" <= char <= "\ufe0f":
            shown.append(char)
    return unicodedata.normalize("NFC", "".join(shown))


def _trim(text: str) -> str:
    return " ".join(text.split()).lstrip(". ~").rstrip(". ")


def _cut(text: str, room: int) -> str:
    """Its beginning, and a mark that tells it from others with the same beginning."""
    mark = "-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    kept = text.encode()[: room - len(mark)].decode("utf-8", "ignore")
    rest = text[len(kept) :]
    while kept and rest and _belongs(rest[0]):
        kept, rest = kept[:-1], kept[-1] + rest
    return (kept.rstrip(" .") or "_") + mark


def _belongs(char: str) -> bool:
    """It changes the character before it: an accent, a skin colour, the second letter of a flag."""
    return (
        unicodedata.category(char)[0] == "M"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U0001f1e6" <= char <= "\U0001f1ff"
    )
