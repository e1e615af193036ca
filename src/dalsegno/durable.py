"""What was written stays written, also through a power cut: flush the file, then the folder that names it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
"""What filesystems without hard links (FAT, some shares) answer."""
enabled = True
"""Only benchmarks turn this off, to be compared with tools that do not flush."""


def sync_file(descriptor: int) -> None:
    if enabled:
        os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Without times and such: enough for a file that is still growing."""
    if enabled:
        getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_folder(path: Path | str) -> None:
    if not enabled:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and FUSE filesystems refuse to flush a folder, because there is nothing to flush.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def beside(path: Path) -> Path:
    """Where its new content is until it is whole."""
    return Path(f"{path}.new")


def write_whole(path: Path, content: bytes) -> None:
    """The old content or the new, never something in between."""
    new = beside(path)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        sync_file(descriptor)
    except OSError:
        new.unlink()
        raise
    finally:
        os.close(descriptor)
    new.replace(path)
    if enabled:
        sync_folder(path.parent)
