"""Reading answers that may not look as they are documented: what can be read is, and what was odd is remembered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dalsegno.engine.item import storable

TEXT_MAX = 2000
NOTES_MAX = 20
NAME_MAX = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Reader:
    """Of one answer. Every read gives a value of the right kind, or none."""

    def __init__(self) -> None:
        self._notes: dict[str, int] = {}
        self.lost = 0
        """How often something could not be read. A field too many is odd, but loses nothing."""

    @property
    def drift(self) -> tuple[str, ...]:
        """What was odd, each kind of thing once, with how often."""
        kinds = list(self._notes.items())
        said = [text if count == 1 else f"{text} ({count} times)" for text, count in kinds[:NOTES_MAX]]
        return (*said, f"and {len(kinds) - NOTES_MAX} other things") if len(kinds) > NOTES_MAX else tuple(said)

    def odd(self, text: str) -> None:
        self.lost += 1
        self._note(text)

    def unknown(self, where: str, form: Mapping[str, Any], known: Iterable[str]) -> None:
        """Fields that nobody has told us of. They are let alone."""
        for name in sorted(form.keys() - set(known), key=str):
            self._note(f'unknown field "{shown(name)}" in {where}')

    def form(self, where: str, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        if value is not None:
            self.odd(f"{where} is {_kind(value)}, not an object")
        return {}

    def text(self, where: str, form: Mapping[str, Any], name: str, *, needed: bool = False) -> str:
        value = form.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = f"{value:g}" if isinstance(value, float) else str(value)
        if isinstance(value, str):
            if plain := _CONTROL.sub(" ", storable(value)).strip()[:TEXT_MAX]:
                return plain
        elif value is not None:
            self.odd(f"{where}.{name} is {_kind(value)}, not a text")
            return ""
        if needed:
            self.odd(f"{where}.{name} is missing")
        return ""

    def number(self, where: str, form: Mapping[str, Any], name: str) -> int | None:
        value = form.get(name)
        found = whole(value)
        if found is None and value not in (None, ""):
            self.odd(f"{where}.{name} is {_kind(value)}, not a whole number")
        return found

    def _note(self, text: str) -> None:
        self._notes[text] = self._notes.get(text, 0) + 1


def whole(value: Any) -> int | None:
    """A number from 0 that fits any database, however it is written."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**31 or value != int(value):
        return None
    return int(value)


def shown(name: Any) -> str:
    """A name from outside as it may stand in a log line or a header."""
    return re.sub(r"[^\w.-]+", "_", str(name)[:NAME_MAX], flags=re.ASCII) or "_"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"
