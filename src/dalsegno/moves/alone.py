"""Whether anybody is at work on a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import sqlalchemy as sa

from dalsegno.errors import EngineAlreadyRunning, EngineAtWork
from dalsegno.store.sqlite import SqliteStore

_AT_WORK = "SELECT node, pid FROM processes WHERE lease_until > clock_timestamp() ORDER BY id"


@contextmanager
def only_us(path: Path) -> Iterator[None]:
    """No engine on this SQLite file, and none until the block ends."""
    store = SqliteStore(path)
    try:
        release = store.hold_engine()
    except EngineAlreadyRunning as error:
        who = f"process {error.details['pid']} runs an engine on it"
        raise EngineAtWork(database=f"sqlite:///{path}", who=who) from None
    finally:
        store.close()
    try:
        yield
    finally:
        release()


def nobody_at_work(connection: psycopg.Connection, url: sa.URL) -> None:
    """No process on this PostgreSQL database has a lease that is still good."""
    found = connection.execute("SELECT to_regclass('processes') IS NOT NULL").fetchone()
    if found is None or not found[0]:
        return
    rows = connection.execute(_AT_WORK).fetchall()
    if rows:
        first = ", ".join(f"process {pid} on {node}" for node, pid in rows[:3])
        who = first if len(rows) <= 3 else f"{first} and {len(rows) - 3} more"
        raise EngineAtWork(database=url.render_as_string(hide_password=True), who=f"{who} at work on it")
