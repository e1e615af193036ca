"""Services that take lists: one call for many items, and each item's own state."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno import (
    Done,
    Engine,
    Fail,
    Item,
    Outcome,
    PauseJob,
    Release,
    Retry,
    Service,
    Skip,
    Store,
    Throttled,
    service,
    submit,
)
from dalsegno.clock import SystemClock
from dalsegno.engine.batches import MISSING, BatchPool, answers
from dalsegno.engine.executor import AsyncLoop
from dalsegno.engine.item import StageInfo
from dalsegno.model.limit import Limit
from dalsegno.store.hot import Claimed
from dalsegno.store.schema import leases
from dalsegno.testing import run_item
from tests.helpers import (
    SWIFT,
    ask,
    assert_sound,
    chain,
    events_of,
    item_of,
    items_of,
    keys,
    one_step,
    run_job,
    status_of,
    statuses_of,
    wait_for_job,
    wait_until,
)

FOREVER = 3600.0
"""A linger that no test outlives: only company, a pause or the end gets these items moving."""


def batches(handler: Callable[[list[Item]], Any], size: int = 10, *, workers: int = 1, linger: float = 0.02) -> Service:
    return service("work", workers=workers, batch_size=size, linger=linger)(handler)


def run(store: Store, handler: Callable[[list[Item]], Any], items: Any, size: int = 10, **step: Any) -> dict[str, Any]:
    """A job of these items through one batch service; their rows by key."""
    job = submit(store, one_step(**step), items=items).job_id
    run_job(store, [batches(handler, size)], job)
    assert_sound(store, job)
    return {row["key"]: row for row in items_of(store, job)}


# --- one bad item among many ---------------------------------------------------------------------


def test_three_poison_items_of_a_thousand_fail_alone(store: Store) -> None:
    poison = {keys(1000)[number] for number in (4, 500, 507)}
    calls: list[list[str]] = []

    def work(items: list[Item]) -> dict[int, str]:
        calls.append([item.key for item in items])
        for item in items:
            if item.key in poison:
                raise ValueError(f"cannot stand {item.key}")
        return {item.id: item.key.upper() for item in random.sample(items, len(items))}

    job = submit(store, one_step(max_attempts=3), items=keys(1000)).job_id
    assert run_job(store, [batches(work, workers=2)], job) == "completed_with_errors"
    rows = items_of(store, job)
    assert statuses_of(store, job) == {"succeeded": 997, "failed": 3}
    for row in rows:
        if row["key"] in poison:
            assert (row["status"], row["attempt"], row["error_code"]) == ("failed", 3, "ValueError")
            assert f"cannot stand {row['key']}" in row["error_message"]
        else:
            assert (row["status"], row["attempt"], row["result"]) == ("succeeded", 0, row["key"].upper())
            assert (row["error_code"], row["error_message"]) == (None, None)
    returned = events_of(store, job_id=job, type="item_returned")
    assert Counter(event["item_id"] for event in returned) == {row["id"]: 2 for row in rows if row["key"] in poison}, (
        "only the poison ever came back"
    )
    assert max(map(len, calls)) == 10
    # Full batches come first, whole: 100 calls. Each poisoned batch of ten adds at most 2 x 4 levels of halves, and
    # each poison item two more calls alone.
    assert len(calls) <= 100 + 3 * 8 + 3 * 2, len(calls)
    assert [len(call) for call in calls if poison & set(call)].count(1) == 9
    assert_sound(store, job)


def test_a_handler_that_always_fails_costs_a_bounded_number_of_calls(store: Store) -> None:
    sizes: list[int] = []

    def broken(items: list[Item]) -> None:
        sizes.append(len(items))
        raise RuntimeError("a plain bug")

    rows = run(store, broken, keys(8), size=8, max_attempts=3)
    assert {(row["status"], row["attempt"], row["error_code"]) for row in rows.values()} == {
        ("failed", 3, "RuntimeError")
    }
    assert Counter(sizes) == {8: 1, 4: 2, 2: 4, 1: 8 + 8 + 8}, "2N - 1 in the first round, then one each"


def test_even_system_exit_is_one_items_failure(store: Store) -> None:
    def quitting(items: list[Item]) -> None:
        if any(item.key == "k00003" for item in items):
            raise SystemExit(3)

    rows = run(store, quitting, keys(5), max_attempts=1)
    assert {key for key, row in rows.items() if row["status"] == "failed"} == {"k00003"}
    assert rows["k00003"]["error_code"] == "SystemExit"


def test_the_halves_of_a_limited_batch_are_really_called(store: Store) -> None:
    """They have begun already when their own permit is taken: that must not pass for a lost lease."""
    calls: list[int] = []

    @service("work", batch_size=4, linger=0.05, limit=Limit(concurrent=2))
    def limited(items: list[Item]) -> dict[int, str]:
        calls.append(len(items))
        if any(item.key == "k00003" for item in items):
            raise ValueError("poison")
        return {item.id: item.key for item in items}

    job = submit(store, one_step(max_attempts=1), items=keys(4)).job_id
    assert run_job(store, [limited], job) == "completed_with_errors"
    found = [(row["status"], row["result"]) for row in items_of(store, job)]
    assert found == [("succeeded", "k00001"), ("succeeded", "k00002"), ("failed", None), ("succeeded", "k00004")]
    assert calls == [4, 2, 2, 1, 1]
    assert_sound(store, job)


# --- what a service may answer -------------------------------------------------------------------


SHAPES: dict[str, Callable[[Sequence[tuple[Item, Any]]], Any]] = {
    "by id": lambda said: {item.id: value for item, value in said},
    "by item": dict,
    "by text": lambda said: {str(item.id): value for item, value in said},
    "pairs of item": list,
    "pairs of id": lambda said: [(item.id, value) for item, value in said],
    "pairs as JSON has them": lambda said: [[str(item.id), value] for item, value in said],
    "a generator": lambda said: ((item, value) for item, value in said),
    "with strangers": lambda said: {"summary": 1, 10**9: 2, "99999999": 3, None: 4} | {i.id: v for i, v in said},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_are_matched_by_id_in_every_shape_and_order(store: Store, shape: str) -> None:
    def work(items: list[Item]) -> Any:
        return SHAPES[shape]([(item, {"of": item.key}) for item in random.sample(items, len(items))])

    rows = run(store, work, keys(25))
    assert {key: row["result"] for key, row in rows.items()} == {key: {"of": key} for key in keys(25)}


def test_an_async_service_gets_batches_too(store: Store) -> None:
    async def work(items: list[Item]) -> Any:
        await asyncio.sleep(0)
        if len(items) > 1 and any(item.key == "k00002" for item in items):
            raise OSError("too much company")
        return {item.id: item.key for item in items}

    rows = run(store, work, keys(5))
    assert {row["result"] for row in rows.values()} == set(keys(5))
    assert {row["attempt"] for row in rows.values()} == {0}


def test_nothing_returned_means_that_all_are_done(store: Store) -> None:
    rows = run(store, lambda items: None, keys(3))
    assert {(row["status"], row["result"]) for row in rows.values()} == {("succeeded", None)}


def test_an_item_the_service_forgot_is_retried_alone_of_all(store: Store) -> None:
    sizes: list[int] = []

    def forgetful(items: list[Item]) -> Any:
        sizes.append(len(items))
        return {item.id: 1 for item in items if item.key != "k00002"}

    rows = run(store, forgetful, keys(4), max_attempts=2)
    forgotten = rows.pop("k00002")
    assert (forgotten["status"], forgotten["attempt"], forgotten["error_code"]) == ("failed", 2, MISSING)
    assert "answered for 0 of the 1 items" in forgotten["error_message"]
    assert {(row["status"], row["attempt"]) for row in rows.values()} == {("succeeded", 0)}
    assert sizes == [4, 1]


def test_each_item_may_have_an_outcome_of_its_own(store: Store) -> None:
    seen: Counter[str] = Counter()

    def work(items: list[Item]) -> Any:
        said: dict[int, Any] = {}
        for item in items:
            seen[item.key] += 1
            first = seen[item.key] == 1
            said[item.id] = {
                "done": Done({"n": 1}),
                "value": [1, 2],
                "none": None,
                "skip": Skip("there already", result="old"),
                "fail": Fail("gone", code="http_404"),
                "retry": Retry("busy", delay=0.01) if first else "later",
                "throttled": Throttled(store.clock.now() + timedelta(milliseconds=10), "429") if first else "later",
                "release": Release("not now") if first else "later",
                "unfit": object(),
            }[item.key]
        return said

    names = ["done", "value", "none", "skip", "fail", "retry", "throttled", "release", "unfit"]
    rows = run(store, work, names, max_attempts=2)
    found = {key: (row["status"], row["attempt"], row["result"]) for key, row in rows.items()}
    assert found == {
        "done": ("succeeded", 0, {"n": 1}),
        "value": ("succeeded", 0, [1, 2]),
        "none": ("succeeded", 0, None),
        "skip": ("skipped", 0, "old"),
        "fail": ("failed", 1, None),
        "retry": ("succeeded", 1, "later"),
        "throttled": ("succeeded", 0, "later"),
        "release": ("succeeded", 0, "later"),
        "unfit": ("failed", 1, None),
    }


def test_one_outcome_is_said_of_all(store: Store) -> None:
    calls: list[int] = []

    def throttled(items: list[Item]) -> Any:
        calls.append(len(items))
        return Throttled(store.clock.now() + timedelta(milliseconds=10), "429") if len(calls) == 1 else None

    rows = run(store, throttled, keys(4), max_attempts=1)
    assert {(row["status"], row["attempt"]) for row in rows.values()} == {("succeeded", 0)}
    assert calls[0] == 4


def test_a_batch_can_pause_its_job(store: Store) -> None:
    job = submit(store, one_step(), items=keys(3)).job_id
    assert run_job(store, [batches(lambda items: PauseJob("no key"))], job, until=["paused"]) == "paused"
    assert statuses_of(store, job) == {"interrupted": 3}
    assert run_item(batches(lambda items: PauseJob("no key"))).outcome == PauseJob("no key")


WRONG: dict[str, Callable[[list[Item]], Any]] = {
    "values in order": lambda items: [item.key for item in items],
    "vectors in order": lambda items: [(0.1, 0.2) for _ in items],
    "a number": lambda items: 3,
    "a text": lambda items: "12",
    "the mapping inside Done": lambda items: Done({item.id: 1 for item in items}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_type_is_a_failure_that_says_what_is_expected(store: Store, wrong: str) -> None:
    rows = run(store, WRONG[wrong], keys(2), max_attempts=1)
    for row in rows.values():
        assert (row["status"], row["error_code"]) == ("failed", "TypeError")
        assert "{item.id: value for item in items}" in row["error_message"]
        assert 'batch service "work"' in row["error_message"]


def test_strangers_are_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    item = an_item(42)
    with caplog.at_level("WARNING"):
        said = answers("work", [item], {"42": "mine", 43: "whose", "title": "x", True: 1, " 44 ": 0})
    assert said == {42: Done("mine")}
    (record,) = caplog.records
    assert record.getMessage() == "work answered for items that are not in its batch: 43, 'title', True, ' 44 '"


def test_run_item_gives_a_batch_service_a_batch_of_one() -> None:
    @service("work", batch_size=5)
    def work(items: list[Item]) -> Any:
        (item,) = items
        item.progress(1.0)
        return {str(item.id): item.params["n"] * 2}

    ran = run_item(work, params={"n": 21})
    assert (ran.result, ran.progress[-1].fraction) == (42, 1.0)
    outcome = run_item(batches(lambda items: {})).outcome
    assert isinstance(outcome, Retry)
    assert outcome.code == MISSING


# --- who goes together ---------------------------------------------------------------------------


def test_batches_are_full_while_there_is_enough_and_never_mix_stages(store: Store) -> None:
    calls: list[tuple[int, list[str]]] = []

    def work(items: list[Item]) -> None:
        assert len({item.stage.id for item in items}) == 1
        calls.append((items[0].stage.id, [item.key for item in items]))

    made = [submit(store, one_step(), items=keys(count)).job_id for count in (25, 40, 7)]
    with Engine(store, [batches(work, workers=3, linger=1.0)], SWIFT):
        for job in made:
            assert wait_for_job(store, job) == "completed"
    for job, expected in zip(made, ([10, 10, 5], [10] * 4, [7]), strict=True):
        (stage,) = {row["stage_id"] for row in items_of(store, job)}
        mine = [call for number, call in calls if number == stage]
        assert sorted(map(len, mine), reverse=True) == expected
        assert sorted(key for call in mine for key in call) == [row["key"] for row in items_of(store, job)]
    assert_sound(store, *made)


def test_a_partial_batch_goes_after_its_linger_and_a_full_one_at_once(store: Store) -> None:
    sizes: list[int] = []
    work = batches(lambda items: sizes.append(len(items)), linger=0.01)
    job = submit(store, one_step(), items=keys(23)).job_id
    assert run_job(store, [work], job) == "completed"
    assert sizes == [10, 10, 3]
    job = submit(store, one_step(), items=keys(20)).job_id
    assert run_job(store, [batches(lambda items: sizes.append(len(items)), linger=FOREVER)], job) == "completed"
    assert sizes[3:] == [10, 10]


def test_the_followers_of_a_batch_get_their_own_results(store: Store) -> None:
    heard: dict[str, Any] = {}

    @service("next", workers=2)
    def follow(item: Item) -> None:
        heard[item.key] = item.input

    @service("last", batch_size=4, linger=0.01)
    def last(items: list[Item]) -> dict[int, Any]:
        return {item.id: item.key for item in items}

    def work(items: list[Item]) -> dict[Item, Any]:
        return {item: Skip("old", result=item.key) if item.key == "k00001" else item.key for item in reversed(items)}

    job = submit(store, chain("work", "next", "last", follow="each"), items=keys(12)).job_id
    assert run_job(store, [batches(work, 5), follow, last], job) == "completed"
    assert heard == {key: key for key in keys(12)}
    assert_sound(store, job)


# --- while it runs -------------------------------------------------------------------------------


class Gate:
    """A batch handler that waits inside until it is let go."""

    def __init__(self, size: int = 4, *, hold: Callable[[list[Item]], bool] = lambda items: True, **how: Any) -> None:
        self.inside = threading.Event()
        self.leave = threading.Event()
        self.calls: list[list[Item]] = []
        self._hold = hold
        self.service = batches(self._work, size, **how)

    def _work(self, items: list[Item]) -> dict[int, str]:
        self.calls.append(items)
        if self._hold(items):
            self.inside.set()
            assert self.leave.wait(30)
        return {item.id: "finished" for item in items}

    def sizes(self) -> list[int]:
        return [len(call) for call in self.calls]


def test_every_item_of_a_batch_is_written_down_as_begun_and_progresses(store: Store) -> None:
    gate = Gate()
    job = submit(store, one_step(), items=keys(4)).job_id
    with Engine(store, [gate.service], SWIFT):
        assert gate.inside.wait(30)
        wait_until(lambda: statuses_of(store, job) == {"running": 4}, "all four to have begun")
        for item in gate.calls[0]:
            item.progress(0.5, f"half of {item.key}")
        wait_until(
            lambda: [row["progress_text"] for row in items_of(store, job)] == [f"half of {key}" for key in keys(4)],
            "the progress of each",
        )
        gate.leave.set()
        assert wait_for_job(store, job) == "completed"
    assert {row["worker"] for row in items_of(store, job) if "worker" in row} <= {"work-1"}
    assert_sound(store, job)


def test_items_that_come_back_are_begun_before_their_call(store: Store) -> None:
    seen: list[set[str]] = []

    def work(items: list[Item]) -> Any:
        seen.append({item_of(store, item.job_id, item.key)["status"] for item in items})
        return Release("once more") if len(seen) == 1 else None

    run(store, work, keys(4), size=4)
    assert seen[-1] == {"running"}


def test_a_pause_takes_back_what_waits_and_lets_the_batch_finish(store: Store) -> None:
    gate = Gate(size=5)
    job = submit(store, one_step(), items=keys(20)).job_id
    with Engine(store, [gate.service], SWIFT):
        assert gate.inside.wait(30)
        ask(store, "pause", job_id=job)
        wait_until(
            lambda: (
                (status_of(store, job), statuses_of(store, job)) == ("pause_requested", {"running": 5, "pending": 15})
            ),
            "the rest to be taken back",
        )
        gate.leave.set()
        assert wait_for_job(store, job, ["paused"]) == "paused"
        assert statuses_of(store, job) == {"succeeded": 5, "pending": 15}
        ask(store, "resume", job_id=job)
        assert wait_for_job(store, job) == "completed"
    assert {row["attempt"] for row in items_of(store, job)} == {0}
    assert gate.sizes() == [5] * 4
    assert_sound(store, job)


def test_a_pause_and_a_stop_take_back_what_waits_for_company(store: Store) -> None:
    called: list[int] = []
    work = batches(lambda items: called.append(len(items)), size=5, linger=FOREVER)
    job = submit(store, one_step(), items=keys(3)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: statuses_of(store, job) == {"claimed": 3}, "the claim")
        ask(store, "pause", job_id=job)
        assert wait_for_job(store, job, ["paused"]) == "paused"
        assert statuses_of(store, job) == {"pending": 3}
        ask(store, "resume", job_id=job)
        wait_until(lambda: statuses_of(store, job) == {"claimed": 3}, "the second claim")
    assert statuses_of(store, job) == {"pending": 3}
    assert every_lease_ended(store)
    assert called == []
    assert_sound(store, job)


def every_lease_ended(store: Store) -> bool:
    return store.read(lambda tx: tx.rows(sa.select(leases))) == []


def test_a_cancel_is_told_to_each_and_a_cancelled_call_is_not_repeated(store: Store) -> None:
    inside = threading.Event()
    calls: list[list[Item]] = []

    async def work(items: list[Item]) -> None:
        calls.append(items)
        inside.set()
        await asyncio.Event().wait()

    job = submit(store, one_step(), items=keys(4)).job_id
    with Engine(store, [batches(work, 4)], SWIFT):
        assert inside.wait(30)
        ask(store, "cancel", job_id=job)
        assert wait_for_job(store, job) == "canceled"
    assert all(item.cancelled for item in calls[0])
    assert len(calls) == 1
    assert statuses_of(store, job) == {"canceled": 4}
    assert_sound(store, job)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_batch_that_takes_too_long_is_retried_item_by_item_and_the_one_that_hangs_fails_alone(
    store: Store, is_async: bool
) -> None:
    leave = threading.Event()
    sizes: list[int] = []

    def hangs(items: list[Item]) -> bool:
        sizes.append(len(items))
        return any(item.key == "k00002" for item in items)

    def slow(items: list[Item]) -> dict[int, str]:
        if hangs(items):
            leave.wait(30)
        return {item.id: "quick" for item in items}

    async def slow_too(items: list[Item]) -> dict[int, str]:
        if hangs(items):
            await asyncio.Event().wait()
        return {item.id: "quick" for item in items}

    job = submit(store, one_step(timeout=0.3, max_attempts=2), items=keys(4)).job_id
    with Engine(store, [batches(slow_too if is_async else slow, 4)], SWIFT):
        assert wait_for_job(store, job) == "completed_with_errors"
        leave.set()
    rows = {row["key"]: row for row in items_of(store, job)}
    stuck = rows.pop("k00002")
    assert (stuck["status"], stuck["attempt"], stuck["error_code"]) == ("failed", 2, "timeout")
    assert {(row["status"], row["attempt"], row["result"]) for row in rows.values()} == {("succeeded", 1, "quick")}
    assert len(events_of(store, job_id=job, type="item_returned")) == 4
    assert sizes == [4, 1, 1, 1, 1]
    assert_sound(store, job)


def test_each_half_has_the_whole_timeout(store: Store) -> None:
    """Four calls of 0.2 s each, one after the other, do not make an item that took 0.8 s."""
    done = threading.Event()

    def work(items: list[Item]) -> None:
        done.wait(0.2)
        if len(items) > 1:
            raise OSError("one at a time")

    rows = run(store, work, keys(4), size=4, timeout=0.6, max_attempts=1)
    assert {(row["status"], row["attempt"]) for row in rows.values()} == {("succeeded", 0)}


def test_stopping_lets_a_batch_finish(store: Store) -> None:
    gate = Gate()
    job = submit(store, one_step(max_attempts=1), items=keys(12)).job_id
    engine = Engine(store, [gate.service], SWIFT).start()
    assert gate.inside.wait(30)
    clean: list[bool] = []
    stopper = threading.Thread(target=lambda: clean.append(engine.stop(drain_seconds=30)))
    stopper.start()
    wait_until(lambda: statuses_of(store, job)["claimed"] == 0, "the rest to be given back")
    gate.leave.set()
    stopper.join(30)
    assert clean == [True]
    assert statuses_of(store, job) == {"succeeded": 4, "pending": 8}
    assert every_lease_ended(store)
    assert_sound(store, job)


def test_a_batch_that_runs_at_the_deadline_is_interrupted_without_cost(store: Store) -> None:
    gate = Gate()
    job = submit(store, one_step(max_attempts=1), items=keys(6)).job_id
    engine = Engine(store, [gate.service], SWIFT).start()
    assert gate.inside.wait(30)
    assert engine.stop(drain_seconds=0.1) is False
    assert all(item.cancelled for item in gate.calls[0])
    rows = items_of(store, job)
    assert [(row["status"], row["attempt"], row["interruptions"]) for row in rows] == [
        *[("interrupted", 0, 1)] * 4,
        *[("pending", 0, 0)] * 2,
    ]
    assert every_lease_ended(store)
    gate.leave.set()
    assert run_job(store, [batches(lambda items: None)], job) == "completed"
    assert_sound(store, job)


def test_a_stop_in_the_middle_of_a_split_gives_the_halves_back(store: Store) -> None:
    """The call is out when the engine stops; it fails, and its halves are called before the drain ends."""
    gate = Gate(hold=lambda items: len(items) == 4)

    def failing(items: list[Item]) -> Any:
        gate.service.handler(items)
        if any(item.key == "k00001" for item in items):
            raise ValueError("poison")

    job = submit(store, one_step(max_attempts=1), items=keys(4)).job_id
    engine = Engine(store, [batches(failing, 4)], SWIFT).start()
    assert gate.inside.wait(30)
    clean: list[bool] = []
    stopper = threading.Thread(target=lambda: clean.append(engine.stop(drain_seconds=30)))
    stopper.start()
    gate.leave.set()
    stopper.join(30)
    assert clean == [True]
    assert set(statuses_of(store, job)) <= {"succeeded", "failed", "pending"}
    assert run_job(store, [batches(failing, 4)], job) == "completed_with_errors"
    assert statuses_of(store, job) == {"failed": 1, "succeeded": 3}
    assert_sound(store, job)


# --- a process that dies -------------------------------------------------------------------------


PROGRAM = """
import os, signal, sys, threading
from dalsegno import Engine, EngineOptions, open_store, service

url, journal, job, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@service("work", batch_size=5, linger=0.01)
def work(items):
    os.write(file, (" ".join(["call", *(item.key for item in items)]) + "\\n").encode())
    if mode == "poison" and any(item.key == "k00007" for item in items):
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "hang" and any(item.key == "k00013" for item in items):
        threading.Event().wait()
    return {item.id: item.key for item in items}

store = open_store(url)
with Engine(store, [work], EngineOptions(node="test")) as engine:
    engine.wait(job, timeout=60)
store.close()
"""


def child(url: str, journal: Path, job: int, mode: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, url, str(journal), str(job), mode], start_new_session=True)


def called(journal: Path) -> list[list[str]]:
    return [line.split()[1:] for line in journal.read_text().splitlines()] if journal.exists() else []


def test_a_kill_in_the_middle_of_a_batch_loses_nothing_and_repeats_nothing_that_succeeded(
    database_url: str, stores: Callable[..., Store], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    store = stores(database_url)
    job = submit(store, one_step(), items=keys(30)).job_id
    first = child(database_url, journal, job, "hang")
    try:
        wait_until(lambda: statuses_of(store, job)["running"] == 5, "the third batch to have begun")
        assert statuses_of(store, job)["succeeded"] == 10
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        assert first.wait(30) == -signal.SIGKILL
    second = child(database_url, journal, job, "calm")
    assert second.wait(60) == 0
    assert status_of(store, job) == "completed"
    assert {row["key"]: row["result"] for row in items_of(store, job)} == {key: key for key in keys(30)}
    runs = Counter(key for call in called(journal) for key in call)
    assert runs == {key: 2 if key in keys(15)[10:] else 1 for key in keys(30)}
    assert {row["attempt"] for row in items_of(store, job)} == {0}
    assert_sound(store, job)


def test_an_item_that_kills_its_process_fails_alone_even_where_two_deaths_are_the_limit(
    database_url: str, stores: Callable[..., Store], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    store = stores(database_url)
    job = submit(store, one_step(max_interruptions=2), items=keys(20)).job_id
    deaths = 0
    while (code := child(database_url, journal, job, "poison").wait(60)) != 0:
        assert code == -signal.SIGKILL
        deaths += 1
        assert deaths <= 4, "a poison item loops"
    assert statuses_of(store, job) == {"succeeded": 19, "failed": 1}
    row = item_of(store, job, "k00007")
    assert (row["error_code"], row["attempt"], row["interruptions"]) == ("interrupted_too_often", 0, 2)
    assert called(journal).count(["k00007"]) == 1
    assert_sound(store, job)


# --- a pool without a database -------------------------------------------------------------------


def an_item(number: int, *, stage: int = 1, attempt: int = 0, interruptions: int = 0, max_attempts: int = 3) -> Item:
    info = StageInfo(stage, 1, "a", "work", {}, {}, {}, None, (), max_attempts, 20, None)
    return Item(Claimed(number, stage, 1, number, f"k{number}", 1, attempt, interruptions, False, None, None), info)


class Bench:
    """A pool that we feed by hand, and all it settled."""

    def __init__(
        self,
        handler: Callable[[list[Item]], Any],
        size: int,
        *,
        workers: int = 1,
        linger: float = 0.0,
        kind: type[BatchPool] = BatchPool,
    ) -> None:
        self.settled: list[tuple[Item, Outcome]] = []
        self.calls: list[list[Item]] = []

        def noted(items: list[Item]) -> Any:
            self.calls.append(list(items))
            return handler(items)

        work = batches(noted, size, workers=workers, linger=linger)
        self.pool = kind(work, SystemClock(), self._settle, lambda *_: True, lambda: None, AsyncLoop())

    def _settle(self, item: Item, outcome: Outcome) -> None:
        self.settled.append((item, outcome))
        item.settled = True

    def __enter__(self) -> Bench:
        self.pool.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.stop()

    def wait(self, count: int) -> dict[int, Outcome]:
        wait_until(lambda: len(self.settled) >= count, f"{count} outcomes, not {len(self.settled)}")
        return {item.id: outcome for item, outcome in self.settled}


class Poison(Exception):
    pass


PLANS: dict[str, Any] = {
    "value": {"a": 1},
    "none": None,
    "skip": Skip("s"),
    "fail": Fail("f"),
    "retry": Retry("r"),
    "release": Release("x"),
}


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_every_item_is_settled_once_with_its_own_outcome_whatever_the_batch_does(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 12), "batch size")
    workers = data.draw(st.integers(1, 3), "workers")
    stages = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=40), "stage of each item")
    count = len(stages)
    fate = st.sampled_from([*PLANS, "missing", "poison"])
    plan = dict(enumerate(data.draw(st.lists(fate, min_size=count, max_size=count), "fates"), start=1))
    shape = SHAPES[data.draw(st.sampled_from(sorted(SHAPES)), "shape")]
    mix = random.Random(data.draw(st.integers(0, 999), "seed"))

    def work(items: list[Item]) -> Any:
        for item in items:
            if plan[item.id] == "poison":
                raise Poison(item.key)
        said = [(item, PLANS[plan[item.id]]) for item in items if plan[item.id] != "missing"]
        mix.shuffle(said)
        return shape(said)

    items = [an_item(number, stage=stage) for number, stage in enumerate(stages, start=1)]
    bench = Bench(work, size, workers=workers)
    bench.pool.feed(items)
    with bench:
        found = bench.wait(count)
    assert Counter(item.id for item, _ in bench.settled) == {item.id: 1 for item in items}
    for number, outcome in found.items():
        match plan[number]:
            case "missing":
                assert isinstance(outcome, Retry)
                assert outcome.code == MISSING
            case "poison":
                assert isinstance(outcome, Retry)
                assert outcome.code == "Poison"
                assert outcome.error.split(" (at")[0].endswith(f"k{number}")
            case "value":
                assert outcome == Done({"a": 1})
            case name:
                assert outcome == (PLANS[name] or Done())
    assert all(len(call) <= size and len({item.stage.id for item in call}) == 1 for call in bench.calls)
    whole = sum(-(-number // size) for number in Counter(stages).values())
    if "poison" not in plan.values():
        assert len(bench.calls) == whole
    assert len(bench.calls) <= 2 * count - whole, "each batch of n is at most 2n - 1 calls"
    assert bench.pool.in_work() == bench.pool.take_back(lambda _: True) == []


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(2, 10),
    count=st.integers(1, 20),
    poison=st.sets(st.integers(1, 20), max_size=3),
    refusals=st.lists(st.booleans(), max_size=40),
    mix=st.randoms(use_true_random=False),
)
def test_the_poison_is_found_also_when_permits_run_out_between_the_halves(
    size: int, count: int, poison: set[int], refusals: list[bool], mix: random.Random
) -> None:
    """What gets no permit comes back later, in any company; nobody but the poison ever pays."""
    left = list(refusals)

    class Rationed(BatchPool):
        def _enter(self, items: Sequence[Item]) -> Outcome | None:
            return Release("no permit now") if left and left.pop() else super()._enter(items)

    def work(items: list[Item]) -> None:
        if any(item.id in poison for item in items):
            raise Poison("x")

    with Bench(work, size, kind=Rationed) as bench:
        waiting = [an_item(number) for number in range(1, count + 1)]
        final: dict[int, Outcome] = {}
        while waiting:
            mix.shuffle(waiting)
            before = len(bench.settled)
            bench.pool.feed(waiting)
            bench.wait(before + len(waiting))
            back = [item for item, outcome in bench.settled[before:] if isinstance(outcome, Release)]
            final |= {i.id: outcome for i, outcome in bench.settled[before:] if not isinstance(outcome, Release)}
            waiting = [an_item(item.id) for item in back]
    for number, outcome in final.items():
        assert isinstance(outcome, Retry if number in poison else Done), (number, outcome)
    failed = [call for call in bench.calls if any(item.id in poison for item in call)]
    assert len(failed) <= len(poison) * 5, "a suspect's company halves with every call that fails"


def test_the_breaker_speaks_for_the_whole_batch() -> None:
    class Tripped(BatchPool):
        def _leave(self, items: Sequence[Item], error: BaseException | None) -> Outcome | None:
            return Release("tripped") if error is not None else None

    def work(items: list[Item]) -> None:
        raise ConnectionError("429")

    with Bench(work, 5, kind=Tripped) as bench:
        bench.pool.feed([an_item(number) for number in range(1, 6)])
        assert set(bench.wait(5).values()) == {Release("tripped")}
    assert len(bench.calls) == 1


def test_each_half_enters_and_leaves_by_itself() -> None:
    told: list[tuple[str, int]] = []

    class Counted(BatchPool):
        def _enter(self, items: Sequence[Item]) -> Outcome | None:
            told.append(("enter", len(items)))
            return None

        def _leave(self, items: Sequence[Item], error: BaseException | None) -> Outcome | None:
            told.append(("error" if error else "leave", len(items)))
            return None

    def work(items: list[Item]) -> None:
        if any(item.id == 1 for item in items):
            raise Poison("1")

    with Bench(work, 5, kind=Counted) as bench:
        bench.pool.feed([an_item(number) for number in range(1, 6)])
        bench.wait(5)
    assert told == [
        ("enter", 5), ("error", 5), ("enter", 3), ("error", 3), ("enter", 2), ("error", 2), ("enter", 1), ("error", 1),
        ("enter", 1), ("leave", 1), ("enter", 1), ("leave", 1), ("enter", 2), ("leave", 2),
    ]  # fmt: skip


def test_items_wait_for_company_and_other_stages_do_not_wait_for_them() -> None:
    with Bench(lambda items: None, 4, workers=2, linger=FOREVER) as bench:
        bench.pool.feed([an_item(1), an_item(2)])
        bench.pool.feed([an_item(number, stage=2) for number in range(11, 15)])
        bench.wait(4)
        bench.pool.feed([an_item(3), an_item(4), an_item(5)])
        bench.wait(8)
        assert [item.id for item in bench.pool.take_back(lambda _: True)] == [5]
    assert [[item.id for item in call] for call in bench.calls] == [[11, 12, 13, 14], [1, 2, 3, 4]]


def test_suspects_of_a_kill_go_alone() -> None:
    with Bench(lambda items: None, 10) as bench:
        bench.pool.feed([an_item(number, interruptions=2 if number % 2 else 0) for number in range(1, 9)])
        bench.wait(8)
    assert sorted(sorted(item.id for item in call) for call in bench.calls) == [[1], [2, 4, 6, 8], [3], [5], [7]]


def test_what_failed_alone_comes_back_alone_and_the_rest_in_full_batches() -> None:
    def work(items: list[Item]) -> Any:
        if any(item.id == 3 for item in items):
            raise Poison("3")

    with Bench(work, 4) as bench:
        bench.pool.feed([an_item(number) for number in range(1, 5)])
        bench.wait(4)
        before = len(bench.calls)
        bench.pool.feed([an_item(3, attempt=1), *(an_item(number) for number in range(5, 9))])
        bench.wait(9)
        assert [[item.id for item in call] for call in bench.calls[before:]] == [[3], [5, 6, 7, 8]]
        bench.pool.feed([an_item(3, attempt=2), *(an_item(number) for number in range(9, 12))])
        bench.wait(13)
        assert [len(call) for call in bench.calls[-2:]] == [1, 3]
        assert bench.pool._company == {}, "settled for good, and forgotten"


def test_the_appetite_is_for_whole_batches() -> None:
    bench = Bench(lambda items: None, 7, workers=3)
    pool = bench.pool
    pool._mean = 100.0
    assert pool.appetite() == 21
    pool.feed([an_item(number) for number in range(1, 6)])
    assert pool.appetite() == 16, "what completes three batches"
    pool._mean = 0.01
    assert (pool.appetite() + 5) % 7 == 0


def test_a_service_of_one_item_batches_is_an_ordinary_one(store: Store) -> None:
    engine = Engine(store, [batches(lambda items: None, 3), service("one", batch_size=1)(lambda item: None)])
    assert [isinstance(pool, BatchPool) for pool in engine.pools.values()] == [True, False]
