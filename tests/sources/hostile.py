"""A server that says exactly what it is told to, byte for byte, however wrong."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[str, dict[str, str]], bytes]
"""From a path and the request's headers to the bytes of the answer; it is said, then the connection is closed unless
the answer ends with KEEP."""
KEEP = b"<keep>"


class Hostile:
    def __init__(self) -> None:
        self.answers: dict[str, bytes | Script] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        """What came with those that had something with them."""
        self.connections = 0
        self.piece = 1 << 30
        """How many bytes are said at once."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        threads = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            self.connections += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(connection)
            threads.append(threading.Thread(target=self._converse, args=(connection,), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming, suppress(OSError):
            while first := incoming.readline():
                path = first.split()[1].decode()
                headers = {}
                while (line := incoming.readline().strip().decode()) != "":
                    name, _, value = line.partition(":")
                    headers[name.strip().lower()] = value.strip()
                if length := int(headers.get("content-length", 0)):
                    self.bodies.append(incoming.read(length))
                self.requests.append((path, headers))
                answer = self.answers.get(
                    path.partition("?")[0], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
                )
                said = answer(path, headers) if callable(answer) else answer
                said_now = said.removesuffix(KEEP)
                for at in range(0, len(said_now), self.piece):
                    connection.sendall(said_now[at : at + self.piece])
                if not said.endswith(KEEP):
                    return


@contextmanager
def hostile() -> Iterator[Hostile]:
    server = Hostile()
    try:
        yield server
    finally:
        server.close()


def ok(body: bytes, *headers: str, status: str = "200 OK", keep: bool = False) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body + (KEEP if keep else b"")


def redirect(where: str) -> bytes:
    return ok(b"", f"Location: {where}", status="302 Found")
