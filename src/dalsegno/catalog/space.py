"""Room on the library's disk: asked for before, and noticed when it runs out on the way."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
PLENTY = 1 << 30
"""Bytes beyond what is asked for; they do not run out within a MOMENT."""
MOMENT = 0.1
_plenty: dict[tuple[Path, int], float] = {}
"""Until when a library is known to have plenty above what must stay free: every song asks, three times."""


class DiskFull(Exception):
    """`needed` bytes were to be written; `free` are left; `keep` of them are not ours to take."""

    code = "disk_full"

    def __init__(self, root: Path, needed: int | None, free: int, keep: int = 0) -> None:
        super().__init__(root, needed, free, keep)
        self.root, self.needed, self.free, self.keep = root, needed, free, keep

    def __str__(self) -> str:
        song = f"; this song needs {spoken(self.needed)}" if self.needed is not None else ""
        joint = " and " if song else "; "
        kept = f"{joint}{spoken(self.keep)} must stay free" if self.keep else ""
        return f"The library at {self.root} has {spoken(self.free)} free{song}{kept}."


class TooLargeForDisk(Exception):
    """The library's filesystem cannot hold a file of this size (FAT ends at 4 GB)."""

    code = "too_large_for_disk"


def spoken(size: int) -> str:
    """As people say it: 3.1 MB."""
    if size < 1000:
        return f"{size} bytes"
    steps = min(4, next(power for power in range(1, 99) if size < 999.95 * 1000**power))
    return f"{size / 1000**steps:.1f} {' kMGT'[steps]}B"


def free(path: Path) -> int:
    """Bytes that this user may still write where `path` is, or will be."""
    while True:
        try:
            found = os.statvfs(path)
        except FileNotFoundError:
            if path == path.parent:
                raise
            path = path.parent
        else:
            return found.f_bavail * found.f_frsize


def room_for(root: Path, size: int | None, keep: int) -> None:
    """Raises DiskFull when `size` more bytes would leave less than `keep`."""
    now = time.monotonic()
    if (size or 0) < PLENTY and now < _plenty.get((root, keep), 0.0):
        return
    left = free(root)
    if left - (size or 0) < keep:
        raise DiskFull(root, size, left, keep)
    if left - keep > 2 * PLENTY:
        _plenty[root, keep] = now + MOMENT


@dataclass(slots=True)
class watched:  # noqa: N801
    """Around writing: says DiskFull where the system says ENOSPC. A class: for every song, three times."""

    root: Path
    needed: int | None = None
    keep: int = 0

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in FULL:
            raise DiskFull(self.root, self.needed, free(self.root), self.keep) from error
        if error.errno == errno.EFBIG:
            raise TooLargeForDisk(TooLargeForDisk.__doc__) from error
