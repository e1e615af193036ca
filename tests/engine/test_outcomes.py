"""How an attempt ends, and what each ending costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dalsegno import (
    Backoff,
    Done,
    Engine,
    EngineOptions,
    Fail,
    Item,
    Lane,
    PauseJob,
    Release,
    Retry,
    Skip,
    Store,
    Throttled,
    service,
    submit,
)
from tests.helpers import (
    SWIFT,
    ask,
    assert_sound,
    chain,
    command,
    events_of,
    items_of,
    job_of,
    keys,
    lane_of,
    one_step,
    run_job,
    status_of,
    statuses_of,
    types_of,
    wait_for_job,
    wait_until,
)


@service("work")
def work(item: Item) -> None:
    return None


def run_one(store: Store, handler: Callable[[Item], Any], **step: Any) -> Any:
    """One item through one service; returns its row."""
    job = submit(store, one_step(**step), items=["k"]).job_id
    run_job(store, [service("work")(handler)], job)
    assert_sound(store, job)
    return items_of(store, job)[0]


@pytest.mark.parametrize("value", [None, 0, False, "", "text", [1, {"a": None}], {"é": 1.5}, Done({"x": 1})])
def test_what_a_service_returns_is_the_items_result(store: Store, value: Any) -> None:
    row = run_one(store, lambda item: value)
    assert row["status"] == "succeeded"
    assert row["result"] == (value.result if isinstance(value, Done) else value)
    assert row["started_at"] <= row["finished_at"]


def test_an_exception_is_retried_with_backoff_and_then_succeeds(store: Store) -> None:
    attempts: list[int] = []

    def flaky(item: Item) -> str:
        attempts.append(item.attempt)
        if len(attempts) < 3:
            raise ConnectionError("no route")
        return "at last"

    row = run_one(store, flaky, max_attempts=3)
    assert attempts == [0, 1, 2]
    assert (row["status"], row["attempt"], row["result"]) == ("succeeded", 2, "at last")
    assert (row["error_code"], row["error_message"]) == (None, None)


def test_an_item_that_keeps_failing_fails_with_its_last_error(store: Store) -> None:
    ran: list[int] = []

    def broken(item: Item) -> None:
        ran.append(1)
        raise ValueError(f"number {len(ran)}")

    row = run_one(store, broken, max_attempts=3)
    assert (row["status"], row["attempt"], row["error_code"]) == ("failed", 3, "ValueError")
    assert "number 3" in row["error_message"]
    assert "test_outcomes.py:" in row["error_message"]
    assert len(ran) == 3


def test_each_retry_waits_as_the_backoff_says(store: Store) -> None:
    options = EngineOptions(node="test", backoff=Backoff(base=0.01, cap=0.04, jitter=0))
    failing = service("work")(lambda item: Retry("again"))
    job = submit(store, one_step(max_attempts=5), items=["k"]).job_id
    assert run_job(store, [failing], job, options=options) == "completed_with_errors"
    waits = [event["data"].get("retry_in") for event in events_of(store, job_id=job, type="item_returned")]
    assert waits == [0.01, 0.02, 0.04, 0.04]
    levels = {event["level"] for event in events_of(store, job_id=job, type="item_returned")}
    assert levels == {"warn"}
    assert [event["level"] for event in events_of(store, job_id=job, type="item_failed")] == ["error"]


def test_a_retry_may_name_its_own_delay(store: Store) -> None:
    row = run_one(store, lambda item: Retry("later", code="busy", delay=0.03) if item.attempt == 0 else None)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)
    (back,) = events_of(store, item_id=row["id"], type="item_returned")
    assert back["data"]["retry_in"] == 0.03


def test_fail_is_for_good_whatever_attempts_are_left(store: Store) -> None:
    row = run_one(store, lambda item: Fail("gone", code="http_404"), max_attempts=10)
    assert (row["status"], row["attempt"]) == ("failed", 1)
    assert (row["error_code"], row["error_message"]) == ("http_404", "gone")


def test_skip_keeps_its_reason_and_result(store: Store) -> None:
    row = run_one(store, lambda item: Skip("already on disk", result={"path": "/x"}))
    assert (row["status"], row["result"]) == ("skipped", {"path": "/x"})
    (event,) = events_of(store, item_id=row["id"], type="item_skipped")
    assert event["data"] == {"reason": "already on disk"}


def test_throttled_waits_and_costs_no_attempt(store: Store) -> None:
    calls: list[int] = []

    def throttled(item: Item) -> Any:
        calls.append(item.attempt)
        if len(calls) <= 5:
            return Throttled(store.clock.now() + timedelta(milliseconds=20), "429")
        return None

    row = run_one(store, throttled, max_attempts=1)
    assert calls == [0] * 6
    assert (row["status"], row["attempt"]) == ("succeeded", 0)


def test_release_comes_back_at_once_and_costs_no_attempt(store: Store) -> None:
    calls: list[int] = []

    def released(item: Item) -> Any:
        calls.append(item.attempt)
        return Release("not now") if len(calls) <= 5 else None

    row = run_one(store, released, max_attempts=1)
    assert calls == [0] * 6
    assert (row["status"], row["attempt"], row["interruptions"]) == ("succeeded", 0, 0)


def test_system_exit_in_a_service_does_not_take_the_worker_with_it(store: Store) -> None:
    @service("work", workers=1)
    def quitting(item: Item) -> None:
        if item.key == keys(3)[0]:
            raise SystemExit(3)

    job = submit(store, one_step(max_attempts=1), items=keys(3)).job_id
    assert run_job(store, [quitting], job) == "completed_with_errors"
    assert statuses_of(store, job) == {"failed": 1, "succeeded": 2}


# --- nonsense from a service harms its own item only ---------------------------------------------


class Strange(Exception):
    def __str__(self) -> str:
        return "half \ud800 a character and a \x00"


NONSENSE: dict[str, Callable[[], Any]] = {
    "a result that is not JSON": object,
    "a skip whose result is not JSON": lambda: Skip("x", result=object()),
    "a skip with a NUL in its reason": lambda: Skip("a\x00b"),
    "a result with a NUL": lambda: {"x": "\x00"},
    "a result with half a character": lambda: {"x": "\ud800"},
    "a result that is far too large": lambda: "x" * 2_000_000,
    "an error with a NUL": lambda: Fail("a\x00b"),
    "an error with half a character": lambda: Fail("a\ud800b"),
    "an error code with a NUL": lambda: Fail("x", code="a\x00b"),
    "an error that is no text": lambda: Retry(ValueError("x")),  # type: ignore[arg-type]
    "a retry in the past": lambda: Retry("x", delay=-5),
    "a retry never": lambda: Retry("x", delay=float("inf")),
    "a retry at no number": lambda: Retry("x", delay=float("nan")),
    "a throttle without a time zone": lambda: Throttled(__import__("datetime").datetime(2020, 1, 1)),
    "a throttle at no time": lambda: Throttled("soon"),  # type: ignore[arg-type]
    "a pause for no reason": lambda: Fail(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_from_a_service_harms_its_own_item_only(store: Store, name: str) -> None:
    calls: list[str] = []

    @service("work", workers=2)
    def odd(item: Item) -> Any:
        if item.key == "odd":
            calls.append(item.key)
            return NONSENSE[name]() if len(calls) <= 2 else None
        return None

    job = submit(store, one_step(max_attempts=3), items=["odd", *keys(20)]).job_id
    assert run_job(store, [odd], job, timeout=10) in ("completed", "completed_with_errors")
    assert statuses_of(store, job)["succeeded"] >= 20
    assert_sound(store, job)


def test_an_exception_with_unprintable_text_is_stored_readably(store: Store) -> None:
    def odd(item: Item) -> None:
        raise Strange

    job = submit(store, one_step(max_attempts=1), items=["k"]).job_id
    assert run_job(store, [service("work")(odd)], job, timeout=10) == "completed_with_errors"
    assert "a character" in items_of(store, job)[0]["error_message"]


def test_progress_with_unprintable_text_does_not_stop_the_settler(store: Store) -> None:
    def odd(item: Item) -> None:
        item.phase("ph\x00ase \ud800")
        item.progress(0.5, "half \ud800 and \x00")
        item.log.warning("half \ud800 and \x00")

    job = submit(store, one_step(max_attempts=1), items=["k"]).job_id
    assert run_job(store, [service("work")(odd)], job, timeout=10) == "completed"


# --- pausing the job from inside -----------------------------------------------------------------


def test_a_service_can_pause_its_job_and_the_item_is_interrupted(store: Store) -> None:
    full = [True]

    @service("work", workers=1)
    def picky(item: Item) -> Any:
        return PauseJob("needs a login", code="login") if full[0] else None

    job = submit(store, one_step(), items=keys(3)).job_id
    assert run_job(store, [picky], job, until=["paused"]) == "paused"
    row = job_of(store, job)
    assert (row["pause_reason"], row["paused_by"]) == ("login: needs a login", "service")
    assert lane_of(store)["held_at"] is None
    first = next(row for row in items_of(store, job) if row["status"] == "interrupted")
    assert (first["error_code"], first["attempt"]) == ("login", 0)
    full[0] = False
    command(store, "resume", job_id=job)
    assert run_job(store, [picky], job) == "completed"
    assert_sound(store, job)


def test_a_full_disk_holds_the_whole_lane_until_an_operator_resumes(store: Store) -> None:
    full = [True]

    @service("work", workers=1)
    def disk(item: Item) -> Any:
        return PauseJob("2 MB left", code="disk_full") if full[0] else None

    workflow = one_step(lane=Lane(name="files"))
    first = submit(store, workflow, items=keys(2)).job_id
    with Engine(store, [disk], SWIFT):
        wait_for_job(store, first, ["paused"])
        lane = wait_until(lambda: lane_of(store, "files")["held_at"] and lane_of(store, "files"), "the hold")
        assert lane["held_reason"] == "disk_full: 2 MB left"
        second = submit(store, workflow, items=keys(1)).job_id
        other = submit(store, one_step("other"), items=[]).job_id
        wait_for_job(store, other)  # another lane goes on, and by then the scheduler has looked
        assert status_of(store, second) == "queued"
        full[0] = False
        ask(store, "resume", job_id=first)
        assert wait_for_job(store, first) == "completed"
        assert wait_for_job(store, second) == "completed"
    assert "lane_released" in types_of(store)
    assert_sound(store, first, second)


# --- time ---------------------------------------------------------------------------------------


def test_an_item_that_takes_too_long_fails_with_timeout_and_its_worker_is_replaced(store: Store) -> None:
    leave = threading.Event()
    told: list[bool] = []

    @service("work", workers=1)
    def slow(item: Item) -> str:
        if item.key == keys(2)[0]:
            wait_until(lambda: item.cancelled, "the timeout to be told")
            told.append(item.cancelled)
            leave.wait(20)
        return "quick"

    job = submit(store, one_step(timeout=1.0, max_attempts=1), items=keys(2)).job_id
    with Engine(store, [slow], SWIFT):
        assert wait_for_job(store, job) == "completed_with_errors"
        leave.set()
    late, quick = items_of(store, job)
    assert (late["status"], late["error_code"]) == ("failed", "timeout")
    assert "1 seconds" in late["error_message"]
    assert (quick["status"], quick["result"]) == ("succeeded", "quick")
    assert told == [True]
    assert_sound(store, job)


def test_an_async_item_that_takes_too_long_is_cancelled(store: Store) -> None:
    ended: list[str] = []

    @service("work", workers=1)
    async def slow(item: Item) -> str:
        try:
            if item.key == keys(2)[0]:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(item.key)
            raise
        return "quick"

    job = submit(store, one_step(timeout=1.0, max_attempts=2), items=keys(2)).job_id
    assert run_job(store, [slow], job) == "completed_with_errors"
    assert [row["error_code"] for row in items_of(store, job)] == ["timeout", None]
    wait_until(lambda: len(ended) == 2, "both attempts to be cancelled")
    assert_sound(store, job)


def test_async_services_run_side_by_side_on_one_loop(store: Store) -> None:
    meet: list[asyncio.Event] = []
    threads: set[str] = set()

    @service("work", workers=4)
    async def together(item: Item) -> str:
        threads.add(threading.current_thread().name)
        if not meet:
            meet.append(asyncio.Event())
            await meet[0].wait()
        else:
            meet[0].set()
        return item.key

    job = submit(store, one_step(), items=keys(8)).job_id
    assert run_job(store, [together], job) == "completed"
    assert threads == {"dalsegno-async"}
    assert [row["result"] for row in items_of(store, job)] == keys(8)


def test_an_async_service_that_raises_is_retried(store: Store) -> None:
    calls: list[int] = []

    async def flaky(item: Item) -> None:
        await asyncio.sleep(0)
        calls.append(1)
        if len(calls) == 1:
            raise OSError("once")

    row = run_one(store, flaky)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)


def test_a_mixed_run_leaves_a_legal_trail_for_every_item(store: Store) -> None:
    @service("mixed", workers=3)
    def mixed(item: Item) -> Any:
        number = int(item.key[1:])
        if item.claimed.attempt == 0 and number % 3 == 0:
            raise RuntimeError("first time")
        return {0: None, 1: Skip("s"), 2: Fail("f"), 3: {"n": number}}[number % 4]

    job = submit(store, chain("mixed", "mixed", follow="each", max_attempts=2), items=keys(40)).job_id
    assert run_job(store, [mixed, work], job) == "completed_with_errors"
    assert_sound(store, job)


def test_a_stored_error_shows_no_secret(store: Store) -> None:
    @service("work")
    def work(item: Item) -> None:
        raise ValueError("GET https://nas:hunter2@library failed")

    job = submit(store, one_step(max_attempts=1), items=keys(1)).job_id
    run_job(store, [work], job, options=replace(SWIFT, secrets=("hunter2",)))
    message = items_of(store, job)[0]["error_message"]
    assert "hunter2" not in message
    assert "https://nas:***@library" in message
