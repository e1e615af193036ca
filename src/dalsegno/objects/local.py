"""A folder as an object store: a key is a path below it.

A file is copied to a `.part` beside its place, checked, and renamed: whoever looks sees the old content or the new one.
The SHA-256 is kept in an extended attribute, with the size and time it was taken at; where the filesystem has no such
attributes, or the file was touched since, it is computed when asked for.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from dalsegno.durable import sync_file, sync_folder
from dalsegno.objects.errors import (
    NameTaken,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    VerificationFailed,
)
from dalsegno.objects.model import RESERVED, Cancelled, Capabilities, Moved, ObjectStore, Put, Resume, Stored, check_key
from dalsegno.objects.source import Source
from dalsegno.objects.throttle import Throttle

ATTRIBUTE = "user.dalsegno.sha256"
CHUNK = 1024 * 1024


class FolderStore(ObjectStore):
    kind: Literal["file", "s3"] = "file"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"file://{quote(str(root))}"

    def probe(self) -> Capabilities:
        with explained(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f"{RESERVED}probe-{secrets.token_hex(8)}"
            with probe.open("xb", buffering=0) as file:
                probe.unlink()  # at once: a process that is killed here leaves nothing behind
                file.write(b"dal segno")
                kept = _remember(file.fileno(), hashlib.sha256(b"dal segno").hexdigest())
        return Capabilities(metadata=kept, payload_checked=True, etag_md5=False, if_none_match=True)

    def stat(self, key: str) -> Stored | None:
        path = self._path(key)
        with explained(path):
            found = self._glance(key, path)
            if found is None or found.sha256 is not None:
                return found
            digest = _digest(path)
            _remember(path, digest)
            return Stored(key=key, size=found.size, sha256=digest)

    def size(self, key: str) -> int | None:
        """One call to the system: every song that is there already is asked for."""
        path = f"{self.root}/{check_key(key)}"
        try:
            with explained(Path(path)):
                found = os.stat(path)  # noqa: PTH116 – for every song, and Path takes its time
        except StoreRefused as error:
            if error.code in {"not_found", "key_invalid"}:
                return None
            raise
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def put(
        self,
        key: str,
        path: Path,
        sha256: str,
        size: int,
        *,
        content_type: str = "application/octet-stream",  # noqa: ARG002 – a folder keeps none
        resume: Resume | None = None,
        moved: Moved = lambda _done, _size: None,
        cancelled: Cancelled = lambda: False,
        throttle: Throttle | None = None,
        overwrite: bool = False,
        force: bool = False,
        expect_absent: bool = False,  # noqa: ARG002 – asking costs nothing here
    ) -> Put:
        place = self._path(key)
        # Trouble of the file that is read is not the store's: only what happens at the destination is explained.
        with Source(path, sha256, size, moved, cancelled, throttle) as source, explained(place):
            self._make_folders(place.parent)
            part = place.parent / f"{RESERVED}{hashlib.sha256(key.encode()).hexdigest()[:24]}.part"
            with _held(part) as descriptor:
                already = self._already(key, place, sha256, size, overwrite=overwrite)
                if already and not force:
                    put = Put(stored=already, skipped=True)
                else:
                    self._copy(source, descriptor, key)
                    part.replace(place)
                    sync_folder(place.parent)
                    stored = self._glance(key, place)
                    if stored is None or stored.size != size:
                        raise VerificationFailed(key, "the file is not there with its full length after the rename.")
                    whole = Stored(key=key, size=size, sha256=sha256)
                    put = Put(stored=whole, bytes_sent=size)
        if resume is not None:
            resume.clear()
        return put

    def read(self, key: str) -> Iterator[bytes]:
        path = self._path(key)
        with explained(path), path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def _path(self, key: str) -> Path:
        """Where a key lives. A symbolic link below the root may not lead out of it."""
        path = self.root / check_key(key)
        if not path.parent.resolve().is_relative_to(self.root.resolve()):
            raise StoreRefused("key_invalid", f"The name {key!r} leads out of the store's folder.")
        if path.is_symlink():
            raise StoreRefused("key_invalid", f"{key!r} is a symbolic link.")
        return path

    def _make_folders(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            sync_folder(each.parent)

    def _glance(self, key: str, path: Path) -> Stored | None:
        """Without reading the content."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        if path.is_dir():
            raise StoreRefused("key_invalid", f"{key!r} is a folder.")
        return Stored(key=key, size=found.st_size, sha256=_remembered(path, found))

    def _already(self, key: str, place: Path, sha256: str, size: int, *, overwrite: bool) -> Stored | None:
        found = self._glance(key, place)
        if found is None:
            return None
        if found.size == size:
            whole = self.stat(key)
            if whole is not None and whole.sha256 == sha256:
                return whole
        if not overwrite:
            raise NameTaken(key)
        return None

    def _copy(self, source: Source, descriptor: int, key: str) -> None:
        digest = hashlib.sha256()
        os.ftruncate(descriptor, 0)
        for chunk in source.outgoing(0, source.size, digest):
            view = memoryview(chunk)
            while view:
                view = view[os.write(descriptor, view) :]
        source.check(digest.hexdigest())
        _remember(descriptor, digest.hexdigest())
        sync_file(descriptor)
        if os.fstat(descriptor).st_size != source.size:
            raise VerificationFailed(key, "the copy has another length.")


@contextmanager
def _held(part: Path) -> Iterator[int]:
    """The part file, locked: two processes that store the same key take turns, and a dead one holds nothing.

    Unless it was renamed, it is gone afterwards. One that a killed process left is emptied and used again.
    """
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreUnavailable("busy", f"Another process is storing {part.parent.name!r} just now.") from None
            if _same(descriptor, part):
                try:
                    yield descriptor
                finally:
                    if _same(descriptor, part):
                        part.unlink()
                return
        finally:
            os.close(descriptor)


def _same(descriptor: int, path: Path) -> bool:
    """False when the holder before us renamed the file between our open and our lock."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remember(file: Path | int, sha256: str) -> bool:
    """Size and time go with it: a file that was edited since must not pass for what it was."""
    if not hasattr(os, "setxattr"):
        return False
    with suppress(OSError):
        found = os.stat(file)  # noqa: PTH116 – a descriptor has no Path
        os.setxattr(file, ATTRIBUTE, f"{sha256} {found.st_size} {found.st_mtime_ns}".encode())
        return True
    return False


def _remembered(path: Path, found: os.stat_result) -> str | None:
    if not hasattr(os, "getxattr"):
        return None
    with suppress(OSError, ValueError):
        sha256, size, modified = os.getxattr(path, ATTRIBUTE).decode().split()
        if (int(size), int(modified)) == (found.st_size, found.st_mtime_ns):
            return sha256
    return None


_SENTENCES = {
    errno.EACCES: ("access_denied", "This user may not write to {path}."),
    errno.EPERM: ("access_denied", "This user may not write to {path}."),
    errno.EROFS: ("access_denied", "{path} is on a read-only filesystem."),
    errno.ENAMETOOLONG: ("key_too_long", "The name is too long for the filesystem of the store: {path}."),
    errno.EILSEQ: ("key_invalid", "The filesystem of the store cannot keep this name: {path}."),
    errno.ENOTDIR: ("key_invalid", "A file stands where a folder is needed: {path}."),
    errno.EEXIST: ("key_invalid", "A file stands where a folder is needed: {path}."),
    errno.EISDIR: ("key_invalid", "A folder stands where a file is needed: {path}."),
    errno.EFBIG: ("too_large", "The filesystem of the store cannot keep a file of this size: {path}."),
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Around what is done to a store's folder: the system's errors as a store's."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreRefused("not_found", f"{path} is not there.") from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StoreFull("store_full", f"The disk of the store is full: {path.parent}.", status=507) from error
        code, sentence = _SENTENCES.get(error.errno or 0, ("store_failed", "{path}: " + (error.strerror or "failed")))
        kind = StoreUnavailable if code == "store_failed" else StoreRefused
        raise kind(code, sentence.format(path=path)) from error
