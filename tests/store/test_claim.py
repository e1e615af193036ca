"""Claiming: the global order, the low-water marks, and nothing twice. One suite for both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from dalsegno import Store, submit
from dalsegno.clock import ManualClock
from dalsegno.engine.scheduler import wake_due
from dalsegno.store.schema import items, stages
from tests.helpers import (
    admit,
    assert_counters,
    begin,
    claim,
    command,
    events_of,
    item_of,
    items_of,
    keys,
    one,
    one_step,
    register,
    settle,
    stage_of,
    submitted,
    work_off,
)


@pytest.fixture
def me(still: Store) -> int:
    return register(still)


def taken(store: Store, process: int, want: int, service: str = "work") -> list[tuple[int, str]]:
    return [(item.job_id, item.key) for item in claim(store, process, want, service)]


def test_items_come_in_the_order_they_were_given(still: Store, me: int) -> None:
    job = submitted(still, items=["z", "a", "m"]).job_id
    assert taken(still, me, 10) == [(job, "z"), (job, "a"), (job, "m")]


def test_a_smaller_priority_goes_first_whatever_was_submitted_before(still: Store, me: int) -> None:
    late = submit(still, one_step(), items=keys(2), priority=200).job_id
    usual = submit(still, one_step(), items=keys(2)).job_id
    first = submit(still, one_step(), items=keys(2), priority=-5).job_id
    admit(still)
    assert [job for job, _ in taken(still, me, 10)] == [first, first, usual, usual, late, late]


def test_among_equals_the_older_job_goes_first(still: Store, me: int) -> None:
    older, newer = (submit(still, one_step(), items=keys(3)).job_id for _ in range(2))
    admit(still)
    assert [job for job, _ in taken(still, me, 4)] == [older, older, older, newer]


def test_a_claim_takes_no_more_than_wanted_and_goes_on_where_it_stopped(still: Store, me: int) -> None:
    submitted(still, items=7)
    rounds = [[key for _, key in taken(still, me, 3)] for _ in range(4)]
    assert rounds == [keys(7)[:3], keys(7)[3:6], keys(7)[6:], []]
    assert_counters(still)


def test_a_claim_sees_only_its_own_service(still: Store, me: int) -> None:
    submitted(still, one_step("other"), items=2)
    assert taken(still, me, 10, "work") == []
    assert len(taken(still, me, 10, "other")) == 2


def test_a_claim_on_nothing_writes_nothing(still: Store, me: int) -> None:
    before = len(events_of(still))
    assert claim(still, me, 100) == []
    assert len(events_of(still)) == before


def test_what_came_back_goes_before_what_was_never_touched(still: Store, me: int) -> None:
    submitted(still, items=6)
    first = claim(still, me, 3)
    settle(still, first[:2], "pending")
    again = claim(still, me, 3)
    assert [item.key for item in again] == [keys(6)[0], keys(6)[1], keys(6)[3]]
    assert again[0].lease > first[0].lease
    assert_counters(still)


def test_what_came_back_does_not_pass_a_more_urgent_job(still: Store, me: int) -> None:
    plain = submitted(still, items=2).job_id
    settle(still, claim(still, me, 1), "pending")
    urgent = submitted(still, items=1, priority=1).job_id
    assert [job for job, _ in taken(still, me, 3)] == [urgent, plain, plain]


def test_the_low_water_mark_follows_the_claims(still: Store, me: int) -> None:
    job = submitted(still, items=10).job_id
    assert (stage_of(still, job)["low_seq"], stage_of(still, job)["high_seq"]) == (0, 10)
    claim(still, me, 4)
    assert stage_of(still, job)["low_seq"] == 4
    claim(still, me, 100)
    stage = stage_of(still, job)
    assert (stage["low_seq"], stage["ready"], stage["claimable"]) == (10, 0, False)


def test_gaps_in_the_numbers_are_stepped_over(still: Store, me: int) -> None:
    job = submitted(still, items=10).job_id
    stage = stage_of(still, job)["id"]

    def tear(tx: object) -> None:
        tx.conn.execute(sa.delete(items).where(items.c.stage_id == stage, items.c.seq.in_([1, 2, 5, 6, 7, 10])))
        values = {"total": 4, "pending": 4, "ready": 4}
        tx.conn.execute(sa.update(stages).where(stages.c.id == stage).values(**values))

    still.write("tear", tear)
    assert [item.seq for item in claim(still, me, 3)] == [3, 4, 8]
    assert [item.seq for item in claim(still, me, 3)] == [9]
    assert claim(still, me, 3) == []
    assert_counters(still)


def test_no_item_is_claimed_twice(still: Store, me: int) -> None:
    other = register(still)
    submitted(still, items=50)
    seen = [item.id for _ in range(20) for process in (me, other) for item in claim(still, process, 3)]
    assert len(seen) == len(set(seen)) == 50


def test_a_claimed_item_carries_all_its_service_needs(still: Store, me: int) -> None:
    job = submitted(still, items=[("k", {"n": 1, "é": "ü"})]).job_id
    (item,) = claim(still, me)
    assert (item.job_id, item.key, item.seq, item.lease) == (job, "k", 1, 1)
    assert (item.attempt, item.interruptions, item.forced, item.parent_id) == (0, 0, False, None)
    assert item.params is not None
    assert "é" in item.params


def test_a_delayed_item_waits_for_its_time(still: Store, me: int, clock: ManualClock) -> None:
    job = submitted(still, items=1).job_id
    settle(still, claim(still, me), "pending", due_at=clock.now() + timedelta(seconds=10), attempt=1)
    wake_due(still)
    assert claim(still, me) == []
    clock.advance(9.9)
    wake_due(still)
    assert claim(still, me) == []
    clock.advance(0.2)
    wake_due(still)
    assert [item.attempt for item in claim(still, me)] == [1]
    assert item_of(still, job, keys(1)[0])["due_at"] is None
    assert_counters(still)


def test_a_paused_job_gives_nothing_and_its_neighbour_does(still: Store, me: int) -> None:
    paused = submitted(still, items=3).job_id
    other = submitted(still, items=1).job_id
    command(still, "pause", job_id=paused)
    assert [job for job, _ in taken(still, me, 10)] == [other]


def test_changing_the_priority_reorders_what_is_already_waiting(still: Store, me: int) -> None:
    first, second = (submit(still, one_step(), items=keys(2)).job_id for _ in range(2))
    admit(still)
    command(still, "set_priority", job_id=second, payload={"priority": 1})
    assert [job for job, _ in taken(still, me, 3)] == [second, second, first]


def test_every_claim_is_an_event_of_its_item(still: Store, me: int) -> None:
    job = submitted(still, items=3).job_id
    claimed = claim(still, me, 3)
    told = [event["item_id"] for event in events_of(still, job_id=job, type="item_claimed")]
    assert told == [item.id for item in claimed]


def test_counters_equal_a_recount_through_a_long_mixed_life(still: Store, me: int, clock: ManualClock) -> None:
    job = submitted(still, one_step(max_attempts=5), items=40).job_id
    ends = ["succeeded", "failed", "skipped", "pending", "interrupted"]
    for number in range(60):
        some = claim(still, me, 1 + number % 3)
        if number % 2:
            begin(still, some)
        for place, item in enumerate(some):
            late = {"due_at": clock.now() + timedelta(seconds=5)} if number % 7 == 0 else {}
            status = ends[(number + place) % len(ends)]
            settle(still, [item], status, **(late if status == "pending" else {}))
        clock.advance(1)
        wake_due(still)
        assert_counters(still)
    assert len(items_of(still, job)) == 40


def test_a_hundred_small_jobs_are_drained_in_order(still: Store, me: int) -> None:
    jobs = [submit(still, one_step(), items=keys(2)).job_id for _ in range(100)]
    admit(still)
    assert [item.job_id for item in work_off(still, me)] == [job for job in jobs for _ in range(2)]
    left = one(still, sa.select(sa.func.count().label("n")).where(stages.c.status != "completed"))
    assert left["n"] == 0
