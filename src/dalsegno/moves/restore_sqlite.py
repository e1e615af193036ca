"""A SQLite backup made ready beside the database, and then put in its place in one step."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from dalsegno import durable, faults
from dalsegno.clock import SystemClock
from dalsegno.errors import BackupDamaged, BackupNoRoom, RestoreRefused
from dalsegno.moves.alone import only_us
from dalsegno.moves.placed import Placed, Settle
from dalsegno.store import backup_sqlite as sqlite
from dalsegno.store.manifest import Manifest, Told
from dalsegno.store.revisions import check
from dalsegno.store.sqlite import address
from dalsegno.store.upgrade import is_vacant

CHUNK = 4 << 20
BESIDE = ("-wal", "-shm", "-journal")


def put(
    path: Path, url: sa.URL, manifest: Manifest | None, settle: Settle, *, force: bool, tools: Path | None, told: Told
) -> Placed:
    del tools  # those are for PostgreSQL
    target = Path(url.database or "").absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    _refuse_log(path)
    schema = sqlite.schema_of(path)
    check(schema)
    with only_us(target):
        vacant = not target.exists() or _is_vacant(target)
        if not vacant and not force:
            problem = "there is work in it. Name another with --database, or replace it: --force (it is kept aside)"
            raise RestoreRefused(database=f"sqlite:///{target}", problem=problem)
        part = target.with_name(f"{target.name}.restoring")
        try:
            counts = _make(path, part, manifest, told)
            rescued = settle(address(part).render_as_string())
            faults.point("restore.ready")
            kept = None if vacant else _aside(target)
            _forget_log(target)
            part.replace(target)
            durable.sync_folder(target.parent)
        finally:
            for end in ("", *BESIDE, ".upgrade", ".engine"):
                part.with_name(part.name + end).unlink(missing_ok=True)
    return Placed(schema, sum(counts.values()), rescued, str(kept) if kept is not None else None)


def _refuse_log(path: Path) -> None:
    """A backup is one file. Of a database that was copied by other means, what was last written may be beside it."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        problem = f"what was last written to it is in {log.name}. Fold that in first: "
        raise BackupDamaged(path=path, problem=f'{problem}sqlite3 {path.name} "PRAGMA wal_checkpoint(TRUNCATE)"')


def _is_vacant(path: Path) -> bool:
    """A damaged one is not: somebody may want to salvage it."""
    engine = sa.create_engine(address(path), poolclass=sa.pool.NullPool)
    try:
        with engine.connect() as connection:
            return is_vacant(connection)
    except sa.exc.DBAPIError:
        return False
    finally:
        engine.dispose()


def _make(path: Path, part: Path, manifest: Manifest | None, told: Told) -> dict[str, int]:
    for end in ("", *BESIDE):
        part.with_name(part.name + end).unlink(missing_ok=True)  # of one that was killed
    total, free = path.stat().st_size, shutil.disk_usage(part.parent).free
    if free < total:
        raise BackupNoRoom(path=part, problem=f"it needs {total / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free.")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as copy, path.open("rb") as file:
            done = 0
            while chunk := file.read(CHUNK):
                copy.write(chunk)
                done += len(chunk)
                told("restoring", done, total)
            copy.flush()
            durable.sync_file(copy.fileno())
    except OSError as error:
        raise BackupNoRoom(path=part, problem=f"{error.strerror}.") from error
    faults.point("restore.copied")
    counts = sqlite.verify(part, told)
    if manifest is not None and counts != manifest.tables:
        wrong = sorted(name for name in {**counts, **manifest.tables} if counts.get(name) != manifest.tables.get(name))
        raise BackupDamaged(path=path, problem=f"it has not the rows its manifest tells of: {', '.join(wrong)}.")
    return counts


def _aside(target: Path) -> Path:
    """What was there, under another name as well: at no moment is there no database."""
    stamp = f"{SystemClock().now():%Y%m%dT%H%M%SZ}"
    kept = target.with_name(f"{target.name}.replaced-{stamp}")
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(target, timeout=5)) as old:
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    try:
        os.link(target, kept)
    except OSError:  # a filesystem without a second name for a file
        shutil.copy2(target, kept)
    log = target.with_name(f"{target.name}-wal")
    if log.exists() and log.stat().st_size:  # of a damaged one, which nobody could bring home
        log.replace(kept.with_name(f"{kept.name}-wal"))
    return kept


def _forget_log(target: Path) -> None:
    """A log that stayed would be read as the new database's."""
    with contextlib.suppress(sqlite3.Error):
        if target.exists():
            with contextlib.closing(sqlite3.connect(target, timeout=5)) as old:
                old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in BESIDE:
        target.with_name(target.name + end).unlink(missing_ok=True)
