"""One transaction makes a request or finds it; the database decides who was first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.errors import TooManyRequests
from dalsegno.requests.ask import Asked, ask, key_of, twin_of
from dalsegno.requests.body import ParseBody, body_of
from dalsegno.requests.schema import parse_requests, request_counts
from dalsegno.requests.view import counts_of
from dalsegno.requests.workflow import DECODE, SEARCH
from dalsegno.settings import Settings
from dalsegno.store.schema import items, jobs, lanes, stages
from tests.helpers import admit, every

BODY = body_of({"title": "Naruto"})


def settings(**given: Any) -> Settings:
    return Settings(_env_file=None, **given)


def wanted(store: Store, body: ParseBody = BODY, created_by: str | None = None, **given: Any) -> Asked:
    return ask(store, settings(**given), body, created_by=created_by)


def set_status(store: Store, job_id: int, status: str, **values: Any) -> None:
    change = sa.update(jobs).where(jobs.c.id == job_id).values(status=status, **values)
    store.write("test", lambda tx: tx.conn.execute(change))


def test_a_request_is_a_job_of_one_search_and_what_it_plans(store: Store) -> None:
    asked = wanted(store, created_by="shelf")
    (job,) = every(store, sa.select(jobs))
    assert (job["id"], job["lane"], job["dedupe_key"]) == (asked.id, "parse", key_of(BODY.hash))
    assert job["scope"] == {"title": "Naruto", "decodeLinks": False}
    found = every(store, sa.select(stages).order_by(stages.c.seq))
    assert [(row["key"], row["service"], row["total"], row["planned"]) for row in found] == [
        ("search", SEARCH, 1, True),
        ("decode", DECODE, 0, True),  # links are not to be decoded, so there is nothing to plan
    ]
    assert [row["key"] for row in every(store, sa.select(items))] == ["request"]
    (row,) = every(store, sa.select(parse_requests))
    assert (row["job_id"], row["hash"], row["created_by"], row["state"]) == (asked.id, BODY.hash, "shelf", "PENDING")


@pytest.mark.parametrize(
    ("status", "blocks"),
    [("queued", True), ("running", True), ("pause_requested", True), ("paused", True), ("completed", False),
     ("completed_with_errors", False), ("failed", False), ("canceled", False)],
)  # fmt: skip
def test_an_unfinished_request_is_found_and_a_finished_one_is_not(store: Store, status: str, blocks: bool) -> None:
    first = wanted(store)
    reason = {"pause_reason": "why"} if "pause" in status else {}
    set_status(store, first.id, status, finished_at=None if blocks else first.at, **reason)
    again = wanted(store)
    assert (again.id == first.id, again.created) == (blocks, not blocks)
    hits = every(store, sa.select(parse_requests.c.hits).order_by(parse_requests.c.job_id))
    assert [row["hits"] for row in hits] == ([1] if blocks else [0, 0])
    assert store.read(lambda tx: twin_of(tx, BODY)) == again.id


def test_of_many_stores_that_ask_at_once_one_creates(database_url: str, stores: Callable[..., Store]) -> None:
    """As several processes on one database would."""
    opened = [stores(database_url) for _ in range(4)]
    together = Barrier(16)

    def one(number: int) -> Asked:
        together.wait(60)
        return wanted(opened[number % 4])

    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            answers = list(pool.map(one, range(16)))
            assert [answer.created for answer in answers].count(True) == 1
            (number,) = {answer.id for answer in answers}
            (row,) = every(opened[0], sa.select(parse_requests).where(parse_requests.c.job_id == number))
            assert row["hits"] == 15
            set_status(opened[0], number, "completed", finished_at=answers[0].at)
    assert len(every(opened[0], sa.select(jobs.c.id))) == 3


def test_what_is_to_be_decoded_is_planned_once_it_is_found(store: Store) -> None:
    asked = wanted(store, body_of({"title": "a", "decodeLinks": True}))
    found = every(store, sa.select(stages).where(stages.c.job_id == asked.id).order_by(stages.c.seq))
    assert [(row["key"], row["planned"]) for row in found] == [("search", True), ("decode", False)]


def test_the_lane_and_the_tries_are_those_of_the_settings(store: Store) -> None:
    wanted(store, body_of({"title": "a"}))
    (lane,) = every(store, sa.select(lanes).where(lanes.c.name == "parse"))
    assert (lane["max_active"], lane["recovery"]) == (8, "continue")
    second = wanted(store, body_of({"title": "b"}), requests_active_max=2, requests_max_retries=5)
    (lane,) = every(store, sa.select(lanes).where(lanes.c.name == "parse"))
    assert lane["max_active"] == 2
    tries = every(store, sa.select(stages.c.job_id, stages.c.max_attempts, stages.c.max_interruptions))
    assert {(row["max_attempts"], row["max_interruptions"]) for row in tries if row["job_id"] == second.id} == {(5, 5)}
    assert {(row["max_attempts"], row["max_interruptions"]) for row in tries if row["job_id"] != second.id} == {(3, 3)}


def test_a_cap_counts_what_is_unfinished_of_one_client(store: Store) -> None:
    first = wanted(store, body_of({"title": "a"}), "shelf", requests_per_client_max=1)
    with pytest.raises(TooManyRequests, match="shelf"):
        wanted(store, body_of({"title": "b"}), "shelf", requests_per_client_max=1)
    assert not wanted(store, body_of({"title": "A"}), "shelf", requests_per_client_max=1).created
    assert wanted(store, body_of({"title": "b"}), "attic", requests_per_client_max=1).created
    assert wanted(store, body_of({"title": "c"}), "shelf", requests_per_client_max=0).created
    set_status(store, first.id, "failed", finished_at=first.at)
    assert wanted(store, body_of({"title": "d"}), "shelf", requests_per_client_max=2).created


# --- what triggers keep -----------------------------------------------------------------------------


STATES = {
    "queued": "PENDING", "running": "RUNNING", "pause_requested": "RUNNING", "paused": "RUNNING",
    "completed": "DONE", "completed_with_errors": "DONE", "failed": "FAILED", "canceled": "FAILED",
}  # fmt: skip


def test_the_state_and_the_counts_follow_the_job(store: Store) -> None:
    first = wanted(store, body_of({"title": "a"}))
    wanted(store, body_of({"title": "b"}))
    for status, state in STATES.items():
        ended = state in ("DONE", "FAILED")
        set_status(store, first.id, status, finished_at=first.at if ended else None, pause_reason="why")
        row = every(store, sa.select(parse_requests.c.state).where(parse_requests.c.job_id == first.id))[0]
        assert row["state"] == state
        expected = {"PENDING": 1, "RUNNING": 0, "DONE": 0, "FAILED": 0}
        expected[state] += 1
        assert store.read(counts_of) == expected
    set_status(store, first.id, "queued", finished_at=None)
    admit(store)
    assert store.read(counts_of) == {"PENDING": 0, "RUNNING": 2, "DONE": 0, "FAILED": 0}


def test_what_is_rolled_back_is_not_counted(store: Store) -> None:
    asked = wanted(store)

    def work(tx: Any) -> None:
        tx.conn.execute(sa.update(jobs).where(jobs.c.id == asked.id).values(status="running"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.write("test", work)
    assert store.read(counts_of) == {"PENDING": 1, "RUNNING": 0, "DONE": 0, "FAILED": 0}


def test_counts_are_right_after_many_threads_moved_requests(store: Store) -> None:
    numbers = [wanted(store, body_of({"title": f"t{number}"})).id for number in range(40)]
    at = store.clock.now()

    def move(number: int) -> None:
        set_status(store, number, "running")
        if number % 3:
            set_status(store, number, "completed" if number % 2 else "failed", finished_at=at)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(move, numbers))
    rows = every(store, sa.select(parse_requests.c.state, sa.func.count().label("n")).group_by(parse_requests.c.state))
    assert {name: count for name, count in store.read(counts_of).items() if count} == {
        row["state"]: row["n"] for row in rows
    }
    slots = len(every(store, sa.select(request_counts.c.slot)))
    assert slots == (64 if store.shared else 1)
