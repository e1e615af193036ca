"""What happens before a schema is changed: a backup, if there is anything to lose."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa

from dalsegno.errors import BackupNoRoom, DalSegnoError, UpgradeNeedsBackup, UpgradeNeedsRoom
from dalsegno.store.backup import backup, file_of, room_for
from dalsegno.store.past import past_pooler_of

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger("dalsegno.store")

RESERVE = 64 << 20
"""Bytes that must stay free beside the backup: the change itself and the log need some."""
CONTENT = (
    "jobs", "workflows", "config_revisions", "playlist_pools", "playlists", "songs", "contents", "schedules",
    "commands",
)  # fmt: skip
"""A database with nothing in any of these was never used."""


@dataclass(frozen=True, slots=True)
class Precaution:
    """How to go about a change of the schema."""

    folder: Path | None = None
    """Where the backup goes; None: beside a SQLite database, and of PostgreSQL there is none."""
    tools: Path | None = None
    """PostgreSQL's programs, where they are not on PATH."""
    wanted: bool = True
    attended: bool = False
    """Somebody is there to decide. Otherwise PostgreSQL's schema is changed even where no backup can be made: it is one
    transaction, and a service that does not come up after an upgrade helps nobody."""


def is_vacant(conn: sa.Connection) -> bool:
    """Nothing that anybody would miss is in it."""
    there = set(sa.inspect(conn).get_table_names())
    asked = [sa.select(sa.literal(1)).select_from(sa.table(name)).limit(1) for name in CONTENT if name in there]
    return not any(conn.execute(query).first() for query in asked)


def keep(
    conn: sa.Connection, url: sa.URL, found: str, known: str, precaution: Precaution, listen: sa.URL | None = None
) -> str:
    """The backup that was made, or why there is none. `listen`: the way to the server where a pooler is between."""
    if not precaution.wanted:
        logger.warning("no backup is made before the schema changes from %s to %s, as asked for", found, known)
        return "none, as asked for"
    if is_vacant(conn):
        return "none, since there was nothing in it"
    if url.get_backend_name() == "sqlite":
        return _beside(url, found, known, precaution)
    return _dumped(conn, url, found, known, precaution, listen)


def _beside(url: sa.URL, found: str, known: str, precaution: Precaution) -> str:
    source = file_of(url)
    folder = precaution.folder or source.parent
    if not folder.is_dir():
        raise UpgradeNeedsBackup(found=found, known=known, problem=f"there is no folder {folder}: BACKUP_FOLDER")
    path = folder / f"{source.name}.before-{known}"
    needed, free = room_for(source) + RESERVE, shutil.disk_usage(folder).free
    if free < needed:
        problem = f"{path} needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free"
        raise UpgradeNeedsRoom(found=found, known=known, problem=problem)
    try:
        return _made(url, path, found, known, precaution)
    except BackupNoRoom as error:
        raise UpgradeNeedsRoom(found=found, known=known, problem=error.details["problem"]) from error
    except DalSegnoError as error:
        raise UpgradeNeedsBackup(found=found, known=known, problem=str(error)) from error


def _dumped(
    conn: sa.Connection, url: sa.URL, found: str, known: str, precaution: Precaution, listen: sa.URL | None
) -> str:
    try:
        if precaution.folder is None:
            raise UpgradeNeedsBackup(found=found, known=known, problem="no folder was named for it: BACKUP_FOLDER=…")
        path = precaution.folder / f"{url.database or 'dalsegno'}.before-{known}.dump"
        # Over the connection that is there: a pool of one has no other.
        direct = past_pooler_of(cast("psycopg.Connection[Any]", conn.connection.driver_connection), url, listen)
        return _made(direct, path, found, known, precaution)
    except DalSegnoError as error:
        if precaution.attended:
            if isinstance(error, UpgradeNeedsBackup):
                raise
            raise UpgradeNeedsBackup(found=found, known=known, problem=str(error)) from error
        logger.warning("no backup could be made before the schema changes from %s to %s: %s", found, known, error)
        return f"none: {error}"


def _made(url: sa.URL, path: Path, found: str, known: str, precaution: Precaution) -> str:
    """One of an earlier attempt gives way: what counts is how it was before this one."""
    logger.warning("the schema changes from %s to %s; first a backup is written to %s", found, known, path)
    backup(url, path, force=True, tools=precaution.tools)
    return str(path.absolute())
