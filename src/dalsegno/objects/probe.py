"""What an S3 store can do, found out by trying. Vendors take headers they ignore, so only effects count."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable

from dalsegno.objects.control import Control
from dalsegno.objects.errors import StoreError, StoreRefused
from dalsegno.objects.model import RESERVED, Capabilities
from dalsegno.objects.multipart import PARTS_MAX
from dalsegno.objects.wire import Wire

CONTENT = b"Dal Segno was here, and takes this away again."
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
OTHER = hashlib.sha256(b"").hexdigest()
ANY = frozenset(range(300, 600))


def probe(control: Control, wire: Wire, full_key: Callable[[str], str]) -> Capabilities:
    """Raises what a person has to know when the store cannot be used at all."""
    attempt = _Probe(control, wire, full_key(f"{RESERVED}probe-{secrets.token_hex(8)}"))
    attempt.write()
    try:
        found = attempt.look()
    finally:
        deletes = attempt.clean()
    return Capabilities(**found, deletes=deletes, part_min=5 * 1024 * 1024, part_max=5 * 1024**3, parts_max=PARTS_MAX)


class _Probe:
    def __init__(self, control: Control, wire: Wire, key: str) -> None:
        self._control, self._wire, self._key = control, wire, key
        self._twin = f"{key}-parts"

    def write(self) -> None:
        # Asked first, because some servers make a bucket of any name they hear. Who may not ask can still write.
        try:
            self._control.head_bucket()
        except StoreRefused as error:
            if error.code == "bucket_missing":
                raise
        answer = self._put(self._key, sha256=SHA256, headers={"x-amz-meta-sha256": SHA256})
        self._etag = (answer or "").strip('"').lower()

    def look(self) -> dict[str, bool]:
        head = self._wire.request("HEAD", self._key).headers
        found = {
            "metadata": head.get("x-amz-meta-sha256") == SHA256,
            "etag_md5": (head.get("etag") or "").strip('"').lower() == MD5 == self._etag,
            "payload_checked": self._refuses(sha256=OTHER),
            "if_none_match": self._refuses(sha256=SHA256, headers={"if-none-match": "*"}),
            "checksum_sha256": self._checksums(),
        }
        return found | self._multipart()

    def clean(self) -> bool:
        try:
            for key in (self._key, self._twin):
                self._control.delete(key)
        except StoreError:
            return False
        return True

    def _put(self, key: str, *, sha256: str, headers: dict[str, str]) -> str | None:
        answer = self._wire.request("PUT", key, headers=headers, body=CONTENT, length=len(CONTENT), sha256=sha256)
        etag: str | None = answer.headers.get("etag")
        return etag

    def _refuses(self, *, sha256: str, headers: dict[str, str] | None = None) -> bool:
        answer = self._wire.request(
            "PUT",
            self._key,
            headers={"x-amz-meta-sha256": SHA256} | (headers or {}),
            body=CONTENT,
            length=len(CONTENT),
            sha256=sha256,
            accept=ANY,
        )
        return bool(400 <= answer.status < 500)

    def _checksums(self) -> bool:
        right, wrong = (base64.b64encode(bytes.fromhex(digest)).decode() for digest in (SHA256, OTHER))
        if not self._refuses(sha256=SHA256, headers={"x-amz-checksum-sha256": wrong}):
            return False
        if self._refuses(sha256=SHA256, headers={"x-amz-checksum-sha256": right}):
            return False
        head = self._wire.request("HEAD", self._key, headers={"x-amz-checksum-mode": "ENABLED"})
        return bool(head.headers.get("x-amz-checksum-sha256") == right)

    def _multipart(self) -> dict[str, bool]:
        found = {"multipart": False, "list_parts": False, "multipart_etag": False}
        try:
            upload_id = self._control.create(self._twin, "application/octet-stream", {"sha256": SHA256})
        except StoreRefused:
            return found
        try:
            answer = self._wire.request(
                "PUT",
                self._twin,
                query={"partNumber": "1", "uploadId": upload_id},
                body=CONTENT,
                length=len(CONTENT),
                sha256=SHA256,
            )
            etag = (answer.headers.get("etag") or "").strip('"').lower()
            try:
                found["list_parts"] = self._control.parts(self._twin, upload_id) == {1: (len(CONTENT), etag)}
            except StoreRefused:
                found["list_parts"] = False
            self._control.complete(self._twin, upload_id, {1: etag}, guarded=False)
            head = self._wire.request("HEAD", self._twin).headers
        except StoreRefused:
            self._control.abort(self._twin, upload_id)
            return found | {"list_parts": False}
        found["multipart"] = head.get("content-length") == str(len(CONTENT))
        whole = hashlib.md5(bytes.fromhex(MD5), usedforsecurity=False).hexdigest()
        found["multipart_etag"] = (head.get("etag") or "").strip('"').lower() == f"{whole}-1"
        return found
