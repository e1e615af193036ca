"""Every page is for everybody: axe looks at each in both themes and both languages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_core_python
import pytest
from playwright.sync_api import Browser

from dalsegno import Store
from dalsegno.web.console.places import PLACES
from tests.web.conftest import Desk, Songs

AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
TABS = ("overview", "workflow", "items", "workers", "events", "logs", "config", "commands")


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    return stores(sqlite_url)


@pytest.mark.parametrize(
    ("theme", "locale", "width"),
    [("light", "en-GB", 1280), ("dark", "zh-CN", 1280), ("dark", "en-GB", 360), ("light", "zh-CN", 360)],
)
def test_no_page_shuts_anybody_out(
    chromium: Browser, desk: Desk, songs: Songs, theme: Any, locale: str, width: int
) -> None:
    songs.gate.set()
    job = desk.start()["id"]
    desk.until(job, "completed_with_errors")
    desk.start(priority=7)
    # The policy of the pages keeps the engine out, as it should; only here it is let in.
    context = chromium.new_context(
        base_url=desk.url, color_scheme=theme, locale=locale, viewport={"width": width, "height": 800}, bypass_csp=True
    )
    page = context.new_page()
    found: list[str] = []
    paths = [place.path for place in PLACES] + [f"/jobs/{job}?tab={tab}" for tab in TABS]
    for path in (*paths, "/jobs/new?template=full", "/schedules/new", f"/explain/job/{job}", "/jobs/99999"):
        page.goto(path)
        page.add_script_tag(content=AXE)
        told: Any = page.evaluate("rules => axe.run(document, { runOnly: rules })", RULES)
        found += [
            f"{path}: {each['id']}: {[node['html'][:160] for node in each['nodes'][:3]]}" for each in told["violations"]
        ]
    context.close()
    assert found == []
