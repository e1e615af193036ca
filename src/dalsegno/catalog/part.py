"""The staging of one song, in `.dalsegno/` under the library's root: the bytes so far, and a note about them.

The bytes are in `<key>.part`, held under a file lock. `<key>.json` says where they come from, so that a later run can
go on from there; once they are complete and checked it becomes the receipt: what they are and where they belong.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from dalsegno import durable

STAGING = ".dalsegno"
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


class Part:
    """The bytes of one song, locked by us until closed."""

    def __init__(self, root: Path, key: str, descriptor: int, source: str, remote_id: str) -> None:
        self.root, self.key, self.descriptor = root, key, descriptor
        self.source, self.remote_id = source, remote_id
        self.path, self.note = part_path(root, key), note_path(root, key)
        self._noted = True
        """There may be a note on disk."""

    @classmethod
    def open(cls, root: Path, key: str, *, source: str = "", remote_id: str = "", create: bool = True) -> Self:
        """Raises PartBusy at once when another holds it, FileNotFoundError when there is none and `create` is not
        set."""
        path = part_path(root, key)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        while True:
            try:
                descriptor = os.open(path, flags, 0o644)
            except FileNotFoundError:
                if not create:
                    raise
                _make_staging(root)
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(descriptor)
                if found.st_ino == path.stat().st_ino:
                    if found.st_nlink == 1 or not create:
                        return cls(root, key, descriptor, source, remote_id)
                    path.unlink()  # it is a song in the library, too: writing here would write there
            except FileNotFoundError:
                pass  # its holder moved it into place between our two steps
            except OSError as error:
                os.close(descriptor)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise PartBusy(f"Somebody else is fetching {key} right now.") from None
                raise
            os.close(descriptor)

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def keep_only(self, size: int) -> None:
        """Cut it back, and go on writing there."""
        os.ftruncate(self.descriptor, size)
        os.lseek(self.descriptor, size, os.SEEK_SET)

    def read_note(self) -> Note | None:
        kind, values = _read(self.note)
        self._noted = kind is not None
        return values if isinstance(values, Note) else None

    def write_note(self, note: Note) -> None:
        _write(self.note, "part", asdict(note))
        self._noted = True

    def forget_note(self) -> None:
        if self._noted:
            self.note.unlink(missing_ok=True)
            self._noted = False

    def write_receipt(self, receipt: Receipt) -> None:
        _write(self.note, "receipt", {name: getattr(receipt, name) for name in Receipt.__slots__})

    def remove(self) -> None:
        """The name; the lock goes with `close`."""
        self.path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Nothing of it can be used."""
        self.forget_note()
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
    return Path(root, STAGING, f"{_checked(key)}.part")


def note_path(root: Path, key: str) -> Path:
    return Path(root, STAGING, f"{_checked(key)}.json")


def cover_path(root: Path, key: str) -> Path:
    """Its cover, until the song is in place: whoever adopts it does not ask its source for anything."""
    return Path(root, STAGING, f"{_checked(key)}{COVER}")


def read_receipt(root: Path, key: str) -> Receipt | None:
    if not os.path.lexists(f"{root}/{STAGING}/{_checked(key)}.json"):
        return None
    _, values = _read(note_path(root, key))
    return values if isinstance(values, Receipt) else None


def discard(root: Path, key: str) -> None:
    """Nothing of it is needed, not even its receipt. Raises PartBusy while another is at it."""
    try:
        part = Part.open(root, key, create=False)
    except FileNotFoundError:
        note_path(root, key).unlink(missing_ok=True)
        return
    with part:
        part.discard()


def clear(root: Path, key: str) -> None:
    """Once its success is stored for good: no trace is left. The note goes last: by it the rest is found again."""
    note = note_path(root, key)
    for path in (part_path(root, key), cover_path(root, key), durable.beside(note), note):
        with suppress(FileNotFoundError):
            path.unlink()


def clear_landed(root: Path, key: str) -> None:
    """The same for a song that landed: its part is gone already."""
    stem = f"{root}/{STAGING}/{_checked(key)}"  # for every song, and Path takes its time
    for suffix in (COVER, ".json.new", ".json"):
        with suppress(FileNotFoundError):
            os.unlink(stem + suffix)  # noqa: PTH108


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


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key of a part")
    return key


def _make_staging(root: Path) -> None:
    Path(root, STAGING).mkdir(parents=True, exist_ok=True)
    durable.sync_folder(root)


def _write(path: Path, kind: str, values: dict[str, Any]) -> None:
    durable.write_whole(path, json.dumps({"kind": kind, **values}, ensure_ascii=False).encode())


def _read(path: Path) -> tuple[str | None, Note | Receipt | None]:
    """What is there: nothing, something that makes no sense (a kind without values), or a note or receipt."""
    try:
        values = json.loads(path.read_bytes())
        kind = values.pop("kind")
        return kind, Note(**values) if kind == "part" else Receipt(**values)
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return "unreadable", None
