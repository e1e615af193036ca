"""From a URL to a Store that is safe to use: right kind of file, right disk, right schema."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from dalsegno.clock import Clock
from dalsegno.errors import (
    DatabaseOnNetworkShare,
    DatabaseReadOnly,
    DatabaseUnavailable,
    DatabaseUrlInvalid,
    InputInvalid,
)
from dalsegno.store.hot import Hot
from dalsegno.store.hot_postgres import PostgresHot
from dalsegno.store.hot_sqlite import SqliteHot
from dalsegno.store.migrate import ensure_schema
from dalsegno.store.postgres import PostgresStore
from dalsegno.store.sqlite import SqliteStore, translate
from dalsegno.store.store import Store
from dalsegno.store.upgrade import Precaution

NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.glusterfs",
                       "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "davfs", "fuse.davfs", "lustre", "ocfs2"}  # fmt: skip
SMALLEST_SQLITE = (3, 35, 0)


def open_store(
    url: str,
    clock: Clock | None = None,
    *,
    channel: str = "dalsegno_",
    listen_url: str | None = None,
    migrate: bool = True,
    precaution: Precaution | None = None,
) -> Store:
    """Open (and where needed create or upgrade) the database at `url`."""
    parsed = parse_url(url)
    listen = parse_url(listen_url) if listen_url else None
    if parsed.get_backend_name() == "sqlite":
        path = Path(parsed.database or "").absolute()
        _check_file(path)
        store: Store = SqliteStore(path, clock)
    else:
        store = PostgresStore(parsed, clock, channel=channel, listen_url=listen)
    try:
        ensure_schema(store, parsed, migrate=migrate, precaution=precaution, listen=listen)
    except BaseException:
        store.close()
        raise
    return store


def parse_url(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: a port that is no number
        raise DatabaseUrlInvalid(url=_masked(url), problem="it is not a URL.") from None
    backend = parsed.get_backend_name()
    if backend == "postgres":
        parsed, backend = parsed.set(drivername="postgresql"), "postgresql"
    if backend not in ("sqlite", "postgresql"):
        raise DatabaseUrlInvalid(url=_masked(url), problem=f'"{backend}" is not a database Dal Segno runs on.')
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise DatabaseUrlInvalid(url=url, problem="it names no file, and jobs must survive the process.")
    return parsed


def hot_for(conn: sa.Connection) -> Hot:
    """The hot statements for a connection that somebody else made."""
    match (conn.dialect.name, conn.dialect.driver):
        case ("sqlite", "pysqlite"):
            return SqliteHot()
        case ("postgresql", "psycopg"):
            return PostgresHot()
        case (_, driver):
            raise InputInvalid(problem=f"Submit needs a connection through sqlite3 or psycopg 3, not {driver}.")


def filesystem_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The type of the filesystem that holds `path`; empty where the system does not tell."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        fields = line.split()
        point = fields[1].encode().decode("unicode_escape")
        inside = path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _check_file(path: Path) -> None:
    if sqlite3.sqlite_version_info < SMALLEST_SQLITE:
        raise DatabaseUnavailable(problem=f"SQLite {sqlite3.sqlite_version} is older than 3.35.")
    if path.is_dir():
        raise DatabaseUrlInvalid(url=f"sqlite:///{path}", problem="it is a folder, not a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseReadOnly(problem=f"{path.parent}: {error.strerror}") from None
    kind = filesystem_of(path.resolve())
    if kind in NETWORK_FILESYSTEMS:
        raise DatabaseOnNetworkShare(path=path, filesystem=kind)
    writable = os.access(path, os.W_OK) if path.exists() else True
    if not writable or not os.access(path.parent, os.W_OK):
        raise DatabaseReadOnly(problem=f"no write access to {path if not writable else path.parent}")
    try:
        connection = sqlite3.connect(path, timeout=30)
        try:
            if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translate(error, path) or DatabaseUnavailable(problem=f"{path}: {error}") from None


def _masked(url: str) -> str:
    """The URL without what stands between the first ':' after '//' and the last '@'."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("//")
    return f"{scheme}{slashes}{user.split(':')[0]}:***@{tail}" if at and slashes else url
