"""A Kodik-shaped server of ours: slow, forgetful, strict or odd, as a test wants it; it counts every call."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "kodik-token-of-the-tests"
Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""
Hook = Callable[[str, int], Answer | None]
"""From a path and how often it was asked for, this time included; None lets the usual answer through."""


@dataclass
class Kodik:
    """What it has, how it behaves, and what it was asked."""

    url: str = ""
    results: list[dict[str, Any]] = field(default_factory=list)
    page: int = 100
    hook: Hook = lambda path, count: None
    calls: Counter[str] = field(default_factory=Counter)
    """By path."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The forms of searches and lists, with the method as `path`."""
    more: dict[str, Any] = field(default_factory=dict)
    """Put over every answer, for shapes that nobody expects."""
    open: threading.Event = field(default_factory=threading.Event)
    """While it is not set, files are not answered for."""
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for each file that is asked for."""
    connections: int = 0
    """Open now: none are left once a client is dead and all it had sent was heard."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.open.set()

    @property
    def settings(self) -> dict[str, Any]:
        return {"kodik_url": self.url, "kodik_token": TOKEN, "requests_decoders": ("direct",)}

    def decoded(self) -> Counter[str]:
        """How often each file was looked at."""
        with self._lock:
            return Counter({path: count for path, count in self.calls.items() if path.startswith("/media/")})

    def count(self, path: str) -> int:
        with self._lock:
            self.calls[path] += 1
            return self.calls[path]

    def serial(self, episodes: int, translations: int, *, title: str = "Long Serial", **more: Any) -> None:
        """One result for each translation, as Kodik has it."""
        for number in range(1, translations + 1):
            links = {str(at): f"{self.url}/media/{number}/{at}.mp4" for at in range(1, episodes + 1)}
            self.results.append({
                "id": f"serial-{number}", "type": "anime-serial", "link": f"{self.url}/page/{number}",
                "title": title, "title_orig": f"{title} (orig)", "other_title": "", "year": 2002,
                "translation": {"id": 600 + number, "title": f"Studio {number}", "type": "voice"},
                "last_season": 1, "last_episode": episodes, "episodes_count": episodes, "kinopoisk_id": "283290",
                "imdb_id": "tt0409591", "shikimori_id": "20", "quality": "WEB-DLRip 720p", "screenshots": [],
                "seasons": {"1": {"link": f"{self.url}/season/{number}", "title": "", "episodes": links}},
                "updated_at": "2026-01-01T00:00:00Z", **more,
            })  # fmt: skip

    def film(self, name: str, **more: Any) -> dict[str, Any]:
        self.results.append({
            "id": f"movie-{name}", "type": "foreign-movie", "link": f"{self.url}/media/film/{name}.mp4", "title": name,
            "title_orig": name, "other_title": None, "translation": {"id": 1, "title": "Dub", "type": "voice"},
            "year": 1999, "quality": "BDRip 1080p", "screenshots": [], "updated_at": "2026-01-01T00:00:00Z", **more,
        })  # fmt: skip
        return self.results[-1]

    def answer(self, method: str, form: Mapping[str, str]) -> Answer:
        if form.get("token") != TOKEN:
            return 200, {}, json.dumps({"error": "Отсутствует или неверный токен"}).encode()
        wanted = [each for each in self.results if method == "/list" or _matches(each, form)]
        at = int(form.get("next", 0))
        size = min(self.page, int(form.get("limit", 50)))
        rest = at + size < len(wanted)
        told = {
            "time": "3ms", "total": len(wanted), "prev_page": None,
            "next_page": f"{self.url}{method}?token={TOKEN}&next={at + size}" if rest else None,
            "results": wanted[at : at + size], **self.more,
        }  # fmt: skip
        return 200, {"Content-Type": "application/json"}, json.dumps(told).encode()


def _matches(result: Mapping[str, Any], form: Mapping[str, str]) -> bool:
    ids = ("kinopoisk_id", "imdb_id", "shikimori_id")
    if any(form.get(name) and form[name] != str(result.get(name)) for name in ids):
        return False
    return form.get("title", "").lower() in str(result.get("title", "")).lower()


@contextmanager
def kodik() -> Iterator[Kodik]:
    about = Kodik()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            path = urlsplit(self.path).path
            form = dict(parse_qsl(body))
            about.asked.append({**form, "path": path})
            self._say(about.hook(path, about.count(path)) or about.answer(path, form))

        def do_HEAD(self) -> None:
            path = urlsplit(self.path).path
            count = about.count(path)
            about.waiting.release()
            assert about.open.wait(60)
            file = path.startswith("/media/")
            kind = "video/mp4" if file else "text/html"
            self._say(about.hook(path, count) or (200, {"Content-Type": kind}, b""))

        do_GET = do_HEAD  # noqa: N815

        def _say(self, answer: Answer) -> None:
            status, headers, body = answer
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            with about._lock:
                about.connections += 1
            try:
                super().process_request_thread(request, client_address)
            finally:
                with about._lock:
                    about.connections -= 1

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients are killed in some tests."""

    server = Server(("127.0.0.1", 0), Handler)
    about.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield about
    finally:
        about.open.set()
        server.shutdown()
        server.server_close()
        thread.join()
