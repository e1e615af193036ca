"""Rows as both databases mean them, and what all rows of a table come to, in whatever order they are read.

A neutral row has numbers, texts and None; times are text in UTC, JSON is text, truth is 0 or 1: as SQLite keeps them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

import sqlalchemy as sa

from dalsegno.store.schema import UtcTime

Row = Sequence[Any]
BITS = 128
EXACT = Context(prec=2_000)
_MODULUS = 1 << BITS


def kind_of(column: sa.Column[Any]) -> str:
    """`time`, `json`, `bool`, `int`, `float` or `text`."""
    match column.type:
        case UtcTime():
            return "time"
        case sa.JSON():
            return "json"
        case sa.Boolean():
            return "bool"
        case sa.Integer():
            return "int"
        case sa.Float():
            return "float"
        case sa.Text():
            return "text"
    raise TypeError(f"{column} has a type that is not moved: {column.type}")


class Tally:
    """The sum of every row's hash: the same for the same rows, whichever comes first, and how many they are."""

    def __init__(self, table: sa.Table) -> None:
        kinds = [kind_of(column) for column in table.columns]
        self.rows = 0
        self.total = 0
        self._read: list[Callable[[Any], str] | None] = [_MEANING[kind] for kind in kinds]

    def add(self, rows: Iterable[Row]) -> None:
        total, count, read = self.total, 0, self._read
        for row in rows:
            told = "\x1f".join(
                "\x00" if value is None else (str(value) if how is None else how(value))
                for value, how in zip(row, read, strict=True)
            )
            digest = hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=BITS // 8).digest()
            total += int.from_bytes(digest, "big")
            count += 1
        self.total, self.rows = total % _MODULUS, self.rows + count

    @property
    def checksum(self) -> str:
        return f"{self.total:0{BITS // 4}x}"


def _json(text: Any) -> str:
    """PostgreSQL keeps what JSON means, not how it was written; SQLite makes a number of what is one."""
    told = repr(text) if isinstance(text, float) else str(text)
    if told in ("{}", "[]", "null"):
        return told
    return json.dumps(_plain(json.loads(told, parse_float=Decimal)), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """1.0 and 1 are one number there, and so are 1e3 and 1000."""
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value(context=EXACT)
        return int(value) if whole else f"\x00{value.normalize(EXACT):f}"
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _float(value: float) -> str:
    return repr(float(value))


_MEANING: dict[str, Callable[[Any], str] | None] = {
    "json": _json,
    "float": _float,
    "time": None,
    "bool": None,
    "int": None,
    "text": None,
}
