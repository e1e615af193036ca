"""A large file in parts. The UploadId is remembered before the first part; which parts arrived, the store tells."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from dalsegno.objects.control import Control
from dalsegno.objects.errors import SourceChanged, StoreError, VerificationFailed
from dalsegno.objects.model import Capabilities, Resume, Unfinished
from dalsegno.objects.source import Source
from dalsegno.objects.wire import Wire

PART = 8 * 1024 * 1024
PARTS_MAX = 10_000
FRESH_STARTS = 2
PART_ATTEMPTS = 3


def part_size(size: int, least: int = PART) -> int:
    """As small as may be: the last part begun is all that a crash can cost."""
    part = least
    while part * PARTS_MAX < size:
        part *= 2
    return part


class Multipart:
    def __init__(
        self,
        control: Control,
        wire: Wire,
        able: Capabilities,
        key: str,
        source: Source,
        resume: Resume,
        least: int | None = None,
    ) -> None:
        self._control, self._wire, self._able = control, wire, able
        self._key, self._source, self._resume = key, source, resume
        self._part_size = part_size(source.size, least or PART)
        self._reused = 0

    def run(self, content_type: str, *, replace: bool, arrived: Callable[[], bool]) -> tuple[int, str | None]:
        """How many parts were there already, and the ETag the whole should have, where that can be known."""
        guarded = self._able.if_none_match and not replace
        for fresh in range(FRESH_STARTS + 1):
            unfinished, present = self._begin(content_type)
            completing = False
            try:
                etags, md5s = self._send(unfinished, present)
                self._source.stop_if_cancelled()
                completing = True
                self._control.complete(self._key, unfinished.upload_id, etags, guarded=guarded)
            except SourceChanged:
                self._control.abort(self._key, unfinished.upload_id)
                self._resume.clear()
                raise
            except StoreError as error:
                # An error after the last part may have swallowed a success, and an upload is also gone when it is done.
                if (completing or error.code == "upload_gone") and arrived():
                    return self._reused, None
                if error.code == "exists":
                    self._control.abort(self._key, unfinished.upload_id)
                if error.code in {"upload_gone", "parts_gone", "exists"}:
                    self._resume.clear()
                if error.code not in {"upload_gone", "parts_gone"} or fresh == FRESH_STARTS:
                    raise
                self._control.abort(self._key, unfinished.upload_id)
            else:
                return self._reused, _whole(md5s) if self._able.multipart_etag else None
        raise AssertionError

    def _begin(self, content_type: str) -> tuple[Unfinished, dict[int, tuple[int, str]]]:
        """Go on with the upload that was remembered, or start one and remember it."""
        source, old = self._source, self._resume.load()
        if old is not None:
            if (old.key, old.sha256, old.size) == (self._key, source.sha256, source.size) and self._able.list_parts:
                try:
                    return old, self._control.parts(self._key, old.upload_id)
                except StoreError as error:
                    if error.code not in {"upload_gone", "not_found"}:
                        raise
            else:
                self._control.abort(old.key, old.upload_id)
            self._resume.clear()
        metadata = {"sha256": source.sha256} if self._able.metadata else {}
        upload_id = self._control.create(self._key, content_type, metadata)
        new = Unfinished(
            upload_id=upload_id, key=self._key, part_size=self._part_size, sha256=source.sha256, size=source.size
        )
        self._resume.save(new)
        return new, {}

    def _send(self, unfinished: Unfinished, present: dict[int, tuple[int, str]]) -> tuple[dict[int, str], list[bytes]]:
        """Every part is read, sent or not: so the whole is hashed, and a file that changed is found out."""
        whole = hashlib.sha256()
        etags: dict[int, str] = {}
        md5s: list[bytes] = []
        self._reused = 0
        for number, offset in enumerate(range(0, self._source.size, unfinished.part_size), start=1):
            length = min(unfinished.part_size, self._source.size - offset)
            found = present.get(number)
            if found is not None and found[0] == length:
                hashed, md5 = whole.copy(), hashlib.md5(usedforsecurity=False)
                for _ in self._source.hashed(offset, length, hashed, md5):
                    pass
                if not self._able.etag_md5 or md5.hexdigest() == found[1]:
                    self._reused += 1
                    self._source.reached(offset + length)
                    whole, etags[number] = hashed, found[1]
                    md5s.append(md5.digest())
                    continue
            whole, etags[number], digest = self._send_part(unfinished, number, offset, length, whole)
            md5s.append(digest)
        self._source.check(whole.hexdigest())
        return etags, md5s

    def _send_part(
        self, unfinished: Unfinished, number: int, offset: int, length: int, whole: Any
    ) -> tuple[Any, str, bytes]:
        for _ in range(PART_ATTEMPTS):
            hashes: list[Any] = []

            def body(hashes: list[Any] = hashes) -> Iterator[bytes]:
                hashes[:] = [whole.copy(), hashlib.md5(usedforsecurity=False)]
                return self._source.outgoing(offset, length, *hashes)

            answer = self._wire.request(
                "PUT",
                self._key,
                query={"partNumber": str(number), "uploadId": unfinished.upload_id},
                body=body,
                length=length,
                cancelled=self._source.cancelled,
            )
            hashed, md5 = hashes
            etag = (answer.headers.get("etag") or "").strip('"').lower()
            if etag and (not self._able.etag_md5 or etag == md5.hexdigest()):
                return hashed, etag, md5.digest()
        raise VerificationFailed(self._key, f"part {number} arrived damaged {PART_ATTEMPTS} times.")


def _whole(md5s: list[bytes]) -> str:
    """What S3 makes of the parts' MD5s."""
    return f"{hashlib.md5(b''.join(md5s), usedforsecurity=False).hexdigest()}-{len(md5s)}"
