"""Whether a library is on this machine: a folder of that path may be an empty mount point, or another machine's.

A library has an id, kept with its backend and in a file of its own. Where files are known to be in a library and its
id is not on disk, the library is not there, and nothing is fetched again into whatever stands in its place.
"""

from __future__ import annotations

import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno import durable
from dalsegno.catalog.receipts import STAGING
from dalsegno.catalog.schema import file_locations
from dalsegno.catalog.schema import object_storage_backends as backends

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

MARKER = "library-id"
MOMENT = 0.5
"""Seconds between two looks at a library that is there: every song asks."""


class LibraryMissing(Exception):
    code = "library_missing"

    def __init__(self, root: Path, id: str, node: str, found: str) -> None:
        super().__init__(root, id, node, found)
        self.root, self.id, self.node, self.found = root, id, node, found

    def __str__(self) -> str:
        if self.found:
            what = f"another library is at {self.root} on {self.node}. Was its disk swapped?"
        else:
            what = f"the library at {self.root} is not there on {self.node}. Is its disk mounted?"
        return (
            f"{what} Mount it and resume, or resume with another LIBRARY_ROOT. "
            f"If its files are gone for good, write {self.id} into {marker_of(self.root)}."
        )


def marker_of(root: Path) -> Path:
    return root / STAGING / MARKER


def read_marker(root: Path) -> str:
    try:
        return marker_of(root).read_text("ascii", "replace").strip()
    except OSError:
        return ""


class Presence:
    def __init__(self, store: Store, node: str) -> None:
        self._store, self._node = store, node
        self._ids: dict[Path, str] = {}
        self._seen: dict[Path, float] = {}
        self._lock = threading.Lock()

    def is_here(self, root: Path) -> bool:
        """A library without an id is taken for what stands there. Seen a moment ago, it is there still."""
        now = time.monotonic()
        if now < self._seen.get(root, 0.0):
            return True
        known = self._id(root)
        if known is None:
            return True
        if read_marker(root) != known:
            return False
        self._seen[root] = now + MOMENT
        return True

    def missing(self, root: Path) -> LibraryMissing:
        return LibraryMissing(root, self._id(root) or "", self._node, read_marker(root))

    def check(self, root: Path) -> None:
        """Raises LibraryMissing. A new library, that nothing is in yet, need not have been made."""
        if self.is_here(root) or not (read_marker(root) or self._store.read(lambda tx: self._in_use(tx, root))):
            return
        if not self.is_here(root):  # looked at once more: another worker may have been making it
            raise self.missing(root)

    def mark(self, root: Path) -> None:
        """Before anything is written to it. Its backend must be known."""
        if self._id(root) is not None and self.is_here(root):
            return
        with self._lock:
            self.check(root)
            known = self._store.write("library", lambda tx: self._own(tx, root))
            self._ids[root] = known
            if read_marker(root) != known:
                marker_of(root).parent.mkdir(parents=True, exist_ok=True)
                durable.write_whole(marker_of(root), f"{known}\n".encode())

    def _id(self, root: Path) -> str | None:
        known = self._ids.get(root)
        if known is None:
            row = self._store.read(lambda tx: _note(tx, root))
            if row is None or not row.get("library_id"):
                return None
            known = self._ids[root] = str(row["library_id"])
        return known

    def _own(self, tx: Tx, root: Path) -> str:
        """Its id: that which is stored, that which is on disk already, or a new one."""
        note = _note(tx, root) or {}
        if not note.get("library_id"):
            note = {"library_id": read_marker(root) or secrets.token_hex(16), "node": self._node}
            tx.conn.execute(sa.update(backends).where(backends.c.url == str(root)).values(capabilities=note))
        return str(note["library_id"])

    def _in_use(self, tx: Tx, root: Path) -> bool:
        """Something is in it, or another machine has begun it."""
        files = sa.select(file_locations.c.id).join(backends, backends.c.id == file_locations.c.backend_id)
        first = tx.conn.execute(
            files.where(backends.c.url == str(root), file_locations.c.missing_at.is_(None)).limit(1)
        )
        return first.first() is not None or (_note(tx, root) or {}).get("node") != self._node


def _note(tx: Tx, root: Path) -> dict[str, Any] | None:
    query = sa.select(backends.c.capabilities).where(backends.c.url == str(root), backends.c.kind == "library")
    found = tx.conn.execute(query).scalar()
    return found if isinstance(found, dict) else None
