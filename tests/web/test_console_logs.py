"""Exceptions, log lines, events and the audit over real HTTP, on both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser

from dalsegno import Store
from dalsegno.insight.audit import AUDIT, find_acts
from dalsegno.insight.query import parse
from dalsegno.store.schema import logs
from dalsegno.store.store import Tx
from dalsegno.web.console.logs import AROUND, PAGE, brief
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, Page, check_page, get


def write_lines(store: Store, count: int, **values: Any) -> None:
    def write(tx: Tx) -> None:
        line = {"level": "info", "logger": "dalsegno.test", **values}
        rows = [{"at": tx.now + timedelta(milliseconds=n), "message": f"line {n}", **line} for n in range(count)]
        tx.conn.execute(sa.insert(logs), rows)

    store.write("lines", write)


def rows(page: Page, prefix: str) -> list[str]:
    found = (element.attributes.get("id", "") for element in page.elements)
    return [id for id in found if id.startswith(prefix) and id.removeprefix(prefix).isalnum()]


def post(desk: Desk, path: str, **fields: Any) -> httpx.Response:
    return desk.http.post(path, data=fields, follow_redirects=True)


# --- exceptions ---------------------------------------------------------------------------------------


def failed(desk: Desk, songs: Songs) -> str:
    """A job whose fifth song fails; the fingerprint of what went wrong."""
    songs.gate.set()
    desk.until(desk.start()["id"], "completed_with_errors")
    (row,) = wait_until(lambda: rows(get(desk, "/logs"), "row-"), "the group")
    return row.removeprefix("row-")


def test_alike_errors_are_a_group_with_a_trend_a_sample_and_a_way_to_try_again(desk: Desk, songs: Songs) -> None:
    name = failed(desk, songs)
    page = check_page(desk, "/logs")
    row = page.by_id(f"row-{name}")
    assert "forbidden" in row.text
    assert "1 item still has it" in row.text
    assert len(page.all("rect")) == 24
    assert sum(float(bar.attributes["height"]) > 0 for bar in page.all("rect")) == 1
    retry = [a.attributes["href"] for a in page.all("a") if a.attributes["href"].startswith("/bulk/new?act=retry&q=")]
    assert retry == [f"/bulk/new?act=retry&q=group%3A{name}%20state%3Afailed&back=/logs"]
    assert desk.http.get(retry[0]).status_code == 200
    sample = check_page(desk, f"/logs/exceptions/{name}")
    assert "The source says 403: not for you." in sample.source
    assert "demo:5" in sample.source
    drawer = get(desk, f"/logs/exceptions/{name}?fragment=drawer")
    assert drawer.all("html") == []


def test_a_group_that_is_tried_again_has_no_items_left(desk: Desk, songs: Songs) -> None:
    name = failed(desk, songs)
    songs.gate.clear()
    query = f"group:{name} state:failed"
    answer = post(desk, "/bulk", act="retry", q=query, back="/logs")
    assert answer.status_code == 200, answer.text
    wait_until(lambda: "no failed item has it any more" in get(desk, "/logs").by_id(f"row-{name}").text, "the retry")


def test_groups_are_found_by_what_they_are(desk: Desk, songs: Songs) -> None:
    failed(desk, songs)
    assert len(rows(get(desk, "/logs?q=code:forbidden"), "row-")) == 1
    page = check_page(desk, "/logs?q=code:other")
    assert "No exception matches" in page.source
    wrong = check_page(desk, "/logs?q=cod:forbidden")
    assert "Did you mean" in wrong.by_id("q-error").text


def test_on_a_good_day_nothing_has_gone_wrong(desk: Desk) -> None:
    assert "Nothing has gone wrong" in check_page(desk, "/logs").source
    assert get(desk, "/logs/exceptions/abcdef012345", status=404).all("main")


# --- lines --------------------------------------------------------------------------------------------


def test_lines_are_followed_and_stand_still_with_a_cursor(desk: Desk) -> None:
    write_lines(desk.store, PAGE + 20)
    page = check_page(desk, "/logs/lines")
    shown = rows(page, "line-")
    assert len(shown) == PAGE
    assert f"line {PAGE + 19}" in page.by_id(shown[0]).text
    assert page.by_id("lines").attributes["data-live"] == "logs"
    (pause,) = [a.attributes["href"] for a in page.all("a") if "Pause" in a.text and "cursor=" in a.attributes["href"]]
    write_lines(desk.store, 5)
    still = check_page(desk, pause)
    assert rows(still, "line-") == shown
    assert "data-live" not in still.by_id("lines").attributes
    assert rows(get(desk, "/logs/lines"), "line-") != shown
    (onward,) = [a.attributes["href"] for a in still.all("a", rel="next")]
    assert len(rows(get(desk, onward), "line-")) == 20


def test_levels_are_counted_and_chosen(desk: Desk) -> None:
    write_lines(desk.store, 3)
    write_lines(desk.store, 2, level="error", traceback="Traceback: here")
    page = check_page(desk, "/logs/lines")
    levels = {chip.text.split()[1]: chip for chip in page.all("a", class_="chip")}
    assert levels["error"].text.split()[-1] == "2"
    assert levels["info"].text.split()[-1] == "3"
    chosen = check_page(desk, levels["error"].attributes["href"])
    assert len(rows(chosen, "line-")) == 2
    assert "Traceback: here" in chosen.source
    assert "Did you mean" in check_page(desk, "/logs/lines?q=levle:error").by_id("q-error").text
    assert "No line matches" in check_page(desk, "/logs/lines?q=job:77").source


def test_a_line_has_an_address_and_neighbours(desk: Desk) -> None:
    write_lines(desk.store, 60, job_id=7)
    write_lines(desk.store, 60, job_id=8)
    middle = desk.get("/api/logs?q=job:7&limit=30")["logs"][-1]
    page = check_page(desk, f"/logs/lines/{middle['id']}")
    assert len(rows(page, "near-")) == 2 * AROUND + 1
    assert page.by_id(f"near-{middle['id']}").attributes["class"].endswith("here")
    last = desk.get("/api/logs?q=job:7&limit=1")["logs"][0]["id"]
    assert len(rows(get(desk, f"/logs/lines/{last}"), "near-")) == AROUND + 1
    assert len(rows(get(desk, f"/logs/lines/{last}?of=all"), "near-")) == 2 * AROUND + 1
    get(desk, "/logs/lines/999999", status=404)


def test_lines_can_be_taken_along_as_text(desk: Desk) -> None:
    write_lines(desk.store, 3, job_id=7)
    write_lines(desk.store, 2, level="error", traceback="Traceback:\n  here\n")
    answer = desk.http.get("/logs/lines.txt?q=level:error")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    lines = answer.text.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith("error dalsegno.test line 1")
    assert lines[1:3] == ["Traceback:", "  here"]
    assert " job=7 line 2" in desk.http.get("/logs/lines.txt?q=job:7").text
    assert desk.http.get("/logs/lines.txt?q=levle:error").status_code == 422


def test_no_secret_leaves_with_the_log(store: Store, consoles: Any) -> None:
    desk = consoles(store, subsonic_password="winter river")
    write_lines(store, 1, message="signed in with winter river", traceback="it was winter river")
    for path in ("/logs/lines", "/logs/lines/1", "/logs/lines.txt"):
        answer = desk.http.get(path)
        assert "signed in with ***" in answer.text
        assert "winter river" not in answer.text


def test_a_log_that_is_scrolled_stands_still(desk: Desk, chromium: Browser) -> None:
    write_lines(desk.store, PAGE)
    with chromium.new_page(viewport={"width": 1000, "height": 600}) as page:
        page.goto(f"{desk.url}/logs/lines")
        page.wait_for_selector("#pill >> text=Live")
        write_lines(desk.store, 3)
        page.wait_for_selector(f"#line-{PAGE + 3}:first-child")
        page.evaluate("scrollTo(0, 900)")
        write_lines(desk.store, 4)
        page.wait_for_selector(".arrivals:not([hidden])")
        assert page.text_content(".arrivals") == "4 new"
        assert page.evaluate("document.querySelector('#log > li').id") == f"line-{PAGE + 3}"
        page.click(".arrivals")
        page.wait_for_selector(f"#line-{PAGE + 7}:first-child")
        assert page.evaluate("scrollY") < 200


# --- events and the audit -----------------------------------------------------------------------------


def test_events_are_listed_and_found(desk: Desk, songs: Songs) -> None:
    failed(desk, songs)
    page = check_page(desk, "/logs/events")
    assert "item_failed" in page.by_id("event-list").text
    jobs = check_page(desk, "/logs/events?q=kind:job_*")
    assert "job_submitted" in jobs.by_id("event-list").text
    assert "item_failed" not in jobs.by_id("event-list").text
    assert "Did you mean" in check_page(desk, "/logs/events?q=kid:x").by_id("q-error").text


def test_the_audit_says_who_did_what_and_to_how_many(desk: Desk, songs: Songs) -> None:
    name = failed(desk, songs)
    post(desk, "/limits/set", name="service:upload", concurrent="2", back="/limits")
    post(desk, "/bulk", act="retry", q=f"group:{name} state:failed", back="/logs")
    acts = wait_until(lambda: (t := check_page(desk, "/logs/audit").by_id("act-list").text) and "applied" in t and t)
    assert "retried many items" in acts
    assert "set a limit" in acts
    assert "started a job" in acts
    assert "console@127.0.0.1" in acts
    assert "planner" not in acts
    limits = check_page(desk, "/logs/audit?q=kind:limit_set").by_id("act-list")
    assert "service:upload" in limits.text
    assert "started a job" not in limits.text
    assert "设置了限流" in get(desk, "/logs/audit", CHINESE).by_id("act-list").text
    assert "Did you mean" in check_page(desk, "/logs/audit?q=kidn:x").by_id("q-error").text


def test_the_audit_is_whole_page_by_page(desk: Desk) -> None:
    """Commands and events are two lists: read side by side, none is lost and none comes twice."""
    for number in range(1, 8):
        post(desk, "/limits/set", name="service:upload", concurrent=str(number))
        if number % 3 == 0:
            desk.start()
            desk.post(f"/api/jobs/{number // 3}/pause")

    def walk() -> list[str]:
        seen, cursor = [], None
        while True:
            page = desk.store.read(lambda tx, at=cursor: find_acts(tx, parse("", AUDIT), cursor=at, limit=3))  # type: ignore[misc]
            seen += [act.id for act in page.lines]
            cursor = page.next_cursor
            if cursor is None:
                return seen

    seen = walk()
    assert len(seen) == len(set(seen)) == 7 + 2 + 2
    whole = desk.store.read(lambda tx: find_acts(tx, parse("", AUDIT), limit=50))
    assert [act.id for act in whole.lines] == seen
    assert whole.next_cursor is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, ""),
        ({}, ""),
        ({"rate": 30, "name": "a b", "none": None}, 'rate=30 name="a b"'),
        ({"keys": ["A", "B"]}, 'keys=["A", "B"]'),
        (3, "3"),
    ],
)
def test_what_an_event_knows_is_one_line(data: Any, text: str) -> None:
    assert brief(data) == text
