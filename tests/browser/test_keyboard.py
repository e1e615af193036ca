"""A whole evening without a mouse: what is pressed is all that happens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dalsegno.sources.demo_catalog import Fault
from tests.browser.nas import NUMBERED, TEMPLATES, Nas, reader, said
from tests.helpers import wait_until

pytestmark = pytest.mark.timeout(900)

ENDED = ("completed", "completed_with_errors")


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[[Nas], Page]]:
    """`open_page(nas)`: the dashboard of this console, live."""
    contexts = []

    def make(nas: Nas) -> Page:
        contexts.append(reader(chromium, nas))
        page = contexts[-1].new_page()
        page.goto("/")
        expect(page.locator("#pill.on")).to_be_visible()
        return page

    yield make
    for context in contexts:
        context.close()


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def press_to(page: Page, url: str | re.Pattern[str], *keys: str) -> None:
    """Press, and wait for the page that this leads to, until it listens to keys itself."""
    with page.expect_navigation(url=url):
        press(page, *keys)
    expect(page.locator("#pill.on")).to_be_visible()


def tab_to(page: Page, css: str) -> None:
    """Tab, until it has the focus."""
    for _ in range(300):
        if page.evaluate("css => !!document.activeElement?.matches(css)", css):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never comes to {css}")


def start(page: Page, template: str) -> int:
    """A new job from its card, found with the arrows; returns its number."""
    press_to(page, "**/jobs", "g", "j")
    tab_to(page, "a[href='/jobs/new']")
    press_to(page, "**/jobs/new", "Enter")
    tab_to(page, "input[name=template]")
    for _ in range(list(TEMPLATES).index(template)):
        press(page, "ArrowDown")
    expect(page.locator(f"input[value={template}]")).to_be_checked()
    tab_to(page, "#new-job button.primary")
    press_to(page, NUMBERED, "Enter")
    return int(page.url.rpartition("/")[2])


def test_a_job_from_every_template(nases: Callable[..., Nas], open_page: Callable[[Nas], Page]) -> None:
    nas = nases(songs=4, faults=False)
    page = open_page(nas)
    for template in TEMPLATES:
        job = start(page, template)
        assert nas.until(job, *ENDED)["template"] == template
        expect(page.locator("#job-head")).to_contain_text("completed")


def test_paused_killed_retried_and_forced(nases: Callable[..., Nas], open_page: Callable[[Nas], Page]) -> None:
    slow = dict.fromkeys(range(1, 13), Fault.SLOW)
    nas = nases(songs=12, pace=2.0, faults={**slow, 3: Fault.GONE}, more="DOWNLOAD_WORKERS=2\n")
    page = open_page(nas)
    job = start(page, "full")
    head = page.locator("#job-head")

    wait_until(lambda: nas.items(f"job:{job} stage:download state:running"), "songs on their way", timeout=90.0)
    press(page, "p")
    expect(page.locator("#flash")).to_contain_text(said(f"Job {job} pauses"))
    expect(head).to_contain_text("draining")
    nas.until(job, "paused")
    expect(head.locator("button.primary[data-key=p]")).to_be_visible()
    press(page, "e")
    expect(page.locator("#drawer")).to_contain_text("The gates before it, in order")
    press(page, "Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    press(page, "p")
    nas.until(job, "running")
    expect(page.locator("#flash")).to_contain_text(said("goes on from the mark"))

    wait_until(lambda: nas.items(f"job:{job} stage:download state:running"), "songs on their way again", timeout=90.0)
    nas.kill()
    expect(page.locator("#pill.on")).to_have_count(0)
    nas.start()
    expect(page.locator("#pill.on")).to_be_visible()
    expect(head).to_contain_text("paused")
    press_to(page, "**/songs", "g", "s")
    tab_to(page, "#tabs a[href*='view=interrupted']")
    press_to(page, "**/songs?*view=interrupted*", "Enter")
    expect(page.locator("#item-rows")).to_contain_text("interrupted")
    nas.catalog.pace = 0.0
    press_to(page, "**/jobs", "g", "j")
    press(page, "j")
    press_to(page, NUMBERED, "Enter")
    press(page, "p")
    nas.until(job, "completed_with_errors")

    nas.catalog.faults = {}  # the source has mended its song
    (failed,) = nas.items(f"job:{job} state:failed")
    press_to(page, "**/songs", "g", "s")
    tab_to(page, "#tabs a[href*='view=failed']")
    press_to(page, "**/songs?*view=failed*", "Enter")
    press_to(page, "**/songs?*view=failed*", "j", "r")
    nas.succeeded(failed["id"])

    press(page, "/")
    page.keyboard.type("stage:download")
    press_to(page, "**/songs?*stage*", "Enter")
    tab_to(page, "#tabs a[href*='view=all']")
    press_to(page, "**/songs?*view=all*", "Enter")
    press(page, "j")
    expect(page.locator("[data-cursor]")).to_be_visible()
    item = str(page.locator("[data-cursor]").get_attribute("id")).removeprefix("row-")
    times = len(nas.item(item)["timeline"])
    press(page, "f")
    expect(page.locator("#drawer .notice")).to_be_visible()
    tab_to(page, "#drawer button.primary")
    press(page, "Enter")
    nas.succeeded(item, since=times)


def test_a_full_disk(
    nases: Callable[..., Nas], open_page: Callable[[Nas], Page], small_disk: Path, tmp_path: Path
) -> None:
    nas = nases(songs=16, faults=False, library=small_disk, more="DOWNLOAD_WORKERS=2\n")
    page = open_page(nas)
    job = start(page, "full")
    nas.until(job, "paused")
    press_to(page, nas.url + "/", "g", "d")
    banner = page.locator("#attention .attention").filter(has_text="The disk is full")
    expect(banner.first).to_be_visible()
    tab_to(page, f"#fix-{job}-LIBRARY_ROOT")
    page.keyboard.type(str(tmp_path / "roomy"))
    press(page, "Enter")
    expect(page.locator("#flash")).to_contain_text(said("goes on from the mark"))
    nas.until(job, "completed")
    expect(banner).to_have_count(0)


def test_settings_and_language(nases: Callable[..., Nas], open_page: Callable[[Nas], Page]) -> None:
    nas = nases(songs=4, faults=False)
    before = nas.env.read_text()
    page = open_page(nas)
    press(page, "p")
    tab_to(page, "#pause-all-reason")
    press(page, "Enter")
    expect(page.locator("#frame-state")).to_contain_text("Resume all")
    start(page, "download")  # waits, and keeps the settings of now

    press_to(page, "**/config", "g", "c")
    tab_to(page, "#key-MIN_FREE_SPACE")
    page.keyboard.type("25MB")
    expect(page.locator("#review")).to_contain_text("MIN_FREE_SPACE=25MB")
    expect(page.locator("#review .impact")).to_contain_text("1 queued job keeps")
    tab_to(page, "#review #note")
    page.keyboard.type("room for the cat")
    tab_to(page, "#review button.primary")
    press_to(page, "**/config", "Enter")
    expect(page.locator("#flash")).to_contain_text("Saved as revision")
    assert nas.env.read_text() == before.replace("MIN_FREE_SPACE=0", "MIN_FREE_SPACE=25MB")

    tab_to(page, ".tabs a[href='/config/revisions']")
    press_to(page, "**/config/revisions", "Enter")
    expect(page.locator("#revision-list")).to_contain_text("room for the cat")
    tab_to(page, "#revision-list input[name=a]")
    press(page, "ArrowDown")  # from the first revision
    tab_to(page, "main form > p button")
    press_to(page, "**/config/compare?*", "Enter")
    expect(page.locator(".changes")).to_contain_text("MIN_FREE_SPACE")
    page.go_back()
    expect(page.locator("#pill.on")).to_be_visible()
    first = page.locator("#revision-list a[href^='/config/revisions/']").last.get_attribute("href")
    tab_to(page, f"#revision-list a[href='{first}']")
    press_to(page, f"**{first}", "Enter")
    expect(page.locator("main")).to_contain_text("MIN_FREE_SPACE=25MB")  # what goes away
    tab_to(page, "#note + button")
    press_to(page, "**/config/revisions", "Enter")
    expect(page.locator("#revision-list")).to_contain_text("brings back")
    assert nas.env.read_text() == before

    press(page, "?")
    expect(page.locator("#help")).to_be_visible()
    press(page, "Escape")
    expect(page.locator("#help")).to_be_hidden()
    tab_to(page, "#preferences > summary")
    press(page, "Enter")
    tab_to(page, "#preferences a[lang='zh-CN']")
    press_to(page, "**/config/revisions", "Enter")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
