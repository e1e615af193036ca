"""Only the holder of the live lease may begin, progress or finish an item."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.engine.item import Item
from dalsegno.engine.progress import fenced
from dalsegno.engine.rescuer import rescue
from dalsegno.store.schema import leases
from tests.helpers import (
    assert_sound,
    begin,
    claim,
    events_of,
    every,
    item_of,
    keys,
    register,
    settle,
    stage_of,
    submitted,
    types_of,
)

KEY = keys(1)[0]


@pytest.fixture
def me(store: Store) -> int:
    return register(store)


def test_begin_then_finish_under_one_lease_is_accepted_once(store: Store, me: int) -> None:
    job = submitted(store, items=1).job_id
    (item,) = claim(store, me)
    assert begin(store, [item]) == {item.id}
    assert begin(store, [item]) == set()
    assert settle(store, [item], result='{"n":1}').accepted == {item.id}
    assert settle(store, [item], "failed").accepted == set()
    found = item_of(store, job, KEY)
    assert (found["status"], found["result"]) == ("succeeded", {"n": 1})
    assert types_of(store, item_id=item.id) == ["item_claimed", "item_started", "item_succeeded"]
    assert_sound(store, job)


def test_finishing_without_a_begin_tells_the_start_too(store: Store, me: int) -> None:
    job = submitted(store, items=2).job_id
    done, failed = claim(store, me, 2)
    settle(store, [done])
    settle(store, [failed], "failed")
    assert types_of(store, item_id=done.id) == ["item_claimed", "item_started", "item_succeeded"]
    assert types_of(store, item_id=failed.id) == ["item_claimed", "item_started", "item_failed"]
    assert_sound(store, job)


@pytest.mark.parametrize("status", ["succeeded", "failed", "skipped", "pending", "interrupted"])
def test_a_finish_under_an_old_lease_is_refused_and_changes_nothing(store: Store, me: int, status: str) -> None:
    job = submitted(store, items=1).job_id
    (stale,) = claim(store, me)
    settle(store, [stale], "pending")
    (live,) = claim(store, me)
    assert live.lease > stale.lease
    before, told = item_of(store, job, KEY), len(events_of(store))
    answer = settle(store, [stale], status)
    assert (answer.accepted, answer.quiet_jobs) == (set(), set())
    assert item_of(store, job, KEY) == before
    assert len(events_of(store)) == told
    assert_sound(store, job)


def test_a_begin_under_an_old_lease_is_refused(store: Store, me: int) -> None:
    job = submitted(store, items=1).job_id
    (stale,) = claim(store, me)
    settle(store, [stale], "pending")
    (live,) = claim(store, me)
    assert begin(store, [stale]) == set()
    assert item_of(store, job, KEY)["status"] == "claimed"
    assert begin(store, [live]) == {live.id}
    assert_sound(store, job)


def test_progress_under_an_old_lease_is_refused(store: Store, me: int) -> None:
    job = submitted(store, items=1).job_id
    (stale,) = claim(store, me)
    settle(store, [stale], "pending")
    (live,) = claim(store, me)
    begin(store, [live])
    for row, wanted in ((stale, 0), (live, 1)):
        ghost = Item(row, None)  # type: ignore[arg-type]
        write = fenced(ghost).values(progress=0.5)
        assert store.write("progress", lambda tx, write=write: tx.conn.execute(write).rowcount) == wanted
    assert item_of(store, job, KEY)["progress"] == 0.5


def test_in_one_batch_the_live_are_accepted_and_the_stale_refused(store: Store, me: int) -> None:
    job = submitted(store, items=4).job_id
    stale = claim(store, me, 2)
    settle(store, stale, "pending")
    live = claim(store, me, 4)
    assert settle(store, [*stale, *live]).accepted == {item.id for item in live}
    assert stage_of(store, job)["succeeded"] == 4
    assert_sound(store, job)


def test_a_zombie_finishes_after_its_rescue_and_is_refused(store: Store, me: int) -> None:
    zombie = register(store)
    job = submitted(store, items=1).job_id
    (old,) = claim(store, zombie)
    begin(store, [old])
    rescue(store, zombie)
    assert settle(store, [old]).accepted == set()
    (new,) = claim(store, me)
    assert settle(store, [old]).accepted == set()
    assert len(settle(store, [new]).accepted) == 1
    assert_sound(store, job)


def test_there_is_one_lease_row_for_each_leased_item_and_none_after(store: Store, me: int) -> None:
    submitted(store, items=3)
    held = claim(store, me, 3)
    begin(store, held[:1], "work-7")
    rows = every(store, sa.select(leases).order_by(leases.c.item_id))
    assert [(row["item_id"], row["number"], row["process_id"]) for row in rows] == [(i.id, 1, me) for i in held]
    assert [row["worker"] for row in rows] == ["work-7", None, None]
    settle(store, held)
    assert every(store, sa.select(leases)) == []
