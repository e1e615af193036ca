"""Limits and breakers over real HTTP: what the page shows, and what each of its forms does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from dalsegno import Store
from dalsegno.engine.breakers import trip
from dalsegno.insight.flow import get_breaker, get_limit
from dalsegno.web.console.limits import rate_of, there
from tests.web.conftest import Desk
from tests.web.console import CHINESE, check_page, get


def post(desk: Desk, path: str, **fields: Any) -> httpx.Response:
    return desk.http.post(path, data={"back": "/limits", **fields}, follow_redirects=True)


def flash(answer: httpx.Response) -> str:
    return answer.text.partition('id="flash"')[2].partition("</div>")[0]


def limit(store: Store, name: str) -> tuple[int | None, int | None, float]:
    found = store.read(lambda tx: get_limit(tx, name))
    return found.concurrent, found.rate, found.window


def test_nothing_is_limited_at_first(desk: Desk) -> None:
    page = check_page(desk, "/limits")
    assert "Nothing is limited" in page.by_id("limit-list").text
    assert "No breaker has been needed yet" in page.by_id("breaker-list").text
    assert "queue_concurrency" in page.by_id("setting-list").text


def test_a_limit_is_set_changed_and_removed(desk: Desk) -> None:
    answer = post(desk, "/limits/set", name="source:qq", concurrent="2", rate="30/min")
    assert "The limit of source:qq is set." in flash(answer)
    assert limit(desk.store, "source:qq") == (2, 30, 60.0)
    row = check_page(desk, "/limits").by_id("limit-source:qq")
    assert "0 of 2" in row.text
    assert "0 of 30/min" in row.text
    assert "console@127.0.0.1" in row.text
    post(desk, "/limits/set", name="source:qq", concurrent="", rate="1000/day")
    assert limit(desk.store, "source:qq") == (None, 1000, 86_400.0)
    assert "no limit any more" in flash(post(desk, "/limits/remove", name="source:qq"))
    assert limit(desk.store, "source:qq")[:2] == (None, None)
    assert "limit-source:qq" not in get(desk, "/limits").source


def test_zero_lets_nothing_begin_and_the_page_says_so(desk: Desk) -> None:
    post(desk, "/limits/set", name="source:qq", concurrent="0")
    assert "nothing begins" in check_page(desk, "/limits").by_id("limit-source:qq").text
    assert "不再开始" in get(desk, "/limits", CHINESE).by_id("limit-source:qq").text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "source:qq"}, "Say how many at once"),
        ({"name": "source:qq", "rate": "often"}, "is not a rate"),
        ({"name": "source:qq", "concurrent": "many"}, "There is no system setting"),
        ({"name": "source:qq", "concurrent": "99999999999"}, "There is no system setting"),
        ({"name": "a b", "concurrent": "2"}, "no spaces"),
        ({"name": "", "concurrent": "2"}, "1 to 200 characters"),
    ],
)
def test_what_makes_no_limit_is_said(desk: Desk, fields: dict[str, str], said: str) -> None:
    answer = post(desk, "/limits/set", **fields)
    assert "That did not work." in flash(answer)
    assert said in flash(answer)
    assert "limit-source:qq" not in answer.text


def test_a_system_setting_changes_and_limits_follow_it(desk: Desk) -> None:
    post(desk, "/limits/set", name="source:qq", concurrent="queue_concurrency")
    assert "queue_concurrency is 4 from now on." in flash(
        post(desk, "/limits/setting", key="queue_concurrency", value="4")
    )
    assert limit(desk.store, "source:qq")[0] == 4
    assert "followed by source:qq" in check_page(desk, "/limits").by_id("setting-queue_concurrency").text
    assert "whole number" in flash(post(desk, "/limits/setting", key="queue_concurrency", value="x"))
    assert "That did not work." in flash(post(desk, "/limits/setting", key="nothing", value="4"))


def test_calls_are_stopped_probed_and_let_through(desk: Desk) -> None:
    def state() -> str:
        return desk.store.read(lambda tx: get_breaker(tx, "source:qq").breaker.state)

    post(desk, "/limits/breakers/trip", name="source:qq", reason="they are moving", span="2h")
    card = check_page(desk, "/limits").by_id("breaker-source:qq")
    assert "they are moving" in card.text
    assert "stopped by hand" in card.text
    assert "in 1 h 59 min" in card.text or "in 2 h 00 min" in card.text
    assert state() == "open"
    post(desk, "/limits/breakers/probe", name="source:qq")
    assert state() == "half_open"
    assert "probing" in check_page(desk, "/limits").by_id("breaker-source:qq").text
    post(desk, "/limits/breakers/reset", name="source:qq")
    assert state() == "closed"
    page = check_page(desk, "/limits")
    assert "closed" in page.by_id("closed-source:qq").text
    refused = post(desk, "/limits/breakers/probe", name="source:qq")
    assert "nothing to probe" in flash(refused)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "source:qq", "reason": ""}, "Say why"),
        ({"name": "source:qq", "reason": "x", "span": "soon"}, "How long is written as"),
        ({"name": "node:attic", "reason": "x"}, "Breakers guard services"),
        ({"name": " ", "reason": "x"}, "no spaces"),
    ],
)
def test_what_stops_no_calls_is_said(desk: Desk, fields: dict[str, str], said: str) -> None:
    assert said in flash(post(desk, "/limits/breakers/trip", **fields))


def test_the_time_is_told_in_the_reader_s_zone_and_in_the_provider_s(desk: Desk) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=30)
    reason = "Daily quota used up; it resets at midnight America/Los_Angeles."
    desk.store.write("trip", lambda tx: trip(tx, "source:qq", reason, "engine", until))
    card = check_page(desk, "/limits").by_id("breaker-source:qq")
    clock, zone = there(reason, until)
    assert zone == "America/Los_Angeles"
    assert f"{clock} {zone}" in " ".join(card.text.split())
    assert f"{until:%Y-%m-%d %H:%M:%S} UTC" in card.text
    assert there("no Zone/At_all is named", until) == (f"{until:%Y-%m-%d %H:%M:%S}", "UTC")


def test_rates_read_as_they_are_typed() -> None:
    assert [rate_of(2, 60.0), rate_of(5, 1.0), rate_of(3, 90.0), rate_of(None, 60.0)] == ["2/min", "5/s", "3/90s", ""]


def test_who_may_only_look_has_nothing_to_press(store: Store, consoles: Any) -> None:
    desk = consoles(store, console_read_only=True)
    assert check_page(desk, "/limits").all("form", method="post") == []
    assert desk.http.post("/limits/set", data={"name": "source:qq", "concurrent": "1"}).status_code == 403
