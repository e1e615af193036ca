"""What a list can be asked: its keys, what they may be, and how a term becomes a condition."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa

from dalsegno.clock import as_utc
from dalsegno.insight.query import Query, Term, Value, mistake, renamed

Condition = sa.ColumnElement[bool]
Where = Callable[[Value, datetime], Condition]
"""From one value and the time it is now to a condition."""

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_NUMBER = re.compile(r"\d{1,18}")


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    help: str
    where: Where
    kind: Literal["word", "text", "number", "id", "age", "size", "moment"] = "word"
    values: tuple[str, ...] = ()
    """All it may be; empty: anything."""
    names: Callable[[Value], str | sa.Select[Any]] | None = None
    """For a list of items: the keys of those it is about, where these can be told."""
    services: tuple[str, ...] = ()
    """The services that have items about these."""

    @property
    def example(self) -> str:
        if self.values:
            return f"{self.name}:{self.values[0]}"
        shown = {"number": ">=2", "id": "12", "age": ">10m", "size": ">10MB", "moment": ">=2026-01-31"}
        return f"{self.name}:{shown.get(self.kind, '…')}"


@dataclass(frozen=True, slots=True)
class Grammar:
    what: str
    """What is listed, in the plural."""
    keys: dict[str, Key]
    text: Callable[[str], Condition]
    """What a free text means."""

    def extended(self, *keys: Key, text: Callable[[str], Condition] | None = None) -> Grammar:
        """The same with more keys; a free text may also be found elsewhere."""
        mine = self.text
        more = text

        def both(word: str) -> Condition:
            return mine(word) if more is None else sa.or_(mine(word), more(word))

        return replace(self, keys={**self.keys, **{key.name: key for key in keys}}, text=both)

    def checked(self, term: Term, position: int) -> Term:
        if not term.key:
            return term
        key = self.keys.get(term.key)
        if key is None:
            said = f'{self.what.capitalize()} have no "{term.key}" to ask for.'
            raise mistake("key_unknown", position, said=said, near=term.key, known=self.keys, key=term.key)
        return renamed(term, key.name, (_checked(key, value, position) for value in term.values))

    def where(self, query: Query, now: datetime, *, but: Iterable[str] = ()) -> list[Condition]:
        """The query as conditions, all of which must hold; `but` names keys that are seen to elsewhere."""
        done = set(but)
        return [self.condition(term, now) for term in query.terms if term.key not in done]

    def condition(self, term: Term, now: datetime) -> Condition:
        if term.key:
            key = self.keys[term.key]
            found = [key.where(value, now) for value in term.values]
        else:
            found = [self.text(value.text) for value in term.values]
        held = found[0] if len(found) == 1 else sa.or_(*found)
        # Of what is not known nothing is true: without this, `-error:429` would leave out whatever has no error.
        return sa.not_(sa.func.coalesce(held, sa.false())) if term.negated else held


def grammar(what: str, text: Callable[[str], Condition], *keys: Key) -> Grammar:
    return Grammar(what, {key.name: key for key in keys}, text)


# --- what a value may be ----------------------------------------------------------------------------


def _checked(key: Key, value: Value, position: int) -> Value:
    if key.values:
        if value.text.lower() not in key.values:
            near, text = value.text.lower(), f"{value.text:.60}"
            raise mistake("value_unknown", position, near=near, known=key.values, text=text, key=key.name)
        value = Value(value.text.lower(), value.operator)
    if key.kind in ("word", "text", "id") and value.operator:
        raise mistake("no_size", position, key=key.name, operator=value.operator)
    if key.kind in ("word", "text"):
        return value
    amount = {"number": _number, "id": _number, "age": seconds_of, "size": bytes_of, "moment": moment_of}[key.kind](
        value.text
    )
    if amount is None:
        raise mistake(f"not_{key.kind}", position, key=key.name, text=f"{value.text:.60}")
    return value


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) and text.isascii() else None


def seconds_of(text: str) -> float | None:
    found = _AGE.fullmatch(text.lower()) if text.isascii() else None
    seconds = None if found is None else float(found[1]) * _SECONDS[found[2]]
    return None if seconds is None or seconds > 36525 * 86400 else seconds


def bytes_of(text: str) -> int | None:
    found = _SIZE.fullmatch(text) if text.isascii() else None
    return None if found is None else min(int(float(found[1]) * 1000 ** _POWERS[found[2].lower()]), 2**62)


def moment_of(text: str) -> datetime | None:
    """In UTC where it does not say."""
    try:
        found = as_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None
    return found if 1900 < found.year < 9000 else None


# --- conditions that many lists share ---------------------------------------------------------------


def compared(column: Any, operator: str, value: Any) -> Condition:
    match operator:
        case ">":
            found = column > value
        case ">=":
            found = column >= value
        case "<":
            found = column < value
        case "<=":
            found = column <= value
        case _:
            found = column == value
    return found  # type: ignore[no-any-return]


def word(column: Any) -> Where:
    """The same word; `*` stands for anything."""

    def where(value: Value, _now: datetime) -> Condition:
        if "*" in value.text:
            patterns = [like(text).replace("*", "%") for text in forms(value.text)]
            return sa.or_(*(column.like(pattern, escape="\\") for pattern in patterns))
        return sa.or_(*(column == text for text in forms(value.text)))

    return where


def number(column: Any) -> Where:
    return lambda value, _now: compared(column, value.operator, int(value.text))


def size(column: Any) -> Where:
    return lambda value, _now: compared(column, value.operator, bytes_of(value.text))


def age(column: Any) -> Where:
    """How long ago. Without a comparison: at most so long."""
    turned = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "": ">="}

    def where(value: Value, now: datetime) -> Condition:
        ago = now - timedelta(seconds=seconds_of(value.text) or 0)
        return compared(column, turned[value.operator], ago)

    return where


def moment(column: Any) -> Where:
    """When. Without a comparison: within the day, or the second, that was named."""

    def where(value: Value, _now: datetime) -> Condition:
        at = moment_of(value.text)
        assert at is not None
        if value.operator:
            return compared(column, value.operator, at)
        whole = timedelta(days=1) if len(value.text) <= len("2026-01-31") else timedelta(seconds=1)
        return sa.and_(column >= at, column < at + whole)

    return where


def containing(*columns: Any) -> Callable[[str], Condition]:
    """A free text in any of these columns, whatever its case (in ASCII, on SQLite)."""

    def where(text: str) -> Condition:
        patterns = [f"%{like(form)}%" for form in forms(text)]
        return sa.or_(*(column.ilike(pattern, escape="\\") for column in columns for pattern in patterns))

    return where


def forms(text: str) -> tuple[str, ...]:
    """As it may be written down: names of files from a Mac have accents, and syllables of Korean, in pieces."""
    if text.isascii():
        return (text,)
    return tuple(dict.fromkeys((text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD")))))


def like(text: str) -> str:
    """A text as a pattern that finds nothing but it."""
    return re.sub(r"([\\%_])", r"\\\1", text)
