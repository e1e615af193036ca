"""A real console on both databases, contents in it, and clients of both kinds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import pytest

from dalsegno import Store
from dalsegno.client import AsyncParseClient, ParseClient
from tests.requests.shelf import Shelf
from tests.web.conftest import Desk, consoles, desk, plain

T = TypeVar("T")

__all__ = ["consoles", "desk", "plain"]


@pytest.fixture
def shelf(store: Store) -> Shelf:
    return Shelf(store)


@pytest.fixture
def client(desk: Desk) -> Iterator[ParseClient]:
    with ParseClient(desk.url, created_by="discovery") as made:
        yield made


def run(work: Callable[[AsyncParseClient], Coroutine[Any, Any, T]], url: str, **options: Any) -> T:
    """What a coroutine makes of an asynchronous client."""

    async def main() -> T:
        async with AsyncParseClient(url, **options) as made:
            return await work(made)

    return asyncio.run(main())


@dataclass
class Script:
    """A server that answers what it is told to, in this order, and then the last of it again."""

    url: str
    answers: list[tuple[int, dict[str, str], bytes]]
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


@contextmanager
def scripted(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[Script]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.asked.append((self.command, self.path, dict(self.headers.items())))
            status, headers, body = answers[min(len(script.asked), len(answers)) - 1]
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Tests say what went wrong."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script = Script(f"http://127.0.0.1:{server.server_port}", list(answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
