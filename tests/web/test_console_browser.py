"""The frame in a real browser: live without flicker, still while somebody aims, all of it by keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser, Page, Route, expect

from dalsegno import Store
from dalsegno.settings import Settings
from dalsegno.store.schema import items
from dalsegno.web.app import create_app
from dalsegno.web.server import ConsoleServer, bind
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs

MORPHS = 100
expect.set_options(timeout=30_000)  # a busy machine takes its time
LIVE = "#pill.on"


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    return stores(sqlite_url)


@pytest.fixture
def page(chromium: Browser, desk: Desk) -> Iterator[Page]:
    """At the console, in English and far from UTC; what goes wrong in it fails the test."""
    context = chromium.new_context(base_url=desk.url, locale="en-GB", timezone_id="Asia/Shanghai")
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    yield made
    context.close()
    assert wrong == []


def under_way(desk: Desk) -> int:
    job: int = desk.start()["id"]
    wait_until(lambda: desk.get(f"/api/jobs/{job}")["counts"]["running"] == 2, "two workers at it")
    return job


def test_a_page_follows_what_happens(page: Page, desk: Desk, songs: Songs) -> None:
    page.goto("/")
    expect(page.locator(LIVE)).to_be_visible()
    expect(page.locator("#active")).to_contain_text("Nothing has been run yet")
    job = desk.start()["id"]
    expect(page.locator("#active h2.title")).to_contain_text(f"#{job}")
    expect(page.locator("#active")).to_contain_text("2 running")
    songs.gate.set()
    expect(page.locator("#active")).to_contain_text("completed, with errors")
    expect(page.locator("#exceptions")).to_contain_text("forbidden")


def test_times_are_the_reader_s_and_hovering_says_utc(page: Page, desk: Desk) -> None:
    created = desk.start()["created_at"]
    page.goto("/jobs/1")
    shown = page.locator("dd time").first
    assert shown.get_attribute("title").endswith(" UTC")  # type: ignore[union-attr]
    told: str = page.evaluate("at => new Date(at).toLocaleTimeString('sv')", created)
    expect(shown).to_contain_text(told.split(".", maxsplit=1)[0].rpartition(":")[0])


def test_focus_ticks_text_and_menus_survive_a_hundred_morphs(page: Page, desk: Desk, songs: Songs) -> None:
    job = under_way(desk)
    page.goto(f"/jobs/{job}?tab=items")
    expect(page.locator(LIVE)).to_be_visible()
    page.locator("#item-rows input").nth(1).check()
    page.locator("#more-places").evaluate("menu => { menu.open = true; }")
    page.locator("#q").fill("state:fai")
    page.evaluate(
        "() => { document.querySelector('#q').setSelectionRange(2, 5); window.kept = document.querySelector('#q'); }"
    )
    done: int = page.evaluate(
        """async (times) => {
          let swaps = 0;
          document.addEventListener("htmx:after:swap", () => { swaps++; });
          for (let n = 0; n < times; n++) {
            const text = await (await fetch(location.pathname + location.search + "&fragment=job_tab")).text();
            const fresh = text.replaceAll("pending", `pending ${n}`);
            const target = document.querySelector("#job-tab");
            await htmx.swap({ target, text: fresh, swap: "outerMorph", sourceElement: target });
          }
          return swaps;
        }""",
        MORPHS,
    )
    assert done >= MORPHS
    assert page.evaluate("() => document.activeElement === window.kept && window.kept.isConnected")
    assert page.evaluate("() => [kept.value, kept.selectionStart, kept.selectionEnd]") == ["state:fai", 2, 5]
    expect(page.locator("#item-rows input").nth(1)).to_be_checked()
    assert page.locator("#more-places").evaluate("menu => menu.open")


def test_rows_stay_while_one_is_ticked_and_arrivals_wait(page: Page, desk: Desk, songs: Songs) -> None:
    job = under_way(desk)
    page.goto(f"/jobs/{job}?tab=items&q=-state:pending,claimed%20stage:download")
    expect(page.locator(LIVE)).to_be_visible()
    rows = page.locator("#item-rows > tr")
    expect(rows).to_have_count(2)
    rows.first.locator("input").check()
    songs.gate.set()
    desk.until(job, "completed_with_errors")
    expect(page.locator(".arrivals")).to_have_text("4 new")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("succeeded")
    page.locator(".arrivals").click()
    expect(rows).to_have_count(6)
    expect(page.locator(".arrivals")).to_be_hidden()
    expect(rows.first.locator("input")).to_be_checked()


def test_space_freezes_the_page_and_lets_it_go_on(page: Page, desk: Desk) -> None:
    page.goto("/jobs")
    expect(page.locator(LIVE)).to_be_visible()
    page.keyboard.press("Space")
    expect(page.locator("#pill")).to_contain_text("Frozen")
    desk.start()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # A topic comes within a quarter of a second; the age of the data goes on to be told.
    expect(page.locator("#pill")).to_contain_text("ago", timeout=10_000)
    assert [url for url in asked if "fragment" in url] == []
    page.keyboard.press("Space")
    expect(page.locator("#job-rows > tr")).to_have_count(1)


def test_everything_by_keyboard(page: Page, desk: Desk, songs: Songs) -> None:
    job = under_way(desk)
    page.goto("/")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("/")
    page.keyboard.type("state:running")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=state*")
    page.keyboard.press("j")
    expect(page.locator("[data-cursor]")).to_have_id(f"row-{job}")
    page.keyboard.press("p")
    expect(page.locator("#flash")).to_contain_text(f"Job {job} pauses")
    assert "q=state" in page.url, "filters survive an action"
    page.goto("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job}")
    songs.gate.set()
    expect(page.locator("#job-head")).to_contain_text("paused")
    page.keyboard.press("e")
    expect(page.locator("#drawer")).to_contain_text("The gates before it, in order")
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    page.keyboard.press("p")
    expect(page.locator("#flash")).to_contain_text("goes on from the mark")
    desk.until(job, "completed_with_errors")
    page.goto(f"/jobs/{job}?tab=items&q=state:failed")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("#bulk")).to_contain_text("selected: 1")
    page.keyboard.press("r")
    expect(page.locator("#flash")).to_contain_text("1 item is tried again.")


def test_the_plan_follows_what_is_chosen(page: Page, desk: Desk) -> None:
    page.goto("/jobs/new")
    expect(page.locator("#plan-collect")).to_be_visible()
    page.get_by_label("Upload only").check()
    expect(page.locator("#plan-upload")).to_be_visible()
    expect(page.locator("#plan-collect")).to_have_count(0)
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/1")
    expect(page.locator("#flash")).to_contain_text("Job 1 is queued.")


def test_every_form_works_without_scripts(chromium: Browser, desk: Desk, songs: Songs) -> None:
    context = chromium.new_context(base_url=desk.url, java_script_enabled=False, locale="en-GB")
    page = context.new_page()
    page.goto("/jobs/new?template=download")
    page.locator("input[value=download]").check()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/1")
    page.get_by_role("button", name="Pause", exact=False).last.click()
    page.wait_for_url("**/jobs/1")
    assert "Job 1 pauses" in page.locator("#flash").inner_text()
    page.get_by_text("Language").count()
    page.goto("/preferences?language=zh-CN&back=/jobs")
    assert "任务" in page.locator("h1").inner_text()
    context.close()


def test_a_server_that_comes_back_is_followed_again(store: Store, plain: None, chromium: Browser, songs: Songs) -> None:
    """The pill says when the page is not live, and the page catches up by itself."""

    def serve(stack: ExitStack, port: int) -> ConsoleServer:
        app = create_app(store, Settings(_env_file=None))
        return stack.enter_context(ConsoleServer(app, stack.enter_context(bind("127.0.0.1", port))))

    with ExitStack() as first:
        url = serve(first, 0).url
        page = chromium.new_context(base_url=url, locale="en-GB").new_page()
        page.goto("/jobs")
        expect(page.locator(LIVE)).to_be_visible()
    expect(page.locator("#pill")).to_contain_text("Reconnecting")
    with ExitStack() as second:
        serve(second, int(url.rpartition(":")[2]))
        assert httpx.post(f"{url}/api/jobs", json={"template": "download"}).status_code == 201
        expect(page.locator(LIVE)).to_be_visible(timeout=30_000)
        expect(page.locator("#job-rows > tr")).to_have_count(1)
        page.context.close()


HIDE = """
(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


def test_nine_tabs_at_once_stay_usable(chromium: Browser, desk: Desk) -> None:
    """Browsers open six connections to a host: tabs that nobody sees must not hold one each."""
    context = chromium.new_context(base_url=desk.url, locale="en-GB")
    tabs = []
    for number in range(9):
        tab = context.new_page()
        if number % 2:
            tab.add_init_script(f"({HIDE})(true)")  # opened in the background
        tab.goto("/jobs")
        if not number % 2:
            expect(tab.locator(LIVE)).to_be_visible()
            tab.evaluate(HIDE, True)  # without a window all tabs believe that they are in front
        tabs.append(tab)
    desk.start()
    for tab in (tabs[0], tabs[1], tabs[8]):
        tab.evaluate(HIDE, False)
        expect(tab.locator("#job-rows > tr")).to_have_count(1)
        expect(tab.locator(LIVE)).to_be_visible()
        tab.evaluate(HIDE, True)
    context.close()


@pytest.mark.parametrize("width", [1280, 360])
def test_no_page_is_wider_than_the_screen(chromium: Browser, desk: Desk, songs: Songs, width: int) -> None:
    job = under_way(desk)
    for locale in ("en-GB", "zh-CN"):
        context = chromium.new_context(base_url=desk.url, locale=locale, viewport={"width": width, "height": 740})
        page = context.new_page()
        for path in ("/", "/jobs", "/jobs/new?template=full", *(f"/jobs/{job}?tab={tab}" for tab in TABS)):
            page.goto(path)
            wide: Any = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{path} in {locale} is {wide} wide"
        context.close()


TABS = ("overview", "workflow", "items", "workers", "events", "logs", "config", "commands")


def test_a_long_error_never_breaks_its_row_on_a_phone(page: Page, desk: Desk, songs: Songs) -> None:
    """Its code is cut short, and whole where one points at it."""
    songs.gate.set()
    job = desk.start()["id"]
    desk.until(job, "completed_with_errors")
    long = "a_code_that_" + "goes_on_and_" * 8
    worse = sa.update(items).where(items.c.error_code.is_not(None))
    desk.store.write("long", lambda tx: tx.conn.execute(worse.values(error_code=long, error_message="x" * 400)))
    page.set_viewport_size({"width": 360, "height": 780})
    for path in ("/", f"/jobs/{job}?tab=items", "/songs?view=failed"):
        page.goto(path)
        chip = page.locator(".code").first
        expect(chip).to_have_attribute("title", long)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        box = chip.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 360, path
        assert chip.evaluate("chip => chip.scrollWidth > chip.clientWidth"), "it is cut short"


def test_a_key_never_acts_on_another_row(page: Page, desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    first = desk.start()["id"]
    desk.until(first, "completed_with_errors")
    songs.gate.clear()
    second = under_way(desk)
    page.goto("/jobs")
    expect(page.locator(LIVE)).to_be_visible()
    pause = page.locator(f"#row-{second} [data-key=p]")
    expect(pause).to_have_count(1)
    page.evaluate("() => { window.clicks = 0; document.addEventListener('click', () => clicks++, true); }")
    page.keyboard.press("p")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(f"#row-{first}[data-cursor]")).to_be_visible()
    page.keyboard.press("p")
    assert page.evaluate("() => clicks") == 0
    page.keyboard.press("k")
    page.keyboard.press("p")
    desk.until(second, "pause_requested")


def test_no_key_pauses_everything_on_a_page_about_one_thing(page: Page, desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    job = desk.start()["id"]
    desk.until(job, "completed_with_errors")
    for path in (f"/jobs/{job}", "/config", "/logs"):
        page.goto(path)
        expect(page.locator(LIVE)).to_be_visible()
        page.keyboard.press("p")
        expect(page.locator("#pause-all")).not_to_have_attribute("open", "")
    page.goto("/songs")
    page.keyboard.press("p")
    expect(page.locator("#pause-all-reason")).to_be_visible()
    assert desk.get("/api/holds")["holds"] == [], "it asks first"
    page.locator("#pause-all-reason").fill("film night")
    page.keyboard.press("Enter")
    expect(page.locator("#frame-state")).to_contain_text("everything is held")
    assert desk.get("/api/holds")["holds"][0]["reason"] == "film night"


def opened(page: Page, path: str, item: int) -> None:
    """An item in the drawer of a page that does not listen to items."""
    page.goto(path)
    expect(page.locator(LIVE)).to_be_visible()
    link = f'<a id="opener" data-drawer href="/items/{item}">open</a>'
    page.locator("h1").evaluate("(head, link) => head.insertAdjacentHTML('afterend', link)", link)
    page.locator("#opener").click()
    expect(page.locator("#drawer[open]")).to_be_visible()


def test_an_open_drawer_hears_keys(page: Page, desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    job = desk.start()["id"]
    desk.until(job, "completed_with_errors")
    (failed,) = desk.get(f"/api/jobs/{job}/items?state=failed")["items"]
    opened(page, "/config", failed["id"])
    page.keyboard.press("f")
    expect(page.locator("#drawer .menu[open]")).to_be_visible()
    page.keyboard.press("f")
    page.keyboard.press("j")
    assert page.locator("[data-cursor]").count() == 0, "what lies under it stays as it is"
    page.keyboard.press("r")
    wait_until(lambda: [each["type"] for each in desk.get("/api/commands")["commands"]] == ["retry_item"], "a retry")


def test_an_open_drawer_follows_its_item_on_every_page(page: Page, desk: Desk, songs: Songs) -> None:
    job = under_way(desk)
    item = desk.get(f"/api/jobs/{job}/items?state=running")["items"][0]["id"]
    opened(page, "/config", item)
    expect(page.locator("#item-drawer .facts")).to_contain_text("running")
    expect(page.locator(LIVE)).to_be_visible()
    songs.gate.set()
    expect(page.locator("#item-drawer .facts")).not_to_contain_text("running")


def test_a_region_that_could_not_be_fetched_is_asked_for_again(page: Page, desk: Desk, songs: Songs) -> None:
    page.goto("/jobs")
    expect(page.locator(LIVE)).to_be_visible()
    refused: list[str] = []

    def refuse_once(route: Route) -> None:
        refused.append(route.request.url)
        if len(refused) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/jobs?fragment=*", refuse_once)
    job = desk.start()["id"]
    expect(page.locator(f"#row-{job}")).to_be_visible()
    assert len(refused) > 1
