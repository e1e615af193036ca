"""What an object store is: keys, what is stored under them, and how a file gets there without half of it ever showing.

`put` is safe to repeat. A rerun after a crash finds what is already there and sends only what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

from dalsegno.objects.errors import StoreRefused
from dalsegno.objects.throttle import Throttle

Moved = Callable[[int, int], None]
"""Told how many bytes are there by now, and of how many."""
Cancelled = Callable[[], bool]

KEY_MAX = 1024
RESERVED = ".dalsegno-"
"""How names begin that this package keeps for itself: probes, and files that are not whole yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a store says about one key."""

    key: str
    size: int
    etag: str | None = None
    """Without quotes. The MD5 of the content on many stores, nothing of the sort on others."""
    sha256: str | None = None
    """As recorded when it was stored; None when somebody else stored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    stored: Stored
    skipped: bool = False
    """The same content was there already."""
    parts_reused: int = 0
    bytes_sent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store was seen to do. An answer that was taken without complaint does not count: the effect does."""

    metadata: bool
    """Keeps the SHA-256 that is stored beside an object."""
    payload_checked: bool
    """Refuses a body that does not hash to what the request declares."""
    etag_md5: bool
    """The ETag of a single upload, and of a part, is the MD5 of its bytes."""
    multipart: bool = False
    list_parts: bool = False
    multipart_etag: bool = False
    """The ETag of a multipart upload is the MD5 of its parts' MD5s."""
    if_none_match: bool = False
    """Refuses to replace an object when asked not to."""
    checksum_sha256: bool = False
    """Knows x-amz-checksum-sha256: refuses a wrong one, and tells a right one afterwards."""
    deletes: bool = True
    """The probe could be taken away again."""
    part_min: int = 1
    """The smallest part but the last."""
    part_max: int = 0
    parts_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A multipart upload that was begun. Which parts arrived is the store's to tell."""

    upload_id: str
    key: str
    part_size: int
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A multipart upload that a store holds parts of, whoever began it."""

    key: str
    """What the store itself calls it."""
    upload_id: str
    begun_at: datetime | None


class Resume(Protocol):
    """Where an unfinished upload is remembered across restarts."""

    def load(self) -> Unfinished | None: ...

    def save(self, unfinished: Unfinished) -> None:
        """Durable when it returns: the first part is sent after it."""
        ...

    def clear(self) -> None: ...


class Forget:
    """A Resume that lasts as long as the object: for scripts and for stores that need none."""

    def __init__(self) -> None:
        self.unfinished: Unfinished | None = None

    def load(self) -> Unfinished | None:
        return self.unfinished

    def save(self, unfinished: Unfinished) -> None:
        self.unfinished = unfinished

    def clear(self) -> None:
        self.unfinished = None


class ObjectStore:
    """Base of every store. Safe to share between threads."""

    url: str
    """Without credentials."""
    kind: Literal["file", "s3"]

    @property
    def identity(self) -> str:
        """What no other store is called."""
        return self.url

    def full_key(self, key: str) -> str:
        """What the store itself calls it."""
        return key

    def probe(self) -> Capabilities:
        """Find out by trying, on a small object of our own; proves the address, the credentials and write access."""
        raise NotImplementedError

    def stat(self, key: str) -> Stored | None:
        raise NotImplementedError

    def size(self, key: str) -> int | None:
        """A look without reading anything: how large what is there is, None where nothing is."""
        found = self.stat(key)
        return None if found is None else found.size

    def put(
        self,
        key: str,
        path: Path,
        sha256: str,
        size: int,
        *,
        content_type: str = "application/octet-stream",
        resume: Resume | None = None,
        moved: Moved = lambda _done, _size: None,
        cancelled: Cancelled = lambda: False,
        throttle: Throttle | None = None,
        overwrite: bool = False,
        force: bool = False,
        expect_absent: bool = False,
    ) -> Put:
        """Store a file whose SHA-256 and size are known, and prove that it arrived.

        The same content under the key is skipped, unless `force`; other content raises NameTaken, unless `overwrite`.
        `expect_absent` saves asking first where the store itself refuses to replace.
        """
        raise NotImplementedError

    def read(self, key: str) -> Iterator[bytes]:
        raise NotImplementedError

    def begun(self, most: int = 1000) -> list[Begun]:  # noqa: ARG002 – most stores have none
        """Multipart uploads below the prefix that are not finished, ours or anybody's."""
        return []

    def prepare(self) -> None:
        """What the first upload would wait for, as far as nobody has to be asked."""

    def close(self) -> None:
        """Let go of connections."""


_CONTROLS = re.compile(r"[\x00-\x1f\x7f]").search


@lru_cache(256)
def check_key(key: str) -> str:
    """Keys are relative paths with plain segments, so that every store can keep every key."""
    segments = key.split("/")
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        raise StoreRefused("key_invalid", f"The name {key!r} is not valid Unicode.") from None
    if not key or any(segment in {"", ".", ".."} for segment in segments):
        raise StoreRefused("key_invalid", f"The name {key!r} is not a plain relative path.")
    if _CONTROLS(key):
        raise StoreRefused("key_invalid", f"The name {key!r} has control characters in it.")
    if "\\" in key:  # SeaweedFS makes a slash of it
        raise StoreRefused("key_invalid", f"The name {key!r} has a backslash in it.")
    if any(segment.startswith(RESERVED) for segment in segments):
        raise StoreRefused("key_invalid", f'Names that begin with "{RESERVED}" are reserved: {key!r}.')
    if len(encoded) > KEY_MAX:
        raise StoreRefused(
            "key_too_long", f"The name {key[:60]!r}… has {len(encoded):,} bytes; {KEY_MAX:,} is the most."
        )
    return key
