"""Pages that follow a console which is a process, with real work as what happens."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from dalsegno.sources.demo_catalog import Fault
from tests.browser.nas import Nas, reader
from tests.helpers import wait_until

pytestmark = pytest.mark.timeout(900)

MORPHS = 100
COUNT = """
() => {
  window.morphs = 0;
  document.addEventListener("htmx:after:swap", () => { window.morphs++; });
  window.kept = document.querySelector("#q");
}
"""


@pytest.fixture(scope="module")
def nas(nases: Callable[..., Nas]) -> Nas:
    nas = nases(songs=8, faults={3: Fault.GONE})
    nas.until(nas.order("full"), "completed_with_errors")
    nas.post("/api/pause", {"lane": "catalog"})
    for _ in range(3):
        nas.order("download")
    return nas


def test_what_somebody_does_survives_a_hundred_changes(chromium: Browser, nas: Nas) -> None:
    """Each change is told by the stream, fetched and morphed in; nobody's typing, ticks and menus notice."""
    context = reader(chromium, nas)
    page = context.new_page()
    page.add_init_script("const real = Date.now; Date.now = () => real() * 20;")  # regions need not wait between two
    page.goto("/songs?view=all")
    expect(page.locator("#pill.on")).to_be_visible()
    page.locator("#item-rows [data-tick]").nth(1).check()
    page.locator("#all-menu").evaluate("menu => { menu.open = true; }")
    page.locator("#q").fill("state:fai")
    page.evaluate(COUNT)
    page.evaluate("() => kept.setSelectionRange(2, 5)")
    turn = 0
    while page.evaluate("morphs") < MORPHS:
        seen = page.evaluate("morphs")
        turn += 1
        nas.post("/api/jobs/2/priority", {"priority": 100 + turn % 7})
        nas.post("/api/pause" if turn % 2 else "/api/resume", {"service": "upload"})
        page.wait_for_function("seen => morphs > seen", arg=seen)
    assert page.evaluate("() => document.activeElement === kept && kept.isConnected")
    assert page.evaluate("() => [kept.value, kept.selectionStart, kept.selectionEnd]") == ["state:fai", 2, 5]
    expect(page.locator("#item-rows [data-tick]").nth(1)).to_be_checked()
    assert page.locator("#all-menu").evaluate("menu => menu.open")
    context.close()


def test_a_kill_is_noticed_and_nothing_of_what_came_after_is_missed(chromium: Browser, nas: Nas) -> None:
    context = reader(chromium, nas)
    page = context.new_page()
    asked: list[str] = []
    page.on(
        "request",
        lambda request: asked.append(request.headers.get("last-event-id", "")) if "/stream" in request.url else None,
    )
    page.goto("/jobs")
    expect(page.locator("#pill.on")).to_be_visible()
    rows = page.locator("#job-rows > tr").count()
    nas.order("collect")  # so that there is something to go on from
    expect(page.locator("#job-rows > tr")).to_have_count(rows + 1)
    nas.kill()
    expect(page.locator("#pill")).to_contain_text(re.compile("Reconnecting|Stale"))
    nas.start()
    nas.order("collect")  # likely before the page is back
    expect(page.locator("#job-rows > tr")).to_have_count(rows + 2)
    expect(page.locator("#pill.on")).to_be_visible()
    assert len(asked) > 1
    assert asked[-1], "it goes on with Last-Event-ID"
    context.close()


def test_nine_tabs_follow_one_console(chromium: Browser, nas: Nas) -> None:
    """The one in front is live; each of the others is, as soon as it is in front."""
    context = reader(chromium, nas)
    tabs = []
    for path in ("/", "/jobs", "/playlists", "/songs", "/logs", "/config", "/workflows", "/limits", "/system"):
        tab = context.new_page()
        tab.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.behind });")
        tab.goto(path)
        expect(tab.locator("#pill.on")).to_be_visible()
        tab.evaluate("() => { window.behind = true; document.dispatchEvent(new Event('visibilitychange')); }")
        tabs.append(tab)
    for turn, tab in enumerate(tabs):
        nas.post("/api/resume" if turn % 2 else "/api/pause", {})
        tab.evaluate("() => { window.behind = false; document.dispatchEvent(new Event('visibilitychange')); }")
        expect(tab.locator("#frame-state")).to_contain_text("Pause all" if turn % 2 else "Resume all")
        expect(tab.locator("#pill.on")).to_be_visible()
        tab.evaluate("() => { window.behind = true; document.dispatchEvent(new Event('visibilitychange')); }")
    wait_until(lambda: nas.post("/api/resume", {}), "all to go on")
    context.close()
