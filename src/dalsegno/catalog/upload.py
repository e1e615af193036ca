"""Upload: a song's file goes to the object store. One item is one file; it continues where it was cut off."""

from __future__ import annotations

import mimetypes
import threading
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog.ahead import Ahead
from dalsegno.catalog.library import (
    Holding,
    Placed,
    confirm_locations,
    is_listed,
    lose_locations,
    put_locations,
    songs_in,
)
from dalsegno.catalog.presence import StoreMissing
from dalsegno.catalog.schema import file_assets, file_locations, songs, uploads
from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.catalog.scope import check_names, parse_scope
from dalsegno.catalog.spots import SpotChecks
from dalsegno.catalog.suspects import Suspects
from dalsegno.catalog.turns import Turns
from dalsegno.engine.service import Service
from dalsegno.errors import InputInvalid
from dalsegno.model.outcome import Fail, Outcome, PauseJob, Release, Retry, Skip, Throttled
from dalsegno.objects.errors import (
    NameTaken,
    SourceChanged,
    StoreError,
    StoreFull,
    StoreRefused,
    UploadCancelled,
)
from dalsegno.objects.local import FolderStore, explained
from dalsegno.objects.model import ObjectStore, Put, Unfinished

if TYPE_CHECKING:
    from dalsegno.catalog.catalog import Catalog
    from dalsegno.catalog.library import Copy
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan
    from dalsegno.store.store import Store, Tx

FOR_THE_OPERATOR = frozenset(
    {"bucket_missing", "wrong_credentials", "access_denied", "clock_skew", "wrong_region"}
    | {"endpoint_invalid", "url_invalid"}
)
"""A store says this to every file, until somebody has seen to it."""
OF_THE_FILE = frozenset({"key_invalid", "key_too_long", "too_large"})
"""It says this to one file, however often it is asked."""
HANDED_ON = 15
"""Times that a file is left for another machine, before it fails."""
HAND_ON = 2.0
"""Seconds in which another machine may take it."""


class Upload:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._probed: set[int] = set()
        self._probing = threading.Lock()
        self._turns = Turns()
        self._suspects = Suspects(catalog.store)
        self._ahead = Ahead(catalog.store)
        self._spots = SpotChecks(catalog.permit)
        mimetypes.init()  # now, not in each of ten threads at once

    def service(self) -> Service:
        return Service("upload", self.upload, workers=self._catalog.settings.upload_workers, planner=self.plan)

    def plan(self, plan: Plan) -> Iterator[str]:
        """One item a file, named by the first song that has it and that some playlist has."""
        if self._catalog.object_store(plan.snapshot) is None:
            raise InputInvalid(
                problem="There is nowhere to upload to. Set OBJECT_STORE in dalsegno.env, "
                "for example file:///mnt/archive or s3://bucket/prefix."
            )
        other = songs.alias()
        same = other.c.asset_id == songs.c.asset_id
        first = sa.select(sa.func.min(other.c.id)).where(same, is_listed(other)).scalar_subquery()
        scope = parse_scope(plan.scope)
        check_names(self._catalog.store, scope, self._catalog.sources(plan.snapshot).names())
        alone = () if scope.model_dump(exclude_defaults=True) else (songs.c.id == first,)
        for number in songs_in(self._catalog.store, scope, songs.c.asset_id.is_not(None), *alone):
            yield f"song:{number}"

    def upload(self, item: Item) -> Any:
        target = self._catalog.object_store(item.snapshot)
        if target is None:
            return Skip("no OBJECT_STORE is set")
        root = self._catalog.library(item.snapshot)
        if self._catalog.presence.is_here(root):
            self._catalog.catch_up(root)
        number = int(item.key.partition(":")[2])
        backend = self._catalog.backend(target.kind, target.identity)
        try:
            if isinstance(target, FolderStore):
                with explained(target.root):
                    self._catalog.store_presence.mark(target.root)
            found = self._ahead.look(item, number)
            if found is None or found.sha256 is None:
                return Fail(f"song {number} has no file; download it first", code="not_downloaded")
            there = next((copy for copy in found.copies if copy.backend_id == backend and not copy.lost), None)
            if there is not None and not item.forced and not self._spots.has(item, target, there):
                self._probe(target, backend)  # the store as a whole is there
                gone = (backend, there.path, self._catalog.store.clock.now())
                item.note(lambda conn: lose_locations(conn, [gone]))
                there = None
        except StoreMissing as error:
            return PauseJob(str(error), code=error.code)
        except StoreError as error:
            return _refused(error, target)
        local = found.local() if there is None or item.forced or item in self._suspects else None
        if there is not None and not item.forced and local is None:
            return Skip("it is there already", _result(found, there.path))
        if local is None:
            self._catalog.keep_absent(item, found)
            return self._elsewhere(item, found) or _lost(found)
        item.progress(text=f"{found.song['artist']} - {found.song['title']}".strip(" -"))
        try:
            self._probe(target, backend)
            # Songs that share a file take turns: the second finds it there.
            with (
                self._turns.alone_with((backend, found.sha256)) as waited,
                self._catalog.permit(item, f"store:{target.kind}"),
            ):
                path, put = self._put(item, target, backend, found, local, there, absent=there is None and not waited)
        except UploadCancelled:
            return Release("stopped on request")
        except StoreError as error:
            return _refused(error, target)
        except OSError as error:
            return Retry(f"{local.path} cannot be read: {error.strerror}", code="unreadable")
        assert found.size is not None
        placed = Placed(found.sha256, backend, path, found.size, put.stored.etag, self._catalog.store.clock.now())
        item.record(put_locations, placed)
        if local.lost:  # put back by its owner, and read to the end
            item.record(confirm_locations, (local.backend_id, local.path, placed.at))
        item.log.info("%s %s as %s", "found" if put.skipped else "uploaded", local.path, path)
        return Skip("the same content is there", _result(found, path)) if put.skipped else _result(found, path)

    def _elsewhere(self, item: Item, found: Holding) -> Outcome | None:
        """What becomes of a file whose library is not on this machine. None: it is, and the file should be in it."""
        roots = [Path(copy.root) for copy in found.in_libraries()]
        presence, store = self._catalog.presence, self._catalog.store
        if not roots or any(presence.is_here(root) for root in roots):
            return None
        if not store.shared:
            missing = presence.missing(roots[0])
            return PauseJob(str(missing), code=missing.code)
        reason = f"its file is in the library at {roots[0]}, which is not on {self._catalog.settings.node_name}"
        if item.claimed.interruptions + 1 >= min(HANDED_ON, item.stage.max_interruptions - 1):
            return Fail(f"{reason}, and no machine that has it took the upload. Start one there, or mount the library "
                        "here, then retry.", code="file_elsewhere")  # fmt: skip
        return Throttled(store.clock.now() + timedelta(seconds=HAND_ON), reason, counts=True)

    def _put(
        self,
        item: Item,
        target: ObjectStore,
        backend: int,
        found: Holding,
        local: Copy,
        there: Copy | None,
        *,
        absent: bool,
    ) -> tuple[str, Put]:
        """Under the library's own path; where something else has that name, beside it. What only an outlived file of
        ours has gives way."""
        assert found.sha256 is not None
        wanted = PurePosixPath(there.path if there is not None else local.path)
        apart = wanted.with_name(f"{wanted.stem[:150]} [{found.sha256[:8]}]{wanted.suffix}")
        kind = mimetypes.guess_type(wanted.name)[0] or "application/octet-stream"

        def put(path: str, *, overwrite: bool) -> tuple[str, Put]:
            assert found.sha256 is not None
            assert found.size is not None
            return path, target.put(
                path,
                local.file,
                found.sha256,
                found.size,
                content_type=kind,
                resume=Remembered(self._catalog.store, backend, path, target.full_key(path)),
                moved=item.transferred,
                cancelled=lambda: item.cancelled,
                throttle=self._catalog.throttle,
                overwrite=overwrite,
                force=item.forced,
                expect_absent=absent and item.claimed.lease == 1,
            )

        try:
            return put(str(wanted), overwrite=there is not None)
        except NameTaken:
            if self._gives_way(target, backend, str(wanted)):
                return put(str(wanted), overwrite=True)
            return put(str(apart), overwrite=False)

    def _gives_way(self, target: ObjectStore, backend: int, path: str) -> bool:
        """What is stored there is a file of ours that no song has any more, as we stored it."""
        ours = self._catalog.store.read(lambda tx: _outlived(tx, backend, path))
        found = target.stat(path) if ours is not None else None
        if ours is None or found is None:
            return False
        if found.sha256 is not None:
            return bool(found.sha256 == ours["sha256"])
        return found.etag is not None and bool((found.etag, found.size) == (ours["etag"], ours["size_bytes"]))

    def _probe(self, target: ObjectStore, backend: int) -> None:
        """Once a process: what the store can do, and that we may write there at all."""
        with self._probing:
            if backend not in self._probed:
                found = asdict(target.probe())
                self._catalog.store.write("probe", lambda tx: _keep_probe(tx, backend, found))
                self._probed.add(backend)


_BEGUN = sa.select(uploads).where(
    uploads.c.backend_id == sa.bindparam("backend"), uploads.c.path == sa.bindparam("place")
)


class Remembered:
    """A multipart upload's number, kept in the database: the store knows which parts have arrived."""

    def __init__(self, store: Store, backend: int, path: str, key: str) -> None:
        self._store, self._backend, self._path = store, backend, path
        self._key = key
        """What the store calls it."""

    def load(self) -> Unfinished | None:
        rows = self._store.glance(_BEGUN, {"backend": self._backend, "place": self._path})
        if not rows:
            return None
        row = rows[0]
        return Unfinished(upload_id=row["upload_id"], key=self._key, part_size=row["part_size"],
                          sha256=row["sha256"], size=row["size_bytes"])  # fmt: skip

    def save(self, unfinished: Unfinished) -> None:
        row = {
            "backend_id": self._backend,
            "path": self._path,
            "upload_id": unfinished.upload_id,
            "sha256": unfinished.sha256,
            "size_bytes": unfinished.size,
            "part_size": unfinished.part_size,
        }

        def work(tx: Tx) -> None:
            tx.conn.execute(self._forget())
            tx.conn.execute(sa.insert(uploads).values(**row, created_at=tx.now))

        self._store.write("upload", work)

    def clear(self) -> None:
        if self.load() is None:  # most files go in one piece
            return
        self._store.write("upload", lambda tx: tx.conn.execute(self._forget()))

    def _forget(self) -> sa.Delete:
        return sa.delete(uploads).where(uploads.c.backend_id == self._backend, uploads.c.path == self._path)


def _result(found: Holding, path: str) -> dict[str, Any]:
    return {**found.result(), "path": path}


def _outlived(tx: Tx, backend: int, path: str) -> sa.RowMapping | None:
    """What we stored there, if no song has it any more: a newer file took its place in the library."""
    used = sa.select(songs.c.id).where(songs.c.asset_id == file_locations.c.asset_id).exists()
    query = (
        sa.select(file_assets.c.sha256, file_locations.c.etag, file_locations.c.size_bytes)
        .join(file_assets, file_assets.c.id == file_locations.c.asset_id)
        .where(file_locations.c.backend_id == backend, file_locations.c.path == path, sa.not_(used))
    )
    return tx.row(query)


def _keep_probe(tx: Tx, backend: int, found: dict[str, Any]) -> None:
    """Beside its id, where it has one."""
    one = backends.c.id == backend
    known = tx.conn.execute(sa.select(backends.c.capabilities).where(one)).scalar()
    found = {**(known if isinstance(known, dict) else {}), **found}
    tx.conn.execute(sa.update(backends).where(one).values(capabilities=found, probed_at=tx.now))


def _lost(found: Holding) -> Outcome:
    if (changed := found.changed()) is not None:
        text = f"{changed.file} was changed since it was downloaded; force-retry its download to have the original too"
        return Fail(text, code="source_changed")
    places = [*found.in_libraries(), *found.in_libraries(lost=True)]
    where = str(places[0].file) if places else "the library"
    return Fail(f"the file is not at {where} any more; download the song again", code="file_missing")


def _refused(error: StoreError, target: ObjectStore) -> Outcome:
    match error:
        case StoreFull() if error.certain:
            return PauseJob(f"{target.url} is full: {error}", code="store_full")
        case StoreRefused() if error.code in FOR_THE_OPERATOR:
            return PauseJob(f"{target.url}: {error}", code=error.code)
        case StoreRefused() if error.code in OF_THE_FILE:
            return Fail(str(error), code=error.code)
        case SourceChanged():
            return Fail(str(error), code=error.code)
        case _:
            return Retry(str(error), code=error.code)
