"""The catalog: what its services share, opened once per configuration."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog.exporter import Exporter
from dalsegno.catalog.leftovers import look_over
from dalsegno.catalog.library import Copy, Holding, lose_locations
from dalsegno.catalog.passages import passage
from dalsegno.catalog.presence import Presence, StorePresence
from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.model.breaker import Breaker
from dalsegno.model.identity import identity
from dalsegno.objects.model import ObjectStore
from dalsegno.objects.opening import open_store as open_object_store
from dalsegno.objects.throttle import Throttle
from dalsegno.settings import Settings
from dalsegno.sources.http import Http
from dalsegno.sources.model import Source
from dalsegno.sources.registry import Config, Sources

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.store.store import Store, Tx

BREAKER = Breaker()
"""How sources are told to be in trouble: a ban or an outage stops that source alone."""


SNAPSHOTS = 64
Thawed = tuple[Mapping[str, Any], dict[str, Any], Sources]
"""A snapshot, the settings it stands for, and the sources they name."""


class Catalog:
    def __init__(self, store: Store, settings: Settings, live: Callable[[], Settings] | None = None) -> None:
        self.store = store
        self.settings = settings
        self._live = live or (lambda: settings)
        self.http = Http()
        self.exporter = Exporter(store)
        self.presence = Presence(store, settings.node_name)
        self.store_presence = StorePresence(store, settings.node_name)
        self.throttle = Throttle(settings.upload_bandwidth) if settings.upload_bandwidth else None
        self._sources: dict[str, Sources] = {}
        self._stores: dict[str, ObjectStore] = {}
        self._stored_at: dict[int, tuple[dict[str, Any], ObjectStore]] = {}
        self._by_object: dict[int, Thawed] = {}
        self._backends: dict[str, int] = {}
        self._roots: set[Path] | None = None
        self._lock = threading.Lock()
        self.landed: dict[str, Copy] = {}
        """Files in place that are not written down yet, by checksum."""
        self._caught_up: set[Path] = set()
        self._catching_up = threading.Lock()

    def values(self, snapshot: Mapping[str, Any]) -> dict[str, Any]:
        """A job's settings with their secrets. Never stored, never logged."""
        return self._thawed(snapshot)[1]

    def sources(self, snapshot: Mapping[str, Any]) -> Sources:
        return self._thawed(snapshot)[2]

    def _thawed(self, snapshot: Mapping[str, Any]) -> Thawed:
        """All items of a stage share one snapshot object, so it is worked out once for thousands of them."""
        if (now := self._live()) is not self.settings:
            with self._lock:
                self.settings = now
                self._by_object.clear()
        known = self._by_object.get(id(snapshot))
        if known is not None and known[0] is snapshot:
            return known
        values = self.settings.thawed(snapshot or self.settings.snapshot())
        with self._lock:
            key = identity(values)
            if key not in self._sources:
                self._sources[key] = Sources(Config(values))
            sources = self._sources[key]
            while len(self._by_object) >= SNAPSHOTS:
                self._by_object.pop(next(iter(self._by_object)))
            self._by_object[id(snapshot)] = found = (snapshot, values, sources)
        if values.get("OBJECT_STORE"):
            threading.Thread(target=self._prepare, args=(snapshot,), name="dalsegno-store", daemon=True).start()
        return found

    def _prepare(self, snapshot: Mapping[str, Any]) -> None:
        """While songs are looked for, or fetched, the way to the store is paved."""
        with suppress(Exception):  # who uploads will say what is wrong with it
            if (target := self.object_store(snapshot)) is not None:
                target.prepare()

    def library(self, snapshot: Mapping[str, Any]) -> Path:
        return _path(str(snapshot.get("LIBRARY_ROOT") or self.settings.library_root))

    def object_store(self, snapshot: Mapping[str, Any]) -> ObjectStore | None:
        """Where a job uploads to, if anywhere."""
        values = self.values(snapshot)
        known = self._stored_at.get(id(values))
        if known is not None and known[0] is values:
            return known[1]
        url = values.get("OBJECT_STORE")
        if not url:
            return None
        key = identity({name: value for name, value in values.items() if name.startswith(("S3_", "OBJECT_STORE"))})
        with self._lock:
            if key not in self._stores:
                self._stores[key] = open_object_store(url, values)
            while len(self._stored_at) >= SNAPSHOTS:
                self._stored_at.pop(next(iter(self._stored_at)))
            self._stored_at[id(values)] = values, self._stores[key]
            return self._stores[key]

    def backend(self, kind: str, url: str) -> int:
        """The number of a place where files are, known from now on."""
        with self._lock:
            known = self._backends.get(url)
        if known is None:
            known = self.store.write("backend", lambda tx: _backend(tx, kind, url))
            with self._lock:
                self._backends[url] = known
                self._roots = None
        return known

    def library_roots(self) -> set[Path]:
        """Every folder that songs were ever downloaded to."""
        found = self._roots
        if found is None:
            query = sa.select(backends.c.url).where(backends.c.kind == "library")
            found = {Path(url) for url in self.store.read(lambda tx: tx.conn.execute(query).scalars().all())}
            with self._lock:
                self._roots = found
        return found

    def others(self, root: Path) -> list[Path]:
        """The other libraries that are on this machine now."""
        return [each for each in self.library_roots() if each != root and self.presence.is_here(each)]

    def catch_up(self, root: Path) -> None:
        """Once a process, before it works on a library: see to what an earlier one was killed over."""
        if root in self._caught_up:
            return
        with self._catching_up:
            if root in self._caught_up:
                return
            self._look_over(root)
            for other in self.others(root):
                with suppress(OSError):  # it is not the one to be written to
                    self._look_over(other)
            self.exporter.wake(root)
            self._caught_up.add(root)

    def _look_over(self, root: Path) -> None:
        for receipt in look_over(self.store, root):
            self.land(root, receipt.path, receipt.sha256, receipt.size)

    def land(self, root: Path, path: str, sha256: str, size: int) -> tuple[int, str]:
        """A file is in place; from now on it is found, though it is not written down yet. Its backend and path."""
        copy = self.landed[sha256] = Copy("library", str(root), path, self.backend("library", str(root)), size)
        return copy.backend_id, copy.path

    def keep_absent(self, item: Item, found: Holding) -> None:
        """Write down which of a song's files are gone from libraries that are there themselves."""
        at = self.store.clock.now()
        gone = [
            (copy.backend_id, copy.path, at)
            for copy in found.in_libraries()
            if copy.is_absent() and self.presence.is_proven(Path(copy.root))
        ]
        if gone:
            item.note(lambda conn: lose_locations(conn, gone))

    def permit(self, item: Item, name: str) -> Any:
        return item.permit(name, breaker=BREAKER)

    def asking(self, item: Item, source: Source, url: str | None = None) -> AbstractContextManager[None, None]:
        """Around one call to a source, about what is at `url` where that is known."""
        return passage(lambda name: self.permit(item, name), "source", source, url)

    def close(self) -> None:
        self.exporter.close()
        self.http.close()
        with self._lock:
            opened: list[Sources | ObjectStore] = [*self._sources.values(), *self._stores.values()]
            for each in opened:
                each.close()
            self._sources.clear()
            self._by_object.clear()
            self._stores.clear()
            self._stored_at.clear()


@lru_cache(16)
def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _backend(tx: Tx, kind: str, url: str) -> int:
    query = sa.select(backends.c.id).where(backends.c.url == url)
    found = tx.conn.execute(query).scalar()
    if found is None:
        found = tx.insert_new(backends, {"kind": kind, "url": url, "created_at": tx.now})
    return int(found if found is not None else tx.conn.execute(query).scalar_one())
