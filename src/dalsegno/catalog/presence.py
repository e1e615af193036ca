"""Whether a library, or a folder that files go to, is on this machine: what stands at its path may be an empty mount
point, or another machine's.

Each has an id, kept with its backend and in a file of its own. Where files are known to be in it and its id is not on
disk, it is not there: nothing is fetched again, and nothing is stored, into whatever stands in its place.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa

from dalsegno import durable
from dalsegno.catalog.receipts import STAGING
from dalsegno.catalog.schema import file_locations
from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.objects.model import RESERVED

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

MARKER = "library-id"
STORE_MARKER = f"{RESERVED}store-id"
MOMENT = 0.5
"""Seconds between two looks at a library that is there: every song asks."""
SAMPLE = 20
"""Files looked for where a store of an earlier version has no id yet."""


class NotThere(Exception):
    """A folder that files are known to be in is not on this machine."""

    code = ""

    def __init__(self, root: Path, id: str, node: str, found: str) -> None:
        super().__init__(root, id, node, found)
        self.root, self.id, self.node, self.found = root, id, node, found


class LibraryMissing(NotThere):
    code = "library_missing"

    def __str__(self) -> str:
        if self.found:
            what = f"another library is at {self.root} on {self.node}. Was its disk swapped?"
        else:
            what = f"the library at {self.root} is not there on {self.node}. Is its disk mounted?"
        return (
            f"{what} Mount it and resume, or resume with another LIBRARY_ROOT. "
            f"If its files are gone for good, write {self.id} into {marker_of(self.root)}."
        )


class StoreMissing(NotThere):
    code = "store_missing"

    def __str__(self) -> str:
        if self.found:
            what = f"another store is at {self.root} on {self.node}. Was its disk swapped?"
        else:
            what = f"the store at {self.root} is not there on {self.node}. Is its disk mounted?"
        return (
            f"{what} Mount it and resume, or resume with another OBJECT_STORE. "
            f"If its files are gone for good, write {self.id} into {self.root / STORE_MARKER}: they are uploaded again."
        )


def marker_of(root: Path) -> Path:
    return root / STAGING / MARKER


def read_marker(root: Path) -> str:
    return _read(marker_of(root))


def _read(marker: Path) -> str:
    try:
        return marker.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _apart(marker: Path, id: str) -> Path:
    return marker.with_name(f"{marker.name}.{id}")


def _write_first(marker: Path, id: str) -> str:
    """Writes an id where none is; whose is there then, for an engine on another database may have been faster."""
    own = _apart(marker, id)
    durable.write_whole(own, f"{id}\n".encode())
    try:
        os.link(own, marker)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in durable.NO_LINKS:
            raise
        own.replace(marker)
    finally:
        own.unlink(missing_ok=True)
    durable.sync_folder(marker.parent)
    return _read(marker)


class Presence:
    """Of libraries."""

    kind, key = "library", "library_id"
    missing_as: type[NotThere] = LibraryMissing

    def __init__(self, store: Store, node: str) -> None:
        self._store, self._node = store, node
        self._ids: dict[Path, str] = {}
        self._seen: dict[Path, float] = {}
        self._lock = threading.Lock()

    def marker(self, root: Path) -> Path:
        return marker_of(root)

    def url(self, root: Path) -> str:
        """What its backend is known by."""
        return str(root)

    def is_here(self, root: Path) -> bool:
        """One without an id is taken for what stands there. Seen a moment ago, it is there still."""
        now = time.monotonic()
        if now < self._seen.get(root, 0.0):
            return True
        known = self._id(root)
        if known is None:
            return True
        if _read(self.marker(root)) != known:
            return False
        self._seen[root] = now + MOMENT
        return True

    def is_proven(self, root: Path) -> bool:
        """It bears its id: a file that is not in it is gone."""
        return self._id(root) is not None and self.is_here(root)

    def missing(self, root: Path) -> NotThere:
        return self.missing_as(root, self._id(root) or "", self._node, _read(self.marker(root)))

    def check(self, root: Path) -> None:
        """Raises what it is. A new one, that nothing is in yet, need not have been made."""
        if self.is_here(root) or not (_read(self.marker(root)) or self._store.read(lambda tx: self._in_use(tx, root))):
            return
        if not self.is_here(root):  # looked at once more: another worker may have been making it
            raise self.missing(root)

    def mark(self, root: Path) -> None:
        """Before anything is written to it. Its backend must be known."""
        if self.is_proven(root):
            return
        with self._lock:
            self.check(root)
            known, new = self._store.write(self.kind, lambda tx: self._own(tx, root))
            marker = self.marker(root)
            if _read(marker) != known:
                if new:
                    self.check_unmarked(root)
                marker.parent.mkdir(parents=True, exist_ok=True)
                if new and (first := _write_first(marker, known)):
                    known = first
                    self._store.write(self.kind, lambda tx: self._keep(tx, root, known))
                else:
                    durable.write_whole(marker, f"{known}\n".encode())
                    _apart(marker, known).unlink(missing_ok=True)  # of a process that was killed over it
            self._ids[root] = known

    def check_unmarked(self, root: Path) -> None:
        """Before one that has no id yet is given one."""

    def _id(self, root: Path) -> str | None:
        known = self._ids.get(root)
        if known is None:
            row = self._store.read(lambda tx: self._note(tx, root))
            if row is None or not row.get(self.key):
                return None
            known = self._ids[root] = str(row[self.key])
        return known

    def _own(self, tx: Tx, root: Path) -> tuple[str, bool]:
        """Its id: that which is stored, that which is on disk already, or a new one. And whether it had none."""
        note = self._note(tx, root) or {}
        if note.get(self.key):
            return str(note[self.key]), False
        known = _read(self.marker(root)) or secrets.token_hex(16)
        self._keep(tx, root, known)
        return known, True

    def _keep(self, tx: Tx, root: Path, id: str) -> None:
        note = (self._note(tx, root) or {}) | {self.key: id, "node": self._node}
        tx.conn.execute(sa.update(backends).where(backends.c.url == self.url(root)).values(capabilities=note))

    def _in_use(self, tx: Tx, root: Path) -> bool:
        """Something is in it, or another machine has begun it."""
        files = self._files(root).with_only_columns(file_locations.c.id).limit(1)
        return tx.conn.execute(files).first() is not None or (self._note(tx, root) or {}).get("node") != self._node

    def _files(self, root: Path) -> sa.Select[Any]:
        place = file_locations.join(backends, backends.c.id == file_locations.c.backend_id)
        known = sa.select(file_locations.c.path).select_from(place)
        return known.where(backends.c.url == self.url(root), file_locations.c.missing_at.is_(None))

    def _note(self, tx: Tx, root: Path) -> dict[str, Any] | None:
        query = sa.select(backends.c.capabilities).where(backends.c.url == self.url(root), backends.c.kind == self.kind)
        found = tx.conn.execute(query).scalar()
        return dict(found) if isinstance(found, dict) else None


class StorePresence(Presence):
    """Of folders that files are uploaded to."""

    kind, key = "file", "store_id"
    missing_as = StoreMissing

    def marker(self, root: Path) -> Path:
        return root / STORE_MARKER

    def url(self, root: Path) -> str:
        return f"file://{quote(str(root))}"

    def check_unmarked(self, root: Path) -> None:
        """Earlier versions gave stores no id: where they have stored files, one of these must be there."""
        newest = self._files(root).order_by(file_locations.c.id.desc()).limit(SAMPLE)
        paths = self._store.read(lambda tx: list(tx.conn.execute(newest).scalars()))
        if paths and not any(Path(root, path).is_file() for path in paths):
            raise self.missing(root)
