"""The catalog in a few numbers, and how long the library's disk still lasts.

Counting two hundred thousand songs takes some milliseconds, so it is done now and then and told with its age.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from dalsegno.catalog.schema import file_assets, file_locations, object_storage_backends, playlists, songs
from dalsegno.objects.opening import open_store
from dalsegno.store.store import Store, Tx

if TYPE_CHECKING:
    from dalsegno.settings import Settings

logger = logging.getLogger("dalsegno.catalog")

AGE = timedelta(seconds=15)
SHARE = 500
"""How many times as long as counting takes the numbers are good for; `AGE` at least."""
SAMPLE = 5000
"""Files from which growth is told: the newest ones."""
WINDOW = timedelta(days=7)
DAY = 86_400.0
SOON = 3.0
"""Days to full from which on an operator should know."""


@dataclass(frozen=True, slots=True)
class CatalogNumbers:
    playlists: int
    songs: int
    downloaded: int
    """Songs that have a file."""
    uploaded: int
    """Files that are in a store."""
    counted_at: datetime


@dataclass(frozen=True, slots=True)
class Growth:
    bytes_per_day: float
    files: int
    """Files that were looked at: the newest."""
    days: float
    """How far back they reach."""


@dataclass(frozen=True, slots=True)
class Storage:
    root: str
    free: int | None
    """Bytes that may still be written; None: the folder is not on this machine."""
    total: int | None
    keep: int
    """What must stay free."""
    growth: Growth | None
    days_to_full: float | None
    """At this growth; None where nothing grows."""

    @property
    def soon_full(self) -> bool:
        return self.free is not None and (
            self.free <= self.keep or (self.days_to_full is not None and self.days_to_full < SOON)
        )


class _Counted:
    """The numbers of one store. Who asks gets those of a moment ago, and a thread counts again: nobody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[CatalogNumbers, Growth | None] | None = None
        self._good_for = AGE
        self._counting = False

    def get(self, store: Store) -> tuple[CatalogNumbers, Growth | None]:
        with self._lock:
            if self._known is None:
                self._known = self._read(store)
            elif not self._counting and store.clock.now() - self._known[0].counted_at > self._good_for:
                self._counting = True
                threading.Thread(target=self._count, args=(store,), name="dalsegno-count", daemon=True).start()
            return self._known

    def _count(self, store: Store) -> None:
        try:
            found = self._read(store)
            with self._lock:
                self._known = found
        except Exception:  # the database may be away: the old numbers stay, and say how old they are
            logger.debug("the catalog could not be counted", exc_info=True)
        finally:
            self._counting = False

    def _read(self, store: Store) -> tuple[CatalogNumbers, Growth | None]:
        began = time.monotonic()
        found = store.read(_all)
        self._good_for = max(AGE, timedelta(seconds=SHARE * (time.monotonic() - began)))
        return found


_COUNTED: WeakKeyDictionary[Store, _Counted] = WeakKeyDictionary()


def overview(store: Store, settings: Settings) -> tuple[CatalogNumbers, Storage]:
    """The numbers of a moment ago, and the disk as it is now."""
    numbers, grows = _COUNTED.setdefault(store, _Counted()).get(store)
    return numbers, storage(settings.library_root, settings.min_free_space, grows)


def upload_backend(store: Store, settings: Settings) -> int | None:
    """The store that songs must be in to be done; None: none is set. 0: it was never used, so nothing is there yet."""
    if not settings.object_store:
        return None
    target = open_store(settings.object_store, {"S3_ENDPOINT": settings.s3_endpoint})
    try:
        query = sa.select(object_storage_backends.c.id).where(object_storage_backends.c.url == target.identity)
        return store.read(lambda tx: tx.conn.execute(query).scalar()) or 0
    finally:
        target.close()


def _all(tx: Tx) -> tuple[CatalogNumbers, Growth | None]:
    return count(tx), growth(tx)


def count(tx: Tx) -> CatalogNumbers:
    def number(query: sa.Select[Any]) -> int:
        return int(tx.conn.execute(query).scalar_one())

    stores = sa.select(object_storage_backends.c.id).where(object_storage_backends.c.kind != "library")
    there = (file_locations.c.backend_id.in_(stores), file_locations.c.missing_at.is_(None))
    tunes, downloaded = tx.conn.execute(sa.select(sa.func.count(songs.c.id), sa.func.count(songs.c.asset_id))).one()
    return CatalogNumbers(
        number(sa.select(sa.func.count(playlists.c.id))),
        tunes,
        downloaded,
        number(sa.select(sa.func.count(file_locations.c.id)).where(*there)) if tx.rows(stores.limit(1)) else 0,
        tx.now,
    )


def growth(tx: Tx) -> Growth | None:
    """From the newest files of all libraries, at most a week back. Less than a day counts as a day."""
    last = sa.select(file_assets.c.id, file_assets.c.size_bytes, file_assets.c.created_at)
    some = last.order_by(file_assets.c.id.desc()).limit(SAMPLE).subquery()
    recent = sa.select(sa.func.count(), sa.func.sum(some.c.size_bytes), sa.func.min(some.c.created_at))
    files, size, first = tx.conn.execute(recent.where(some.c.created_at > tx.now - WINDOW)).one()
    if not files:
        return None
    reach = (tx.now - first).total_seconds() / DAY
    # Where more files than were looked at came within the week, they alone say how fast it goes.
    span = reach if files == SAMPLE else max(1.0, reach)
    return Growth(float(size) / max(span, 1 / 1440), files, reach)


def storage(root: Path, keep: int, grows: Growth | None) -> Storage:
    found = root.absolute()
    there = next((path for path in (found, *found.parents) if path.exists()), None)
    free = total = None
    if there is not None and (found.exists() or there == found.parent):
        try:
            usage = shutil.disk_usage(there)
            free, total = usage.free, usage.total
        except OSError:
            pass
    days = None
    if free is not None and grows is not None and grows.bytes_per_day > 0:
        days = max(0.0, (free - keep) / grows.bytes_per_day)
    return Storage(str(root), free, total, keep, grows, days)
