"""A SQLite database copied page by page while it is written to, as it was at one moment.

One read transaction on the source lasts for the whole copy. Without it SQLite would begin again at every commit of
another process, and under load never end. Writers do not wait for it; their log grows until it is over.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dalsegno.errors import BackupDamaged
from dalsegno.store.manifest import Told, untold

STEP = 1024
"""Pages at once: 4 MB, a few milliseconds."""
FORMAT = 18
"""Where a database says how it is written to and read."""
BREATH = 0.002
"""Seconds between two steps, in which the disk is the engine's."""


def copy_database(source: Path, target: Path, told: Told = untold) -> None:
    """Into a file that is one file: no log beside it. What is at `target` is overwritten."""
    with closing(sqlite3.connect(source, timeout=30)) as origin, closing(_writer(target)) as copy:
        origin.execute("PRAGMA query_only=ON")
        origin.isolation_level = None
        origin.execute("BEGIN")
        origin.execute("SELECT count(*) FROM sqlite_master").fetchone()

        def step(_status: int, remaining: int, total: int) -> None:
            told("copying pages", total - remaining, total)
            time.sleep(BREATH)

        origin.backup(copy, pages=STEP, progress=step)
        origin.execute("ROLLBACK")
    with target.open("r+b") as file:
        file.seek(FORMAT)
        file.write(b"\x01\x01")  # not in WAL mode: who reads it needs no files beside it


def _writer(path: Path) -> sqlite3.Connection:
    """Without locks, which network shares do not have, and without a journal: until it is whole nobody reads it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?nolock=1", uri=True)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA journal_mode=OFF")
    return connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A backup that nobody writes to."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            yield connection
    except sqlite3.DatabaseError as error:
        raise BackupDamaged(path=path, problem=f"it is not a healthy SQLite database: {error}") from None


def verify(path: Path, told: Told = untold) -> dict[str, int]:
    """Reads all of it: every page, every index. Rows by table; an error where something is wrong."""
    with reading(path) as connection:
        told("checking pages", 0, 1)
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
        if problems != ["ok"]:
            raise BackupDamaged(path=path, problem="; ".join(problems))
        told("checking pages", 1, 1)
        names = tables(connection)
        counts = {}
        for done, name in enumerate(names, 1):
            counts[name] = int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0])  # noqa: S608
            told("counting rows", done, len(names))
        return counts


def tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [row[0] for row in connection.execute(query)]


def schema_of(path: Path) -> str:
    with reading(path) as connection:
        if "alembic_version" not in tables(connection):
            raise BackupDamaged(path=path, problem="it is a database of something else.")
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(row[0]) if row else "none"


def places_of(path: Path) -> list[dict[str, str]]:
    with reading(path) as connection:
        if "object_storage_backends" not in tables(connection):
            return []
        rows = connection.execute("SELECT kind, url FROM object_storage_backends ORDER BY id")
        return [{"kind": kind, "url": url} for kind, url in rows]
