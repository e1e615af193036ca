"""A skip by hand: not done, and what follows goes on, in jobs that run and in jobs that are over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Item, Store, service
from dalsegno.engine.bulk import apply_bulk
from dalsegno.insight.bulk import matching
from dalsegno.store.hot import Claimed
from dalsegno.store.postgres_sql import LOCK_STAGES
from dalsegno.store.schema import commands, items
from dalsegno.store.store import Tx
from tests.helpers import (
    admit,
    ask,
    assert_sound,
    begin,
    chain,
    claim,
    command,
    events_of,
    item_of,
    keys,
    one,
    one_step,
    register,
    run_job,
    settle,
    stage_of,
    status_of,
    statuses_of,
    submitted,
    work_off,
)


def skip(store: Store, query: str, **more: Any) -> dict[str, Any]:
    """Asked for and done; returns its progress."""
    number = ask(store, "bulk_skip", payload={"query": query}, requested_by="the shelf", **more)
    while apply_bulk(store, matching):
        pass
    row = one(store, sa.select(commands).where(commands.c.id == number))
    assert row["status"] == "applied"
    progress: dict[str, Any] = row["progress"]
    return progress


def failing(store: Store, count: int, of: int, workflow: Any = None) -> int:
    """A job of which the first items of step a failed and the others succeeded; returns a process."""
    process = register(store)
    submitted(store, workflow or one_step(max_attempts=1), items=of)
    held = claim(store, process, of)
    begin(store, held)
    if held[count:]:
        settle(store, held[count:], "succeeded")
    settle(store, held[:count], "failed", error_code="Timeout", error_message="no answer")
    return process


def test_what_waits_is_skipped_and_the_rest_is_done(store: Store) -> None:
    process = register(store)
    submitted(store, one_step(), items=6)
    held = claim(store, process, 2)
    begin(store, held[:1])
    settle(store, held[1:2], "pending")  # one is back in line, one runs
    progress = skip(store, "-key:k00006")
    assert (progress["done"], progress["refused"]) == (4, {"running": 1})
    assert stage_of(store, 1)["ready"] == 1
    assert [item.key for item in claim(store, process, 10)] == ["k00006"]
    assert_sound(store, 1)


def test_a_job_of_which_everything_is_skipped_is_completed(store: Store) -> None:
    submitted(store, one_step(), items=3)
    assert skip(store, "job:1")["done"] == 3
    assert status_of(store, 1) == "completed"
    assert statuses_of(store, 1) == {"skipped": 3}
    assert_sound(store, 1)


def test_a_finished_job_whose_failures_are_skipped_is_completed_where_it_stands(store: Store) -> None:
    failing(store, 2, 3)
    assert status_of(store, 1) == "completed_with_errors"
    assert skip(store, "key:k00001")["done"] == 1
    assert status_of(store, 1) == "completed_with_errors"
    assert skip(store, "state:failed")["done"] == 1
    assert status_of(store, 1) == "completed"
    assert statuses_of(store, 1) == {"succeeded": 1, "skipped": 2}
    row = item_of(store, 1, "k00001")
    assert (row["error_code"], row["error_message"], row["fingerprint"]) == (None, None, None)
    told = events_of(store, type="item_skipped")[0]
    assert (told["source"], told["data"]["was"], told["data"]["error_code"]) == ("the shelf", "failed", "Timeout")
    assert_sound(store, 1)


def test_followers_come_of_what_is_skipped(store: Store) -> None:
    process = failing(store, 2, 3, chain("work", "late", follow="each", max_attempts=1))
    assert statuses_of(store, 1, "b") == {}, "the settle was by hand, so nothing followed yet"
    assert skip(store, "stage:a key:k00001,k00002")["done"] == 2
    admit(store)
    assert {item.key for item in claim(store, process, 10, "late")} == {"k00001", "k00002"}
    assert_sound(store, 1)


def test_a_follower_that_is_there_stays_as_it_is(store: Store) -> None:
    @service("work")
    def work(item: Item) -> int:
        return 1

    @service("late")
    def late(item: Item) -> int:
        return 2

    submitted(store, chain("work", "late", follow="each"), items=2)
    assert run_job(store, [work, late], 1) == "completed"
    number = ask(store, "bulk_force_retry", payload={"query": "stage:a key:k00001"})
    while apply_bulk(store, matching):
        pass
    assert one(store, sa.select(commands).where(commands.c.id == number))["progress"]["done"] == 1
    admit(store)
    assert skip(store, "stage:a state:pending")["done"] == 1
    admit(store)
    assert status_of(store, 1) == "completed"
    assert statuses_of(store, 1, "b") == {"succeeded": 2}
    assert_sound(store, 1)


def test_what_comes_after_all_of_it_goes_on(store: Store) -> None:
    process = register(store)
    submitted(store, chain("work", "late", on_failure="stop", max_attempts=1), items={"a": keys(2), "b": keys(1)})
    held = claim(store, process, 1)
    begin(store, held)
    settle(store, held, "failed", error_message="no")
    assert status_of(store, 1) == "failed"
    assert skip(store, "state:failed")["done"] == 1
    admit(store)
    assert status_of(store, 1) == "running"
    assert [item.key for item in work_off(store, process)] == ["k00002"], "what the stage had left is done"
    assert len(work_off(store, process, "late")) == 1
    assert status_of(store, 1) == "completed"
    assert_sound(store, 1)


def test_a_stage_that_stopped_stays_so_while_another_failure_stands(store: Store) -> None:
    process = register(store)
    submitted(store, one_step(on_failure="stop", max_attempts=1), items=5)
    held = claim(store, process, 2)
    begin(store, held)
    settle(store, held, "failed", error_message="no")
    assert skip(store, "key:k00001")["done"] == 1
    assert (status_of(store, 1), stage_of(store, 1)["status"]) == ("failed", "failed")
    assert skip(store, "state:failed")["done"] == 1
    admit(store)
    assert len(work_off(store, process)) == 3
    assert status_of(store, 1) == "completed"
    assert_sound(store, 1)


def test_in_a_canceled_job_nothing_follows(store: Store) -> None:
    process = register(store)
    submitted(store, chain("work", "late", follow="each", max_attempts=1), items=2)
    held = claim(store, process, 1)
    begin(store, held)
    settle(store, held, "failed", error_message="no")
    command(store, "cancel", job_id=1)
    assert skip(store, "job:1")["refused"] == {"being_canceled": 2}
    store.write("advance", _cancel_all)
    assert status_of(store, 1) == "canceled"
    assert skip(store, "state:failed")["done"] == 1
    assert status_of(store, 1) == "canceled"
    assert statuses_of(store, 1, "b") == {}


def _cancel_all(tx: Any) -> None:
    from dalsegno.engine.commander import cancel_items
    from dalsegno.engine.planner import advance

    cancel_items(tx, 1)
    advance(tx, [1])


def test_a_job_whose_work_another_does_now_is_left_alone(store: Store) -> None:
    process = register(store)
    for _ in range(2):
        submitted(store, one_step(max_attempts=1), items=1, dedupe="the same")
        if status_of(store, 1) == "running" and not events_of(store, type="item_failed"):
            held = claim(store, process, 1)
            begin(store, held)
            settle(store, held, "failed", error_message="no")
    assert skip(store, "job:1 state:failed")["refused"] == {"twin_active": 1}
    assert statuses_of(store, 1) == {"failed": 1}


@pytest.mark.parametrize("status", ["succeeded", "skipped", "canceled"])
def test_what_is_over_is_not_skipped(store: Store, status: str) -> None:
    process = register(store)
    submitted(store, one_step(), items=2)
    held = claim(store, process, 1)
    begin(store, held)
    settle(store, held, "succeeded")
    if status != "succeeded":
        ask(store, "bulk_cancel" if status == "canceled" else "bulk_skip", payload={"query": "key:k00002"})
        while apply_bulk(store, matching):
            pass
    key = "k00001" if status == "succeeded" else "k00002"
    assert skip(store, f"key:{key}")["refused"] == {status: 1}
    assert one(store, sa.select(items.c.status).where(items.c.key == key))["status"] == status


def test_what_was_skipped_before_its_turn_and_is_wanted_after_all_takes_its_turn(store: Store) -> None:
    """It was never handed out: to hand it out with what came back, and again with what is fresh, would be twice."""
    process = register(store)
    job = submitted(store, items=4).job_id
    claim(store, process)
    skip(store, f"job:{job} key:{keys(4)[2]}")
    assert statuses_of(store, job) == {"claimed": 1, "pending": 2, "skipped": 1}
    command(store, "force_retry_item", item_id=item_of(store, job, keys(4)[2])["id"])
    assert [item.key for item in claim(store, process)] == [keys(4)[1]]
    assert [item.key for item in claim(store, process, 9)] == keys(4)[2:]
    assert_sound(store, job)


def test_it_is_not_taken_before_its_delay_is_over(store: Store) -> None:
    process = register(store)
    job = submitted(store, items=4).job_id
    skip(store, f"job:{job} key:{keys(4)[0]}")
    command(store, "force_retry_item", item_id=item_of(store, job, keys(4)[0])["id"])
    (first,) = claim(store, process)
    assert first.key == keys(4)[0]
    settle(store, [first], "pending", due_at=store.clock.now() + timedelta(hours=1))
    assert [item.key for item in claim(store, process, 9)] == keys(4)[1:]
    assert_sound(store, job)


class Between:
    """Passes everything on to the driver's connection; before the stages are locked, something else happens once."""

    def __init__(self, raw: Any, happen: list[Callable[[], object]]) -> None:
        self._raw = raw
        self._happen = happen

    def execute(self, statement: str, params: Any = None) -> Any:
        if statement == LOCK_STAGES and self._happen:
            self._happen.pop()()
        return self._raw.execute(statement, params)


def test_what_is_wanted_after_all_while_a_claim_passes_it_by_is_not_left_behind(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    """The claim has taken its range while the item was skipped, and the retry finds the item beyond the mark."""
    store, desk = stores(postgres_url), stores(postgres_url)
    process = register(store)
    job = submitted(store, items=5).job_id
    second = item_of(store, job, keys(5)[1])["id"]
    skip(store, f"job:{job} key:{keys(5)[1]}")
    meanwhile: list[Callable[[], object]] = [lambda: command(desk, "force_retry_item", item_id=second)]

    def work(tx: Tx) -> list[Claimed]:
        tx.raw = Between(tx.raw, meanwhile)
        return tx.hot.claim(tx, "work", process, 3)

    claimed = store.write("claim", work)
    assert not meanwhile
    assert_sound(store, job)
    assert [item.key for item in claimed] == keys(5)[:3]
    assert [item.key for item in claim(store, process, 9)] == keys(5)[3:]
    assert_sound(store, job)
