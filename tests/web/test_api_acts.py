"""What can be done over HTTP, and what becomes of it: on both databases, with an engine at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from dalsegno import Store
from dalsegno.catalog.templates import TEMPLATES
from dalsegno.engine.submit import submit
from dalsegno.insight.walk import Page
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs


def problem(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["code"] == code
    detail: str = answer.json()["detail"]
    return detail


def follow(desk: Desk, answer: httpx.Response, status: str = "applied") -> Any:
    """To where the answer says that its command is."""
    assert answer.status_code == 202, answer.text
    place = answer.headers["location"]
    assert place == f"/api/commands/{answer.json()['id']}"
    return wait_until(lambda: (found := desk.get(place))["status"] == status and found, f"{place} to be {status}")


def finished(desk: Desk, songs: Songs) -> int:
    songs.gate.set()
    job_id: int = desk.start()["id"]
    desk.until(job_id, "completed_with_errors")
    return job_id


# --- jobs -----------------------------------------------------------------------------------------


def test_a_canceled_job_stops_where_it_is(desk: Desk, songs: Songs) -> None:
    job_id = desk.start()["id"]
    wait_until(lambda: desk.get(f"/api/jobs/{job_id}")["counts"]["running"] == 2, "two songs to run")
    follow(desk, desk.http.post(f"/api/jobs/{job_id}/cancel"))
    # The engine hears of it a moment after the command is applied; until then what it has in hand may begin.
    wait_until(lambda: desk.get(f"/api/jobs/{job_id}")["counts"]["canceled"] == 4, "the rest to be given back")
    songs.gate.set()
    job = desk.until(job_id, "canceled")
    assert job["counts"]["canceled"] == 4
    refused = follow(desk, desk.http.post(f"/api/jobs/{job_id}/cancel"), "rejected")
    assert refused["error_code"] == "command_refused"


def test_priority_is_changed_by_a_command(desk: Desk, songs: Songs) -> None:
    job_id = desk.start()["id"]
    asked = follow(desk, desk.http.post(f"/api/jobs/{job_id}/priority", json={"priority": 7, "requested_by": "nas"}))
    assert asked["requested_by"].startswith("nas")
    assert desk.get(f"/api/jobs/{job_id}")["priority"] == 7
    problem(desk.http.post(f"/api/jobs/{job_id}/priority", json={"priority": 2_000_000}), 422, "input_invalid")
    problem(desk.http.post("/api/jobs/77/priority", json={"priority": 1}), 404, "not_found")


def test_a_clone_asks_for_the_same_again(desk: Desk) -> None:
    body = {
        "template": "full",
        "scope": {"songs": [3]},
        "options": {"note": "x"},
        "download_sources": ["demo"],
        "priority": 9,
    }
    first = desk.start(**body)
    answer = desk.http.post(f"/api/jobs/{first['id']}/clone", json={"priority": 11})
    assert answer.status_code == 201
    clone = answer.json()
    assert answer.headers["location"] == f"/api/jobs/{clone['id']}"
    same = ("template", "scope", "options", "download_sources")
    assert {key: clone[key] for key in same} == {key: first[key] for key in same}
    assert (clone["id"], clone["priority"], clone["status"]) == (first["id"] + 1, 11, "queued")
    problem(desk.http.post("/api/jobs/77/clone"), 404, "not_found")


def test_a_stage_alone_is_paused_and_goes_on(desk: Desk, songs: Songs) -> None:
    job_id = desk.start(template="download-upload")["id"]
    follow(desk, desk.http.post(f"/api/jobs/{job_id}/pause", json={"stage": "upload", "reason": "the line is busy"}))
    (hold,) = desk.get("/api/holds")["holds"]
    assert (hold["level"], hold["name"], hold["reason"]) == ("stage", "upload", "the line is busy")
    songs.gate.set()
    wait_until(lambda: desk.get(f"/api/jobs/{job_id}")["stages"][0]["status"] == "completed", "the downloads")
    assert desk.get(f"/api/jobs/{job_id}")["stages"][1]["counts"]["succeeded"] == 0
    both = {"stage": "upload", "overrides": {"LIBRARY_ROOT": "/mnt"}}
    assert "whole job" in problem(desk.http.post(f"/api/jobs/{job_id}/resume", json=both), 422, "input_invalid")
    follow(desk, desk.http.post(f"/api/jobs/{job_id}/resume", json={"stage": "upload"}))
    assert desk.until(job_id, "completed_with_errors")["stages"][1]["counts"]["succeeded"] == 5


# --- items ----------------------------------------------------------------------------------------


def test_one_item_is_retried_and_another_by_force(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    (failed,) = desk.get("/api/items?q=state:failed")["items"]
    follow(desk, desk.http.post(f"/api/job-items/{failed['id']}/retry"))
    wait_until(lambda: len(_types(desk, failed["id"], "item_failed")) == 2, "a second failure")
    desk.until(job_id, "completed_with_errors")
    done = desk.get("/api/items?q=state:succeeded")["items"][0]
    refused = follow(desk, desk.http.post(f"/api/job-items/{done['id']}/retry"), "rejected")
    assert "force-retry" in refused["error_message"]
    follow(desk, desk.http.post(f"/api/job-items/{done['id']}/force-retry"))
    wait_until(lambda: len(_types(desk, done["id"], "item_succeeded")) == 2, "a second success")
    problem(desk.http.post("/api/job-items/7777/retry"), 404, "not_found")


@pytest.mark.parametrize("path", ["job-items/{item}/retry", "job-items/{item}/force-retry", "jobs/{job}/retry"])
def test_a_retry_is_refused_at_once_while_another_job_does_the_same(desk: Desk, songs: Songs, path: str) -> None:
    songs.gate.set()
    (job_id, twin), item_id = twins(desk, songs)
    answer = desk.http.post(f"/api/{path.format(item=item_id, job=job_id)}")
    assert f"job {twin} does the same work" in problem(answer, 409, "twin_active")
    assert answer.json()["twin"] == twin
    assert desk.get("/api/commands")["commands"] == [], "nothing was written down"
    assert desk.get(f"/api/job-items/{item_id}")["item"]["status"] == "failed"
    desk.post("/api/resume", {"lane": "catalog"}, 200)
    desk.until(twin, "completed_with_errors")
    follow(desk, desk.http.post(f"/api/{path.format(item=item_id, job=job_id)}"))


def twins(desk: Desk, songs: Songs) -> tuple[tuple[int, int], int]:
    """A finished job with a failed item, and one that waits with its dedupe key."""
    first = submit(desk.store, TEMPLATES["download"], dedupe="the same").job_id
    desk.until(first, "completed_with_errors")
    (failed,) = desk.get(f"/api/jobs/{first}/items?state=failed")["items"]
    desk.post("/api/pause", {"lane": "catalog"}, 200)
    second = submit(desk.store, TEMPLATES["download"], dedupe="the same").job_id
    assert second != first
    return (first, second), failed["id"]


def _types(desk: Desk, item_id: int, kind: str) -> list[str]:
    return [event for event in desk.get(f"/api/events?q=item:{item_id}%20kind:{kind}")["events"] if event]


def test_failed_only_is_retried_of_a_job(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    done = follow(desk, desk.http.post(f"/api/jobs/{job_id}/retry"))
    assert (done["type"], done["job_id"], done["progress"]["done"]) == ("bulk_retry", job_id, 1)
    desk.until(job_id, "completed_with_errors")
    problem(desk.http.post("/api/jobs/77/retry"), 404, "not_found")


def test_many_are_previewed_then_done_and_counted(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    asked = {"action": "force-retry", "q": "state:failed,succeeded", "job": job_id}
    seen = desk.post("/api/bulk/preview", asked, 200)
    assert (seen["eligible"], seen["refused"], seen["more"], len(seen["names"])) == (6, {}, False, 6)
    assert seen["q"] == f"state:failed,succeeded job:{job_id}"
    less = desk.post("/api/bulk/preview", {**asked, "action": "retry"}, 200)
    assert (less["eligible"], less["refused"]) == (1, {"succeeded": 5})
    done = follow(desk, desk.http.post("/api/bulk", json=asked))
    assert done["progress"]["done"] == 6
    desk.until(job_id, "completed_with_errors")
    problem(desk.http.post(f"/api/commands/{done['id']}/stop"), 409, "command_refused")


def test_items_may_be_named_one_by_one(desk: Desk, songs: Songs) -> None:
    finished(desk, songs)
    (failed,) = desk.get("/api/items?q=state:failed")["items"]
    done = follow(desk, desk.http.post("/api/bulk", json={"action": "retry", "items": [failed["id"], 7777]}))
    assert done["progress"]["done"] == 1


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"action": "retry"}, "input_invalid", "Say which items"),
        ({"action": "retry", "q": "", "items": [1]}, "input_invalid", "Say which items"),
        ({"action": "delete", "q": ""}, "input_invalid", "action"),
        ({"action": "retry", "items": []}, "input_invalid", "items"),
        ({"action": "retry", "q": "stat:failed"}, "query_invalid", 'Did you mean "state"?'),
    ],
)
def test_what_cannot_be_done_to_many_is_said(desk: Desk, body: Any, code: str, says: str) -> None:
    assert says in problem(desk.http.post("/api/bulk", json=body), 422, code)
    assert desk.get("/api/commands")["commands"] == []


def test_a_command_about_many_waits_for_an_engine_and_can_be_stopped_before(desk: Desk) -> None:
    asked = desk.post("/api/bulk", {"action": "cancel", "q": "state:pending"})
    stopped = desk.http.post(f"/api/commands/{asked['id']}/stop")
    assert stopped.status_code == 202
    assert stopped.json()["stop_requested_at"] is not None


def test_a_group_of_errors_is_tried_again(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    (line,) = desk.get("/api/exceptions")["exceptions"]
    group = line["group"]
    assert (group["code"], group["service"], group["count"], line["items"]) == ("forbidden", "download", 1, 1)
    assert desk.get(f"/api/exceptions/{group['fingerprint']}") == line
    done = follow(desk, desk.http.post(f"/api/exceptions/{group['fingerprint']}/retry"))
    assert done["progress"]["done"] == 1
    desk.until(job_id, "completed_with_errors")
    wait_until(lambda: desk.get("/api/exceptions")["exceptions"][0]["group"]["count"] == 2, "the second one")
    problem(desk.http.post("/api/exceptions/nope/retry"), 404, "not_found")


def test_a_list_of_groups_says_when_the_time_was_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.get("/api/exceptions") == {"exceptions": [], "next_cursor": None, "partial": False}
    cut = lambda *_, **__: Page([], None, partial=True)  # noqa: E731
    monkeypatch.setattr("dalsegno.web.api.exceptions.find_groups", cut)
    assert desk.get("/api/exceptions?q=bulk:1")["partial"]


# --- holds, limits, breakers ----------------------------------------------------------------------


@pytest.mark.parametrize("target", [{}, {"lane": "catalog"}, {"service": "download"}])
def test_a_hold_stops_what_it_names_until_it_is_released(desk: Desk, songs: Songs, target: dict[str, str]) -> None:
    songs.gate.set()
    desk.until(desk.start()["id"], "completed_with_errors")  # now the lane is there
    (hold,) = desk.post("/api/pause", {**target, "reason": "film night"}, 200)["holds"]
    assert (hold["level"], hold["reason"]) == (next(iter(target), "everything"), "film night")
    job_id = desk.start()["id"]
    closed = desk.get(f"/api/explain/job/{job_id}")["first_closed"]
    assert closed["code"] in ("all_held", "lane_held", "service_held", "lane_turn", "planned")
    assert desk.post("/api/resume", target, 200)["holds"] == []
    desk.until(job_id, "completed_with_errors")
    problem(desk.http.post("/api/resume", json=target), 409, "command_refused")


def test_what_cannot_be_held_is_said(desk: Desk) -> None:
    desk.start()
    assert 'Did you mean "catalog"?' in problem(desk.http.post("/api/pause", json={"lane": "catlog"}), 404, "not_found")
    both = {"lane": "catalog", "service": "download"}
    assert "name one" in problem(desk.http.post("/api/pause", json=both), 422, "input_invalid")
    problem(desk.http.post("/api/pause", json={"lane": ""}), 422, "input_invalid")


def test_a_limit_is_set_kept_and_lifted(desk: Desk, songs: Songs) -> None:
    line = desk.http.put("/api/limits/source:qq", json={"concurrent": 2, "rate": 30, "window": 15}).json()
    assert (line["concurrent"], line["rate"], line["window"], line["origin"]) == (2, 30, 15.0, "operator")
    line = desk.http.put("/api/limits/source:qq", json={"rate": None}).json()
    assert (line["concurrent"], line["rate"]) == (2, None)
    follows = desk.http.put("/api/limits/source:qq", json={"concurrent": "queue_concurrency"}).json()
    assert (follows["concurrent"], follows["concurrent_setting"]) == (1, "queue_concurrency")
    assert [each["name"] for each in desk.get("/api/limits")["limits"]] == ["source:qq"]
    assert desk.get("/api/limits/source:qq")["name"] == "source:qq"
    assert desk.http.delete("/api/limits/source:qq").json()["concurrent"] is None
    problem(desk.http.delete("/api/limits/source:qq"), 404, "not_found")
    assert 'Did you mean "service:download"?' in problem(
        desk.http.put("/api/limits/download", json={"rate": 1}), 422, "input_invalid"
    )
    problem(desk.http.put("/api/limits/source:qq", json={"rate": "nope"}), 422, "input_invalid")
    problem(desk.http.get("/api/limits/source:q"), 404, "not_found")


def test_a_system_setting_is_set_and_the_limits_that_follow_it_with_it(desk: Desk) -> None:
    desk.http.put("/api/limits/source:qq", json={"concurrent": "queue_concurrency"}).raise_for_status()
    before = {line["key"]: line for line in desk.get("/api/settings")["settings"]}
    assert before == {line["key"]: line for line in desk.get("/api/limits")["settings"]}
    assert (before["queue_concurrency"]["value"], before["queue_concurrency"]["updated_by"]) == (1, None)
    answer = desk.http.put("/api/settings/queue_concurrency", json={"value": 4})
    assert answer.status_code == 200, answer.text
    line = answer.json()
    assert (line["value"], line["default"], line["followers"]) == (4, 1, ["source:qq"])
    assert line["updated_by"] == "api@127.0.0.1"
    assert desk.get("/api/limits/source:qq")["concurrent"] == 4
    assert [act["what"] for act in desk.get("/api/audit")["acts"]] == ["setting_changed", "limit_set"]
    for wrong in (-1, 1_000_001, True, "4", 1.5, None):
        problem(desk.http.put("/api/settings/queue_concurrency", json={"value": wrong}), 422, "input_invalid")
    problem(desk.http.put("/api/settings/queue_batch_size", json={"value": 0}), 422, "input_invalid")
    meant = problem(desk.http.put("/api/settings/queue_concurency", json={"value": 4}), 404, "not_found")
    assert 'did you mean "queue_concurrency"?' in meant
    assert desk.get("/api/limits/source:qq")["concurrent"] == 4


def test_a_limit_of_nothing_needs_attention(desk: Desk) -> None:
    desk.http.put("/api/limits/service:download", json={"concurrent": 0}).raise_for_status()
    entry = next(each for each in desk.get("/api/dashboard")["attention"] if each["code"] == "limit_zero")
    assert entry["fixes"][0] | {"says": ""} == {
        "action": "limit",
        "says": "",
        "method": "PUT",
        "path": "/api/limits/service:download",
        "body": {},
        "asks": [],
    }


def test_a_breaker_is_tripped_probed_and_reset(desk: Desk) -> None:
    name = "source:https://host/path"
    line = desk.post(f"/api/breakers/{name}/trip", {"reason": "they asked us to stop"}, 200)
    assert (line["breaker"]["state"], line["breaker"]["reason"]) == ("open", "they asked us to stop")
    assert line["breaker"]["tripped_by"].endswith("@127.0.0.1")
    assert desk.get("/api/breakers")["breakers"] == [line]
    entry = next(each for each in desk.get("/api/dashboard")["attention"] if each["code"] == "breaker_open")
    probe = next(fix for fix in entry["fixes"] if fix["action"] == "probe")
    assert desk.post(probe["path"], None, 200)["breaker"]["state"] == "half_open"
    assert desk.post(f"/api/breakers/{name}/reset", None, 200)["breaker"]["state"] == "closed"
    assert "nothing to probe" in problem(desk.http.post(f"/api/breakers/{name}/probe"), 409, "command_refused")
    problem(desk.http.post("/api/breakers/nope/reset"), 404, "not_found")
    problem(desk.http.post(f"/api/breakers/{name}/trip", json={"reason": ""}), 422, "input_invalid")
    assert "not nodes" in problem(
        desk.http.post("/api/breakers/node:nas/trip", json={"reason": "x"}), 422, "input_invalid"
    )


def test_who_did_what_is_kept(desk: Desk) -> None:
    job_id = desk.start()["id"]
    desk.post(f"/api/jobs/{job_id}/priority", {"priority": 3})
    desk.post("/api/pause", {"reason": "film night"}, 200)
    acts = desk.get("/api/audit")["acts"]
    assert [act["what"] for act in acts] == ["hold_set", "set_priority", "job_submitted"]
    assert all(act["by"].endswith("@127.0.0.1") for act in acts)
    (asked,) = desk.get("/api/commands?q=kind:set_priority")["commands"]
    assert asked["payload"] == {"priority": 3}
    assert desk.get(f"/api/jobs/{job_id}/commands")["commands"] == [asked]


def test_a_console_that_only_shows_refuses_all_of_it(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, console_read_only=True)
    for path in ("/api/jobs", "/api/bulk", "/api/pause", "/api/breakers/x/reset"):
        problem(desk.http.post(path, json={}), 403, "read_only")
    problem(desk.http.put("/api/settings/queue_concurrency", json={"value": 4}), 403, "read_only")
    problem(desk.http.delete("/api/limits/x"), 403, "read_only")


# --- operations -------------------------------------------------------------------------------------


def test_what_an_operation_changed_is_found_by_its_number(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    seen = desk.post("/api/bulk/preview", {"action": "skip", "q": "", "job": job_id}, 200)
    assert (seen["unit"], seen["eligible"], seen["refused"], seen["waiting"]) == ("items", 1, {"succeeded": 5}, None)
    done = follow(desk, desk.http.post("/api/bulk", json={"action": "skip", "q": "state:failed"}))
    told = desk.get(f"/api/bulk/{done['id']}")
    assert (told["verb"], told["state"], told["done"], told["result"]) == ("skip", "done", 1, f"bulk:{done['id']}")
    (item,) = desk.get(f"/api/items?q={told['result']}")["items"]
    assert item["status"] == "skipped"
    assert [each["id"] for each in desk.get(f"/api/jobs?q={told['result']}")["jobs"]] == [job_id]
    assert desk.get(f"/api/exceptions?q={told['result']}")["exceptions"] == []
    assert [each["id"] for each in desk.get("/api/bulk")["operations"]] == [done["id"]]
    problem(desk.http.post(f"/api/bulk/{done['id']}/stop"), 409, "command_refused")
    problem(desk.http.get("/api/bulk/9999"), 404, "not_found")
    desk.until(job_id, "completed")


def test_jobs_are_put_before_others_by_a_query_about_items(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    asked = {"action": "priority", "q": f"job:{job_id}", "priority": 7}
    seen = desk.post("/api/bulk/preview", asked, 200)
    assert (seen["unit"], seen["eligible"]) == ("jobs", 0), "it is over"
    done = follow(desk, desk.http.post("/api/bulk", json=asked))
    assert done["progress"]["done"] == 0
    problem(desk.http.post("/api/bulk", json={"action": "priority", "q": ""}), 422, "input_invalid")
    problem(desk.http.post("/api/bulk", json={"action": "retry", "q": "", "priority": 7}), 422, "input_invalid")
