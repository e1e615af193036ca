"""A PostgreSQL database as one side of a move. Whoever writes to it waits meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from dalsegno.clock import Clock
from dalsegno.moves.sides import EVENTS, SUMMED, Side, question, quoted
from dalsegno.moves.tables import in_order
from dalsegno.moves.values import Row, kind_of
from dalsegno.store.line import words_of
from dalsegno.store.notes import MOVED

CHUNK = 1 << 18
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_READ = {
    "time": """to_char("{0}" AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
    "json": '"{0}"::text',
    "bool": '"{0}"::int',
}
# Checked all at once when everything is there, not row by row.
_REFERENCES = """
    SELECT c.relname, r.conname, pg_get_constraintdef(r.oid) FROM pg_constraint r JOIN pg_class c ON c.oid = r.conrelid
    WHERE r.contype = 'f' AND r.conparentid = 0 AND r.connamespace = current_schema()::regnamespace
"""
# Events keep their numbers, among which months in the archive have their place. Their key here is of two columns: where
# a number was given twice, all are numbered anew.
_TWICE = "SELECT FROM events GROUP BY id HAVING count(*) > 1 LIMIT 1"
_BACK = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r", "\\b": "\b", "\\f": "\f", "\\v": "\v"}


class PostgresSide(Side):
    def __init__(self, url: sa.URL, clock: Clock, *, source: bool) -> None:
        self.name = url.render_as_string(hide_password=True)
        self._clock = clock
        self._connection = psycopg.connect(words_of(url), application_name="dalsegno migrate", prepare_threshold=None)
        if source:
            every = sql.SQL(", ").join(sql.Identifier(table.name) for table in in_order())
            self._connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(every))
        self._anew = source and self._connection.execute(_TWICE).fetchone() is not None
        self._back: list[bytes] = []
        self._slots: list[int] = []

    def count(self, table: sa.Table) -> int:
        row = self._connection.execute(f"SELECT count(*) FROM ({self._asked(table)}) AS asked".encode()).fetchone()  # noqa: S608
        assert row is not None
        return int(row[0])

    def rows(self, table: sa.Table) -> Iterator[list[Row]]:
        read = [_NUMBER.get(kind_of(column), _text) for column in table.columns]
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY ({self._asked(table)}) TO STDOUT".encode()) as copy,
        ):
            for lines in _lines(copy):
                yield [
                    [None if text == "\\N" else how(text) for text, how in zip(line.split("\t"), read, strict=True)]
                    for line in lines
                ]

    def _asked(self, table: sa.Table) -> str:
        def spell(column: sa.Column[Any]) -> str:
            if self._anew and (table.name, column.name) == (EVENTS, "id"):
                return "row_number() OVER (ORDER BY id, tx)"
            return _READ.get(kind_of(column), '"{0}"').format(column.name)

        return question(table, spell)

    def fill(self, table: sa.Table) -> Callable[[list[Row]], None]:
        self._connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name)))
        query = f'COPY "{table.name}" ({quoted(table)}) FROM STDIN'
        cursor = self._connection.cursor()
        opened = cursor.copy(query.encode())
        copy = opened.__enter__()

        def put(rows: list[Row]) -> None:
            if rows:
                copy.write("".join(map(_line, rows)).encode("utf-8"))
            else:
                opened.__exit__(None, None, None)
                cursor.close()

        return put

    def prepare(self) -> None:
        self._slots = [row[0] for row in self._connection.execute(f"SELECT slot FROM {SUMMED}")]  # noqa: S608
        query = """
            SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
            WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND c.relnamespace = current_schema()::regnamespace
        """
        for table, name in self._connection.execute(query).fetchall():
            what = {"table": sql.Identifier(table), "name": sql.Identifier(name)}
            self._connection.execute(sql.SQL("ALTER TABLE {table} DISABLE TRIGGER {name}").format(**what))
            on = sql.SQL("ALTER TABLE {table} ENABLE TRIGGER {name}").format(**what)
            self._back.append(on.as_bytes(self._connection))
        for table, name, meant in self._connection.execute(_REFERENCES).fetchall():
            what = {"table": sql.Identifier(table), "name": sql.Identifier(name)}
            self._connection.execute(sql.SQL("ALTER TABLE {table} DROP CONSTRAINT {name}").format(**what))
            again = sql.SQL("ALTER TABLE {table} ADD CONSTRAINT {name} ").format(**what)
            self._back.append(again.as_bytes(self._connection) + meant.encode())

    def finish(self) -> None:
        for statement in self._back:
            self._connection.execute(statement)
        with self._connection.cursor() as cursor:
            again = f"INSERT INTO {SUMMED} (slot) VALUES (%s) ON CONFLICT DO NOTHING"  # noqa: S608
            cursor.executemany(again.encode(), [(slot,) for slot in self._slots])
        for table in in_order():
            for column in table.primary_key.columns:
                self._go_on_after(table.name, column.name)

    def _go_on_after(self, table: str, column: str) -> None:
        found = self._connection.execute("SELECT pg_get_serial_sequence(%s, %s)", (f'"{table}"', column)).fetchone()
        if found is None or found[0] is None:
            return
        highest = sql.SQL("SELECT setval(%s::regclass, greatest(max({}), 1), max({}) IS NOT NULL) FROM {}").format(
            sql.Identifier(column), sql.Identifier(column), sql.Identifier(table)
        )
        self._connection.execute(highest, (found[0],))

    def commit(self) -> None:
        self._connection.commit()

    def note(self, value: dict[str, Any]) -> None:
        self._connection.execute(
            """INSERT INTO system_settings (key, value, updated_by, updated_at) VALUES (%s, %s, 'migrate', %s)
               ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at""",
            (MOVED, json.dumps(value), self._clock.now()),
        )
        self._connection.commit()

    def analyze(self) -> None:
        self._connection.autocommit = True
        self._connection.execute("ANALYZE")

    def close(self) -> None:
        self._connection.close()


def _lines(copy: Iterable[Any]) -> Iterator[list[str]]:
    """What the server sends, in lines, many at a time. It may cut where it likes."""
    held, size = [], 0
    for block in copy:
        held.append(bytes(block))
        size += len(held[-1])
        if size >= CHUNK:
            whole, newline, rest = b"".join(held).rpartition(b"\n")
            if newline:
                yield whole.decode("utf-8").split("\n")
            held, size = [rest], len(rest)
    text = b"".join(held).decode("utf-8")
    if text:
        yield text.removesuffix("\n").split("\n")


def _line(row: Row) -> str:
    return (
        "\t".join(
            "\\N" if value is None else (value.translate(_ESCAPES) if isinstance(value, str) else repr(value))
            for value in row
        )
        + "\n"
    )


def _text(text: str) -> str:
    if "\\" not in text:
        return text
    parts = text.split("\\\\")
    for mark, meant in _BACK.items():
        if mark != "\\\\":
            parts = [part.replace(mark, meant) for part in parts]
    return "\\".join(parts)


_NUMBER: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": int}
