"""Schedules over HTTP: made, read with their next and last runs, changed, paused, run, removed; on both databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from dalsegno import Store
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs

NIGHTLY = {"name": "nightly", "workflow": "全链路", "cron": "30 2 * * *", "time_zone": "Europe/Berlin"}


def made(desk: Desk, **more: Any) -> Any:
    return desk.post("/api/schedules", {**NIGHTLY, **more}, 201)


def problem(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["code"] == code
    detail: str = answer.json()["detail"]
    return detail


def test_a_schedule_is_made_read_changed_paused_and_removed(desk: Desk) -> None:
    answer = desk.http.post("/api/schedules", json={**NIGHTLY, "scope": {"query": "rain"}, "requested_by": "nas"})
    assert answer.status_code == 201, answer.text
    new = answer.json()
    place = answer.headers["location"]
    assert place == f"/api/schedules/{new['id']}"
    assert (new["workflow"], new["title"], new["request"]) == ("full", "全链路", {"scope": {"query": "rain"}})
    assert new["created_by"].startswith("nas via ")
    assert len(new["upcoming"]) == 5
    assert new["upcoming"][0] == new["next_at"]
    assert (new["last"], new["runs"]) == (None, [])
    (line,) = desk.get("/api/schedules?q=state:active%20template:full")["schedules"]
    assert (line["name"], line["says"]) == ("nightly", "At 02:30 every day")
    change = {"cron": "@daily", "scope": None, "priority": 7, "overlap": "queue"}
    after = desk.http.patch(place, json=change).json()
    assert {key: after[key] for key in ("cron", "priority", "overlap", "request", "time_zone")} == {
        "cron": "@daily", "priority": 7, "overlap": "queue", "request": {}, "time_zone": "Europe/Berlin",
    }  # fmt: skip
    paused = desk.post(f"{place}/pause", {"reason": "film night"}, 200)
    assert (paused["pause_reason"], paused["next_at"], paused["upcoming"]) == ("film night", None, [])
    assert desk.get("/api/schedules?q=state:active")["schedules"] == []
    assert desk.post(f"{place}/resume", None, 200)["paused_at"] is None
    assert desk.http.delete(place).json()["name"] == "nightly"
    problem(desk.http.get(place), 404, "not_found")
    acts = {act["what"] for act in desk.get("/api/audit")["acts"]}
    assert acts == {"schedule_added", "schedule_changed", "schedule_paused", "schedule_resumed", "schedule_removed"}


def test_a_template_may_be_called_one_as_where_jobs_are_started(desk: Desk) -> None:
    said = {"name": "nightly", "template": "全链路", "cron": "@daily"}
    new = desk.post("/api/schedules", said, 201)
    assert new["workflow"] == "full"
    place = f"/api/schedules/{new['id']}"
    assert desk.http.patch(place, json={"template": "sync"}).json()["workflow"] == "sync"
    both = desk.http.patch(place, json={"template": "sync", "workflow": "sync"})
    assert 'no "template"' in problem(both, 422, "input_invalid")


def test_a_run_that_is_asked_for_becomes_a_job(desk: Desk, songs: Songs) -> None:
    """An engine of the catalog starts templates; this one starts what is stored, so the template is run once before."""
    songs.gate.set()
    desk.until(desk.start()["id"], "completed_with_errors")
    number = made(desk, workflow="download")["id"]
    asked = desk.post(f"/api/schedules/{number}/run", {"requested_by": "nas"})
    assert asked["requested_by"].startswith("nas via ")

    def started() -> Any:
        (run,) = desk.get(f"/api/schedules/{number}/runs")["runs"]
        return run if run["outcome"] == "started" else None

    run = wait_until(started, "the run")
    assert run["id"] == asked["id"]
    job = desk.until(run["job_id"], "completed_with_errors")
    assert job["requested_by"].endswith("via schedule nightly")
    found = desk.get(f"/api/schedules/{number}")
    assert (found["last"]["job_id"], found["last"]["job_status"]) == (job["id"], "completed_with_errors")


def test_two_that_would_run_beside_each_other_are_refused(desk: Desk, songs: Songs) -> None:
    songs.gate.clear()
    desk.start()  # stores the template, and keeps the lane
    number = made(desk, workflow="download")["id"]
    desk.post(f"/api/schedules/{number}/run")
    wait_until(lambda: desk.get(f"/api/schedules/{number}")["last_job_id"], "its job")
    said = problem(desk.http.post(f"/api/schedules/{number}/run"), 409, "schedule_busy")
    assert "still queued" in said


def test_a_preview_says_when_it_would_be_due(desk: Desk) -> None:
    found = desk.get("/api/schedules/preview?cron=0%209%20*%20*%20MON&time_zone=Asia/Shanghai&count=3")
    assert found["says"] == "At 09:00 on Monday"
    moments = [datetime.fromisoformat(text) for text in found["upcoming"]]
    assert [moment.astimezone(UTC).hour for moment in moments] == [1, 1, 1]
    assert "its hour" in problem(desk.http.get("/api/schedules/preview?cron=0+24+*+*+*"), 422, "cron_invalid")
    problem(desk.http.get("/api/schedules/preview?cron=@daily&time_zone=Nowhere"), 422, "input_invalid")


def test_what_cannot_be_is_refused_with_its_reason(desk: Desk) -> None:
    number = made(desk)["id"]
    wrong: list[tuple[dict[str, Any], int, str, str]] = [
        ({"name": "nightly"}, 409, "schedule_exists", "already"),
        ({"workflow": "ful"}, 422, "workflow_unknown", 'Did you mean "full"'),
        ({"workflow": "parse"}, 422, "input_invalid", "asked for"),
        ({"cron": "x"}, 422, "cron_invalid", "five"),
        ({"catch_up": "all"}, 422, "input_invalid", "queue"),
        ({"catch_up": "twice"}, 422, "input_invalid", "catch_up"),
        ({"scope": {"playlistz": [1]}}, 422, "input_invalid", "playlists"),
        ({"items": ["x"]}, 422, "input_invalid", "scope"),
        ({"corn": "@daily"}, 422, "input_invalid", "cron"),
    ]
    for said, status, code, words in wrong:
        assert words in problem(desk.http.post("/api/schedules", json={**NIGHTLY, "name": "b", **said}), status, code)
    problem(desk.http.patch(f"/api/schedules/{number}", json={"time_zone": "Mars"}), 422, "input_invalid")
    problem(desk.http.post("/api/schedules/99/run"), 404, "not_found")
    problem(desk.http.get("/api/schedules?q=colour:red"), 422, "query_invalid")
    problem(desk.http.get(f"/api/schedules/{number}/runs?cursor=x"), 422, "input_invalid")
    problem(desk.http.get("/api/schedules?cursor=%00"), 422, "input_invalid")


def test_lists_go_on_where_a_page_ended(desk: Desk) -> None:
    for name in ("c", "a", "b"):
        made(desk, name=name)
    first = desk.get("/api/schedules?limit=2")
    assert [each["name"] for each in first["schedules"]] == ["a", "b"]
    rest = desk.get(f"/api/schedules?limit=2&cursor={first['next_cursor']}")
    assert ([each["name"] for each in rest["schedules"]], rest["next_cursor"]) == (["c"], None)


@pytest.mark.parametrize("path", ["", "/1/run", "/1/pause"])
def test_a_console_that_only_shows_refuses(store: Store, consoles: Callable[..., Desk], path: str) -> None:
    desk = consoles(store, console_read_only=True)
    problem(desk.http.post(f"/api/schedules{path}", json={}), 403, "read_only")
    foreign = consoles(store).http.post(f"/api/schedules{path}", json={}, headers={"Origin": "http://evil.example"})
    problem(foreign, 403, "origin_refused")
