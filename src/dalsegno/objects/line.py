"""Kept-alive HTTP/1.1 connections to one server, with as little between a thread and its socket as will do.

Rejected: urllib3. Through it a file of 100 KB, one PUT and one HEAD, took about 1.7 ms of this process's time; this way
about 1.0 (2,000 files, ten threads). Connecting, TLS and proxies are left to http.client.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from io import BufferedReader
from typing import cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

TIMEOUT = 60.0
HEADERS_MAX = 200
LINE_MAX = 64 * 1024
BODY_MAX = 1024 * 1024
"""Answers here are short: an ETag, or why not."""


class LineCut(ConnectionError):
    """The server went away in mid-sentence, or said something that is not HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    """Names in small letters."""
    data: bytes


class Lines:
    """Those that are free wait here for the next thread; there are never more than threads that asked at once."""

    def __init__(self, base: str) -> None:
        address = urlsplit(base)
        self._secure = address.scheme == "https"
        self._host, self._port = address.hostname or "", address.port or (443 if self._secure else 80)
        proxy = getproxies().get(address.scheme)
        self._proxy = urlsplit(proxy) if proxy and not proxy_bypass(self._host) else None
        self._tls = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None) if self._secure else None
        self._free: deque[_Line] = deque()

    def exchange(self, head: bytes, body: Iterable[bytes], *, bodiless: bool) -> Answer:
        """One request, one answer. `bodiless` answers announce a length and send nothing."""
        line = self._line()
        try:
            answer, reusable = line.exchange(head, body, bodiless=bodiless)
        except BaseException:  # a cancelled upload too leaves half a request behind
            line.close()
            raise
        if reusable:
            self._free.append(line)
        else:
            line.close()
        return answer

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self._free.pop().close()

    def _line(self) -> _Line:
        with suppress(IndexError):
            while True:
                line = self._free.pop()
                if line.alive():
                    return line
                line.close()
        host, port = (self._proxy.hostname or "", self._proxy.port or 80) if self._proxy else (self._host, self._port)
        connection: HTTPConnection
        if self._tls is not None:
            connection = HTTPSConnection(host, port, timeout=TIMEOUT, context=self._tls)
        else:
            connection = HTTPConnection(host, port, timeout=TIMEOUT)
        if self._proxy:
            connection.set_tunnel(self._host, self._port)
        try:
            connection.connect()
        except HTTPException as error:
            raise LineCut(type(error).__name__) from error
        return _Line(connection)


class _Line:
    def __init__(self, connection: HTTPConnection) -> None:
        self._socket = connection.sock
        if not isinstance(self._socket, ssl.SSLSocket):
            # Kept by the system: Python's own timeouts ask before every read whether there is something.
            within = struct.pack("@ll", int(TIMEOUT), 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, within)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, within)
            self._socket.settimeout(None)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._input = cast(BufferedReader, self._socket.makefile("rb"))

    def alive(self) -> bool:
        """A free line has nothing to say: when it can be read, the server hung up."""
        with suppress(OSError, ValueError):
            return not self._poll.poll(0)
        return False

    def close(self) -> None:
        with suppress(OSError):
            self._input.close()
        self._socket.close()

    def exchange(self, head: bytes, body: Iterable[bytes], *, bodiless: bool) -> tuple[Answer, bool]:
        whole = True
        try:
            for piece in body:
                # The head travels with the first piece: one packet less to wait for.
                self._socket.sendall(head + piece if head else piece)
                head = b""
            if head:
                self._socket.sendall(head)
        except (BrokenPipeError, ConnectionResetError):
            whole = False  # it may have said why before it hung up
        version, status, headers = self._head()
        while status < 200:
            version, status, headers = self._head()
        data, ended = (b"", True) if bodiless or status in {204, 304} else self._body(headers)
        keep = headers.get("connection", "").lower() != "close" and version == "HTTP/1.1"
        return Answer(status, headers, data), whole and ended and keep

    def _read_line(self) -> bytes:
        line = self._input.readline(LINE_MAX)
        if not line.endswith(b"\n"):
            raise LineCut("no answer")
        return line.rstrip(b"\r\n")

    def _head(self) -> tuple[str, int, dict[str, str]]:
        """Version, status and headers."""
        end = self._input.peek().find(b"\r\n\r\n")
        # Nearly always it has come in one piece.
        text = self._input.read(end + 4)[:-4] if end >= 0 else b"\r\n".join(self._lines())
        lines = text.decode("latin-1").split("\r\n")
        if len(lines) > HEADERS_MAX:
            raise LineCut("endless headers")
        parts = lines[0].split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not (parts[1].isascii() and parts[1].isdigit()):
            raise LineCut("no HTTP")
        found: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            found[name.lower()] = value.strip()
        return parts[0], int(parts[1]), found

    def _lines(self) -> list[bytes]:
        """Up to an empty one."""
        found: list[bytes] = []
        while len(found) < HEADERS_MAX:
            line = self._read_line()
            if not line:
                return found or [b""]
            found.append(line)
        raise LineCut("endless headers")

    def _body(self, headers: dict[str, str]) -> tuple[bytes, bool]:
        """What there is of it, and whether the next answer begins right after it."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        length = headers.get("content-length", "")
        if not length.isdigit():
            return self._input.read(BODY_MAX) or b"", False
        data = self._input.read(min(int(length), BODY_MAX)) or b""
        if len(data) < min(int(length), BODY_MAX):
            raise LineCut("half an answer")
        return data, int(length) <= BODY_MAX

    def _chunks(self) -> tuple[bytes, bool]:
        data = bytearray()
        while len(data) <= BODY_MAX:
            try:
                size = int(self._read_line().partition(b";")[0], 16)
            except ValueError:
                raise LineCut("no chunk") from None
            if size == 0:
                self._lines()
                return bytes(data), True
            data += self._input.read(min(size, BODY_MAX)) or b""
            self._read_line()
        return bytes(data), False
