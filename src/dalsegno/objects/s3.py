"""An S3 bucket as an object store: small files in one request, large ones in parts that survive a restart.

Nothing is believed: after every upload the store is asked what it has, and size, SHA-256 and ETag must agree.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from dalsegno.objects.control import Control
from dalsegno.objects.errors import NameTaken, StoreError, StoreFull, StoreRefused, StoreUnavailable, VerificationFailed
from dalsegno.objects.model import (
    Begun,
    Cancelled,
    Capabilities,
    Forget,
    Moved,
    ObjectStore,
    Put,
    Resume,
    Stored,
    check_key,
)
from dalsegno.objects.multipart import Multipart
from dalsegno.objects.probe import probe
from dalsegno.objects.source import Source
from dalsegno.objects.throttle import Throttle
from dalsegno.objects.wire import Wire

SMALL = 16 * 1024 * 1024
NOT_FOUND = frozenset({404})


class S3Store(ObjectStore):
    kind: Literal["file", "s3"] = "s3"

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str = "us-east-1",
        access_key: str = "",
        secret_key: str = "",
        capabilities: Capabilities | None = None,
        small: int = SMALL,
        part_size: int | None = None,
    ) -> None:
        self.bucket, self.prefix = bucket, prefix.strip("/")
        self.url = f"s3://{bucket}" + (f"/{self.prefix}" if self.prefix else "")
        self._endpoint = endpoint
        self._small, self._part_size = small, part_size
        self._capabilities = capabilities
        self._lock = threading.Lock()
        self._control_made: Control | None = None
        self._wire_made: Wire | None = None
        self._make: Callable[[], Control] = lambda: Control(
            bucket, endpoint=endpoint, region=region, access_key=access_key, secret_key=secret_key
        )

    @property
    def identity(self) -> str:
        """Any server may have a bucket of this name; Amazon has only one."""
        return (
            f"{self.url}@{urlsplit(self._endpoint).netloc.rpartition('@')[2].lower()}" if self._endpoint else self.url
        )

    @property
    def capabilities(self) -> Capabilities:
        """Probed once, by whoever needs to know first."""
        if self._capabilities is None:
            control, wire = self._open()
            with self._lock:
                if self._capabilities is None:
                    self._capabilities = probe(control, wire, self.full_key)
        return self._capabilities

    def probe(self) -> Capabilities:
        self._capabilities = probe(*self._open(), self.full_key)
        return self._capabilities

    def full_key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def stat(self, key: str) -> Stored | None:
        answer = self._open()[1].request("HEAD", self.full_key(check_key(key)), accept=NOT_FOUND)
        return None if answer.status == 404 else _stored(key, answer.headers)

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
        check_key(key)
        resume = resume or Forget()
        able = self.capabilities
        with Source(path, sha256, size, moved, cancelled, throttle) as source:
            small = size <= self._small or not able.multipart
            # Only a store that refuses to replace may be written to unasked. Nothing of it was begun before, then.
            unasked = small and expect_absent and able.if_none_match and not overwrite and not force
            if not unasked:
                found = self._already(key, source, overwrite=overwrite)
                if found is not None and not force:
                    self._drop(resume)
                    source.reached(size)
                    return Put(stored=found, skipped=True)
                if small:
                    self._drop(resume)

            def send(*, replace: bool) -> Put:
                if small:
                    return self._put_small(key, source, content_type, replace=replace)
                return self._put_large(key, source, content_type, resume, replace=replace)

            try:
                try:
                    return send(replace=overwrite or force)
                except VerificationFailed as error:
                    if not error.ours:
                        raise
                # It bears the right SHA-256, and would pass for the file next time: put right while that is known.
                return send(replace=True)
            except StoreUnavailable as error:
                if (full := self._looks_full(key, error)) is not None:
                    raise full from error
                raise

    def read(self, key: str) -> Iterator[bytes]:
        return self._open()[0].read(self.full_key(check_key(key)))

    def begun(self, most: int = 1000) -> list[Begun]:
        return self._open()[0].begun(f"{self.prefix}/" if self.prefix else "", most)

    def prepare(self) -> None:
        self._open()

    def close(self) -> None:
        with self._lock:
            control, wire = self._control_made, self._wire_made
            self._control_made = self._wire_made = None
        if control is not None:
            control.close()
        if wire is not None:
            wire.close()

    def _open(self) -> tuple[Control, Wire]:
        """On first use: boto3 takes a good part of a second to import."""
        control, wire = self._control_made, self._wire_made
        if control is None or wire is None:
            with self._lock:
                control = self._control_made = self._control_made or self._make()
                wire = self._wire_made = self._wire_made or Wire(control.base, control.region, control.credentials)
        return control, wire

    def _already(self, key: str, source: Source, *, overwrite: bool) -> Stored | None:
        found = self.stat(key)
        if found is None:
            return None
        if found.size == source.size and self._same(found, source):
            return found
        if not overwrite:
            raise NameTaken(key)
        return None

    def _same(self, found: Stored, source: Source) -> bool:
        """What somebody else stored has no SHA-256 with it, but may have an MD5 for its ETag."""
        if found.sha256 is not None:
            return found.sha256 == source.sha256
        if self.capabilities.etag_md5 and found.etag and len(found.etag) == 32:
            return source.md5() == found.etag
        return False

    def _put_small(self, key: str, source: Source, content_type: str, *, replace: bool) -> Put:
        able, wire = self.capabilities, self._open()[1]
        headers = {"content-type": _plain(content_type)}
        if able.metadata:
            headers["x-amz-meta-sha256"] = source.sha256
        if able.checksum_sha256 and not (able.payload_checked or able.etag_md5):
            headers["x-amz-checksum-sha256"] = base64.b64encode(bytes.fromhex(source.sha256)).decode()
        guarded = able.if_none_match and not replace
        if guarded:
            headers["if-none-match"] = "*"
        md5s: list[Any] = []

        def body() -> Iterator[bytes]:
            sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
            md5s[:] = [md5]
            chunks = source.outgoing(0, source.size, sha256, *(() if able.payload_checked else (md5,)))
            last = next(chunks, b"")
            for chunk in chunks:
                yield last
                last = chunk
            # The last piece is held back until the whole is known to be right: a wrong file never becomes an object.
            source.check(sha256.hexdigest())
            yield last

        answer = wire.request(
            "PUT",
            self.full_key(key),
            headers=headers,
            body=body,
            length=source.size,
            sha256=source.sha256,
            accept=frozenset({412}) if guarded else frozenset(),
            cancelled=source.cancelled,
        )
        if answer.status == 412:
            # Somebody was faster, or the answer to our own first attempt was lost.
            found = self._already(key, source, overwrite=False)
            if found is None:
                raise StoreRefused("conflict", f"{key!r} came and went while it was stored.")
            return Put(stored=found, skipped=True, bytes_sent=source.sent)
        etag = md5s[0].hexdigest() if able.etag_md5 and not able.payload_checked else None
        return Put(stored=self._verified(key, source, etag), bytes_sent=source.sent)

    def _put_large(self, key: str, source: Source, content_type: str, resume: Resume, *, replace: bool) -> Put:
        control, wire = self._open()
        upload = Multipart(control, wire, self.capabilities, self.full_key(key), source, resume, self._part_size)
        try:
            reused, etag = upload.run(_plain(content_type), replace=replace, arrived=lambda: self._arrived(key, source))
        except StoreRefused as error:
            if error.code == "exists":
                raise NameTaken(key) from error
            raise
        stored = self._verified(key, source, etag)
        resume.clear()
        return Put(stored=stored, parts_reused=reused, bytes_sent=source.sent)

    def _arrived(self, key: str, source: Source) -> bool:
        """Whether a completion whose answer went wrong took place all the same."""
        found = self.stat(key)
        return found is not None and found.size == source.size and found.sha256 == source.sha256

    def _verified(self, key: str, source: Source, etag: str | None) -> Stored:
        found = self.stat(key)
        if found is None:
            raise VerificationFailed(key, "the store does not have it.")
        problem = ""
        if found.size != source.size:
            problem = f"the store has {found.size:,} of {source.size:,} bytes."
        elif self.capabilities.metadata and found.sha256 != source.sha256:
            problem = "the store has another SHA-256."
        elif etag is not None and found.etag != etag:
            problem = "the store computed another checksum."
        if problem:
            failed = VerificationFailed(key, problem)
            failed.ours = found.sha256 == source.sha256
            raise failed
        return Stored(key=key, size=found.size, etag=found.etag, sha256=source.sha256)

    def _looks_full(self, key: str, error: StoreUnavailable) -> StoreFull | None:
        """SeaweedFS answers a plain 500 when it is full. It looks full when it still answers, but takes no bytes."""
        if error.status != 500 or not error.headers.get("server", "").startswith("SeaweedFS"):
            return None
        try:
            self.stat(key)
        except StoreError:
            return None
        sentence = f"{self.url} answers, but takes no more bytes: it is most likely full. Its own log says more."
        full = StoreFull("store_full", sentence, status=error.status, headers=error.headers)
        full.certain = False
        return full

    def _drop(self, resume: Resume) -> None:
        """An upload in parts that is no longer needed is told so, or its parts would be stored for ever."""
        unfinished = resume.load()
        if unfinished is not None:
            self._open()[0].abort(unfinished.key, unfinished.upload_id)
            resume.clear()


def _plain(content_type: str) -> str:
    """It may come from a stranger, and goes into a header."""
    return content_type if re.fullmatch(r"[!-~]+( [!-~]+)*", content_type) else "application/octet-stream"


def _stored(key: str, headers: Any) -> Stored:
    return Stored(
        key=key,
        size=int(headers.get("content-length", -1)),
        etag=(headers.get("etag") or "").strip('"').lower() or None,
        sha256=headers.get("x-amz-meta-sha256"),
    )
