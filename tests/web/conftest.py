"""A real server on a free loopback port, on both databases, and an engine whose services wait to be told."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, sync_playwright

from dalsegno import Engine, Store
from dalsegno.catalog.find import matching
from dalsegno.config.current import Current
from dalsegno.engine.item import Item
from dalsegno.engine.service import Service, service
from dalsegno.insight.holds import known_services
from dalsegno.model.outcome import Fail
from dalsegno.settings import KEYS, Settings
from dalsegno.web.app import create_app
from dalsegno.web.server import ConsoleServer, bind
from tests.helpers import SWIFT, wait_until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP *.test 127.0.0.1",
]  # fmt: skip


class Desk:
    """The console of a store, as a client sees it."""

    def __init__(self, store: Store, url: str, app: FastAPI) -> None:
        self.store = store
        self.app = app
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=30.0)

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 202) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def start(self, **body: Any) -> Any:
        return self.post("/api/jobs", {"template": "download", **body}, 201)

    def until(self, job_id: int, status: str) -> Any:
        def look() -> Any:
            job = self.get(f"/api/jobs/{job_id}")
            return job if job["status"] == status else None

        return wait_until(look, f"job {job_id} to be {status}")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)


@pytest.fixture
def consoles(plain: None) -> Iterator[Callable[..., Desk]]:
    """`consoles(store, key=value…)`: a console with these settings, or with those of `env_file`."""
    with ExitStack() as stack:

        def make(store: Store, host: str = "127.0.0.1", env_file: Path | None = None, **settings: Any) -> Desk:
            given = Settings(_env_file=None, **settings) if env_file is None else Current.of(env_file)
            app = create_app(store, given, host=host)
            listening = stack.enter_context(bind("127.0.0.1", 0))
            desk = Desk(store, stack.enter_context(ConsoleServer(app, listening)).url, app)
            stack.enter_context(desk.http)
            return desk

        yield make


@pytest.fixture
def desk(store: Store, consoles: Callable[..., Desk]) -> Desk:
    return consoles(store)


class Songs:
    """A `download` service of six songs: they go through when told to, and the fifth is broken."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.open = [self._download(), self._upload()]

    def _download(self) -> Service:
        @service("download", workers=2)
        def download(item: Item) -> Any:
            item.progress(0.5, str(item.params["title"]))
            item.transferred(500, 1000)
            assert self.gate.wait(60)
            if item.key == "demo:5":
                return Fail("The source says 403: not for you.", code="forbidden")
            return {"root": item.snapshot.get("LIBRARY_ROOT")}

        @download.plan
        def plan(_: Any) -> Iterator[tuple[str, dict[str, Any]]]:
            yield from ((f"demo:{number}", {"title": f"晴天 <{number}>"}) for number in range(1, 7))

        return download

    def _upload(self) -> Service:
        @service("upload")
        def upload(item: Item) -> Any:
            return {}

        return upload


@pytest.fixture
def songs(store: Store) -> Iterator[Songs]:
    """With an engine that runs them, and that others know of."""
    made = Songs()
    with Engine(store, made.open, replace(SWIFT, find=matching)):
        wait_until(lambda: store.read(known_services) >= {"download", "upload"}, "the engine's workers")
        try:
            yield made
        finally:
            made.gate.set()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real browser. To it, every name that ends in `.test` is this machine.

    For a module, not for the session: while it is open its event loop runs in this thread, and no other may.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
