"""Puts months away before they are dropped. At any moment there is the month, or an archive that was read back."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Generator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno import faults
from dalsegno.archive.form import BATCH, Manifest, lines_of, pack, read_manifest, unpack
from dalsegno.archive.places import beside_the_library, key_of, manifest_of, open_place, url_of
from dalsegno.engine.forgetting import MonthChanged
from dalsegno.errors import ArchiveDamaged
from dalsegno.objects import ObjectStore, StoreError, StoreRefused
from dalsegno.store.migrate import revision
from dalsegno.store.months import last_of
from dalsegno.store.schema import archives

if TYPE_CHECKING:
    from dalsegno.settings import Settings
    from dalsegno.store.months import Month
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.retention")


class Keeper:
    def __init__(self, store: Store, settings: Callable[[], Settings]) -> None:
        self._store = store
        self._settings = settings
        self._sure: dict[str, list[Any]] = {}
        """Months whose archives were read back here, by their last row: once is enough."""
        self._said: dict[str, str] = {}

    def keep(self, month: Month) -> Generator[None, None, bool]:
        """Whether the month may go now. A large one takes minutes, in steps; whoever leaves off leaves nothing."""
        known, last = self._store.read(lambda tx: (archive_of(tx, month.name), last_of(tx, month)))
        settings = self._settings()
        url = url_of(settings)
        if url is None or not last:  # of an empty month there is nothing to keep
            return True
        try:
            yield from self._put_away(settings, url, month, last, known)
        except (StoreError, ArchiveDamaged, OSError) as error:
            if self._said.get(month.name) != str(error):  # once, not once a minute
                logger.warning("%s stays: it could not be put away: %s", month.name, error)
            self._said[month.name] = str(error)
            return False
        self._said.pop(month.name, None)
        return True

    def dropping(self, tx: Tx, month: Month) -> None:
        """In the transaction that drops it, once nobody can add to it."""
        known, last = archive_of(tx, month.name), last_of(tx, month)
        if url_of(self._settings()) is None or not last:
            return
        if known is None or known["last"] != last:
            raise MonthChanged(month.name)
        values = {"dropped_at": tx.now, "restored_at": None}
        tx.conn.execute(sa.update(archives).where(archives.c.name == month.name).values(**values))

    def _put_away(
        self, settings: Settings, url: str, month: Month, last: list[Any], known: sa.RowMapping | None
    ) -> Generator[None, None, None]:
        place = open_place(settings, url)
        try:
            before = known is not None and known["last"] == last and known["store"] == place.url
            if before and self._sure.get(month.name) == last:
                return
            if before and known is not None and (yield from _intact(place, known["key"])):
                self._sure[month.name] = last
                return
            manifest, key = yield from self._write(settings, place, month)
        finally:
            place.close()
        self._store.write("archive", lambda tx: _remember(tx, manifest, place.url, key))
        self._sure[month.name] = manifest.last

    def _write(
        self, settings: Settings, place: ObjectStore, month: Month
    ) -> Generator[None, None, tuple[Manifest, str]]:
        assert month.until is not None
        spool = beside_the_library(settings)
        spool.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".dalsegno-spool-", dir=spool) as folder:
            path = Path(folder) / "month"
            packed = yield from pack(lines_of(self._store, month.table, month.name), path)
            digest, size = _measure(path)
            manifest = Manifest(
                month.name, month.table, month.label, month.first.isoformat() if month.first else None,
                month.until.isoformat(), packed.rows, packed.first, packed.last, packed.content_sha256, digest, size,
                self._store.read(revision) or "",
            )  # fmt: skip
            key = key_of(month.table, month.name, digest)
            place.put(key, path, digest, size, content_type="application/gzip", overwrite=True)
            faults.point("archive.put")
            told = Path(folder) / "manifest"
            told.write_bytes(manifest.written())
            place.put(manifest_of(key), told, *_measure(told), content_type="application/json", overwrite=True)
            faults.point("archive.manifest")
        if (yield from checking(place, key)) != manifest:
            raise ArchiveDamaged(name=month.name, problem="its manifest came back as another one")
        faults.point("archive.verified")
        return manifest, key


def checking(place: ObjectStore, key: str) -> Generator[None, None, Manifest]:
    """Read it back to the last byte."""
    manifest = read_manifest(b"".join(place.read(manifest_of(key))))
    for number, _ in enumerate(unpack(place.read(key), manifest), 1):
        if number % BATCH == 0:
            yield
    return manifest


def _intact(place: ObjectStore, key: str) -> Generator[None, None, bool]:
    """One that is not is written anew."""
    try:
        yield from checking(place, key)
    except (ArchiveDamaged, StoreRefused):
        return False
    return True


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
