"""A line between a client and a server that counts what goes over it, and can be held at a given byte."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import unquote, urlsplit

CHUNK = 64 * 1024
_HEAD = re.compile(rb"([A-Z]{3,7}) (\S+) HTTP/1\.[01]\r\n")


class Proxy:
    """`up` and `down` are bytes from and to clients; `asked` counts requests by method and path."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.up = self.down = 0
        self.asked: Counter[tuple[str, str]] = Counter()
        self.held = threading.Event()
        """It has come to where it is to be held."""
        self._marks: dict[str, int | None] = {"up": None, "down": None}
        self._free = threading.Event()
        self._free.set()
        self._over = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def hold_at(self, way: str, mark: int) -> None:
        """No more than so many bytes go `up` or `down` until it is let go."""
        with self._lock:
            self._marks[way] = mark
            self.held.clear()
            self._free.clear()

    def let_go(self) -> None:
        with self._lock:
            self._marks = {"up": None, "down": None}
        self._free.set()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._over:
                client.close()
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            self._start(self._pump, client, server, "up")
            self._start(self._pump, server, client, "down")

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if way == "up" and (head := _HEAD.match(data)):
                    with self._lock:
                        self.asked[head[1].decode(), unquote(head[2].decode().partition("?")[0])] += 1
                self._wait(way, len(data))
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _wait(self, way: str, count: int) -> None:
        with self._lock:
            moved = getattr(self, way)
            mark = self._marks[way]
            stop = mark is not None and moved + count > mark
            if not stop:
                setattr(self, way, moved + count)
        if stop:
            self.held.set()
            self._free.wait()
            if self._over:
                raise ConnectionAbortedError
            with self._lock:
                setattr(self, way, getattr(self, way) + count)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def start(self) -> None:
        self._start(self._serve)

    def close(self) -> None:
        self._over = True
        self._free.set()
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        self._threads[0].join(10)
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in (*self._sockets, self._listener):
            each.close()


@contextmanager
def proxied(target: str) -> Iterator[Proxy]:
    """In front of the server at `target`, an http address."""
    proxy = Proxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
