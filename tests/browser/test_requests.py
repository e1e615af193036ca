"""Parse requests in a real browser: from the form to the end of the work, live, in every shape of screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from dalsegno.requests.body import body_of
from tests.browser.nas import Nas, reader
from tests.browser.test_pages import AXE, Watched
from tests.helpers import wait_until
from tests.requests.upstream import TOKEN, Kodik, kodik

pytestmark = pytest.mark.timeout(600)

API = "/api/v1/parse/requests"
ONE = re.compile(r"/requests/(\d+)$")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Kodik]:
    with kodik() as running:
        for number, title in enumerate(("Long Serial", "Second Serial", "Third Serial")):
            ids = {"kinopoisk_id": f"{number}1", "imdb_id": f"tt{number}2", "shikimori_id": f"{number}3"}
            running.serial(12, 2, title=title, **ids)
        yield running


@pytest.fixture(scope="module")
def nas(nases: Callable[..., Nas], upstream: Kodik) -> Nas:
    more = f"KODIK_URL={upstream.url}\nKODIK_TOKEN={TOKEN}\nREQUESTS_DECODERS=direct\n"
    return nases(songs=2, playlists=1, faults={}, more=more)


@pytest.fixture
def held(upstream: Kodik) -> Iterator[Kodik]:
    """Nothing is decoded before it is let go."""
    upstream.open.clear()
    yield upstream
    upstream.open.set()


def ask(nas: Nas, **body: Any) -> int:
    return int(nas.post(API, body)["id"])


def until(nas: Nas, number: int, **wanted: Any) -> None:
    def look() -> bool:
        found = nas.get(f"{API}/{number}")
        return all(found[name] == value for name, value in wanted.items())

    wait_until(look, f"request {number} to be {wanted}", timeout=90.0)


def number_in(page: Page) -> int:
    expect(page).to_have_url(ONE)
    found = ONE.search(page.url)
    assert found is not None
    return int(found[1])


def test_a_request_from_the_form_to_its_end(chromium: Browser, nas: Nas, held: Kodik) -> None:
    context = reader(chromium, nas)
    page = context.new_page()
    page.goto("/requests/new")
    page.locator("#title").fill("long  serial")
    page.locator("#decodeLinks").check()
    preview = page.locator("#preview")
    expect(preview).to_contain_text("201")
    expect(preview).to_contain_text(body_of({"title": "Long Serial", "decodeLinks": True}).hash)
    page.get_by_role("button", name="Submit").click()
    number = number_in(page)
    expect(page.locator("#request-head")).to_contain_text("decoding")
    expect(page.locator("#variant-rows > tr")).to_have_count(24)

    other = context.new_page()
    other.goto("/requests/new?decodeLinks=on")
    other.locator("#title").fill("LONG Serial")
    expect(other.locator("#preview")).to_contain_text("200")
    expect(other.locator("#preview")).to_contain_text(f"Request {number}")
    other.get_by_role("button", name="Submit").click()
    assert number_in(other) == number
    expect(other.locator("#flash")).to_contain_text("asked for before")
    other.close()
    expect(page.locator("#request-head")).to_contain_text("1 asked for again meanwhile")

    page.evaluate("window.untouched = true")
    held.open.set()
    expect(page.locator("#request-head")).to_contain_text("24 of 24")
    expect(page.locator("#request-head .state.completed")).to_be_visible()
    expect(page.locator("#variant-rows a", has_text="mp4")).to_have_count(24)
    expect(page.locator("#content-rows > tr")).to_contain_text("kodik")
    assert page.evaluate("window.untouched"), "the page was never loaded again"
    page.locator("#content-rows a[data-drawer]").click()
    expect(page.locator("#drawer")).to_contain_text("Studio 2")
    page.keyboard.press("Escape")
    page.locator("#variant-rows a[data-drawer]").first.click()
    expect(page.locator("#drawer h1")).to_contain_text("Long Serial 1×01 · Studio 1")
    context.close()


def test_the_list_is_live_and_cancels(chromium: Browser, nas: Nas, held: Kodik) -> None:
    context = reader(chromium, nas)
    page = context.new_page()
    page.goto("/requests?q=state:running")
    page.locator("#pill.on").wait_for()
    number = ask(nas, title="Second Serial", decodeLinks=True)
    row = page.locator(f"#row-{number}")
    expect(row).to_contain_text("decoding")
    expect(page.locator(".chip", has_text="running")).to_contain_text("1")
    page.locator(f"#cancel-{number} > summary").click()
    page.get_by_role("button", name="Cancel the request").click()
    expect(page.locator("#flash")).to_contain_text(re.compile(r"is being canceled|Asked for \(command"))
    assert page.url.endswith("?q=state:running"), "filters survive"
    held.open.set()
    until(nas, number, status="FAILED")
    expect(row).to_have_count(0)
    context.close()


def test_a_hash_is_copied_by_a_click(chromium: Browser, nas: Nas) -> None:
    number = ask(nas, title="Nothing Like It")
    context = reader(chromium, nas)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto("/requests")
    shown = page.locator(f"#row-{number} .hash")
    shown.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == nas.get(f"{API}/{number}")["requestHash"]
    box = shown.bounding_box()
    assert box is not None
    assert box["width"] < 110, "it is shown short"
    context.close()


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_the_pages_are_fit_for_everybody(chromium: Browser, nas: Nas, upstream: Kodik, locale: str) -> None:
    """With something in them: one that went wrong in part, with a long title, and one that found nothing."""
    name = "An Uncommonly Long Title That Goes On For Longer Than Any Screen Of A Phone Could Be Wide " + "ъ" * 60
    if not any(each["title"] == name for each in upstream.results):
        upstream.film(name, link=f"{upstream.url}/page/no-video")
    number = ask(nas, title=name, imdbId="", decodeLinks=True)
    until(nas, number, status="DONE")
    (content,) = nas.get(f"{API}/{number}")["resultContentIds"]
    context = reader(chromium, nas, locale=locale)
    watched = Watched(context.new_page())
    wrong: dict[str, Any] = {}
    for path in ("/requests", f"/requests/{number}", f"/requests/contents/{content}", f"/requests/new?title={name}"):
        watched.visit(path)
        watched.page.evaluate(AXE)
        found = {
            "light": watched.barriers("light"),
            "dark": watched.barriers("dark"),
            "phone": watched.width(360) > 360,
            "tablet": watched.width(800) > 800,
            "desk": watched.width(1280) > 1280,
            "complaints": watched.complaints,
        }
        wrong |= {f"{path}: {what}": how for what, how in found.items() if how}
    context.close()
    assert wrong == {}


def test_everything_works_without_scripts(chromium: Browser, nas: Nas, held: Kodik) -> None:
    context = reader(chromium, nas, scripts=False)
    page = context.new_page()
    page.goto("/requests")
    page.get_by_role("link", name="New request").click()
    page.locator("#title").fill("Third Serial")
    page.locator("#kinopoiskId").fill("21")
    page.locator("#decodeLinks").check()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview")).to_contain_text("201")
    page.get_by_role("button", name="Submit").click()
    number = number_in(page)
    until(nas, number, status="RUNNING")
    page.goto(f"/requests/{number}")
    page.locator(f"#cancel-{number} > summary").click()
    page.get_by_role("button", name="Cancel the request").click()
    expect(page.locator("#flash")).to_contain_text(re.compile(r"is being canceled|Asked for \(command"))
    held.open.set()
    until(nas, number, status="FAILED")
    page.goto(f"/requests/{number}")
    page.get_by_role("link", name="Submit again").click()
    expect(page.locator("#kinopoiskId")).to_have_value("21")
    context.close()
