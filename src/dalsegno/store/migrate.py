"""Bring a database to the schema this code knows; refuse one from the future."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.errors import DalSegnoError, DatabaseUnavailable, SchemaMissing, SchemaNewer

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

SCRIPTS = Path(__file__).parent / "migrations"
LOCK = 4_770_519
"""PostgreSQL advisory lock held while migrating, so that two processes that start together take turns."""


def known_revisions() -> list[str]:
    """The revisions this code carries, oldest first: the four digits that open each file's name."""
    return sorted(path.name[:4] for path in (SCRIPTS / "versions").glob("[0-9][0-9][0-9][0-9]_*.py"))


def ensure_schema(store: Store, url: sa.URL, *, migrate: bool = True) -> str:
    """The revision the database has now."""
    known = known_revisions()
    found = store.read(revision)
    if found == known[-1]:
        return found
    if found is not None and found not in known:
        raise SchemaNewer(found=found, known=known[-1])
    if not migrate:
        raise SchemaMissing(found=found or "none", known=known[-1])
    upgrade(url, known[-1])
    return known[-1]


def upgrade(url: sa.URL, target: str) -> None:
    """Run the migrations up to `target` in one transaction."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it announces its plug-ins when it is imported
    from alembic import command  # noqa: PLC0415 - a tenth of a second that a healthy start does not need
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    engine = _engine(url)
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
            config.attributes["connection"] = connection
            command.upgrade(config, target)
    except (sa.exc.OperationalError, sa.exc.DBAPIError) as error:
        raise _readable(error) from error
    finally:
        engine.dispose()


def _readable(error: sa.exc.DBAPIError) -> DalSegnoError:
    return DatabaseUnavailable(problem=f"its schema could not be prepared: {error.orig}")


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "postgresql":
        return sa.create_engine(url.set(drivername="postgresql+psycopg"), poolclass=sa.pool.NullPool)
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
    if not sa.inspect(tx.conn).has_table("alembic_version"):
        return None
    row = tx.conn.execute(sa.text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])
