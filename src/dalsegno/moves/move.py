"""Move everything from one database to another, and prove that it arrived.

The target is filled in one transaction, so a move that is interrupted has not happened. While it lasts nobody writes to
the source; afterwards a note in it says where everything is now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy as sa

from dalsegno import faults
from dalsegno.clock import Clock, SystemClock
from dalsegno.errors import MoveFailed, RestoreRefused, SchemaMissing
from dalsegno.moves.alone import nobody_at_work, only_us
from dalsegno.moves.sides import Side
from dalsegno.moves.sides_postgres import PostgresSide
from dalsegno.moves.sides_sqlite import SqliteSide
from dalsegno.moves.tables import in_order
from dalsegno.moves.values import Tally
from dalsegno.store.backup import file_of
from dalsegno.store.backup_postgres import connected
from dalsegno.store.manifest import Told, untold
from dalsegno.store.migrate import revision
from dalsegno.store.open import open_store
from dalsegno.store.postgres import PostgresStore
from dalsegno.store.revisions import check, known_revisions
from dalsegno.store.sqlite import SqliteStore
from dalsegno.store.upgrade import is_vacant


@dataclass(frozen=True, slots=True)
class Arrived:
    """A table, as it is on both sides."""

    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Moved:
    source: str
    target: str
    schema: str
    tables: dict[str, Arrived]

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())


def move(source: sa.URL, target: sa.URL, *, clock: Clock | None = None, told: Told = untold) -> Moved:
    now = clock or SystemClock()
    if _same(source, target):
        raise RestoreRefused(database=_name(target), problem="that is the database everything is in already.")
    with ExitStack() as stack:
        _alone(stack, source)
        schema = _schema(source)
        _vacant(target)
        _alone(stack, target)
        origin = stack.enter_context(closing(_side(source, now, source=True)))
        goal = stack.enter_context(closing(_side(target, now, source=False)))
        with _whole(goal):
            sent = _fill(origin, goal, told)
            faults.point("move.filled")
            _compare(goal, sent, told)
            goal.commit()
        faults.point("move.committed")
        origin.note({"to": goal.name, "at": now.now().isoformat()})
        if isinstance(goal, PostgresSide):
            goal.analyze()
    return Moved(
        origin.name, goal.name, schema, {name: Arrived(each.rows, each.checksum) for name, each in sent.items()}
    )


@contextmanager
def _whole(goal: Side) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, sqlite3.Error, ValueError, OSError) as error:
        raise MoveFailed(target=goal.name, problem=str(error).strip()) from error


def _fill(origin: Side, goal: Side, told: Told) -> dict[str, Tally]:
    total, done = sum(origin.count(table) for table in in_order()), 0
    goal.prepare()
    sent: dict[str, Tally] = {}
    for table in in_order():
        tally = sent[table.name] = Tally(table)
        put = goal.fill(table)
        for rows in origin.rows(table):
            put(rows)
            tally.add(rows)
            done += len(rows)
            told("moving rows", done, total)
            faults.point("move.rows")
        put([])
    goal.finish()
    return sent


def _compare(goal: Side, sent: dict[str, Tally], told: Told) -> None:
    """Read everything back; what came is what was sent, table by table."""
    total, done = sum(tally.rows for tally in sent.values()), 0
    for table in in_order():
        tally = Tally(table)
        for rows in goal.rows(table):
            tally.add(rows)
            done += len(rows)
            told("checking rows", done, total)
        wanted = sent[table.name]
        if (tally.rows, tally.total) != (wanted.rows, wanted.total):
            problem = f"{table.name}: {wanted.rows:,} rows with checksum {wanted.checksum} were sent, and "
            problem += f"{tally.rows:,} with {tally.checksum} arrived."
            raise MoveFailed(target=goal.name, problem=problem)


def _name(url: sa.URL) -> str:
    return url.render_as_string(hide_password=True)


def _same(one: sa.URL, other: sa.URL) -> bool:
    if one.get_backend_name() != other.get_backend_name():
        return False
    if one.get_backend_name() == "sqlite":
        return Path(one.database or "").resolve() == Path(other.database or "").resolve()
    return (one.host, one.port, one.database, one.query) == (other.host, other.port, other.database, other.query)


def _alone(stack: ExitStack, url: sa.URL) -> None:
    if url.get_backend_name() == "sqlite":
        stack.enter_context(only_us(Path(url.database or "").absolute()))
        return
    with connected(url) as connection:
        nobody_at_work(connection, url)


def _schema(url: sa.URL) -> str:
    """Of the source, which has to be that of this code: it is not changed for the move."""
    store = SqliteStore(file_of(url)) if url.get_backend_name() == "sqlite" else PostgresStore(url)
    with closing(store):
        found = check(store.read(revision))
    known = known_revisions()[-1]
    if found != known:
        raise SchemaMissing(found=found or "none", known=known)
    return known


def _vacant(url: sa.URL) -> None:
    """A target without work in it, with the schema of this code."""
    with closing(open_store(url.render_as_string(hide_password=False))) as store:
        if not store.read(lambda tx: is_vacant(tx.conn)):
            problem = "there is work in it. Everything is moved into an empty database: name another, or empty it."
            raise RestoreRefused(database=_name(url), problem=problem)


def _side(url: sa.URL, clock: Clock, *, source: bool) -> Side:
    if url.get_backend_name() == "sqlite":
        return SqliteSide(Path(url.database or "").absolute(), clock)
    return PostgresSide(url, clock, source=source)
