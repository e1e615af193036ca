"""Files that are either whole or not there: written beside their place, made durable, then moved in."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> str:
    """Put `content` at `path` atomically and durably; returns its SHA-256.

    A receipt with the checksum is written first, so whatever stands at `path` can be checked against it.
    """
    checksum = hashlib.sha256(content).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(receipt_of(path), f"{checksum}  {path.name}\n".encode())
    _replace(path, content)
    return checksum


def whole(path: Path, size: int) -> str | None:
    """The checksum of the file at `path`, if it is complete: the size is right and its receipt agrees."""
    try:
        content = path.read_bytes()
        promised = receipt_of(path).read_text().partition(" ")[0]
    except OSError:
        return None
    checksum = hashlib.sha256(content).hexdigest()
    return checksum if len(content) == size and checksum == promised else None


def receipt_of(path: Path) -> Path:
    """In the form that `sha256sum --check` reads."""
    return path.with_name(path.name + ".sha256")


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    with os.fdopen(_locked(part), "wb") as stream:
        stream.truncate()
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
        part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _locked(part: Path) -> int:
    """The part file, locked by us. If its writer moved it into place while we waited, a new one."""
    while True:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if os.fstat(descriptor).st_ino == part.stat().st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)
