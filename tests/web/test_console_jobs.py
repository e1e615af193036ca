"""The job center and the dashboard over real HTTP: every region, every form, with and without something to show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from dalsegno import Engine, Lane, Step, Store, Workflow
from dalsegno.catalog.find import matching
from dalsegno.catalog.templates import TEMPLATES, TITLES
from dalsegno.engine.holds import EVERYTHING, hold
from dalsegno.engine.item import Item
from dalsegno.engine.service import service
from dalsegno.model.outcome import Fail, PauseJob
from dalsegno.web.console.graph import laid_out
from dalsegno.web.console.job import TABS
from tests.helpers import SWIFT, wait_until
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, ENGLISH, Page, check_page, get


def post(desk: Desk, path: str, **fields: Any) -> httpx.Response:
    """A form, without scripts: its answer is the page it leads back to."""
    return desk.http.post(path, data=fields, follow_redirects=True)


# --- pages --------------------------------------------------------------------------------------------


def test_every_region_of_a_job_under_way(desk: Desk, songs: Songs) -> None:
    job = desk.start(scope={"query": "晴天"})["id"]
    wait_until(lambda: desk.get(f"/api/jobs/{job}")["counts"]["running"] == 2, "two workers at it")
    page = check_page(desk, "/")
    assert f"#{job}" in page.by_id("active").text
    assert "2 running" in page.by_id("active").text
    assert "download-1" in page.by_id("pools").text
    for tab in TABS:
        check_page(desk, f"/jobs/{job}?tab={tab}")
    check_page(desk, "/jobs")
    wait_until(lambda: "晴天 <1>" in get(desk, f"/jobs/{job}?tab=workers").by_id("job-tab").text, "what workers are at")
    assert "query: 晴天" in get(desk, f"/jobs/{job}").by_id("job-tab").text


def test_every_region_of_a_job_that_ended(desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    job = desk.start()["id"]
    desk.until(job, "completed_with_errors")
    page = check_page(desk, "/")
    assert "forbidden" in page.by_id("exceptions").text
    for tab in TABS:
        check_page(desk, f"/jobs/{job}?tab={tab}")
    items = get(desk, f"/jobs/{job}?tab=items&q=state:failed")
    assert len([row for row in items.all("tr") if row.attributes.get("id", "").startswith("item-")]) == 1
    assert "item_failed" in get(desk, f"/jobs/{job}?tab=events").by_id("job-tab").text
    assert "有异常" in get(desk, f"/jobs/{job}", CHINESE).by_id("job-head").text


def test_pages_without_anything_to_show(desk: Desk) -> None:
    assert "No jobs yet" in check_page(desk, "/jobs").by_id("job-list").text
    assert "No job matches" in check_page(desk, "/jobs?q=state:failed").by_id("job-list").text
    check_page(desk, "/jobs/77", 404)


def test_a_query_that_makes_no_sense_is_said_beside_it(desk: Desk) -> None:
    page = check_page(desk, "/jobs?q=sttae:failed")
    assert 'Did you mean "state"?' in page.by_id("q-error").text
    assert page.by_id("q").attributes["value"] == "sttae:failed"
    job = desk.start()["id"]
    for tab, q in (("items", "sttae:x"), ("events", "kimd:x"), ("logs", "levle:x"), ("commands", "kimd:x")):
        page = get(desk, f"/jobs/{job}?tab={tab}&q={q}")
        assert "Did you mean" in page.by_id("q-error").text


def test_jobs_are_listed_page_by_page_and_queued_ones_in_their_turn(desk: Desk) -> None:
    jobs = [desk.start(priority=100 - number)["id"] for number in range(31)]
    first = get(desk, "/jobs")
    rows = [row.attributes["id"] for row in first.all("tr") if "id" in row.attributes]
    assert rows == [f"row-{job}" for job in reversed(jobs[1:])]
    (following,) = [link.attributes["href"] for link in first.all("a", rel="next")]
    assert [row.attributes["id"] for row in get(desk, following).all("tr") if "id" in row.attributes] == ["row-1"]
    queued = get(desk, "/jobs?q=state:queued")
    assert next(row.attributes["id"] for row in queued.all("tr") if "id" in row.attributes) == f"row-{jobs[-1]}"


def rows(page: Page) -> list[str]:
    return [row.attributes["id"] for row in page.all("tr") if "id" in row.attributes]


def test_the_job_that_runs_next_is_first_on_the_first_page_of_the_queue(desk: Desk) -> None:
    jobs = [desk.start()["id"] for _ in range(33)]
    first = get(desk, "/jobs?q=state:queued")
    assert rows(first) == [f"row-{job}" for job in jobs[:30]]
    (following,) = [link.attributes["href"] for link in first.all("a", rel="next")]
    last = get(desk, following)
    assert rows(last) == [f"row-{job}" for job in jobs[30:]]
    assert last.all("a", rel="next") == []
    assert rows(get(desk, "/jobs?q=state:queued+-job:1")) == [f"row-{job}" for job in jobs[1:31]]


def test_the_gate_of_a_full_lane_leads_to_the_jobs_that_wait(desk: Desk, songs: Songs) -> None:
    first, second, third = (desk.start()["id"] for _ in range(3))
    desk.until(first, "running")
    (way,) = [link for link in get(desk, f"/explain/job/{third}").all("a") if "order of jobs" in link.text]
    assert rows(get(desk, way.attributes["href"])) == [f"row-{second}", f"row-{third}"]


def test_a_queued_job_says_in_its_row_why_it_waits(desk: Desk, store: Store, songs: Songs) -> None:
    first, second = (desk.start()["id"] for _ in range(2))
    desk.until(first, "running")
    page = check_page(desk, "/jobs")
    (link,) = page.all("a", href=f"/explain/job/{second}")
    assert link.text == f"job {first} is before it"
    assert not page.all("a", href=f"/explain/job/{first}"), "it runs"
    assert f"任务 {first}" in get(desk, "/jobs", CHINESE).by_id(f"row-{second}").text
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    store.write("hold", lambda tx: hold(tx, EVERYTHING, "film night", "sofa", until))
    row = get(desk, "/jobs?q=state:queued").by_id(f"row-{second}").text
    assert "everything is held, next " in row
    assert f"{until:%H:%M:%S}" in row


def test_an_item_of_a_job_says_in_its_row_why_it_waits(desk: Desk, store: Store, songs: Songs) -> None:
    job = desk.start()["id"]
    wait_until(lambda: desk.get(f"/api/jobs/{job}")["counts"]["running"] == 2, "two workers at it")
    store.write("hold", lambda tx: hold(tx, "service:download", "film night", "sofa"))
    page = check_page(desk, f"/jobs/{job}?tab=items&q=state:pending")
    (last, *_) = reversed(desk.get(f"/api/jobs/{job}/items?q=state:pending")["items"])
    row = page.by_id(f"item-{last['id']}")
    assert "its service is held" in row.text
    assert page.all("a", href=f"/explain/item/{last['id']}")
    assert "服务已暂停" in get(desk, f"/jobs/{job}?tab=items&q=state:pending", CHINESE).by_id("item-rows").text


def test_the_moment_of_a_reason_is_told_in_the_zone_of_the_reader(desk: Desk, store: Store) -> None:
    """The page says it, not the sentence: a script finds it and turns it into local time."""
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    job = desk.start()["id"]
    store.write("hold", lambda tx: hold(tx, "lane:catalog", "film night", "sofa", until))
    for path, language, says in (
        (f"/jobs/{job}", ENGLISH, "lane catalog is held: film night (by sofa), until"),
        (f"/jobs/{job}", CHINESE, "直到"),
        ("/", ENGLISH, "lane catalog is held: film night (by sofa), until"),
    ):
        assert f'{says} <time datetime="{until.isoformat()}"' in get(desk, path, language).source
    assert f"until {until:%Y-%m-%d %H:%M:%S} UTC" in desk.get(f"/api/jobs/{job}")["reason"], "programs get a sentence"


# --- a new job ----------------------------------------------------------------------------------------


def test_there_is_a_card_for_every_template_by_its_name_in_both_languages(desk: Desk) -> None:
    english, chinese = check_page(desk, "/jobs/new"), get(desk, "/jobs/new", CHINESE)
    for page in (english, chinese):
        assert [card.attributes["value"] for card in page.all("input", type="radio")] == list(TEMPLATES)
    cards = [label.text for label in chinese.all("label", class_="choice")]
    assert all(title in card for title, card in zip(TITLES.values(), cards, strict=True))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_plan_is_shown_before_a_job_is_started(desk: Desk, template: str) -> None:
    page = check_page(desk, f"/jobs/new?template={template}&query=x&priority=7")
    assert [row.attributes["id"] for row in page.all("tr") if "id" in row.attributes] == [
        f"plan-{step.service}" for step in TEMPLATES[template].steps
    ]
    assert "No live process offers" in page.by_id("plan").text
    assert desk.get("/api/jobs")["jobs"] == []


def test_a_job_is_started_as_the_form_says(desk: Desk) -> None:
    answer = post(desk, "/jobs", template="full", query="晴天", songs="3\n 17,demo:4", priority="7")
    assert answer.url.path == "/jobs/1"
    assert "Job 1 is queued." in answer.text
    job = desk.get("/api/jobs/1")
    assert (job["template"], job["priority"]) == ("full", 7)
    assert job["scope"] == {"sources": [], "pools": [], "playlists": [], "songs": [3, 17, "demo:4"], "query": "晴天"}
    assert job["requested_by"] == "console@127.0.0.1"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"template": "fulll"}, "There is no template"),
        ({"template": "full", "priority": "soon"}, "A priority is a whole number"),
        ({"template": "full", "download_sources": "nowhere"}, "nowhere"),
        ({"template": "workflow:nothing"}, "There is no template or workflow"),
        ({}, "There is no template"),
    ],
)
def test_what_cannot_be_started_is_said_above_the_form_as_it_was(desk: Desk, fields: dict[str, str], says: str) -> None:
    answer = desk.http.post("/jobs", data={"query": "kept", **fields})
    assert answer.status_code in (404, 422)
    assert says in answer.text
    assert 'value="kept"' in answer.text
    assert desk.get("/api/jobs")["jobs"] == []


def test_a_stored_workflow_can_be_started_too(desk: Desk, store: Store) -> None:
    from dalsegno.engine.submit import submit

    cut = Step(key="cut", service="cutter", depends_on=["frames"], follow="each")
    workflow = Workflow(name="render", lane=Lane(), steps=[Step(key="frames", service="renderer"), cut])
    submit(store, workflow, items=["a"])
    assert "render" in get(desk, "/jobs/new").by_id("new-job").text
    plan = check_page(desk, "/jobs/new?template=workflow:render")
    assert "its service lists them when it is its turn" in plan.by_id("plan-frames").text
    assert "one for each item of frames that is done" in plan.by_id("plan-cut").text
    assert "No live process offers renderer." in plan.by_id("plan").text
    answer = post(desk, "/jobs", template="workflow:render", priority="7")
    assert answer.url.path == "/jobs/2"
    job = desk.get("/api/jobs/2")
    assert (job["template"], job["priority"], job["requested_by"]) == ("render", 7, "console@127.0.0.1")
    check_page(desk, "/jobs/2?tab=workflow")


# --- what can be done with one --------------------------------------------------------------------------


def test_a_job_is_paused_and_resumed_and_the_filters_are_kept(desk: Desk, songs: Songs) -> None:
    job = desk.start()["id"]
    wait_until(lambda: desk.get(f"/api/jobs/{job}")["counts"]["running"] == 2, "two workers at it")
    answer = post(desk, f"/jobs/{job}/pause", back="/jobs?q=template%3Adownload", reason="film night")
    assert str(answer.url).endswith("/jobs?q=template%3Adownload")
    assert f"Job {job} pauses" in answer.text
    assert "draining: 2 of 2" in get(desk, f"/jobs/{job}").by_id("job-head").text
    songs.gate.set()
    desk.until(job, "paused")
    assert "film night" in get(desk, f"/jobs/{job}").by_id("job-head").text
    assert f"Job {job} goes on" in post(desk, f"/jobs/{job}/resume").text
    desk.until(job, "completed_with_errors")


def test_a_resume_may_change_settings_and_says_which_it_cannot(desk: Desk, songs: Songs) -> None:
    job = desk.start()["id"]
    post(desk, f"/jobs/{job}/pause")
    wait_until(lambda: desk.get(f"/api/jobs/{job}")["status"] in ("paused", "pause_requested"), "the pause")
    refused = post(desk, f"/jobs/{job}/resume", key="LIBRARY_ROT", value="/mnt/bigger")
    assert "LIBRARY_ROT" in refused.text
    assert "Did you mean" in refused.text
    songs.gate.set()
    desk.until(job, "paused")
    post(desk, f"/jobs/{job}/resume", **{"override.LIBRARY_ROOT": "/mnt/bigger", "key": "", "value": ""})
    desk.until(job, "completed_with_errors")
    settings = get(desk, f"/jobs/{job}?tab=config").by_id("key-LIBRARY_ROOT").text
    assert "/mnt/bigger" in settings
    assert "changed on resume" in settings


def test_a_cancel_says_what_stops_and_what_stays(desk: Desk, songs: Songs) -> None:
    job = desk.start()["id"]
    wait_until(lambda: desk.get(f"/api/jobs/{job}")["counts"]["running"] == 2, "two workers at it")
    said = get(desk, f"/jobs/{job}").by_id("cancel").text
    assert "4 items wait and will not run." in said
    assert "2 items run; they are asked to stop" in said
    assert "is being canceled" in post(desk, f"/jobs/{job}/cancel").text
    songs.gate.set()
    desk.until(job, "canceled")
    again = post(desk, f"/jobs/{job}/cancel")
    assert "cannot be canceled" in again.text


def test_priorities_are_changed_in_the_list(desk: Desk, songs: Songs) -> None:
    first = desk.start()["id"]
    second = desk.start()["id"]
    assert f"Job {second} has priority 7." in post(desk, f"/jobs/{second}/priority", priority="7").text
    assert desk.get(f"/api/jobs/{second}")["priority"] == 7
    assert "whole number" in post(desk, f"/jobs/{second}/priority", priority="soon").text
    songs.gate.set()
    desk.until(first, "completed_with_errors")
    desk.until(second, "completed_with_errors")


def test_a_job_is_started_again(desk: Desk) -> None:
    desk.start(scope={"query": "x"}, priority=7)
    answer = post(desk, "/jobs/1/clone")
    assert answer.url.path == "/jobs/2"
    assert desk.get("/api/jobs/2")["scope"]["query"] == "x"


class Broken:
    """Items that fail until they are mended."""

    def __init__(self) -> None:
        self.mended = False

        @service("download")
        def download(item: Item) -> Any:
            return {} if self.mended else Fail("Not today.", code="broken")

        @download.plan
        def plan(_: Any) -> Iterator[str]:
            yield from ("a", "b", "c")

        self.service = download


def test_items_of_a_job_have_the_buttons_of_their_rows(desk: Desk, store: Store) -> None:
    broken = Broken()
    with Engine(store, [broken.service], replace(SWIFT, find=matching)):
        job = desk.start()["id"]
        desk.until(job, "completed_with_errors")
        broken.mended = True
        page = check_page(desk, f"/jobs/{job}?tab=items")
        first, second, third = (item["id"] for item in desk.get(f"/api/jobs/{job}/items")["items"])
        (again,) = page.all("button", formaction=f"/items/{first}/retry")
        assert (again.attributes["formmethod"], again.attributes["data-key"]) == ("post", "r")
        (force,) = page.all("a", href=f"/items/{first}/force")
        assert force.attributes["data-key"] == "f"
        (form,) = page.all("form", id_="items-form")
        assert "hx-post" not in form.attributes, "htmx would send its buttons to where the form goes"
        (everything,) = [each for each in page.all("button") if "Retry 3 failed" in each.text]
        assert "data-key" not in everything.attributes, "here r is about what is ticked, or the row"
        (everything,) = [each for each in get(desk, f"/jobs/{job}").all("button") if "Retry 3 failed" in each.text]
        assert everything.attributes["data-key"] == "r"
        answer = post(desk, f"/items/{first}/retry", ticked="1", id=second, back=f"/jobs/{job}?tab=items")
        assert f"Item {first} is tried again." in answer.text
        wait_until(lambda: desk.get(f"/api/jobs/{job}")["counts"]["failed"] == 2, "two that failed")
        states = {item["id"]: item["status"] for item in desk.get(f"/api/jobs/{job}/items")["items"]}
        assert (states[second], states[third]) == ("failed", "failed"), "a row's button is about its row"


def test_a_retry_of_what_is_ticked_is_refused_where_nothing_is(desk: Desk, store: Store) -> None:
    with Engine(store, [Broken().service], replace(SWIFT, find=matching)):
        job = desk.start()["id"]
        desk.until(job, "completed_with_errors")
        (form,) = get(desk, f"/jobs/{job}?tab=items").all("input", name="ticked")
        answer = post(desk, f"/jobs/{job}/retry", ticked=form.attributes["value"], back=f"/jobs/{job}?tab=items")
    assert str(answer.url).endswith("?tab=items")
    assert "That did not work. No item is ticked, so nothing was retried." in " ".join(
        re.sub("<[^>]+>", " ", answer.text).split()
    )
    assert desk.get("/api/commands")["commands"] == []


@pytest.mark.parametrize("ticked", [False, True])
def test_what_failed_is_retried_all_of_it_or_what_is_ticked(desk: Desk, store: Store, ticked: bool) -> None:
    broken = Broken()
    with Engine(store, [broken.service], replace(SWIFT, find=matching)):
        job = desk.start()["id"]
        desk.until(job, "completed_with_errors")
        assert "Retry 3 failed" in get(desk, f"/jobs/{job}").by_id("job-head").text
        broken.mended = True
        chosen = desk.get(f"/api/jobs/{job}/items")["items"][0]["id"]
        answer = post(desk, f"/jobs/{job}/retry", **({"id": chosen} if ticked else {}))
        assert "tried again" in answer.text
        left = 2 if ticked else 0
        wait_until(lambda: desk.get(f"/api/jobs/{job}")["counts"]["failed"] == left, f"{left} failed")
        assert "retried many items" in get(desk, f"/jobs/{job}?tab=commands").by_id("job-tab").text


def test_a_full_disk_is_mended_from_the_dashboard(desk: Desk, store: Store) -> None:
    @service("download")
    def download(item: Item) -> Any:
        if item.snapshot.get("LIBRARY_ROOT") == "/mnt/bigger":
            return {}
        return PauseJob("The library is full: 0 B are left.", code="disk_full")

    @download.plan
    def plan(_: Any) -> Iterator[str]:
        yield "a"

    with Engine(store, [download], SWIFT):
        job = desk.start()["id"]
        desk.until(job, "paused")
        page = check_page(desk, "/")
        strip = page.by_id(f"attention-job-{job}")
        assert f"The disk is full; job {job} is paused" in strip.text
        (field,) = [each for each in page.all("input") if each.attributes["name"] == "override.LIBRARY_ROOT"]
        assert field.attributes["id"] == f"fix-{job}-LIBRARY_ROOT"
        post(desk, f"/jobs/{job}/resume", back="/", **{"override.LIBRARY_ROOT": "/mnt/bigger"})
        desk.until(job, "completed")
    assert "disk is full" not in get(desk, "/").by_id("attention").text


def test_without_an_engine_a_command_says_that_it_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.web.console.acting.PATIENCE", 0.0)
    job = desk.start()["id"]
    assert "no engine has taken it up yet" in post(desk, f"/jobs/{job}/pause").text
    assert "No engine is at work" in get(desk, "/").by_id("attention").text


def test_a_console_that_only_shows_has_no_forms_about_jobs(store: Store, consoles: Callable[..., Desk]) -> None:
    open_desk = consoles(store)
    open_desk.start()
    desk = consoles(store, console_read_only=True)
    for path in ("/", "/jobs", *(f"/jobs/1?tab={tab}" for tab in TABS)):
        page = get(desk, path)
        assert [form.attributes for form in page.all("form") if form.attributes.get("method") == "post"
                and form.attributes["id"] != "items-form"] == [], path  # fmt: skip


# --- the picture ----------------------------------------------------------------------------------------


def test_a_workflow_is_laid_out_without_overlaps() -> None:
    steps = [
        Step(key="a", service="s"),
        Step(key="b", service="s", depends_on=("a",)),
        Step(key="c", service="s", depends_on=("a",)),
        Step(key="d", service="s", depends_on=("b", "c")),
        Step(key="e", service="s", depends_on=("d",), follow="each"),
        Step(key="f", service="s"),
    ]
    graph = laid_out(steps)
    assert len({(box.x, box.y) for box in graph.boxes}) == len(steps)
    x = {box.key: box.x for box in graph.boxes}
    assert x["a"] < x["b"] == x["c"] < x["d"] < x["e"]
    assert [line.each for line in graph.lines] == [False, False, False, False, True]
    assert all(box.x + 168 <= graph.width and box.y + 62 <= graph.height for box in graph.boxes)


def test_a_settings_file_that_is_wrong_on_disk_is_told_with_the_way_to_it(
    store: Store, consoles: Callable[..., Desk], tmp_path: Path
) -> None:
    file = tmp_path / "dalsegno.env"
    file.write_text("LIBRARY_ROOT=/music\n")
    desk = consoles(store, env_file=file)
    assert "settings file" not in get(desk, "/").by_id("attention").text
    file.write_text("DOWNLOAD_WORKERS=many\n")
    page = check_page(desk, "/")
    assert "The settings file on disk is not valid" in page.by_id("attention-config").text
    assert "DOWNLOAD_WORKERS" in page.by_id("attention-config").text
