"""Receipts: songs that are complete and checked, and not yet written down in the database.

Each process appends its own to one file in a library's staging, `receipts-….log`, and holds it under a lock; a file
of its own for every song would cost more than a small song does. Whoever finds such a file without a holder takes
over what it says. A file whose receipts are all settled goes.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from dalsegno import durable

STAGING = ".dalsegno"
PREFIX, SUFFIX = "receipts-", ".log"
AGAIN = 0.2
"""Seconds between two looks for what processes that died have left."""
LARGE = 1 << 20
"""Bytes after which a file is written anew, without what is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The file is complete and checked; all that may be missing is its move to `path`."""

    sha256: str
    size: int
    path: str
    """Relative to the library's root."""
    audio: Mapping[str, Any]
    modified_ns: int
    replace: bool = False
    """What stands at `path` is to give way."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> PurePosixPath:
        return PurePosixPath(self.path)


class Receipts:
    """Those of one library. One for a process, shared by its threads."""

    def __init__(self, root: Path) -> None:
        self._staging = f"{root}/{STAGING}"
        self._open: dict[str, Receipt] = {}
        self._descriptor = -1
        self._path = ""
        self._size = 0
        self._synced = 0
        self._written = 0
        """Bytes ever appended, and of them those that would survive a power cut."""
        self._looked_at = 0.0
        self._lock = threading.Lock()
        self._syncing = threading.Lock()

    def find(self, key: str) -> Receipt | None:
        if key not in self._open and time.monotonic() - self._looked_at > AGAIN:
            with self._lock:
                self._take_over()
        return self._open.get(key)

    def all(self) -> dict[str, Receipt]:
        with self._lock:
            self._take_over()
            return dict(self._open)

    def keep(self, key: str, receipt: Receipt) -> None:
        """Durable when this returns."""
        with self._lock:
            written = self._append({key: receipt})
        self._sync(written)

    def forget(self, key: str) -> Receipt | None:
        with self._lock:
            receipt = self._open.pop(key, None)
            if receipt is not None and not self._open:
                self._drop()
            return receipt

    # --- the file, under the lock -----------------------------------------------------------------

    def _append(self, some: Mapping[str, Receipt]) -> int:
        if self._descriptor < 0:
            self._begin()
        elif self._size > LARGE or not os.fstat(self._descriptor).st_nlink:
            before, place = self._descriptor, self._path
            self._begin()
            os.close(before)
            with suppress(FileNotFoundError):
                os.unlink(place)
        text = _lines(some)
        try:
            count = os.write(self._descriptor, text)
            if count < len(text):
                os.write(self._descriptor, text[count:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(text)
        self._written += len(text)
        self._open.update(some)
        return self._written

    def _begin(self) -> None:
        """A new file, with all that is not settled."""
        while True:
            path = f"{self._staging}/{PREFIX}{secrets.token_hex(8)}{SUFFIX}"
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                Path(self._staging).mkdir(parents=True, exist_ok=True)
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.fstat(descriptor).st_nlink:
                    break
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody found it before it was locked, and took it for a dead process's
        text = _lines(self._open)
        try:
            while text:
                text = text[os.write(descriptor, text) :]
            durable.sync_file(descriptor)
            durable.sync_folder(self._staging)
        except OSError:
            os.close(descriptor)
            os.unlink(path)
            raise
        self._descriptor, self._path = descriptor, path
        self._size = os.fstat(descriptor).st_size

    def _drop(self) -> None:
        """Nothing is left to remember."""
        if self._descriptor >= 0:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            os.close(self._descriptor)
            self._descriptor = -1

    def _sync(self, written: int) -> None:
        """Whoever waits here while another flushes finds that its own lines went along."""
        if not durable.enabled:
            return
        with self._syncing:
            if self._synced >= written:
                return
            with self._lock:
                upto = self._written
                if self._descriptor < 0:
                    return  # settled meanwhile, all of it
                descriptor = os.dup(self._descriptor)
            try:
                durable.sync_data(descriptor)
            finally:
                os.close(descriptor)
            self._synced = upto

    def _take_over(self) -> None:
        """What a process that died has left becomes ours."""
        self._looked_at = time.monotonic()
        try:
            names = os.listdir(self._staging)
        except OSError:
            return
        for name in names:
            if name.startswith(PREFIX) and name.endswith(SUFFIX):
                path = f"{self._staging}/{name}"
                if path != self._path or self._descriptor < 0:
                    with suppress(FileNotFoundError):
                        self._take(path)

    def _take(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(descriptor).st_nlink:
                return
            receipts, size = _read(descriptor)
            found = {key: receipt for key, receipt in receipts.items() if key not in self._open}
            if found and self._descriptor < 0:  # we go on in it: the disk may be too full for another
                os.ftruncate(descriptor, size)
                self._open.update(found)
                self._descriptor, self._path, self._size, descriptor = descriptor, path, size, -1
                return
            if found:
                self._append(found)
                durable.sync_data(self._descriptor)
            os.unlink(path)
        except BlockingIOError:
            pass  # its process lives
        finally:
            if descriptor >= 0:
                os.close(descriptor)


_known: dict[str, Receipts] = {}
_knowing = threading.Lock()


def receipts_of(root: Path) -> Receipts:
    name = str(root)
    found = _known.get(name)
    if found is None:
        with _knowing:
            found = _known.setdefault(name, Receipts(root))
    return found


def _lines(some: Mapping[str, Receipt]) -> bytes:
    fields = Receipt.__slots__
    rows = ({"key": key, **{name: getattr(receipt, name) for name in fields}} for key, receipt in some.items())
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _read(descriptor: int) -> tuple[dict[str, Receipt], int]:
    """The last word on each song, and how many bytes are whole lines. One that was cut off when its process died says
    nothing."""
    with open(descriptor, "rb", closefd=False) as stream:
        text = stream.read()
    found = {}
    for line in text.split(b"\n"):
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            values = json.loads(line)
            key = values.pop("key")
            found[key] = Receipt(**values)
    return found, text.rfind(b"\n") + 1
