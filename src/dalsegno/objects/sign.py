"""AWS Signature Version 4, for the few requests that are made thousands of times.

botocore signs too, and does a great deal around it: a PUT of 100 KB and a HEAD through it took about 4 ms of this
process's time. Everything that happens once a large file or less is left to it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from urllib.parse import quote

UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


@lru_cache(256)
def encode(text: str, safe: str = "/") -> str:
    """As S3 wants it: everything but letters, digits and -_.~ escaped, in the path exactly once."""
    return quote(text, safe=safe)


def query_string(parameters: dict[str, str]) -> str:
    return "&".join(f"{encode(name, '')}={encode(value, '')}" for name, value in sorted(parameters.items()))


def sign(
    credentials: Credentials,
    region: str,
    now: datetime,
    method: str,
    host: str,
    path: str,
    query: str,
    headers: dict[str, str],
    payload: str,
) -> dict[str, str]:
    """The headers to send. `path` and `query` are encoded already; `payload` is the body's SHA-256 or UNSIGNED."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": stamp}
    if credentials.token:
        signed["x-amz-security-token"] = credentials.token
    signed.update(headers)
    order = sorted(signed)
    names = ";".join(order)
    lines = "".join([f"{name}:{signed[name]}\n" for name in order])
    request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.digest(_key(credentials.secret_key, stamp[:8], region), text.encode(), "sha256").hex()
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed


@lru_cache(maxsize=16)
def _key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for step in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    return key
