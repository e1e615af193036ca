"""The API of jobs, over real HTTP, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.templates import TEMPLATES, TITLES
from dalsegno.engine.submit import apply_workflow
from dalsegno.model.workflow import Lane, Step, Workflow
from dalsegno.store.schema import workflows
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:dalsegno:error:{code}")
    return body


def test_the_process_lives(desk: Desk) -> None:
    assert desk.get("/healthz") == {"status": "ok"}


@pytest.mark.parametrize("key", TEMPLATES)
def test_every_template_starts_by_its_id_and_by_its_title(
    store: Store, consoles: Callable[..., Desk], key: str
) -> None:
    desk = consoles(store)
    for name in (key, TITLES[key]):
        job = desk.start(template=name)
        assert (job["template"], job["title"], job["status"]) == (key, TITLES[key], "queued")
        assert [stage["key"] for stage in job["stages"]] == [step.key for step in TEMPLATES[key].steps]


def test_a_job_keeps_what_it_was_started_with_and_says_where_it_is(desk: Desk) -> None:
    body = {
        "template": "全链路",
        "scope": {"sources": ["demo"], "playlists": [3, "周杰伦 精选"], "query": "晴天"},
        "priority": 7,
        "download_sources": ["subsonic", "demo"],
        "requested_by": "nas",
        "options": {"note": "film night"},
    }
    answer = desk.http.post("/api/jobs", json=body)
    assert answer.status_code == 201
    assert answer.headers["location"] == "/api/jobs/1"
    job = desk.get(answer.headers["location"])
    assert job == answer.json() | {"updated_at": job["updated_at"]}
    assert job["scope"] == {
        "sources": ["demo"],
        "pools": [],
        "playlists": [3, "周杰伦 精选"],
        "songs": [],
        "query": "晴天",
    }
    assert {key: job[key] for key in ("priority", "download_sources", "options")} == {
        key: body[key] for key in ("priority", "download_sources", "options")
    }
    assert job["requested_by"] == "nas via api@127.0.0.1", "whoever says so, it is written down where it came from"


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"template": "fulll"}, "workflow_unknown", 'There is no template or workflow "fulll". Did you mean "full"?'),
        ({"template": "仅下在"}, "workflow_unknown", 'Did you mean "仅下载"?'),
        ({"template": "full", "scope": {"song": []}}, "input_invalid", 'A scope has no "song". Did you mean "songs"?'),
        ({"template": "full", "scope": []}, "input_invalid", "A scope is an object"),
        ({"template": "full", "scop": {}}, "input_invalid", 'There is no "scop" here. Did you mean "scope"?'),
        ({"template": "full", "priority": "soon"}, "input_invalid", "priority: input should be a valid integer"),
        ({"template": "full", "priority": 10**7}, "input_invalid", "±1,000,000"),
        ({"template": "full", "options": {"a": "\x00"}}, "input_invalid", "NUL"),
        ({"template": "full", "\ud800": 1}, "input_invalid", "There is no"),
        ({"template": "\ud800"}, "workflow_unknown", "There is no template"),
        ({"template": "full", "scope": {"\ud800": 1}}, "input_invalid", "scope"),
        ({"template": "full", "scope": {"query": "\ud800"}}, "input_invalid", "scope cannot be stored"),
        ({}, "input_invalid", "template: field required."),
        ([], "input_invalid", "The body must be a JSON object."),
        ({"template": "\x00"}, "workflow_unknown", "There is no template"),
        ({"template": "full", "workflow": "full"}, "input_invalid", 'There is no "workflow" here'),
        ({"workflow": "fulll"}, "workflow_unknown", 'Did you mean "full"?'),
        ({"template": "full", "items": ["song:1"]}, "input_invalid", "takes a scope, and no items"),
        ({"template": "parse"}, "input_invalid", "they are asked for"),
    ],
)
def test_what_cannot_be_started_is_said_in_a_sentence(desk: Desk, body: Any, code: str, says: str) -> None:
    answer = desk.http.post("/api/jobs", content=json.dumps(body), headers={"content-type": "application/json"})
    assert says in problem(answer, 422, code)["detail"]
    assert desk.get("/api/jobs")["jobs"] == []


def film(store: Store) -> None:
    """Stored, as by `dalsegno workflow apply`: nobody here offers its services."""
    steps = [
        Step(key="cut", service="cutter"),
        Step(key="colour", service="grader", depends_on=("cut",), follow="each"),
        Step(key="fetch", service="download", depends_on=("cut",)),
    ]
    workflow = Workflow(name="film", lane=Lane(name="films", max_active=2), steps=steps)
    store.write("workflow", lambda tx: apply_workflow(tx, workflow))


@pytest.mark.parametrize("key", ["template", "workflow"])
def test_a_stored_workflow_is_started_by_its_name(
    store: Store, consoles: Callable[..., Desk], tmp_path: Path, key: str
) -> None:
    film(store)
    file = tmp_path / "my.env"
    file.write_text("NAME_TEMPLATE={title}\n")
    desk = consoles(store, env_file=file)
    plain = desk.post("/api/jobs", {key: "film"}, 201)
    assert (plain["template"], plain["title"], plain["lane"], plain["status"]) == ("film", None, "films", "queued")
    assert [(stage["key"], stage["counts"]["total"]) for stage in plain["stages"]] == [
        ("cut", 0), ("colour", 0), ("fetch", 0),
    ]  # fmt: skip
    assert plain["snapshot"]["NAME_TEMPLATE"] == "{title}"
    assert desk.get(f"/api/jobs/{plain['id']}/config")["revision"]["id"] == 1
    assert plain["requested_by"] == "api@127.0.0.1"
    body = {"items": ["a", {"key": "b", "params": {"from": 3}}], "params": {"grain": 2}, "scope": {"reel": 1},
            "options": {"note": "night"}, "priority": 7, "requested_by": "nas"}  # fmt: skip
    full = desk.post("/api/jobs", {key: "film", **body}, 201)
    assert (full["scope"], full["priority"], full["requested_by"]) == ({"reel": 1}, 7, "nas via api@127.0.0.1")
    assert full["options"] == {"note": "night", "params": {"grain": 2}}
    assert [item["key"] for item in desk.get(f"/api/jobs/{full['id']}/items")["items"]] == ["a", "b"]
    assert [each["id"] for each in desk.get("/api/jobs?template=film")["jobs"]] == [full["id"], plain["id"]]


NOT_OF_FILM: list[tuple[dict[str, Any], str, str]] = [
    ({"template": "flim"}, "workflow_unknown", 'There is no template or workflow "flim". Did you mean "film"?'),
    ({"template": "ful"}, "workflow_unknown", 'Did you mean "full"?'),
    ({"template": "film", "download_sources": ["demo"]}, "input_invalid", "Only templates have download sources."),
    ({"template": "film", "items": {"cutt": ["a"]}}, "input_invalid", 'Did you mean "cut"?'),
    ({"template": "film", "items": [{"kye": "a"}]}, "input_invalid", "An item is a key"),
    ({"template": "film", "items": ["\x00"]}, "input_invalid", "An item's key"),
    ({"template": "film", "items": "a"}, "input_invalid", "items"),
    ({"template": "film", "params": {"a": "\x00"}}, "input_invalid", "NUL"),
    ({"template": "film", "scope": "\ud800"}, "input_invalid", "scope cannot be stored"),
]


@pytest.mark.parametrize("where", ["jobs", "plan"])
@pytest.mark.parametrize(("body", "code", "says"), NOT_OF_FILM)
def test_what_cannot_be_asked_of_a_workflow_is_said(
    desk: Desk, where: str, body: dict[str, Any], code: str, says: str
) -> None:
    film(desk.store)
    content = json.dumps(body)
    answer = desk.http.post(f"/api/{where}", content=content, headers={"content-type": "application/json"})
    assert says in problem(answer, 422, code)["detail"]
    assert desk.get("/api/jobs")["jobs"] == []


def test_a_workflow_that_was_retired_is_not_started(desk: Desk) -> None:
    film(desk.store)
    desk.store.write("retire", lambda tx: tx.conn.execute(sa.update(workflows).values(is_active=False)))
    problem(desk.http.post("/api/jobs", json={"template": "film"}), 422, "workflow_unknown")


def test_a_plan_of_a_stored_workflow_says_what_is_known_and_what_would_stop_it(desk: Desk) -> None:
    film(desk.store)
    asked = {"template": "film", "items": ["a", "b"]}
    found = desk.post("/api/plan", asked, 200)
    assert (found["template"], found["title"], found["scope"], found["bytes"]) == ("film", None, None, None)
    assert found["snapshot"]["LIBRARY_ROOT"]
    known = [(stage["service"], stage["step"], stage["items"], stage["left"]) for stage in found["stages"]]
    assert known == [("cutter", "cut", 2, 2), ("grader", "colour", None, None), ("download", "fetch", 0, 0)]
    assert [stage["first"] for stage in found["stages"]] == [["a", "b"], [], []]
    assert "each item of cut" in found["stages"][1]["basis"]
    assert {stop["name"] for stop in found["stops"]} == {"cutter", "grader", "download"}, "nobody offers them"
    (unknown, *_) = desk.post("/api/plan", {"workflow": "film"}, 200)["stages"]
    assert (unknown["items"], unknown["done"], unknown["left"], unknown["estimated"]) == (None, None, None, True)
    strange = desk.post("/api/plan", {**asked, "scope": {"reel": 1}}, 200)
    assert (strange["scope"], strange["stages"][2]["items"]) == ({"reel": 1}, None), "the catalog knows no reels"
    desk.http.put("/api/limits/service:cutter", json={"concurrent": 0}).raise_for_status()
    desk.post("/api/breakers/service:grader/trip", {"reason": "too bright"}, 200)
    desk.post("/api/pause", {"lane": "films"}, 200)
    for _ in range(2):
        assert "lane" not in {stop["kind"] for stop in desk.post("/api/plan", asked, 200)["stops"]}, "it takes two"
        desk.post("/api/jobs", asked, 201)
    stops = {stop["kind"]: stop for stop in desk.post("/api/plan", asked, 200)["stops"]}
    assert stops.keys() == {"hold", "lane", "limit", "breaker", "no_worker"}
    assert "takes 2 at a time" in stops["lane"]["says"]
    assert [stops[kind]["name"] for kind in ("hold", "limit", "breaker")] == [
        "films", "service:cutter", "service:grader",
    ]  # fmt: skip
    assert len(desk.get("/api/jobs")["jobs"]) == 2


def test_a_scope_names_what_is_there_or_what_the_job_could_bring(desk: Desk) -> None:
    for template in ("download", "仅上传"):
        asked = {"template": template, "scope": {"playlists": ["Rain"]}}
        for address in ("/api/jobs", "/api/plan"):
            assert "Rain" in problem(desk.http.post(address, json=asked), 422, "input_invalid")["detail"]
    assert desk.get("/api/jobs")["jobs"] == []
    known = {"template": "full", "scope": {"playlists": ["Rain"]}}
    (stop,) = [each for each in desk.post("/api/plan", known, 200)["stops"] if each["kind"] == "scope"]
    assert "Rain" in stop["says"]
    assert "unless an earlier stage brings it" in stop["says"]
    desk.post("/api/jobs", known, 201)


def test_a_plan_counts_the_jobs_that_come_before_it(desk: Desk) -> None:
    def ahead(**asked: Any) -> list[str]:
        stops = desk.post("/api/plan", {"template": "collect", **asked}, 200)["stops"]
        return [stop["says"] for stop in stops if stop["kind"] == "lane"]

    assert ahead() == []
    first, *_ = [desk.start()["id"] for _ in range(3)]
    assert ahead() == [f"Job {first} and 2 more are before it in lane catalog, which takes one at a time."]
    assert ahead(priority=1) == []


def test_limits_of_the_catalog_stop_no_workflow_that_does_not_call_it(desk: Desk) -> None:
    desk.store.write(
        "workflow", lambda tx: apply_workflow(tx, Workflow(name="render", steps=[Step(key="all", service="renderer")]))
    )
    desk.post("/api/breakers/source:qq/trip", {"reason": "banned"}, 200)
    for template, kinds in (("render", set()), ("download", {"breaker"})):
        stops = desk.post("/api/plan", {"template": template}, 200)["stops"]
        assert {stop["kind"] for stop in stops} - {"no_worker"} == kinds


def test_a_body_that_is_not_json_is_said_to_be_none(desk: Desk) -> None:
    answer = desk.http.post("/api/jobs", content=b"{nope", headers={"content-type": "application/json"})
    assert "not JSON" in problem(answer, 422, "input_invalid")["detail"]


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/1/resume", "/api/limits/x"])
@pytest.mark.parametrize(
    ("content", "sent_as", "says"),
    [
        (b'{"template": "full"}', "application/x-www-form-urlencoded", "Content-Type: application/json"),
        (b'{"template": "full"}', "text/plain", "Content-Type: application/json"),
        (b"[]", "application/json", "The body must be a JSON object."),
    ],
)
def test_a_body_of_another_kind_is_told_what_kind_is_wanted(
    desk: Desk, path: str, content: bytes, sent_as: str, says: str
) -> None:
    method = "PUT" if "limits" in path else "POST"
    answer = desk.http.request(method, path, content=content, headers={"content-type": sent_as})
    assert says in problem(answer, 422, "input_invalid")["detail"]


def test_the_sources_of_the_settings_hold_where_the_job_names_none(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, download_sources=("feed",))
    assert desk.start()["download_sources"] == ["feed"]
    assert desk.start(download_sources=["demo"])["download_sources"] == ["demo"]
    assert desk.start(options={"download_sources": 5})["download_sources"] == []


def test_texts_that_no_database_takes_are_made_fit(desk: Desk) -> None:
    assert desk.start(requested_by="a\x00b")["requested_by"] == "a\ufffdb via api@127.0.0.1"


def test_what_is_not_there_is_a_404_with_its_code(desk: Desk) -> None:
    for path in ("/api/jobs/77", "/api/jobs/77/items", "/api/commands/77", "/api/nothing"):
        problem(desk.http.get(path), 404, "not_found")
    for verb in ("pause", "resume"):
        problem(desk.http.post(f"/api/jobs/77/{verb}"), 404, "not_found")
    problem(desk.http.delete("/api/jobs"), 405, "method_not_allowed")
    problem(desk.http.get("/api/jobs/99999999999999999999"), 422, "input_invalid")


def test_jobs_are_paged_newest_first_and_chosen_by_status(desk: Desk) -> None:
    for _ in range(5):
        desk.start()
    seen, cursor = [], ""
    while True:
        page = desk.get(f"/api/jobs?limit=2{cursor}")
        seen.append([job["id"] for job in page["jobs"]])
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [[5, 4], [3, 2], [1]]
    assert len(desk.get("/api/jobs?status=queued,running")["jobs"]) == 5
    assert desk.get("/api/jobs?status=completed")["jobs"] == []
    assert desk.get("/api/jobs?template=full")["jobs"] == []
    detail = problem(desk.http.get("/api/jobs?status=quued"), 422, "input_invalid")["detail"]
    assert detail == 'There is no job status "quued". Did you mean "queued"?'
    problem(desk.http.get("/api/jobs?cursor=x"), 422, "input_invalid")
    problem(desk.http.get("/api/jobs?limit=0"), 422, "input_invalid")
    assert desk.get("/api/jobs?template=%00")["jobs"] == []


def test_pause_drains_and_resume_goes_on_with_what_was_overridden(desk: Desk, songs: Songs) -> None:
    job_id = desk.start(template="download-upload")["id"]
    wait_until(lambda: desk.get(f"/api/jobs/{job_id}")["counts"]["running"] == 2, "two songs to run")
    busy = [worker for worker in desk.get("/api/workers")["workers"] if worker["status"] == "busy"]
    assert {worker["name"] for worker in busy} <= {"download-1", "download-2"}

    command = desk.post(f"/api/jobs/{job_id}/pause", {"reason": "film night", "until": "2100-01-01T00:00:00+01:00"})
    assert (command["type"], command["status"], command["job_id"]) == ("pause", "pending", job_id)
    done = wait_until(
        lambda: (c := desk.get(f"/api/commands/{command['id']}"))["status"] == "applied" and c, "the pause"
    )
    assert done["payload"] == {"reason": "film night", "until": "2100-01-01T00:00:00+01:00"}
    draining = desk.until(job_id, "pause_requested")
    assert draining["counts"]["running"] == 2
    wait_until(lambda: desk.get(f"/api/jobs/{job_id}")["counts"]["claimed"] == 0, "what has not begun to be given back")
    songs.gate.set()
    paused = desk.until(job_id, "paused")
    assert (paused["pause_reason"], paused["pause_until"]) == ("film night", "2099-12-31T23:00:00Z")
    assert paused["reason"].startswith("film night (by api@127.0.0.1)")
    download = paused["stages"][0]
    assert (download["done"], download["counts"]["pending"], download["status"]) == (2, 4, "paused")

    root = {"LIBRARY_ROOT": "/mnt/bigger"}
    command = desk.post(f"/api/jobs/{job_id}/resume", {"overrides": root, "requested_by": "nas"})
    assert command["status"] == "pending"
    ended = desk.until(job_id, "completed_with_errors")
    assert (ended["progress"], ended["overrides"]) == (1.0, root)
    assert [stage["counts"]["succeeded"] for stage in ended["stages"]] == [5, 5]
    items = desk.get(f"/api/jobs/{job_id}/items?stage=download&limit=100")["items"]
    assert [item["result"] for item in items if item["key"] == "demo:6"] == [{"root": "/mnt/bigger"}]
    (failed,) = desk.get(f"/api/jobs/{job_id}/items?state=failed")["items"]
    assert (failed["key"], failed["error_code"], failed["stage"]) == ("demo:5", "forbidden", "download")


def test_what_the_engine_refuses_is_found_at_the_command(desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    job_id = desk.start()["id"]
    desk.until(job_id, "completed_with_errors")
    command = desk.post(f"/api/jobs/{job_id}/pause")
    refused = wait_until(
        lambda: (c := desk.get(f"/api/commands/{command['id']}"))["status"] == "rejected" and c, "the refusal"
    )
    assert refused["error_code"] == "command_refused"


def test_a_pause_says_its_zone_and_nothing_unknown(desk: Desk) -> None:
    job_id = desk.start()["id"]
    for body, says in (
        ({"until": "2100-01-01T00:00:00"}, "timezone"),
        ({"reson": "x"}, 'Did you mean "reason"?'),
        ({"reason": "x" * 3000}, "2000"),
    ):
        assert says in problem(desk.http.post(f"/api/jobs/{job_id}/pause", json=body), 422, "input_invalid")["detail"]
    body = {"overrides": {"LIBRARY_ROOT": "a\x00b"}}
    problem(desk.http.post(f"/api/jobs/{job_id}/resume", json=body), 422, "input_invalid")
    for key, says in (("LIBARY_ROOT", 'Did you mean "LIBRARY_ROOT"?'), ("S3_SECRET_KEY", "dalsegno.env")):
        answer = desk.http.post(f"/api/jobs/{job_id}/resume", json={"overrides": {key: "/mnt"}})
        assert says in problem(answer, 422, "input_invalid")["detail"]


def test_items_are_paged_in_their_order(desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    job_id = desk.start()["id"]
    desk.until(job_id, "completed_with_errors")
    first = desk.get(f"/api/jobs/{job_id}/items?limit=4")
    rest = desk.get(f"/api/jobs/{job_id}/items?limit=4&cursor={first['next_cursor']}")
    assert [item["key"] for item in first["items"] + rest["items"]] == [f"demo:{number}" for number in range(1, 7)]
    assert rest["next_cursor"] is None
    detail = problem(desk.http.get(f"/api/jobs/{job_id}/items?stage=downlod"), 422, "input_invalid")["detail"]
    assert 'Did you mean "download"?' in detail


def test_the_schema_names_every_model_it_uses(desk: Desk) -> None:
    schema = desk.get("/api/openapi.json")
    assert "/api/jobs/{job_id}/pause" in schema["paths"]
    assert schema["components"]["schemas"]["NewJob"]["properties"]["scope"]["properties"].keys() >= {"songs", "query"}
    text = json.dumps(schema)
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used <= schema["components"]["schemas"].keys()
    assert "HTTPValidationError" not in text
