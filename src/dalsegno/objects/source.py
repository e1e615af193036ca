"""The local file on its way out: read in slices, hashed as it goes, held to the pace, stopped when asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dalsegno.objects.errors import SourceChanged, UploadCancelled
from dalsegno.objects.model import Cancelled, Moved
from dalsegno.objects.throttle import Throttle

if TYPE_CHECKING:
    from hashlib import _Hash

CHUNK = 256 * 1024
THROTTLED_CHUNK = 32 * 1024
"""Smaller, so that a slow line shows progress and hears a cancel."""


class Source:
    """One file and one attempt to store it. Memory use does not depend on the file's size."""

    def __init__(
        self, path: Path, sha256: str, size: int, moved: Moved, cancelled: Cancelled, throttle: Throttle | None
    ) -> None:
        self.path, self.sha256, self.size = path, sha256, size
        self.sent = 0
        self._moved, self._cancelled = moved, cancelled
        self._throttle = throttle
        self._chunk = CHUNK if throttle is None or throttle.rate <= 0 else THROTTLED_CHUNK
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if (found := os.fstat(self._file).st_size) != size:
            os.close(self._file)
            raise SourceChanged(path.name, f"{found:,} bytes instead of {size:,}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def hashed(self, offset: int, length: int, *hashes: _Hash) -> Iterator[bytes]:
        """A slice, without counting it as sent."""
        position, end = offset, offset + length
        while position < end:
            if self._cancelled():
                raise UploadCancelled
            try:
                chunk = os.pread(self._file, min(self._chunk, end - position), position)
            except OSError as error:  # or else the connection would take the blame
                raise SourceChanged(self.path.name, f"it cannot be read ({error.strerror}).") from error
            if not chunk:
                raise SourceChanged(self.path.name, f"it ends at {position:,} of {self.size:,} bytes.")
            for each in hashes:
                each.update(chunk)
            position += len(chunk)
            yield chunk

    def outgoing(self, offset: int, length: int, *hashes: _Hash) -> Iterator[bytes]:
        """A slice to be sent: paced, counted and reported once the caller comes back for more."""
        done = offset
        for chunk in self.hashed(offset, length, *hashes):
            if self._throttle is not None and not self._throttle.take(len(chunk), self._cancelled):
                raise UploadCancelled
            yield chunk
            done += len(chunk)
            self.sent += len(chunk)
            self._moved(done, self.size)

    def reached(self, done: int) -> None:
        """Report what was there already."""
        self._moved(done, self.size)

    def check(self, digest: str) -> None:
        if digest != self.sha256:
            raise SourceChanged(self.path.name, f"its SHA-256 is {digest[:12]}…, not {self.sha256[:12]}….")

    def stop_if_cancelled(self) -> None:
        if self._cancelled():
            raise UploadCancelled

    @property
    def cancelled(self) -> Cancelled:
        return self._cancelled

    def md5(self) -> str:
        digest = hashlib.md5(usedforsecurity=False)
        for _ in self.hashed(0, self.size, digest):
            pass
        return digest.hexdigest()
