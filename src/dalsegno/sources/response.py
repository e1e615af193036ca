"""An answer whose body is still on its way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Literal

from urllib3.exceptions import HTTPError, IncompleteRead, ProtocolError

from dalsegno.model.signal import BODY_MAX, ProviderError
from dalsegno.sources.model import Gone, Unusable
from dalsegno.sources.urls import Target
from dalsegno.sources.wire import Headers, Wire

MIB = 1024 * 1024
DOCUMENT_MAX = 32 * MIB
Method = Literal["GET", "HEAD", "POST"]


class Response:
    """An answer whose body is still on its way. Headers are asked by name in any case."""

    __slots__ = (
        "_aborted",
        "_chunk",
        "_chunked",
        "_keep",
        "_left",
        "_place",
        "_release",
        "_wire",
        "headers",
        "length",
        "status",
    )

    def __init__(
        self,
        wire: Wire,
        release: Callable[[Wire], None],
        place: Target,
        method: Method,
        status: int,
        modern: bool,
        headers: Headers,
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers
        self._release, self._place = release, place
        self._wire: Wire | None = wire
        connection = headers.get("connection")
        self._keep = (
            modern
            if connection is None
            else "close" not in connection.lower() and (modern or "keep" in connection.lower())
        )
        coding = headers.get("transfer-encoding")
        self._chunked = coding is not None
        self._chunk = 0
        self._aborted = False
        self.length: int | None = None
        """Of the body, in bytes, where it was announced."""
        if method == "HEAD" or status in (204, 304):
            self.length, self._chunked = 0, False
        elif coding is not None:
            if coding.lower() != "chunked":
                raise ProtocolError(f"{wire.host} answers in a coding nobody knows")
        else:
            text = headers.get("content-length")
            if text is not None:
                if not (text.isascii() and text.isdigit()):
                    raise ProtocolError(f"{wire.host} announces a length that is no number")
                self.length = int(text)
            else:
                self._keep = False
        self._left = self.length
        if self._left == 0:
            self._end()

    @property
    def url(self) -> str:
        """Where it was in the end, without user and password."""
        return self._place.url

    def read_into(self, view: memoryview) -> int:
        """Fills as much of `view` as has arrived, at least a byte; 0 at the end of the body.

        Raises urllib3's IncompleteRead when the body ends before its announced length.
        """
        wire = self._wire
        if wire is None or not len(view):
            return 0
        left = self._left
        if left is not None:
            count = wire.take(view if left >= len(view) else view[:left])
            if not count:
                raise self._short()
            self._left = left = left - count
            if not left:
                self._end()
            return count
        if self._chunked:
            return self._read_chunk(wire, view)
        count = wire.take(view)
        if not count:
            if self._aborted:
                raise self._short()
            self._end()
        return count

    def stream(self, chunk: int = 256 * 1024) -> Iterator[bytes]:
        view = memoryview(bytearray(chunk))
        while count := self.read_into(view):
            yield bytes(view[:count])

    def read(self, limit: int = DOCUMENT_MAX, *, within: float = 300.0) -> bytes:
        """The whole body; raises Unusable past `limit` bytes, and TimeoutError past `within` seconds."""
        if self.length is not None and self.length > limit:
            raise self._too_large(limit)
        until = time.monotonic() + within
        body = bytearray()
        view = memoryview(bytearray(min(64 * 1024, (self.length or 64 * 1024))))
        while count := self.read_into(view):
            body += view[:count]
            if len(body) > limit:
                raise self._too_large(limit)
            if time.monotonic() > until:
                raise TimeoutError(f"{self._place.host} took longer than {within:g} s")
        return bytes(body)

    def check(self) -> None:
        """Raises for a status of 400 and above, with what was said about it."""
        if self.status < 400:
            return
        host = self._place.host
        if self.status in (404, 410):
            raise Gone(f"{host} no longer has it (HTTP {self.status}).")
        try:
            body = self.read(BODY_MAX, within=30.0).decode("utf-8", "replace")
        except (Unusable, HTTPError, OSError):
            body = ""
        raise ProviderError(self.status, body, self.headers, f"{host} answered HTTP {self.status}.")

    def drain(self) -> None:
        """Reads what is left if it is little, so that the connection can be used again."""
        try:
            if self._wire is not None and self._keep and (self.length or 0) <= 64 * 1024:
                self.read(64 * 1024, within=5.0)
        except (Unusable, HTTPError, OSError):
            pass
        self.close()

    def abort(self) -> None:
        """From another thread: wakes the one that is reading, with an error."""
        self._aborted = True
        wire = self._wire
        if wire is not None:
            wire.abort()

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def __enter__(self) -> Response:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_chunk(self, wire: Wire, view: memoryview) -> int:
        if not self._chunk:
            size = wire.line().partition(b";")[0].strip()
            try:
                if not size.isalnum():
                    raise ValueError
                self._chunk = int(size, 16)
            except ValueError:
                raise ProtocolError(f"{wire.host} sends chunks that cannot be read") from None
            if not self._chunk:
                for _ in range(100):
                    if not wire.line():
                        self._end()
                        return 0
                raise ProtocolError(f"{wire.host} sends trailers without end")
        count = wire.take(view[: self._chunk])
        if not count:
            raise self._short()
        self._chunk -= count
        if not self._chunk and wire.line():
            raise ProtocolError(f"{wire.host} sends chunks that cannot be read")
        return count

    def _end(self) -> None:
        wire, self._wire = self._wire, None
        if wire is None:
            return
        if self._keep:
            self._release(wire)
        else:
            wire.close()

    def _short(self) -> IncompleteRead:
        self.close()
        left = self._chunk if self._left is None else self._left
        return IncompleteRead((self.length or left) - left, left)

    def _too_large(self, limit: int) -> Unusable:
        self.close()
        return Unusable(f"{self._place.host} sends more than the {limit // MIB} MiB that are read.", code="too_large")
