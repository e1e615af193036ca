"""Bulk operations in the console: from every list, through a preview, to what they changed."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from dalsegno.catalog.find import ITEMS
from dalsegno.insight.query import Query, parse
from dalsegno.web.console.bulk import _named
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, Page, check_page, get


@pytest.fixture
def job(desk: Desk, songs: Songs) -> int:
    """Of which one song failed."""
    songs.gate.set()
    number: int = desk.start()["id"]
    desk.until(number, "completed_with_errors")
    return number


def shown(page: Page, where: str) -> str:
    return " ".join(page.by_id(where).text.split())


def links(page: Page, begin: str) -> set[str]:
    return {a.attributes["href"] for a in page.all("a") if a.attributes.get("href", "").startswith(begin)}


def test_every_list_leads_to_a_preview(desk: Desk, job: int) -> None:
    assert "/bulk/new?act=skip&jobs=state%3Acompleted_with_errors&back=/jobs" in "".join(
        sorted(links(get(desk, "/jobs?q=state:completed_with_errors"), "/bulk/new?act=skip"))
    )
    found = get(desk, f"/jobs/{job}?tab=items&q=state:failed")
    assert any(f"q=state%3Afailed%20job%3A{job}" in link for link in links(found, "/bulk/new?act=force_retry"))
    assert links(get(desk, "/logs?q=code:forbidden"), "/bulk/new?act=skip&groups=code%3Aforbidden")
    assert links(get(desk, "/songs?view=failed"), "/bulk/new?act=priority&q=state%3Afailed")


def test_what_is_skipped_is_found_by_the_number_of_its_operation(desk: Desk, job: int) -> None:
    check_page(desk, "/bulk")
    asked = {"act": "skip", "jobs": "state:completed_with_errors", "back": "/jobs"}
    page = check_page(desk, "/bulk/new?" + urlencode(asked))
    assert "1 items it would be done to" in shown(page, "preview")
    assert page.all("input", name="q", value=f"job:{job}"), "what matches is named, so that it stays the same"
    where = desk.http.post("/bulk", data={"act": "skip", "q": f"job:{job}", "back": "/jobs"}).headers["location"]
    number = where.removeprefix("/bulk/").partition("?")[0]

    def over() -> Page | None:
        found = check_page(desk, where)
        return found if "done" in shown(found, "progress-title") else None

    page = wait_until(over, "it to be through")
    assert page.by_id("done").text == "1"
    assert "5 succeeded" in shown(page, "refused")
    result = {link for link in links(page, "/") if link.endswith(f"q=bulk:{number}")}
    assert {link.partition("?")[0] for link in result} == {"/songs", "/logs", "/jobs"}
    for link in result:
        check_page(desk, link)
    assert f"#{number}" in shown(check_page(desk, "/bulk"), "operations")


def test_a_group_of_errors_may_be_done_with(desk: Desk, job: int) -> None:
    page = check_page(desk, "/bulk/new?" + urlencode({"act": "retry", "groups": "service:download"}))
    assert "1 items it would be done to" in shown(page, "preview")
    none = get(desk, "/bulk/new?" + urlencode({"act": "retry", "groups": "service:nothing"}))
    assert "0 items it would be done to" in shown(none, "preview")
    get(desk, "/bulk/new?" + urlencode({"act": "retry", "jobs": "sate:failed"}), status=422)


def test_more_than_a_query_can_name_are_cut_and_it_is_said() -> None:
    names = [f"{number:012x}" for number in range(200)]
    asked = _named("retry", Query().with_("state", "failed"), "group", names, False, None)
    assert asked.first is not None
    assert 100 < asked.first < 200
    assert len(parse(asked.q, ITEMS).values("group")) == asked.first
    assert _named("retry", Query(), "job", ["1", "2"], False, None).first is None
    assert _named("retry", Query(), "job", ["1", "2"], True, None).first == 2


def test_a_priority_is_asked_for_and_counted_in_jobs(desk: Desk, songs: Songs) -> None:
    number = desk.start()["id"]
    page = check_page(desk, "/bulk/new?" + urlencode({"act": "priority", "q": f"job:{number}", "priority": "30"}))
    assert "1 jobs it would be done to" in shown(page, "preview")
    assert page.by_id("priority").attributes["value"] == "30"
    where = desk.http.post("/bulk", data={"act": "priority", "q": f"job:{number}", "priority": "30"}).headers[
        "location"
    ]
    wait_until(lambda: desk.get(f"/api/jobs/{number}")["priority"] == 30, "the job to have it")
    check_page(desk, where)
    songs.gate.set()
    assert desk.http.post("/bulk", data={"act": "priority", "q": "", "priority": "soon"}).status_code == 422


NO_NUMBERS = ["99999999999999999999999", "-1", "0", "1.5", "x", "", "٣", "9223372036854775808"]


@pytest.mark.parametrize("id", NO_NUMBERS)
def test_a_number_that_is_none_is_refused_and_never_means_everything(desk: Desk, id: str) -> None:
    """Left out, what remains of the form would be about every item of every job."""
    job = desk.start()["id"]
    for given in ({"id": id}, {"id": ["1", id]}, {"id": id, "q": ""}):
        assert desk.http.get("/bulk/new", params={"act": "retry", **given}).status_code == 422
        assert desk.http.post("/bulk", data={"act": "retry", **given}).status_code == 422
        assert desk.http.post(f"/jobs/{job}/retry", data=given).status_code == 422
        assert desk.http.post("/playlists/start", data={"template": "download", **given}).status_code == 422
        assert desk.http.get("/playlists/plan", params={"template": "download", **given}).status_code == 422
    assert desk.http.post("/jobs", data={"template": "download", "pool": id}).status_code == 422
    cron = {"name": "nightly", "template": "download", "cron": "30 2 * * *", "time_zone": "UTC", "pool": id}
    assert desk.http.post("/schedules", data=cron).status_code == 422
    assert desk.get("/api/commands")["commands"] == []
    assert [each["id"] for each in desk.get("/api/jobs")["jobs"]] == [job]
    assert desk.get("/api/schedules")["schedules"] == []


def test_a_form_with_more_fields_than_are_read_does_nothing(desk: Desk) -> None:
    """Read as an empty one, it would retry all that failed, or let everything go on that somebody has stopped."""
    job = desk.start()["id"]
    desk.post("/api/pause", status=200)
    fields = {"id": [str(each) for each in range(1, 2002)]}
    for path in (f"/jobs/{job}/retry", "/resume", "/bulk"):
        assert desk.http.post(path, data=fields).status_code == 422
    assert desk.http.post(f"/jobs/{job}/retry", data={"id": fields["id"][:201]}).status_code == 422
    assert desk.get("/api/commands")["commands"] == []
    assert len(desk.get("/api/holds")["holds"]) == 1


def test_it_is_said_in_chinese_too(desk: Desk, job: int) -> None:
    assert "跳过" in get(desk, "/bulk/new?act=skip&q=state:failed", CHINESE).source
    assert "批量操作" in get(desk, "/bulk", CHINESE).source
