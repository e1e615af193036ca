"""From OBJECT_STORE to a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dalsegno.objects.errors import StoreRefused
from dalsegno.objects.local import FolderStore
from dalsegno.objects.model import Capabilities, ObjectStore
from dalsegno.objects.s3 import S3Store


def open_store(url: str, config: Mapping[str, Any], *, capabilities: Capabilities | None = None) -> ObjectStore:
    """`file:///…`, an absolute path, or `s3://bucket/prefix` with the S3_… keys of `config`. Nothing is asked yet.

    `capabilities` are those of an earlier probe; without them the first upload probes.
    """
    if url.startswith("/"):
        return FolderStore(Path(url))
    # Split by hand where a path may hold ? and #, which mean nothing here.
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise StoreRefused("url_invalid", f"OBJECT_STORE is neither file:///…, s3://bucket/prefix nor a path: {url!r}.")
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in {"", "localhost"} or not slash:
            raise StoreRefused("url_invalid", "A folder is written file:///path, with three slashes.")
        return FolderStore(Path("/" + unquote(path)))
    if scheme != "s3":
        raise StoreRefused("url_invalid", f'OBJECT_STORE cannot begin with "{scheme}://": use file:/// or s3://.')
    bucket, _, prefix = rest.partition("/")
    if not bucket or "@" in bucket:
        raise StoreRefused(
            "url_invalid", "OBJECT_STORE must be s3://bucket/prefix; keys go into S3_ACCESS_KEY and _SECRET_KEY."
        )
    endpoint = _text(config, "S3_ENDPOINT")
    if endpoint and urlsplit(endpoint).scheme not in {"http", "https"}:
        raise StoreRefused("endpoint_invalid", "S3_ENDPOINT must begin with http:// or https://.")
    return S3Store(
        bucket,
        unquote(prefix),
        endpoint=endpoint or None,
        region=_text(config, "S3_REGION") or "us-east-1",
        access_key=_text(config, "S3_ACCESS_KEY"),
        secret_key=_text(config, "S3_SECRET_KEY"),
        capabilities=capabilities,
    )


def _text(config: Mapping[str, Any], name: str) -> str:
    value = config.get(name, config.get(name.lower()))
    reveal = getattr(value, "get_secret_value", None)  # pydantic's SecretStr
    return str(reveal() if reveal else value or "")
