"""Signed requests to S3 over pooled connections, tried again where that may help; answers no as an error for people."""

from __future__ import annotations

import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError

from dalsegno.clock import Clock, SystemClock
from dalsegno.objects.errors import StoreError, UploadCancelled
from dalsegno.objects.refusal import refusal, unreachable
from dalsegno.objects.sign import UNSIGNED, Credentials, encode, query_string, sign

CONNECTIONS = 64
ATTEMPTS = 4
PAUSE_MAX = 5.0
CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 60.0
BLOCK = 256 * 1024
TRANSIENT = frozenset({429, 500, 502, 503, 504})

Body = bytes | Callable[[], Iterable[bytes]]
"""A streamed body is made anew for each attempt."""


class Wire:
    def __init__(
        self, base: str, region: str, credentials: Callable[[], Credentials], clock: Clock | None = None
    ) -> None:
        """`base` is where keys begin: scheme, host and, unless the host names it, the bucket."""
        address = urlsplit(base)
        self._host = address.netloc
        self._prefix = address.path.rstrip("/")
        self._region, self._credentials, self._clock = region, credentials, clock or SystemClock()
        self._pool = _pool(base)
        self._sleep = threading.Event().wait

    def request(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body = b"",
        length: int = 0,
        sha256: str = UNSIGNED,
        accept: frozenset[int] = frozenset(),
        cancelled: Callable[[], bool] = lambda: False,
        attempts: int = ATTEMPTS,
    ) -> Any:
        """The answer, when it is 2xx or in `accept`; else a StoreError."""
        path = f"{self._prefix}/{encode(key)}"
        text = query_string(dict(query or {}))
        target = f"{path}?{text}" if text else path
        for attempt in range(1, attempts + 1):
            if cancelled():
                raise UploadCancelled
            failed: StoreError
            try:
                sent = sign(
                    self._credentials(), self._region, self._clock.now(), method, self._host, path, text,
                    dict(headers or {}), sha256,
                )  # fmt: skip
                sent["content-length"] = str(length)
                answer = self._pool.urlopen(
                    method,
                    target,
                    body=body() if callable(body) else body or None,
                    headers=sent,
                    retries=False,
                    redirect=False,
                    assert_same_host=False,
                )
            except HTTPError as error:
                failed = unreachable(self._host, error)
                retry = not isinstance(error, urllib3.exceptions.SSLError)
            else:
                if answer.status < 300 or answer.status in accept:
                    return answer
                failed = refusal(answer.status, answer.headers, *_error(answer.data), host=self._host)
                retry = answer.status in TRANSIENT or failed.code in {"request_timeout", "conflict"}
            if attempt == attempts or not retry:
                raise failed
            self._sleep(_pause(attempt, failed.headers))
        raise AssertionError

    def close(self) -> None:
        self._pool.close()


def _pool(base: str) -> Any:
    address = urlsplit(base)
    options: dict[str, Any] = {
        "maxsize": CONNECTIONS,
        "block": False,
        "timeout": urllib3.Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT),
        "blocksize": BLOCK,
    }
    if address.scheme == "https":
        options["ca_certs"] = os.environ.get("AWS_CA_BUNDLE") or None
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):
        return urllib3.ProxyManager(proxy, **options).connection_from_url(base)
    return urllib3.PoolManager(**options).connection_from_url(base)


def _pause(attempt: int, headers: Mapping[str, str]) -> float:
    """Long waits are the caller's: the error says how long, and the item can make room for another."""
    asked = headers.get("retry-after", "")
    if asked.isdigit():
        return min(float(asked), PAUSE_MAX)
    return random.uniform(0.1, 0.2) * float(2**attempt)


def _error(body: bytes) -> tuple[str, str]:
    """Code and message of an S3 error. Taken with two patterns: an XML parser is not let loose on foreign text."""
    text = body[:16384].decode("utf-8", "replace")
    code = re.search(r"<Code>([^<]*)</Code>", text)
    message = re.search(r"<Message>([^<]*)</Message>", text)
    return (code[1] if code else "", message[1] if message else "")
