"""The pages of schedules: the list, the form with its preview, one of them with its runs; on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import Browser, expect

from dalsegno import Store
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, check_page, get

FORM = {
    "name": "nightly", "template": "full", "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "catch_up": "one",
    "catch_up_most": "10", "overlap": "skip", "priority": "100", "playlists": "", "songs": "", "query": "",
}  # fmt: skip
PATIENT = 30_000
"""Milliseconds that a page has to change."""


def post(desk: Desk, path: str, form: dict[str, Any] | None = None, status: int = 303) -> httpx.Response:
    answer = desk.http.post(path, data=form or {})
    assert answer.status_code == status, answer.text[:2000]
    return answer


def made(desk: Desk, **more: Any) -> str:
    """Its page."""
    return post(desk, "/schedules", {**FORM, **more}).headers["location"]


def test_a_schedule_is_made_shown_changed_and_removed(desk: Desk) -> None:
    assert "No schedules yet" in get(desk, "/schedules").source
    place = made(desk, query="rain", playlists="Slow Cello\n7")
    page = get(desk, place)
    assert "Schedule nightly is added." in page.source
    assert len(page.by_id("upcoming").text.split("in ")) == 6
    assert "02:30" in page.by_id("upcoming").text
    assert '"Slow Cello"' in page.source.replace("&#34;", '"')
    row = get(desk, "/schedules").by_id("schedule-rows").text
    assert "30 2 * * *" in row
    assert "none yet" in row
    edit = get(desk, f"{place}/edit")
    (cron,) = edit.all("input", name="cron")
    assert cron.attributes["value"] == "30 2 * * *"
    (playlists,) = edit.all("textarea", name="playlists")
    assert playlists.text == "Slow Cello\n7"
    post(desk, place, {**FORM, "name": "weekly", "cron": "@weekly", "overlap": "queue", "catch_up": "all"})
    changed = desk.get("/api" + place)
    assert (changed["name"], changed["cron"], changed["catch_up"], changed["request"]) == (
        "weekly",
        "@weekly",
        "all",
        {},
    )
    post(desk, f"{place}/pause", {"reason": "film night"})
    paused = get(desk, place)
    assert "film night" in paused.by_id("paused").text
    assert "None while it is paused." in paused.source
    assert "film night" in get(desk, "/schedules").by_id("schedule-rows").text
    post(desk, f"{place}/resume")
    assert desk.get("/api" + place)["paused_at"] is None
    assert post(desk, f"{place}/remove").headers["location"] == "/schedules"
    get(desk, place, status=404)


def test_a_run_leads_to_its_job(desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    desk.until(desk.start()["id"], "completed_with_errors")
    place = made(desk, template="download")
    post(desk, f"{place}/run")
    job = wait_until(lambda: desk.get("/api" + place)["last_job_id"], "its job")
    runs = get(desk, place).by_id("run-rows")
    assert f"#{job}" in runs.text
    assert "asked for by" in runs.text
    assert [each.attributes["href"] for each in get(desk, place).all("a") if each.text == f"#{job}"]
    assert place in {each.attributes["href"] for each in get(desk, f"/jobs/{job}").all("a")}


def test_the_preview_follows_what_is_typed(desk: Desk) -> None:
    found = desk.http.get("/schedules/new?fragment=due&cron=0+9+*+*+MON&time_zone=Asia/Shanghai").text
    assert found.count("<li>") == 5
    assert "09:00" in found
    assert "Mon" in found
    wrong = desk.http.get("/schedules/new?fragment=due&cron=0+24+*+*+*&time_zone=UTC").text
    assert "its hour" in wrong
    assert "<li>" not in wrong
    whole = get(desk, "/schedules/new?cron=0+9+*+*+MON&time_zone=Asia/Shanghai&name=kept")
    assert whole.all("input", name="name")[0].attributes["value"] == "kept", (
        "without scripts the page keeps what was typed"
    )


def test_what_is_wrong_is_said_and_nothing_typed_is_lost(desk: Desk) -> None:
    wrong: list[tuple[dict[str, str], str]] = [
        ({"cron": "61 * * * *"}, "its minute"),
        ({"time_zone": "Mars"}, "no time zone"),
        ({"catch_up": "all"}, "let them queue"),
        ({"catch_up_most": "many"}, "whole number"),
        ({"template": "gone"}, "no template or workflow"),
        ({"priority": "high"}, "whole number"),
        ({"template": "gone", "params": "[1]"}, "JSON"),
    ]
    for said, words in wrong:
        answer = post(desk, "/schedules", {**FORM, **said}, status=422)
        assert words in answer.text.replace("&#39;", "'")
        assert 'value="nightly"' in answer.text


def test_every_page_and_region_is_whole_in_both_languages(desk: Desk) -> None:
    place = made(desk)
    for path in ("/schedules", "/schedules/new", place, f"{place}/edit", "/schedules?q=nothing", "/schedules?q=x:1"):
        check_page(desk, path)
    assert "定时计划" in get(desk, "/schedules", CHINESE).source


def test_a_console_that_only_shows_offers_nothing(store: Store, desk: Desk, consoles: Callable[..., Desk]) -> None:
    place = made(desk)
    only = consoles(store, console_read_only=True)
    for path in ("/schedules", place):
        assert "/run" not in get(only, path).source
    assert only.http.post(f"{place}/pause").status_code == 403


def test_the_next_runs_are_shown_while_one_types(chromium: Browser, desk: Desk) -> None:
    page = chromium.new_page(base_url=desk.url)
    page.goto("/schedules/new")
    expect(page.locator("#due li")).to_have_count(5, timeout=PATIENT)
    page.fill("input[name=time_zone]", "Asia/Shanghai")
    page.fill("#cron", "15 9 * * *")
    expect(page.locator("#due li").first).to_contain_text("09:15", timeout=PATIENT)
    page.fill("#cron", "15 25 * * *")
    expect(page.locator("#due .wrong")).to_contain_text("its hour", timeout=PATIENT)
    assert page.input_value("#cron") == "15 25 * * *"
    page.fill("#cron", "15 9 * * *")
    page.fill("input[name=name]", "morning")
    page.click("button.primary")
    expect(page.locator("h1")).to_have_text("morning", timeout=PATIENT)
    page.close()
