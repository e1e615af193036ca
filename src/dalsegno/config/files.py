"""The file on disk: read whole, written whole, one writer at a time, and for its owner's eyes only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dalsegno import durable, faults
from dalsegno.config.check import MOST_BYTES
from dalsegno.config.current import version_of
from dalsegno.config.envfile import Document, parsed
from dalsegno.errors import ConfigNotWritable

PRIVATE = 0o600
_writers = threading.Lock()


@dataclass(frozen=True, slots=True)
class Disk:
    """The file as it is."""

    version: str
    """Empty where there is none."""
    document: Document
    problem: str | None = None
    """Why it could not be read."""


def read(file: Path | None) -> Disk:
    version, nothing = version_of(file), parsed("")
    if file is None or not version:
        return Disk("", nothing)
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return Disk(version, nothing, f"it is larger than {MOST_BYTES:,} bytes, so it is not shown here.")
        return Disk(version, parsed(content.decode("utf-8")))
    except UnicodeDecodeError as error:
        return Disk(version, nothing, f"it is not UTF-8 text: byte {error.start + 1:,} cannot be read.")
    except OSError as error:
        return Disk(version, nothing, f"it cannot be read: {error.strerror}.")


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Nobody else writes it meanwhile: no other thread, and no other process of ours on this machine."""
    with _writers, contextlib.ExitStack() as stack:
        try:
            folder = os.open(_target(file).parent, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        except OSError as error:
            # Some network shares know no locks. The check of what is on disk still stands.
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise _refused(file, error) from None
        yield


def write(file: Path, text: str) -> None:
    """The old content or the new, also after a power cut. Where a link leads, its target is written; an owner stays."""
    target = _target(file)
    new = durable.beside(target)
    try:
        owner = target.stat() if target.exists() else None
        if owner is not None and not stat.S_ISREG(owner.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                os.fchmod(descriptor, PRIVATE)
                if owner is not None and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(PermissionError):  # only root may give files away
                        os.fchown(descriptor, owner.st_uid, owner.st_gid)
                stream.write(text.encode("utf-8"))
                stream.flush()
                faults.point("config.written")
                durable.sync_file(descriptor)
            new.replace(target)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        faults.point("config.replaced")
        durable.sync_folder(target.parent)
    except OSError as error:
        raise _refused(file, error) from None


def _target(file: Path) -> Path:
    return file.resolve() if file.is_symlink() else file


def _refused(file: Path, error: OSError) -> ConfigNotWritable:
    fixes = {
        errno.EBUSY: "It is mounted by itself: mount the folder that it is in instead.",
        errno.ENOSPC: "Free some space on its disk.",
        errno.EROFS: "Its disk is mounted read-only: mount it for writing, or edit the file where it comes from.",
        errno.ENOENT: "Make the folder first.",
    }
    fix = fixes.get(error.errno or 0, "Give this user write access to the folder that it is in.")
    return ConfigNotWritable(file=str(file), problem=f"{(error.strerror or str(error)).lower()}.", fix=fix)
