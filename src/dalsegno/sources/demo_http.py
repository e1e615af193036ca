"""A small HTTP/1.1 server: threads, keep-alive, GET and HEAD, and answers that are cut, slow or untrue on purpose."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from socket import SHUT_RDWR, socket
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

LINE_MAX = 16 * 1024
HEADERS_MAX = 100
IDLE_MAX = 120.0
PIECE = 16 * 1024
"""Bytes that are sent and counted at once; a slow answer takes a breath after each."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By lower-case name."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    length: int | None = None
    """What Content-Length claims, where that is not what is sent: then the connection ends with the body."""
    rate: float | None = None
    """Bytes a second; as fast as it goes where None."""
    sent: Callable[[int], None] | None = None
    """Told how many bytes of the body go out, piece by piece."""

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        kind = {"Content-Type": "application/json; charset=utf-8"}
        return cls(status, kind | dict(headers or {}), json.dumps(value, ensure_ascii=False).encode())

    @classmethod
    def error(cls, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
        return cls.json({"error": message}, status, headers)


Answer = Callable[[Request], Response]


def ranged(request: Request, body: bytes, etag: str, kind: str) -> tuple[Response, range]:
    """The whole body, or the one range of it that was asked for; and which bytes these are."""
    headers = {"Content-Type": kind, "ETag": etag, "Accept-Ranges": "bytes"}
    asked = request.headers.get("range", "")
    if request.headers.get("if-range", etag) != etag:
        asked = ""
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", asked.strip())
    if match is None or match[0] == "bytes=-":
        return Response(200, headers, body), range(len(body))
    if match[1]:
        part = range(int(match[1]), min(int(match[2]) + 1 if match[2] else len(body), len(body)))
        if match[2] and int(match[2]) < int(match[1]):
            return Response(200, headers, body), range(len(body))
    else:
        part = range(max(0, len(body) - int(match[2])), len(body))
    if not part:
        return Response(416, {"Content-Range": f"bytes */{len(body)}"}), range(0)
    headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(body)}"
    return Response(206, headers, memoryview(body)[part.start : part.stop]), part


class Web:
    """Answers on a loopback address until it is closed."""

    def __init__(self, answer: Answer, port: int = 0, host: str = "127.0.0.1") -> None:
        self.answer = answer
        self.closing = threading.Event()
        """Set when answers that wait should wait no longer."""
        self._open: dict[threading.Thread, socket] = {}
        self._lock = threading.Lock()
        self._listener = _Listener((host, port), self)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.1,), name="demo-web", daemon=True)
        self.url = f"http://{host}:{self._listener.server_address[1]}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        if self.closing.is_set():
            return
        self.closing.set()
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()
        with self._lock:
            talking = dict(self._open)
        for connection in talking.values():
            with suppress(OSError):
                connection.shutdown(SHUT_RDWR)
        for thread in talking:
            thread.join(10)

    def enter(self, connection: socket) -> None:
        with self._lock:
            self._open[threading.current_thread()] = connection

    def leave(self) -> None:
        with self._lock:
            self._open.pop(threading.current_thread(), None)


class _Listener(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], web: Web) -> None:
        self.web = web
        super().__init__(address, _Connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news, and `_Connection` answers the rest."""


class _Connection(StreamRequestHandler):
    server: _Listener
    timeout = IDLE_MAX
    disable_nagle_algorithm = True
    rbufsize = 64 * 1024

    def handle(self) -> None:
        web = self.server.web
        web.enter(self.connection)
        try:
            while not web.closing.is_set() and self._one(web):
                pass
        finally:
            web.leave()

    def _one(self, web: Web) -> bool:
        """One request and its answer; whether another may follow."""
        line = self.rfile.readline(LINE_MAX)
        parts = line.decode("latin-1").split()
        if len(parts) != 3:
            return False
        method, target, version = parts
        headers = self._headers()
        if headers is None or method not in ("GET", "HEAD") or "transfer-encoding" in headers:
            self._send(Response.error(400 if headers is None else 405, "GET and HEAD only"), method, last=True)
            return False
        try:
            url = urlsplit(target)
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            response = web.answer(Request(method, unquote(url.path), query, headers))
        except Exception as error:
            response = Response.error(500, f"{type(error).__name__}: {error}")
        if web.closing.is_set():
            return False
        last = version != "HTTP/1.1" or headers.get("connection", "").lower() == "close"
        return self._send(response, method, last=last)

    def _headers(self) -> dict[str, str] | None:
        headers: dict[str, str] = {}
        for _ in range(HEADERS_MAX):
            line = self.rfile.readline(LINE_MAX)
            if line in (b"\r\n", b"\n"):
                return headers
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                return None
            headers[name.strip().lower()] = value.strip()
        return None

    def _send(self, response: Response, method: str, *, last: bool) -> bool:
        body = response.body if method != "HEAD" else b""
        claimed = len(response.body) if response.length is None else response.length
        last = last or (claimed != len(response.body) and method != "HEAD")
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}", f"Content-Length: {claimed}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        lines += ["Connection: close"] if last else []
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if not body:
            self.connection.sendall(head)
        for start in range(0, len(body), PIECE):
            piece = body[start : start + PIECE]
            if response.sent is not None:
                # Before it goes: whoever has received it may ask for the count at once.
                response.sent(len(piece))
            # Head and small bodies in one packet: many answers are just that.
            self.connection.sendall(head + piece if start == 0 else piece)
            if response.rate is not None and self.server.web.closing.wait(len(piece) / response.rate):
                return False
        return not last
