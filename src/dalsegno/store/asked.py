"""A small question as a driver gets it, past SQLAlchemy: for what is asked so often that making it costs the most."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite

from dalsegno.store.schema import UtcTime, from_text

Reader = Callable[[Any], Any] | None


class Asked(NamedTuple):
    text: str
    places: tuple[str, ...]
    """The names of its parameters, in order, where the driver wants them so."""
    given: dict[str, Any]
    """Parameters that the question brings along, such as its limit."""
    names: tuple[str, ...]
    readers: tuple[Reader, ...]
    """How to read each column of the answer."""

    def read(self, rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
        return [
            {
                name: value if value is None or read is None else read(value)
                for name, read, value in zip(self.names, self.readers, row, strict=True)
            }
            for row in rows
        ]


@cache
def for_sqlite(statement: sa.Select[Any]) -> Asked:
    return _asked(statement, pysqlite.dialect(), {sa.JSON: json.loads, UtcTime: from_text})


@cache
def for_postgres(statement: sa.Select[Any]) -> Asked:
    return _asked(statement, psycopg.dialect(), {UtcTime: _in_utc})  # type: ignore[no-untyped-call]


def _asked(statement: sa.Select[Any], dialect: sa.Dialect, reading: dict[type, Callable[[Any], Any]]) -> Asked:
    compiled = statement.compile(dialect=dialect)
    columns = list(statement.selected_columns)
    readers = tuple(
        next((read for kind, read in reading.items() if isinstance(column.type, kind)), None) for column in columns
    )
    given = {name: value for name, value in compiled.params.items() if value is not None}
    names = tuple(column.name for column in columns)
    return Asked(str(compiled), tuple(compiled.positiontup or ()), given, names, readers)


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
