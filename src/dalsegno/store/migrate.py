"""Bring a database to the schema this code knows; refuse one from the future.

One process at a time: whoever starts beside it waits, and finds it done. What makes a migration safe while older
processes still run on the database is in docs/backups.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.errors import DalSegnoError, DatabaseUnavailable, SchemaMissing
from dalsegno.store.notes import UPGRADE, put_note
from dalsegno.store.revisions import SCRIPTS, check, known_revisions
from dalsegno.store.upgrade import Precaution, keep

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.store")

LOCK = 4_770_519
"""PostgreSQL advisory lock held while migrating, so that two processes that start together take turns."""


def ensure_schema(
    store: Store,
    url: sa.URL,
    *,
    migrate: bool = True,
    precaution: Precaution | None = None,
    listen: sa.URL | None = None,
) -> str:
    """The revision the database has now. `listen`: the way to PostgreSQL for its own programs, past a pooler."""
    known = known_revisions()
    found = check(store.read(revision))
    if found == known[-1]:
        return found
    if not migrate:
        raise SchemaMissing(found=found or "none", known=known[-1])
    upgrade(url, known[-1], precaution or Precaution(), listen=listen, now=store.clock.now())
    return known[-1]


def upgrade(
    url: sa.URL,
    target: str,
    precaution: Precaution | None = None,
    *,
    listen: sa.URL | None = None,
    now: datetime | None = None,
) -> None:
    """Run the migrations up to `target` in one transaction, after a backup where a precaution is to be taken."""
    engine = _engine(url)
    try:
        if engine.dialect.name == "postgresql":
            with engine.begin() as connection:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                kept = _kept(connection, url, target, precaution, listen)
                _run(connection, target, kept, now)
        else:
            with _turn(Path(url.database or "")):
                kept = _looked(url, target, precaution)  # writers need not wait for the backup
                with engine.begin() as connection:
                    _run(connection, target, kept, now)
    except (sa.exc.OperationalError, sa.exc.DBAPIError) as error:
        raise _readable(error) from error
    finally:
        engine.dispose()


def _run(connection: sa.Connection, target: str, kept: str, now: datetime | None) -> None:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it announces its plug-ins when it is imported
    from alembic import command  # noqa: PLC0415 - a tenth of a second that a healthy start does not need
    from alembic.config import Config  # noqa: PLC0415

    found = check(_revision(connection))  # whoever had the lock before may have done it
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = connection
    command.upgrade(config, target)
    if found not in (None, target) and now is not None:
        told = {"from": found, "to": target, "at": now.isoformat(), "backup": kept}
        put_note(connection, UPGRADE, told, "dalsegno", now)


def _kept(
    connection: sa.Connection, url: sa.URL, target: str, precaution: Precaution | None, listen: sa.URL | None = None
) -> str:
    found = check(_revision(connection))
    if precaution is None or found is None or found == target:
        return ""
    return keep(connection, url, found, target, precaution, listen)


def _looked(url: sa.URL, target: str, precaution: Precaution | None) -> str:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool, connect_args={"timeout": 60.0})
    try:
        with engine.connect() as connection:
            return _kept(connection, url, target, precaution)
    finally:
        engine.dispose()


@contextlib.contextmanager
def _turn(database: Path) -> Iterator[None]:
    """One process after the other. The lock is gone with the process that had it."""
    lock = Path(f"{database}.upgrade")
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process is changing the schema of %s; waiting for it", database)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                break
        os.close(descriptor)  # whoever had it took it away at the end: what we have locked is nobody's
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _readable(error: sa.exc.DBAPIError) -> DalSegnoError:
    return DatabaseUnavailable(problem=f"its schema could not be prepared: {error.orig}")


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "postgresql":
        # No prepared statements: behind PgBouncer they would be somebody else's.
        how = {"prepare_threshold": None}
        return sa.create_engine(url.set(drivername="postgresql+psycopg"), poolclass=sa.pool.NullPool, connect_args=how)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool, connect_args={"timeout": 60.0})

    # pysqlite would begin late and commit before DDL; this makes the whole upgrade one transaction.
    @sa.event.listens_for(engine, "connect")
    def _no_implicit_begin(connection: Any, _record: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def _begin_immediate(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def revision(tx: Tx) -> str | None:
    """The one the database has; None: it is empty."""
    return _revision(tx.conn)


def _revision(conn: sa.Connection) -> str | None:
    if not sa.inspect(conn).has_table("alembic_version"):
        return None
    row = conn.execute(sa.text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])
