"""Puts months away before they are dropped. At any moment there is the month, or an archive that was read back."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno import faults
from dalsegno.archive.form import Manifest, lines_of, pack, read_manifest, unpack
from dalsegno.archive.places import beside_the_library, key_of, manifest_of, open_place, url_of
from dalsegno.errors import ArchiveDamaged, ArchiveRefused
from dalsegno.objects import ObjectStore, StoreError
from dalsegno.store.migrate import revision
from dalsegno.store.months import last_of
from dalsegno.store.schema import archives

if TYPE_CHECKING:
    from dalsegno.settings import Settings
    from dalsegno.store.months import Month
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.retention")

RESTORED = timedelta(days=30)
"""A month that was brought back stays for so long."""


class Keeper:
    def __init__(self, store: Store, settings: Callable[[], Settings]) -> None:
        self._store = store
        self._settings = settings

    def keep(self, month: Month) -> bool:
        """Whether the month may go now."""
        known, last = self._store.read(lambda tx: (archive_of(tx, month.name), last_of(tx, month)))
        restored = None if known is None else known["restored_at"]
        if restored is not None and self._store.clock.now() - restored < RESTORED:
            return False
        settings = self._settings()
        url = url_of(settings)
        if url is None or not last:  # of an empty month there is nothing to keep
            return True
        try:
            self._put_away(settings, url, month, last, known)
        except (StoreError, ArchiveDamaged, OSError) as error:
            logger.warning("%s stays: it could not be put away: %s", month.name, error)
            return False
        return True

    def dropping(self, tx: Tx, month: Month) -> None:
        """In the transaction that drops it, once nobody can add to it."""
        known, last = archive_of(tx, month.name), last_of(tx, month)
        if url_of(self._settings()) is None or not last:
            return
        if known is None or known["last"] != last:
            problem = f"Something was added to {month.name} after it was put away; it is put away again."
            raise ArchiveRefused(problem=problem)
        values = {"dropped_at": tx.now, "restored_at": None}
        tx.conn.execute(sa.update(archives).where(archives.c.name == month.name).values(**values))

    def _put_away(
        self, settings: Settings, url: str, month: Month, last: list[Any], known: sa.RowMapping | None
    ) -> None:
        place = open_place(settings, url)
        key = key_of(month.table, month.name)
        try:
            if known is not None and known["last"] == last and known["store"] == place.url:
                check(place, key)
                return
            manifest = self._write(settings, place, key, month)
        finally:
            place.close()
        self._store.write("archive", lambda tx: _remember(tx, manifest, place.url, key))

    def _write(self, settings: Settings, place: ObjectStore, key: str, month: Month) -> Manifest:
        assert month.until is not None
        spool = beside_the_library(settings)
        spool.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".dalsegno-spool-", dir=spool) as folder:
            path = Path(folder) / "month"
            packed = pack(lines_of(self._store, month.table, month.name), path)
            digest, size = _measure(path)
            manifest = Manifest(
                month.name, month.table, month.label, month.first.isoformat() if month.first else None,
                month.until.isoformat(), packed.rows, packed.first, packed.last, packed.content_sha256, digest, size,
                self._store.read(revision) or "",
            )  # fmt: skip
            place.put(key, path, digest, size, content_type="application/gzip", overwrite=True)
            faults.point("archive.put")
            told = Path(folder) / "manifest"
            told.write_bytes(manifest.written())
            place.put(manifest_of(key), told, *_measure(told), content_type="application/json", overwrite=True)
            faults.point("archive.manifest")
        if check(place, key) != manifest:
            raise ArchiveDamaged(name=month.name, problem="its manifest came back as another one")
        faults.point("archive.verified")
        return manifest


def check(place: ObjectStore, key: str) -> Manifest:
    """Read it back to the last byte."""
    manifest = read_manifest(b"".join(place.read(manifest_of(key))))
    for _ in unpack(place.read(key), manifest):
        pass
    return manifest


def archive_of(tx: Tx, name: str) -> sa.RowMapping | None:
    return tx.row(sa.select(archives).where(archives.c.name == name))


def _remember(tx: Tx, manifest: Manifest, url: str, key: str) -> None:
    values = {
        "kind": manifest.kind, "label": manifest.label, "rows": manifest.rows, "size_bytes": manifest.size_bytes,
        "first_at": manifest.first_at and datetime.fromisoformat(manifest.first_at),
        "until_at": datetime.fromisoformat(manifest.until_at), "sha256": manifest.sha256, "store": url, "key": key,
        "last": manifest.last, "revision": manifest.revision, "archived_at": tx.now, "dropped_at": None,
    }  # fmt: skip
    if tx.insert_new(archives, {"name": manifest.name, **values}) is None:
        tx.conn.execute(sa.update(archives).where(archives.c.name == manifest.name).values(**values))


def _measure(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
