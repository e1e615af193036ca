"""A console as it runs at home: `dalsegno serve` as a process of its own, on a catalog of our own making."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext

from dalsegno.sources.demo_server import DemoServer
from tests.cli.tool import Process
from tests.helpers import wait_until
from tests.servers import free_port

TEMPLATES = {
    "full": "Everything",
    "collect": "Collect only",
    "sync": "Sync only",
    "sync-download": "Sync + download",
    "download": "Download only",
    "upload": "Upload only",
    "download-upload": "Download + upload",
}
NUMBERED = re.compile(r"/jobs/\d+$")
ENV = """\
# Of the tests.
LIBRARY_ROOT={library}
OBJECT_STORE={archive}
SOURCES=demo
DOWNLOAD_SOURCES=demo
DEMO_URL={catalog}
DATABASE_URL=sqlite:///{folder}/dalsegno.db
MIN_FREE_SPACE=0
BACKOFF_BASE_SEC=0.1
BACKOFF_CAP_SEC=0.2
"""


class Nas:
    """`catalog` is where the songs come from; the console can be killed and started again, at the same address."""

    def __init__(self, folder: Path, catalog: DemoServer, *, library: Path | None = None, more: str = "") -> None:
        self.folder = folder
        self.catalog = catalog
        self.env = folder / "dalsegno.env"
        self.library = library or folder / "library"
        self.library.mkdir(exist_ok=True)
        archive = folder / "archive"
        archive.mkdir()
        said = ENV.format(library=self.library, archive=archive.as_uri(), catalog=catalog.url, folder=folder)
        self.env.write_text(said + more)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.http = httpx.Client(base_url=self.url, timeout=30.0)
        self.process: Process | None = None
        self._weights: dict[str, int] = {}

    def start(self) -> None:
        self.process = Process(self.folder, "serve", "--port", self._port, "--env-file", self.env)
        self.process.wait_for("The console is at", timeout=90.0)

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()

    def close(self) -> None:
        self.http.close()
        if self.process is not None:
            self.process.kill()

    def get(self, path: str, **asked: Any) -> Any:
        return self.http.get(path, params=asked).raise_for_status().json()

    def weight(self, url: str) -> int:
        """Of what is there, gzipped."""
        if url not in self._weights:
            self._weights[url] = len(gzip.compress(self.http.get(url).content, 6))
        return self._weights[url]

    def post(self, path: str, body: Any = None) -> Any:
        return self.http.post(path, json=body).raise_for_status().json()

    def order(self, template: str, **body: Any) -> int:
        return int(self.post("/api/jobs", {"template": template, **body})["id"])

    def job(self, job_id: int) -> Any:
        return self.get(f"/api/jobs/{job_id}")

    def until(self, job_id: int, *states: str) -> Any:
        def look() -> Any:
            job = self.job(job_id)
            return job if job["status"] in states else None

        return wait_until(look, f"job {job_id} to be {' or '.join(states)}", timeout=90.0)

    def item(self, item_id: int | str) -> Any:
        return self.get(f"/api/job-items/{item_id}")

    def succeeded(self, item_id: int | str, since: int = 0) -> None:
        """Until it has, with more of a history than `since`."""

        def look() -> bool:
            found = self.item(item_id)
            return found["item"]["status"] == "succeeded" and len(found["timeline"]) > since

        wait_until(look, f"item {item_id} to succeed", timeout=90.0)

    def items(self, q: str) -> list[Any]:
        return list(self.get("/api/items", q=q, limit=200)["items"])


def reader(
    chromium: Browser, nas: Nas, *, locale: str = "en-GB", theme: Any = "light", width: int = 1280, scripts: bool = True
) -> BrowserContext:
    context = chromium.new_context(
        base_url=nas.url, locale=locale, color_scheme=theme, viewport={"width": width, "height": 800},
        java_script_enabled=scripts,
    )  # fmt: skip
    context.set_default_timeout(60_000)
    return context


def said(text: str) -> re.Pattern[str]:
    """What a page says about a command: this, or, where the machine is too slow for that, that it was asked for."""
    return re.compile(rf"{re.escape(text)}|Asked for \(command")
