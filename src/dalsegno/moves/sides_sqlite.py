"""A SQLite file as one side of a move. Nobody else writes to it meanwhile."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dalsegno.clock import Clock
from dalsegno.moves.sides import BATCH, Side, question, quoted
from dalsegno.moves.values import Row
from dalsegno.store.notes import MOVED
from dalsegno.store.schema import to_text


class SqliteSide(Side):
    def __init__(self, path: Path, clock: Clock) -> None:
        self.name = f"sqlite:///{path}"
        self._clock = clock
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._connection.execute("PRAGMA foreign_keys=OFF")
        self._connection.execute("PRAGMA cache_size=-64000")
        self._connection.execute("BEGIN IMMEDIATE")
        self._triggers: list[tuple[str, str]] = []

    def count(self, table: sa.Table) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM ({_asked(table)})").fetchone()[0])  # noqa: S608

    def rows(self, table: sa.Table) -> Iterator[list[Row]]:
        cursor = self._connection.execute(_asked(table))
        while rows := cursor.fetchmany(BATCH):
            yield rows

    def fill(self, table: sa.Table) -> Callable[[list[Row]], None]:
        self._connection.execute(f'DELETE FROM "{table.name}"')  # noqa: S608
        places = ", ".join("?" for _ in table.columns)
        statement = f'INSERT INTO "{table.name}" ({quoted(table)}) VALUES ({places})'  # noqa: S608

        def put(rows: list[Row]) -> None:
            self._connection.executemany(statement, rows)

        return put

    def prepare(self) -> None:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        self._triggers = self._connection.execute(query).fetchall()
        for name, _ in self._triggers:
            self._connection.execute(f'DROP TRIGGER "{name}"')

    def finish(self) -> None:
        for _, statement in self._triggers:
            self._connection.execute(statement)
        wrong = self._connection.execute("PRAGMA foreign_key_check").fetchone()
        if wrong is not None:
            raise ValueError(f"{wrong[0]} refers to a row of {wrong[2]} that is not there")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def note(self, value: dict[str, Any]) -> None:
        """In the transaction in which it was read: nothing was written in between."""
        row = (MOVED, json.dumps(value), "migrate", to_text(self._clock.now()))
        self._connection.execute(
            "INSERT OR REPLACE INTO system_settings (key, value, updated_by, updated_at) VALUES (?, ?, ?, ?)", row
        )
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def _asked(table: sa.Table) -> str:
    return question(table, lambda column: f'"{column.name}"')
