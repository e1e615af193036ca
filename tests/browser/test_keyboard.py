"""A whole evening without a mouse: what is pressed is all that happens."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from dalsegno.sources.demo_catalog import Fault
from tests.browser.nas import Nas, reader
from tests.helpers import wait_until

pytestmark = pytest.mark.timeout(240)


def tab_to(page: Page, selector: str) -> None:
    """Tab, until it has the focus."""
    for _ in range(300):
        if page.evaluate("selector => !!document.activeElement?.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never comes to {selector}")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_all_of_it_by_keyboard(chromium: Browser, nases: Callable[..., Nas]) -> None:
    slow = dict.fromkeys(range(1, 9), Fault.SLOW)
    nas = nases(songs=8, pace=0.25, faults={**slow, 3: Fault.GONE})
    context = reader(chromium, nas)
    page = context.new_page()
    page.goto("/")
    expect(page.locator("#pill.on")).to_be_visible()

    press(page, "g", "j")
    page.wait_for_url("**/jobs")
    tab_to(page, "a[href='/jobs/new']")
    press(page, "Enter")
    page.wait_for_url("**/jobs/new")
    tab_to(page, "input[name=template]")
    press(page, "ArrowDown", "ArrowUp")
    expect(page.locator("input[value=full]")).to_be_checked()
    tab_to(page, "#new-job button.primary")
    press(page, "Enter")
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    job = int(page.url.rpartition("/")[2])

    wait_until(lambda: nas.items(f"job:{job} stage:download state:running"), "songs on their way")
    press(page, "p")
    expect(page.locator("#flash")).to_contain_text(f"Job {job} pauses")
    nas.until(job, "paused")
    expect(page.locator("#job-head button.primary[data-key=p]")).to_be_visible()
    press(page, "e")
    expect(page.locator("#drawer")).to_contain_text("The gates before it, in order")
    press(page, "Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    press(page, "p")
    expect(page.locator("#flash")).to_contain_text("goes on from the mark")
    nas.until(job, "completed_with_errors")

    nas.catalog.faults = {}  # the source has mended its song
    (failed,) = nas.items(f"job:{job} state:failed")
    press(page, "g", "s")
    page.wait_for_url("**/songs")
    tab_to(page, "#tabs a[href*='view=failed']")
    press(page, "Enter")
    page.wait_for_url("**/songs?*view=failed*")
    press(page, "j", "r")
    nas.succeeded(failed["id"])

    page.wait_for_load_state()
    press(page, "/")
    page.keyboard.type("stage:download")
    press(page, "Enter")
    page.wait_for_url("**/songs?*stage*")
    tab_to(page, "#tabs a[href*='view=all']")
    press(page, "Enter")
    page.wait_for_url("**/songs?*view=all*")
    press(page, "j")
    expect(page.locator("[data-cursor]")).to_be_visible()
    item = str(page.locator("[data-cursor]").get_attribute("id")).removeprefix("row-")
    times = len(nas.item(item)["timeline"])
    press(page, "f")
    expect(page.locator("#drawer .notice")).to_be_visible()
    tab_to(page, "#drawer button.primary")
    press(page, "Enter")
    nas.succeeded(item, since=times)

    page.goto("/")
    press(page, "g", "c")
    page.wait_for_url("**/config")
    tab_to(page, "#key-MIN_FREE_SPACE")
    page.keyboard.type("25MB")
    expect(page.locator("#review")).to_contain_text("MIN_FREE_SPACE=25MB")
    tab_to(page, "#review button.primary")
    press(page, "Enter")
    expect(page.locator("#flash")).to_contain_text("Saved as revision")

    press(page, "?")
    expect(page.locator("#help")).to_be_visible()
    press(page, "Escape")
    expect(page.locator("#help")).to_be_hidden()
    tab_to(page, "#preferences > summary")
    press(page, "Enter")
    tab_to(page, "#preferences a[lang='zh-CN']")
    press(page, "Enter")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    context.close()
