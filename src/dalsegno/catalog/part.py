"""The staging of one song, in `.dalsegno/` under the library's root: the bytes so far, and a note about them.

The bytes are in `<key>.part`, held under a file lock. `<key>.json` says where they come from, so that a later run can
go on from there. Once they are complete and checked, a receipt says what they are and where they belong.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from dalsegno import durable
from dalsegno.catalog.receipts import STAGING, Receipt, receipts_of

COVER = ".cover"
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class PartBusy(Exception):
    """Somebody else is fetching this song right now."""

    code = "part_busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What must still be true for the bytes to be gone on with."""

    origin: str
    """Its address, without anything secret."""
    source: str = ""
    remote_id: str = ""
    etag: str | None = None
    """Only a strong one: a weak one does not promise equal bytes."""
    modified: str | None = None
    length: int | None = None
    synced: int = 0
    """Bytes that would survive a power cut."""
    boot: str = ""
    """The run of the machine they were written in: within it, all of them are there."""


class Part:
    """The bytes of one song, locked by us until closed."""

    def __init__(
        self, root: Path, key: str, descriptor: int, source: str, remote_id: str, *, fresh: bool = False
    ) -> None:
        self.root, self.key, self.descriptor = root, key, descriptor
        self.source, self.remote_id = source, remote_id
        self.fresh = fresh
        """Made just now: no earlier run has left anything."""
        self._stem = _stem(root, key)
        self._noted = not fresh
        """There may be a note on disk."""

    @classmethod
    def open(cls, root: Path, key: str, *, source: str = "", remote_id: str = "", create: bool = True) -> Self:
        """Raises PartBusy at once when another holds it, FileNotFoundError when there is none and `create` is not
        set."""
        path = f"{_stem(root, key)}.part"  # a string: for every song, and Path takes its time
        flags = os.O_RDWR | os.O_CLOEXEC
        fresh = create
        while True:
            try:
                descriptor = os.open(path, flags | (os.O_CREAT | os.O_EXCL if fresh else 0), 0o644)
            except FileExistsError:
                fresh = False
                continue
            except FileNotFoundError:
                if not create:
                    raise
                if fresh:
                    _make_staging(root)
                fresh = True
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(descriptor)
                if fresh and found.st_nlink == 1 and not found.st_size:
                    return cls(root, key, descriptor, source, remote_id, fresh=True)
                if found.st_ino == os.stat(path).st_ino:
                    if found.st_nlink == 1 or not create:
                        return cls(root, key, descriptor, source, remote_id)
                    os.unlink(path)  # it is a song in the library, too: writing here would write there
            except FileNotFoundError:
                pass  # its holder moved it into place between our two steps
            except OSError as error:
                os.close(descriptor)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise PartBusy(f"Somebody else is fetching {key} right now.") from None
                raise
            os.close(descriptor)
            fresh = create

    @property
    def path(self) -> Path:
        return Path(f"{self._stem}.part")

    @property
    def note(self) -> Path:
        return Path(f"{self._stem}.json")

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def keep_only(self, size: int) -> None:
        """Cut it back, and go on writing there."""
        os.ftruncate(self.descriptor, size)
        os.lseek(self.descriptor, size, os.SEEK_SET)

    def read_note(self) -> Note | None:
        try:
            return Note(**json.loads(self.note.read_bytes()))
        except FileNotFoundError:
            self._noted = False
        except (OSError, ValueError, TypeError):
            pass  # it makes no sense: then there is none
        return None

    def write_note(self, note: Note) -> None:
        durable.write_whole(self.note, json.dumps(asdict(note), ensure_ascii=False).encode())
        self._noted = True

    def forget_note(self) -> None:
        if self._noted:
            with suppress(FileNotFoundError):
                os.unlink(f"{self._stem}.json")
            self._noted = False

    def write_receipt(self, receipt: Receipt) -> None:
        receipts_of(self.root).keep(self.key, receipt)

    def link(self, path: str) -> None:
        os.link(f"{self._stem}.part", path)

    def remove(self) -> None:
        """Its names; the lock goes with `close`."""
        self.forget_note()
        with suppress(FileNotFoundError):
            os.unlink(f"{self._stem}.part")

    def discard(self) -> None:
        """Nothing of it can be used."""
        receipts_of(self.root).forget(self.key)
        cover_path(self.root, self.key).unlink(missing_ok=True)
        self.remove()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def part_path(root: Path, key: str) -> Path:
    return Path(f"{_stem(root, key)}.part")


def note_path(root: Path, key: str) -> Path:
    return Path(f"{_stem(root, key)}.json")


def cover_path(root: Path, key: str) -> Path:
    """Its cover, until the song is in place: whoever adopts it does not ask its source for anything."""
    return Path(f"{_stem(root, key)}{COVER}")


def read_receipt(root: Path, key: str) -> Receipt | None:
    return receipts_of(root).find(key)


def discard(root: Path, key: str) -> None:
    """Nothing of it is needed, not even its receipt. Raises PartBusy while another is at it."""
    try:
        part = Part.open(root, key, create=False)
    except FileNotFoundError:
        clear(root, key)
        return
    with part:
        part.discard()


def clear(root: Path, key: str) -> None:
    """Once its success is stored for good: no trace is left. The receipt goes last: by it the rest is found again."""
    note = note_path(root, key)
    for path in (part_path(root, key), cover_path(root, key), durable.beside(note), note):
        with suppress(FileNotFoundError):
            path.unlink()
    if read_receipt(root, key) is not None:
        receipts_of(root).forget(key)


def clear_landed(root: Path, key: str) -> None:
    """The same for a song that landed: all but its receipt and its cover is gone already."""
    receipt = receipts_of(root).find(key)
    if receipt is None or receipt.extra.get("cover"):
        cover_path(root, key).unlink(missing_ok=True)
    receipts_of(root).forget(key)


def origin_of(url: str, secrets: tuple[str, ...] = ()) -> str:
    """The address as it may be kept: no user, no query (tokens and signatures live there), no secret in its path."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    shown = urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", ""))
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        shown = shown.replace(secret, "***")
    return shown


@cache
def boot() -> str:
    """Which run of the machine this is; empty where it cannot be told."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _stem(root: Path, key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key of a part")
    return f"{root}/{STAGING}/{key}"


def _make_staging(root: Path) -> None:
    Path(root, STAGING).mkdir(parents=True, exist_ok=True)
    durable.sync_folder(root)
