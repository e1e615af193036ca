"""Signed requests to S3 over pooled connections, tried again where that may help; answers no as an error for people."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from random import Random
from urllib.parse import urlsplit

from dalsegno.clock import Clock, SystemClock
from dalsegno.objects.errors import StoreError, UploadCancelled
from dalsegno.objects.line import Answer, Lines
from dalsegno.objects.refusal import refusal, unreachable
from dalsegno.objects.sign import UNSIGNED, Credentials, encode, query_string, sign

_CHANCE = Random()
ATTEMPTS = 4
PAUSE_MAX = 5.0
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
        self._lines = Lines(base)
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
    ) -> Answer:
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
                lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
                head = f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
                pieces = body() if callable(body) else (body,)
                answer = self._lines.exchange(head, pieces, bodiless=method == "HEAD")
            except OSError as error:
                failed = unreachable(self._host, error)
                retry = not isinstance(error, ssl.SSLError)
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
        self._lines.close()


def _pause(attempt: int, headers: Mapping[str, str]) -> float:
    """Long waits are the caller's: the error says how long, and the item can make room for another."""
    asked = headers.get("retry-after", "")
    if asked.isdigit():
        return min(float(asked), PAUSE_MAX)
    return _CHANCE.uniform(0.1, 0.2) * float(2**attempt)


def _error(body: bytes) -> tuple[str, str]:
    """Code and message of an S3 error. Taken with two patterns: an XML parser is not let loose on foreign text."""
    text = body[:16384].decode("utf-8", "replace")
    code = re.search(r"<Code>([^<]*)</Code>", text)
    message = re.search(r"<Message>([^<]*)</Message>", text)
    return (code[1] if code else "", message[1] if message else "")
