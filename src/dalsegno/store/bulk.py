"""One statement for many rows, past SQLAlchemy on SQLite: it takes longer over each row than the database does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from dalsegno.store.schema import UtcTime, to_text

Statement = sa.Insert | sa.Update | sa.Delete


@cache
def _compiled(statement: Statement) -> tuple[str, tuple[tuple[str, Callable[[Any], Any] | None, Any], ...]]:
    """The text, and for each place in it the parameter's name, how to write it, and its value where it has one."""
    compiled = statement.compile(dialect=sqlite.dialect())
    places = []
    for name in compiled.positiontup or ():
        bound = compiled.binds[name]
        write = to_text if isinstance(bound.type, UtcTime) else None
        places.append((name, write, None if bound.required else bound.value))
    return str(compiled), tuple(places)


def run_many(conn: sa.Connection, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
    """Like `conn.execute(statement, rows)`. The statement is a constant: it is compiled once and kept for good. Its
    columns are texts, numbers and times."""
    if not rows:
        return
    if conn.dialect.name != "sqlite":
        conn.execute(statement, list(rows))
        return
    text, places = _compiled(statement)
    raw: Any = conn.connection.driver_connection
    raw.executemany(text, [tuple(_value(row, *place) for place in places) for row in rows])


def _value(row: Mapping[str, Any], name: str, write: Callable[[Any], Any] | None, default: Any) -> Any:
    value = row.get(name, default)
    return value if write is None or value is None else write(value)
