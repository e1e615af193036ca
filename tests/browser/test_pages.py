"""Every page, as people meet it: in both themes and languages, on a desk and on a phone, with and without scripts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from scripts.screenshots import pages

from tests.browser.nas import Nas, reader

pytestmark = pytest.mark.timeout(900)

VENDOR = Path(__file__).parent / "vendor"
AXE = (VENDOR / "axe.min.js").read_text()
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
LOOK = """
async (rules) => (await axe.run({ runOnly: rules, resultTypes: ["violations"] })).violations
  .map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html, failureSummary }) => [html, failureSummary]) }))
"""
MOST, MOST_WITH_CHART = 60_000, 85_000
OWN = 8192


@pytest.fixture(scope="module")
def nas(nases: Callable[..., Nas]) -> Nas:
    """With something to show on every page: a job that ended with errors, one that is paused, one in the queue."""
    nas = nases()
    job = nas.order("full")
    nas.until(job, "completed_with_errors")
    nas.post("/api/pause", {"lane": "catalog", "reason": "maintenance"})
    nas.order("download")
    return nas


def test_axe_is_the_published_one() -> None:
    digest = hashlib.sha256((VENDOR / "axe.min.js").read_bytes()).hexdigest()
    assert digest in (VENDOR / "README.md").read_text()


class Watched:
    """A page, and all that it asks for or complains about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("request", lambda request: self.asked.add(request.url))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error(`CSP: ${e.blockedURI}`))"
        )

    def visit(self, path: str) -> None:
        self.complaints.clear()
        self.asked.clear()
        self.page.goto(path)
        if self.page.locator("#pill").count():
            self.page.locator("#pill.on").wait_for()  # also after the fortieth page in one tab

    def width(self, viewport: int) -> int:
        self.page.set_viewport_size({"width": viewport, "height": 800})
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def barriers(self, theme: Any) -> Any:
        self.page.emulate_media(color_scheme=theme)
        return self.page.evaluate(LOOK, RULES)


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_every_page_is_fit_for_everybody(chromium: Browser, nas: Nas, locale: str) -> None:
    """WCAG 2 A and AA as far as axe can tell, in both themes; within the screen; without a complaint; and light."""
    context = reader(chromium, nas, locale=locale)
    watched = Watched(context.new_page())
    wrong: dict[str, Any] = {}
    for name, path in pages(nas.url).items():
        watched.visit(path)
        weight = {url: nas.weight(url) for url in watched.asked if "fragment=" not in url and "/stream" not in url}
        watched.page.evaluate(AXE)
        found = {
            "light": watched.barriers("light"),
            "dark": watched.barriers("dark"),
            "phone": watched.width(360) > 360,
            "desk": watched.width(1280) > 1280,
            "complaints": [said for said in watched.complaints if not (name == "nothing" and "404" in said)],
            "weight": sum(weight.values()) > (MOST_WITH_CHART if "uPlot" in str(weight) else MOST) and weight,
        }
        wrong |= {f"{name}: {what}": how for what, how in found.items() if how}
    context.close()
    assert wrong == {}


def test_own_scripts_are_small(nas: Nas) -> None:
    own: set[str] = set()
    for path in pages(nas.url).values():
        own |= {
            each for each in re.findall(r'src="(/static/[^"?]+\.js)', nas.http.get(path).text) if "/vendor/" not in each
        }
    assert 0 < sum(len(nas.http.get(path).content) for path in own) <= OWN, own


def test_every_page_works_without_scripts(chromium: Browser, nas: Nas) -> None:
    context = reader(chromium, nas, scripts=False)
    page = context.new_page()
    for name, path in pages(nas.url).items():
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == (404 if name == "nothing" else 200), path
        if name != "docs":
            assert page.locator("main h1").count() >= 1, name
            assert len(page.locator("main").inner_text()) > 20, name
    context.close()


def test_settings_and_retries_without_scripts(chromium: Browser, nas: Nas) -> None:
    context = reader(chromium, nas, scripts=False)
    page = context.new_page()
    page.goto("/config")
    page.locator("#key-MIN_FREE_SPACE").fill("25MB")
    page.locator("#review button.noscript").first.click()
    expect(page.locator("#review")).to_contain_text("MIN_FREE_SPACE=25MB")
    page.locator("#review button.primary").click()
    expect(page.locator("#flash")).to_contain_text("Saved as revision")
    assert "MIN_FREE_SPACE=25MB" in nas.env.read_text()
    page.goto("/songs?view=failed")
    row = page.locator("#item-rows > tr").first
    item = str(row.get_attribute("id")).removeprefix("row-")
    row.get_by_role("button", name="Retry").click()
    page.goto(f"/items/{item}")
    expect(page.locator("main")).to_contain_text("Attempts")
    assert any(moment["by"] not in ("engine", "") for moment in nas.item(item)["timeline"]), "somebody asked for it"
    context.close()
