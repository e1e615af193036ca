"""Back up a database that is in use: into a file beside the wanted one, verified, flushed, and only then put in place.

Of SQLite the backup is a SQLite database; of PostgreSQL it is an archive of pg_dump. Both are of use without us.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from dalsegno import durable, faults
from dalsegno.clock import Clock, SystemClock
from dalsegno.errors import BackupDamaged, BackupNoRoom, BackupRefused, DalSegnoError, DatabaseUrlInvalid
from dalsegno.store import backup_postgres as postgres
from dalsegno.store import backup_sqlite as sqlite
from dalsegno.store import manifest as manifests
from dalsegno.store import ours
from dalsegno.store.manifest import Manifest, Told, untold
from dalsegno.store.past import past_pooler
from dalsegno.store.postgres_tools import find_tools
from dalsegno.store.revisions import check
from dalsegno.store.schema import to_text
from dalsegno.store.sqlite import translate
from dalsegno.version import VERSION

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def backup(
    url: sa.URL,
    path: Path,
    *,
    force: bool = False,
    tools: Path | None = None,
    clock: Clock | None = None,
    told: Told = untold,
) -> Manifest:
    """Write a backup of the database at `url` to `path`; what it says about itself."""
    path = path.absolute()
    _refuse(url, path, force)
    taken_at = to_text((clock or SystemClock()).now())
    with _part(path) as part:
        make = _of_sqlite if url.get_backend_name() == "sqlite" else _of_postgres
        manifest = make(url, part, taken_at, tools, told)
        size, sha256 = digest(part, told)
        manifest = replace(manifest, size=size, sha256=sha256)
        faults.point("backup.verified")
        _put_in_place(part, path, manifest)
    return manifest


def digest(path: Path, told: Told = untold) -> tuple[int, str]:
    """Size and SHA-256, read from the disk."""
    total, done, summed = path.stat().st_size, 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(4 << 20):
            summed.update(chunk)
            done += len(chunk)
            told("summing up", done, total)
    return done, summed.hexdigest()


def file_of(url: sa.URL) -> Path:
    """A SQLite database's file, which has to be there."""
    path = Path(url.database or "").absolute()
    if not path.is_file():
        raise DatabaseUrlInvalid(url=f"sqlite:///{path}", problem="there is no such file.")
    return path


def _refuse(url: sa.URL, path: Path, force: bool) -> None:
    if url.get_backend_name() == "sqlite":
        own = file_of(url)
        if path in (own, *(own.with_name(own.name + end) for end in ("-wal", "-shm", ".engine"))) or (
            path.exists() and path.samefile(own)
        ):
            raise BackupRefused(path=path, problem="that is the database itself.")
    if path.is_dir():
        raise BackupRefused(path=path, problem="it is a folder. Name a file in it.")
    if path.exists() and not path.is_file():  # a device: a file would take its place, for everybody
        raise BackupRefused(path=path, problem="it is no file.")
    if path.exists() and not force:
        raise BackupRefused(path=path, problem="there is a file already. Choose another name, or replace it: --force")
    if not path.parent.is_dir():
        raise BackupRefused(path=path, problem=f"there is no folder {path.parent}.")


@contextlib.contextmanager
def _part(path: Path) -> Iterator[Path]:
    """The file that becomes the backup: ours alone, for its owner's eyes only, and gone where it did not become one."""
    part = path.with_name(f"{path.name}.part")
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BackupRefused(path=path, problem=f"{error.strerror}.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BackupRefused(path=path, problem="another process is just writing it.") from None
    try:
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)  # a killed one may have left something
        yield part
    except BaseException as error:
        for left in (part, manifests.beside(part), part.with_name(f"{part.name}-journal")):
            left.unlink(missing_ok=True)
        if isinstance(error, OSError | sqlite3.Error):
            raise _readable(error, path) from error
        raise
    finally:
        os.close(descriptor)


def _readable(error: OSError | sqlite3.Error, path: Path) -> DalSegnoError:
    if isinstance(error, OSError):
        problem = f"{error.strerror or error}."
        full = error.errno in FULL
        return BackupNoRoom(path=path, problem=problem) if full else BackupRefused(path=path, problem=problem)
    if "full" in str(error) or "disk I/O" in str(error):
        return BackupNoRoom(path=path, problem=f"{error}.")
    return translate(error, path) or BackupRefused(path=path, problem=f"{error}.")


def _of_sqlite(url: sa.URL, part: Path, taken_at: str, _tools: Path | None, told: Told) -> Manifest:
    source = file_of(url)
    needed = room_for(source)
    free = shutil.disk_usage(part.parent).free
    if free < needed:
        raise BackupNoRoom(path=part, problem=f"it needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free.")
    sqlite.copy_database(source, part, told)
    faults.point("backup.copied")
    counts = sqlite.verify(part, told)
    return Manifest(
        VERSION, "sqlite", sqlite3.sqlite_version, sqlite.schema_of(part), taken_at, counts, 0, "",
        places=sqlite.places_of(part),
    )  # fmt: skip


def room_for(source: Path) -> int:
    """Bytes that a copy takes at most."""
    log = source.with_name(source.name + "-wal")
    return source.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _of_postgres(url: sa.URL, part: Path, taken_at: str, folder: Path | None, told: Told) -> Manifest:
    past_pooler(url, None)
    major, server = postgres.server_version(url)
    tools = find_tools(major, folder)
    with postgres.one_moment(url, told) as moment:
        if not moment.has(ours.VERSION):
            raise BackupRefused(path=part.with_suffix(""), problem="the database has no tables of Dal Segno.")
        ((schema,),) = moment.ask("SELECT version_num FROM alembic_version")
        check(schema)  # of a later one we do not know all tables
        places = []
        if moment.has("object_storage_backends"):
            rows = moment.ask("SELECT kind, url FROM object_storage_backends ORDER BY id")
            places = [{"kind": kind, "url": address} for kind, address in rows]
        with part.open("r+b") as file:
            postgres.dump(url, moment, tools, file.write, told)
    faults.point("backup.copied")
    found, unpacked = postgres.verify(part, tools, told)
    if found != moment.counts:
        wrong = sorted(name for name in {**found, **moment.counts} if found.get(name) != moment.counts.get(name))
        raise BackupDamaged(path=part, problem=f"pg_dump did not write all rows of {', '.join(wrong)}.")
    return Manifest(
        VERSION, "postgresql", server, schema, taken_at, moment.tables(), 0, "", unpacked=unpacked, places=places
    )


def _put_in_place(part: Path, path: Path, manifest: Manifest) -> None:
    """A manifest is never beside a backup that it does not belong to: a crash in between leaves none."""
    descriptor = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        durable.sync_file(descriptor)
    finally:
        os.close(descriptor)
    manifests.write(manifest, manifests.beside(part))
    manifests.beside(path).unlink(missing_ok=True)
    part.replace(path)
    faults.point("backup.placed")
    manifests.beside(part).replace(manifests.beside(path))
    durable.sync_folder(path.parent)
