"""Every page in a real browser: nothing of ours needs what the content policy forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage

from dalsegno import Store
from tests.web.conftest import Desk, Songs

PASSWORD = "da capo al fine"
MOST_PAGES = 60
TELL = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error("policy", event.violatedDirective, event.blockedURI, event.sourceFile, event.lineNumber);
});
"""


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    return stores(sqlite_url)


def shape(url: str) -> str:
    parts = urlsplit(url)
    return "/".join("0" if each.isdecimal() else each for each in parts.path.split("/"))


def test_no_page_breaks_the_policy_or_throws(
    store: Store, songs: Songs, consoles: Callable[..., Desk], chromium: Browser
) -> None:
    desk = consoles(store, console_password=PASSWORD)
    job = desk.http.post("/api/jobs", json={"template": "download"}, auth=("test", PASSWORD)).json()["id"]
    songs.gate.set()
    desk.http.auth = ("test", PASSWORD)
    desk.until(job, "completed_with_errors")
    context = chromium.new_context()
    page = context.new_page()
    said: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # What is plain text names no icon, and the browser looks for one by itself.
        if message.type == "error" and not message.location["url"].endswith("/favicon.ico"):
            said.append(f"{page.url}: {message.text}")

    page.on("console", hear)
    page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
    context.add_init_script(TELL)
    page.goto(f"{desk.url}/")
    page.fill("input[name=password]", PASSWORD)
    page.click("button.primary")
    page.wait_for_url(f"{desk.url}/")
    waiting, seen = [f"{desk.url}/"], {"/"}
    visited, shown = 0, []
    while waiting and visited < MOST_PAGES:
        answer: Any = page.goto(waiting.pop(0), wait_until="load")
        visited += 1
        shown.append(page.url)
        assert answer.status < 400, page.url
        links = page.eval_on_selector_all("a[href]", "found => found.map((each) => each.href)")
        for link in links:
            path = urlsplit(link).path
            ours = link.startswith(desk.url) and not path.startswith(("/api/", "/static/"))
            if ours and "." not in path and shape(link) not in seen:
                seen.add(shape(link))
                waiting.append(link)
    context.close()
    assert not said, said
    assert visited >= 5, shown
