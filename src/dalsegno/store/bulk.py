"""One statement for many rows, past SQLAlchemy on SQLite: it takes longer over each row than the database does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from dalsegno.store.schema import UtcTime, to_text

Statement = sa.Insert | sa.Update | sa.Delete


@cache
def _compiled(statement: Statement) -> tuple[str, tuple[tuple[str, Any], ...], tuple[int, ...]]:
    """The text; for each place in it the parameter's name, and its value where it has one; which of them are times."""
    compiled = statement.compile(dialect=sqlite.dialect())
    bound = [(name, compiled.binds[name]) for name in compiled.positiontup or ()]
    places = tuple((name, None if each.required else each.value) for name, each in bound)
    times = tuple(place for place, (_, each) in enumerate(bound) if isinstance(each.type, UtcTime))
    return str(compiled), places, times


def run_many(conn: sa.Connection, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> None:
    """Like `conn.execute(statement, rows)`. The statement is a constant: it is compiled once and kept for good. Its
    columns are texts, numbers and times."""
    if not rows:
        return
    if conn.dialect.name != "sqlite":
        conn.execute(statement, list(rows))
        return
    text, places, times = _compiled(statement)
    values = [[row.get(name, default) for name, default in places] for row in rows]
    for place in times:
        for each in values:
            if each[place] is not None:
                each[place] = to_text(each[place])
    raw: Any = conn.connection.driver_connection
    raw.executemany(text, values)
