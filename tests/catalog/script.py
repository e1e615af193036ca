"""A server that answers as a test wants it to, byte by byte: cut, stalled, lying."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Request:
    head: str

    @property
    def path(self) -> str:
        return self.head.split(" ")[1]

    def header(self, name: str) -> str | None:
        found = re.search(rf"^{name}: (.*?)\r?$", self.head, re.IGNORECASE | re.MULTILINE)
        return found and found[1]

    @property
    def start(self) -> int:
        """The first byte asked for."""
        asked = self.header("Range")
        return int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0


Step = Callable[[Request, "Line"], None]


@dataclass
class Line:
    """One connection, to send on. It is closed when the step returns."""

    connection: socket.socket
    over: threading.Event

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self, status: str, body: bytes = b"", **headers: object) -> None:
        lines = [f"HTTP/1.1 {status}"]
        headers.setdefault("Content_Length", len(body))
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value is not None]
        self.send("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)

    def hold(self) -> None:
        """Say nothing more until the test is over."""
        self.over.wait(60)


@dataclass
class Script:
    url: str
    requests: list[Request] = field(default_factory=list)


@contextmanager
def scripted(*steps: Step) -> Iterator[Script]:
    """Each connection gets the next step; the last one also all that follow."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = Script(f"http://127.0.0.1:{listener.getsockname()[1]}")

        def talk(connection: socket.socket, step: Step) -> None:
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    data = connection.recv(65536)
                    if not data:
                        return
                    head += data
                request = Request(head.decode("latin-1"))
                script.requests.append(request)
                with suppress(OSError):  # the other side may have had enough
                    step(request, Line(connection, over))

        def serve() -> None:
            number = 0
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                if over.is_set():
                    connection.close()
                    return
                step = steps[min(number, len(steps) - 1)]
                number += 1
                thread = threading.Thread(target=talk, args=(connection, step))
                thread.start()
                talkers.append(thread)

        talkers: list[threading.Thread] = []
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield script
        finally:
            over.set()
            with socket.create_connection(listener.getsockname()):
                pass
            server.join()
            for thread in talkers:
                thread.join()


def whole(body: bytes, **headers: object) -> Step:
    def step(request: Request, line: Line) -> None:
        line.answer("200 OK", body, **headers)

    return step


def honest(body: bytes, etag: str = '"a"') -> Step:
    """With ranges, as a good server does it."""

    def step(request: Request, line: Line) -> None:
        if request.header("Range") and request.header("If-Range") == etag:
            start, total = request.start, len(body)
            if start >= total:
                line.answer("416 Range Not Satisfiable", Content_Range=f"bytes */{total}", ETag=etag)
                return
            line.answer("206 Partial", body[start:], Content_Range=f"bytes {start}-{total - 1}/{total}", ETag=etag)
        else:
            line.answer("200 OK", body, ETag=etag)

    return step


def cut(body: bytes, after: int, **headers: object) -> Step:
    """All of it is announced; the connection breaks off `after` bytes (from the first that was asked for)."""

    def step(request: Request, line: Line) -> None:
        start, total = request.start, len(body)
        if start:
            headers["Content_Range"] = f"bytes {start}-{total - 1}/{total}"
        line.answer("206 Partial" if start else "200 OK", body[start : start + after], **{
            **headers, "Content_Length": total - start,
        })  # fmt: skip

    return step
