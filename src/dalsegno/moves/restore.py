"""Put a backup in the place of a database: checked first, whole or not at all, and nobody of old left in it.

What was under lease when the backup was taken is rescued as after a crash: the lane `catalog` comes up paused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.clock import Clock
from dalsegno.engine.forgetting import make_months
from dalsegno.engine.rescuer import rescue_all
from dalsegno.errors import BackupDamaged, RestoreRefused
from dalsegno.moves import restore_postgres, restore_sqlite
from dalsegno.store import manifest as manifests
from dalsegno.store.backup import digest
from dalsegno.store.manifest import Manifest, Told, untold
from dalsegno.store.notes import RESTORED, write_note
from dalsegno.store.open import open_store
from dalsegno.store.revisions import known_revisions
from dalsegno.store.schema import jobs
from dalsegno.store.store import Store, Tx
from dalsegno.store.upgrade import Precaution

logger = logging.getLogger("dalsegno.moves")

NOBODY = 0
SQLITE, ARCHIVE = b"SQLite format 3\x00", b"PGDMP"
PLACES = ("LIBRARY_ROOT", "OBJECT_STORE")
"""What a job's snapshot says of places."""


@dataclass(frozen=True, slots=True)
class Restored:
    database: str
    backup: str
    taken_at: str | None
    schema: str
    """As it was in the backup."""
    now: str
    rows: int
    rescued: int
    """Processes whose leases were ended."""
    kept: str | None
    """Where what was there before is now."""
    checked: bool
    """Against the manifest: every byte, and the rows of every table."""


def restore(
    path: Path,
    url: sa.URL,
    *,
    force: bool = False,
    tools: Path | None = None,
    moved: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    told: Told = untold,
) -> Restored:
    """`moved`: folders and stores that have another place here, old by new."""
    path = path.absolute()
    kind = _kind(path)
    if kind != url.get_backend_name():
        fix = "Restore it to a SQLite database, then move that: dalsegno migrate --to URL"
        if kind == "postgresql":
            fix = "Restore it to a PostgreSQL database, then move that: dalsegno migrate --to URL"
        problem = f"{path} is a backup of {'SQLite' if kind == 'sqlite' else 'PostgreSQL'}. {fix}"
        raise RestoreRefused(database=url.render_as_string(hide_password=True), problem=problem)
    manifest = manifests.read(path)
    if manifest is not None:
        _compare(path, manifest, told)

    def settle(address: str) -> int:
        store = open_store(address, clock, precaution=Precaution(wanted=False))
        try:
            return _settle(store, path, manifest, dict(moved or {}))
        finally:
            store.close()

    to = restore_sqlite.put if kind == "sqlite" else restore_postgres.put
    done = to(path, url, manifest, settle, force=force, tools=tools, told=told)
    taken_at = manifest.taken_at if manifest is not None else None
    return Restored(
        url.render_as_string(hide_password=True), str(path), taken_at, done.schema,
        known_revisions()[-1], done.rows, done.rescued, done.kept, manifest is not None,
    )  # fmt: skip


def _kind(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise BackupDamaged(path=path, problem=f"{error.strerror}.") from None
    if head == SQLITE:
        return "sqlite"
    if head.startswith(ARCHIVE):
        return "postgresql"
    raise BackupDamaged(path=path, problem="it is neither a SQLite database nor an archive of pg_dump.")


def _compare(path: Path, manifest: Manifest, told: Told) -> None:
    size, sha256 = digest(path, told)
    if (size, sha256) != (manifest.size, manifest.sha256):
        problem = f"it is not what its manifest says: {manifest.size:,} bytes were written, and {size:,} are there"
        if size == manifest.size:
            problem = "its checksum is not the one in its manifest: it was changed or damaged"
        raise BackupDamaged(path=path, problem=f"{problem}. Use another backup.")


def _settle(store: Store, path: Path, manifest: Manifest | None, moved: Mapping[str, str]) -> int:
    make_months(store)  # the backup may be older than the months that were made ahead in it
    rescued = rescue_all(store, NOBODY, alone=True)

    def write(tx: Tx) -> None:
        _relocate(tx, moved)
        taken = manifest.taken_at if manifest is not None else None
        write_note(tx, RESTORED, {"at": tx.now.isoformat(), "file": str(path), "taken_at": taken}, "restore")

    store.write("restore", write)
    return rescued


def _relocate(tx: Tx, moved: Mapping[str, str]) -> None:
    """Files keep their path in a folder that has another place now; so do the jobs that still write to it."""
    for old, new in [pair for each in moved.items() for pair in _spellings(*each)]:
        if tx.conn.execute(sa.select(backends.c.id).where(backends.c.url == new)).first() is not None:
            logger.warning("%s stays as it is: files are known in %s already", old, new)
            continue
        tx.conn.execute(sa.update(backends).where(backends.c.url == old).values(url=new))
        unfinished = sa.select(jobs.c.id, jobs.c.snapshot).where(jobs.c.finished_at.is_(None))
        for row in tx.rows(unfinished):
            kept = row["snapshot"] or {}
            if any(kept.get(key) == old for key in PLACES):
                told = {key: new if key in PLACES and value == old else value for key, value in kept.items()}
                tx.conn.execute(sa.update(jobs).where(jobs.c.id == row["id"]).values(snapshot=told))


def _spellings(old: str, new: str) -> list[tuple[str, str]]:
    """A folder is a library under its path, and a store under its address."""
    if not (old.startswith("/") and new.startswith("/")):
        return [(old, new)]
    return [(old, new), (f"file://{quote(old)}", f"file://{quote(new)}")]
