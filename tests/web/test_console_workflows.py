"""Workflows over real HTTP: what there is, its versions, its picture and its runs."""

from __future__ import annotations

from dalsegno import Lane, Step, Workflow, submit
from dalsegno.catalog.templates import TEMPLATES
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, check_page, get


def test_the_seven_templates_are_there_from_the_start(desk: Desk) -> None:
    page = check_page(desk, "/workflows")
    for name in TEMPLATES:
        assert f"workflow-{name}" in page.source
        check_page(desk, f"/workflows/{name}")
    assert "No workflow of your own yet" in page.source
    assert "全链路" in get(desk, "/workflows", CHINESE).by_id("templates").text
    full = get(desk, "/workflows/full")
    assert [text.text for text in full.all("text", class_="name")] == ["collect", "sync", "download", "upload"]
    assert "It has not been run" in full.by_id("runs").text


def test_runs_are_listed_with_how_far_they_have_come(desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    job = desk.start()["id"]
    desk.until(job, "completed_with_errors")
    runs = check_page(desk, "/workflows/download").by_id("runs")
    assert f"#{job}" in runs.text
    assert "5 done" in runs.text
    assert "1 failed" in runs.text


def test_every_version_of_a_workflow_can_be_seen(desk: Desk) -> None:
    lane = Lane(name="own", max_active=2)
    first = Workflow(name="tidy", version=1, lane=lane, steps=(Step(key="one", service="work"),))
    steps = (*first.steps, Step(key="two", service="work", depends_on=("one",), follow="each", on_failure="stop"))
    for workflow in (first, Workflow(name="tidy", version=2, lane=lane, steps=steps)):
        submit(desk.store, workflow, items={"one": ["a"]})
    page = check_page(desk, "/workflows")
    assert "tidy" in page.by_id("own").text
    newest = check_page(desk, "/workflows/tidy")
    (start,) = [a.attributes["href"] for a in newest.all("a") if a.attributes["href"].startswith("/jobs/new")]
    assert (
        "checked"
        in next(e for e in get(desk, start).all("input", name="template") if "tidy" in e.attributes["value"]).attributes
    )
    assert "item by item, behind one" in newest.by_id("step-two").text
    assert "the job stops" in newest.by_id("step-two").text
    assert len([run for run in newest.elements if run.attributes.get("id", "").startswith("row-")]) == 2
    older = check_page(desk, "/workflows/tidy?version=1")
    assert "step-two" not in older.source
    get(desk, "/workflows/tidy?version=3", status=404)
    for number in ("0", "99999999999999999999", "two"):
        get(desk, f"/workflows/tidy?version={number}", status=422)


def test_a_workflow_that_is_not_there_is_said_with_the_likely_one(desk: Desk) -> None:
    desk.start()
    assert "Did you mean" in get(desk, "/workflows/downlod", status=404).source
