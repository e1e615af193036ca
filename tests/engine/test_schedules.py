"""Schedules on both databases: started once, whatever the clock, the engines and the plug do; and why one was not."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store, service
from dalsegno.clock import ManualClock, SystemClock
from dalsegno.engine import runs as kept
from dalsegno.engine import schedules as engine
from dalsegno.engine.orders import Order, Ready, as_stored
from dalsegno.engine.schedules import Schedule
from dalsegno.engine.submit import apply_workflow
from dalsegno.engine.timekeeper import BATCH, Timekeeper, keep_time
from dalsegno.errors import (
    CronInvalid,
    DatabaseUnavailable,
    InputInvalid,
    NotFound,
    ScheduleBusy,
    ScheduleExists,
    UpstreamFailed,
)
from dalsegno.store.schema import jobs, schedule_runs, schedules
from tests.helpers import SWIFT, events_of, every, job_of, named, one, one_step, types_of, wait_until

HOUR = 3600
DAY = datetime(2026, 5, 1, tzinfo=UTC)
WORKFLOW = one_step()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(DAY)


@pytest.fixture
def stored(still: Store) -> Store:
    still.write("workflow", lambda tx: apply_workflow(tx, WORKFLOW))
    return still


def hour(number: float) -> datetime:
    return DAY + timedelta(hours=number)


def add(store: Store, name: str = "hourly", **said: Any) -> int:
    wanted = Schedule(
        **{"name": name, "workflow": WORKFLOW.name, "cron": "0 * * * *", "request": {"items": ["k"]}} | said
    )
    return store.write("schedule", lambda tx: engine.add(tx, wanted, "nas"))


def act(store: Store, work: Callable[..., Any], *args: Any) -> Any:
    return store.write("schedule", lambda tx: work(tx, *args))


def keep(store: Store, clock: ManualClock, seconds: float = 0) -> None:
    clock.advance(seconds)
    keep_time(store, as_stored)


def row(store: Store, number: int) -> sa.RowMapping:
    return one(store, sa.select(schedules).where(schedules.c.id == number))


def told(store: Store, number: int) -> list[tuple[datetime, str, str | None]]:
    query = sa.select(schedule_runs).where(schedule_runs.c.schedule_id == number).order_by(schedule_runs.c.due_at)
    return [(run["due_at"], run["outcome"], run["reason"]) for run in every(store, query)]


def started(store: Store) -> list[int]:
    return [job["id"] for job in every(store, sa.select(jobs).order_by(jobs.c.id))]


def finish(store: Store, job_id: int, status: str = "completed") -> None:
    values = {"status": status, "finished_at": None if status == "running" else store.clock.now()}
    act(store, lambda tx: tx.conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(**values)))


# --- started by the clock ---------------------------------------------------------------------------


def test_a_schedule_starts_its_job_when_it_is_due_and_not_before(stored: Store, clock: ManualClock) -> None:
    number = add(stored, priority=7, request={"items": ["k"], "params": {"depth": 2}, "scope": {"of": "x"}})
    keep(stored, clock, HOUR - 1)
    assert started(stored) == []
    keep(stored, clock, 1)
    (job_id,) = started(stored)
    job = job_of(stored, job_id)
    assert (job["priority"], job["requested_by"], job["scope"]) == (7, "schedule hourly", {"of": "x"})
    assert job["options"] == {"params": {"depth": 2}}
    assert told(stored, number) == [(hour(1), "started", None)]
    found = row(stored, number)
    assert (found["next_at"], found["last_due_at"], found["last_job_id"]) == (hour(2), hour(1), job_id)
    (event,) = events_of(stored, type="schedule_started")
    assert (event["job_id"], event["data"]["schedule"]) == (job_id, "hourly")


def test_looking_again_starts_nothing_more(stored: Store, clock: ManualClock) -> None:
    add(stored)
    keep(stored, clock, HOUR)
    keep(stored, clock, 30)
    assert len(started(stored)) == 1


def test_a_clock_that_is_put_back_starts_nothing_twice(stored: Store, clock: ManualClock) -> None:
    number = add(stored, overlap="allow")
    keep(stored, clock, 4 * HOUR)
    before = started(stored)
    clock.advance(-3 * HOUR)
    for _ in range(3):
        keep(stored, clock, HOUR)
    assert started(stored) == before
    # Nor where somebody has it counted anew from the time that is right. What was skipped before it came is open again.
    clock.advance(-4 * HOUR)
    act(stored, engine.resume, number, "nas")
    assert told(stored, number) == [(hour(4), "started", None)]
    for _ in range(5):
        keep(stored, clock, HOUR)
    assert told(stored, number) == [(hour(each), "started", None) for each in range(1, 6)]
    assert len(started(stored)) == 5


def test_an_engine_mends_by_itself_what_a_clock_that_was_ahead_has_done(stored: Store, clock: ManualClock) -> None:
    number, paused = add(stored, overlap="allow"), add(stored, "paused")
    act(stored, engine.pause, paused, "nas")
    keeper = Timekeeper(stored, as_stored)
    keep(stored, clock, HOUR)
    clock.advance(400 * 24 * HOUR)
    keeper.tick()
    far = row(stored, number)["next_at"]
    assert far > hour(400 * 24)
    clock.advance(-400 * 24 * HOUR + 1800)
    keeper.tick()
    assert (row(stored, number)["next_at"], row(stored, paused)["next_at"]) == (hour(2), None)
    first, last = (hour(1), "started", None), (far - timedelta(hours=1), "started", None)
    assert told(stored, number) == [first, last]
    (event,) = events_of(stored, type="schedule_resumed")
    assert "A clock had been ahead" in event["message"]
    keep(stored, clock, HOUR)
    assert told(stored, number) == [first, (hour(2), "started", None), last]


def test_a_clock_that_was_ahead_before_the_engine_began_is_mended_too(stored: Store, clock: ManualClock) -> None:
    number = add(stored, overlap="allow", catch_up="skip")
    keep(stored, clock, 50 * HOUR + 1800)
    assert told(stored, number) == [(hour(1), "skipped", "missed")]
    clock.advance(-48 * HOUR)
    Timekeeper(stored, as_stored).tick()
    assert told(stored, number) == [(hour(1), "skipped", "missed")]
    found = one(stored, sa.select(schedule_runs))
    assert (found["count"], found["last_due_at"]) == (2, hour(2))
    assert row(stored, number)["next_at"] == hour(3)


def test_where_records_were_forgotten_a_schedule_waits_until_those_that_are_left_begin(
    stored: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "KEPT", 3)
    number = add(stored, overlap="allow")
    for _ in range(6):
        keep(stored, clock, HOUR)
    clock.advance(-6 * HOUR)
    keeper = Timekeeper(stored, as_stored)
    keeper.tick()
    assert row(stored, number)["next_at"] == hour(4)
    for _ in range(6):
        clock.advance(HOUR)
        keeper.tick()
    assert len(started(stored)) == 6
    clock.advance(HOUR)
    keeper.tick()
    assert len(started(stored)) == 7


class Ahead(SystemClock):
    def now(self) -> datetime:
        return super().now() + timedelta(days=400)


def test_a_machine_whose_clock_is_ahead_starts_nothing_for_the_others(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    right, wrong = stores(postgres_url), stores(postgres_url, Ahead())
    right.write("workflow", lambda tx: apply_workflow(tx, WORKFLOW))
    by_right, by_wrong = add(right, cron="0 0 1 1 *"), add(wrong, "wrong", cron="0 0 1 1 *")
    assert row(right, by_right)["next_at"] == row(right, by_wrong)["next_at"]
    Timekeeper(wrong, as_stored).tick()
    assert started(right) == []
    assert row(right, by_right)["next_at"] == row(right, by_wrong)["next_at"]


@pytest.mark.parametrize(
    ("catch_up", "starts", "skips"), [("skip", [], 720), ("one", [720], 719), ("all", [718, 719, 720], 717)]
)
def test_a_month_without_an_engine(
    stored: Store, clock: ManualClock, catch_up: str, starts: list[int], skips: int
) -> None:
    number = add(stored, catch_up=catch_up, catch_up_most=3, overlap="allow")
    keep(stored, clock, 720 * HOUR + 1800)
    assert told(stored, number) == [
        (hour(1), "skipped", "missed"),
        *((hour(each), "started", None) for each in starts),
    ]
    query = sa.select(schedule_runs).where(schedule_runs.c.outcome == "skipped")
    assert one(stored, query)["count"] == skips
    assert len(started(stored)) == len(starts)
    assert row(stored, number)["next_at"] == hour(721)


def test_schedules_do_not_stop_each_other(stored: Store, clock: ManualClock) -> None:
    """What can no longer be started is a failed run with its error, and the next time is tried again."""
    gone, fine = add(stored, "gone", workflow="gone"), add(stored, "fine")
    keep(stored, clock, HOUR)
    assert told(stored, gone) == [(hour(1), "failed", "workflow_unknown")]
    assert (
        'no workflow "gone"'
        in one(stored, sa.select(schedule_runs).where(schedule_runs.c.schedule_id == gone))["message"]
    )
    assert told(stored, fine) == [(hour(1), "started", None)]
    assert [event["level"] for event in events_of(stored, type="schedule_failed")] == ["error"]
    act(stored, engine.change, gone, {"workflow": WORKFLOW.name}, "nas")
    keep(stored, clock, HOUR)
    assert [outcome for _, outcome, _ in told(stored, gone)] == ["failed", "started"]


def test_an_order_that_fails_half_way_leaves_no_job(stored: Store, clock: ManualClock) -> None:
    number = add(stored, request={"items": ["fine", {"key": ""}]})
    keep(stored, clock, HOUR)
    assert told(stored, number) == [(hour(1), "failed", "input_invalid")]
    assert started(stored) == []


def test_whatever_preparing_raises_is_what_became_of_the_run(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    clock.advance(HOUR)

    def broken(_: Order) -> Ready:
        raise ZeroDivisionError("no such number")

    keep_time(stored, broken)
    assert told(stored, number) == [(hour(1), "failed", "internal_error")]


def test_what_an_engine_cannot_make_ready_is_left_to_one_that_can(stored: Store, clock: ManualClock) -> None:
    theirs = [add(stored, f"theirs-{each:03}", workflow="full") for each in range(BATCH + 1)]
    mine = add(stored, "zz-mine")
    clock.advance(HOUR)

    def ours(order: Order) -> bool:
        return order.workflow == WORKFLOW.name

    assert keep_time(stored, as_stored, ours=ours) == hour(2)  # and nobody asks again at once for what is left
    assert told(stored, mine) == [(hour(1), "started", None)]
    assert all(row(stored, each)["next_at"] == hour(1) for each in theirs)
    act(stored, engine.run_now, theirs[0], "nas")
    keep_time(stored, as_stored, ours=ours)
    assert [outcome for _, outcome, _ in told(stored, theirs[0])] == ["waiting"]
    act(stored, lambda tx: apply_workflow(tx, named(*WORKFLOW.steps).model_copy(update={"name": "full"})))
    keep(stored, clock)
    assert (hour(1), "started", None) in told(stored, theirs[0])


def test_an_engine_that_was_told_nothing_leaves_what_it_has_no_services_for(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    store = stores(postgres_url)
    other = one_step("collect")
    for each in (WORKFLOW, other):
        store.write("workflow", lambda tx, each=each: apply_workflow(tx, each))  # type: ignore[misc]
    left = [add(store, "full", workflow="full", request={}), add(store, "other", workflow=other.name)]
    number = add(store)
    past = datetime.now(UTC) - timedelta(hours=2)
    store.write("past", lambda tx: tx.conn.execute(sa.update(schedules).values(next_at=past)))

    @service("work")
    def work(_: object) -> None:
        return None

    with Engine(store, [work], SWIFT):
        wait_until(lambda: started(store), "what it has services for")
    assert told(store, number)[-1][1] == "started"
    assert [(told(store, each), row(store, each)["next_at"]) for each in left] == [([], past), ([], past)]


def test_trouble_with_one_order_is_told_without_secrets_and_keeps_nobody_waiting(
    stored: Store, clock: ManualClock
) -> None:
    wrong, fine = add(stored, "a-wrong", workflow="wrong"), add(stored, "fine")
    clock.advance(HOUR)

    def prepare(order: Order) -> Ready:
        if order.workflow == "wrong":
            raise UpstreamFailed(name="the store", problem="http://nas:hunter22@store does not answer")
        return as_stored(order)

    keep_time(stored, prepare, secrets=["hunter22"])
    assert told(stored, wrong) == [(hour(1), "failed", "upstream_failed")]
    (event,) = events_of(stored, type="schedule_failed")
    assert "http://nas:***@store" in event["message"]
    assert told(stored, fine) == [(hour(1), "started", None)]


def test_a_database_that_is_away_is_no_answer(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    clock.advance(HOUR)

    def away(_: Order) -> Ready:
        raise DatabaseUnavailable(problem="it restarts")

    with pytest.raises(DatabaseUnavailable):
        keep_time(stored, away)
    assert told(stored, number) == []
    keep(stored, clock)
    assert told(stored, number) == [(hour(1), "started", None)]


def test_what_is_changed_while_it_is_prepared_is_looked_at_again(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    other = one_step("other")
    stored.write("workflow", lambda tx: apply_workflow(tx, other))
    clock.advance(HOUR)
    changes: list[dict[str, Any]] = [{"workflow": other.name}]

    def prepare(order: Order) -> Ready:
        if changes:
            act(stored, engine.change, number, changes.pop(), "nas")
        return as_stored(order)

    keep_time(stored, prepare)
    assert started(stored) == []
    keep_time(stored, prepare)
    (job_id,) = started(stored)
    (event,) = events_of(stored, type="job_submitted", job_id=job_id)
    assert event["data"]["workflow"] == other.name


def test_a_zone_that_is_no_longer_known_pauses_its_schedule(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    act(stored, lambda tx: tx.conn.execute(sa.update(schedules).values(time_zone="Atlantis/Old_Town")))
    keep(stored, clock, HOUR)
    found = row(stored, number)
    assert (found["paused_by"], found["next_at"]) == ("timekeeper", None)
    assert "Atlantis" in found["pause_reason"]


# --- overlap ----------------------------------------------------------------------------------------


def test_skip_leaves_out_what_is_due_while_the_job_before_it_is_unfinished(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    for _ in range(2):
        keep(stored, clock, HOUR)
    (job_id,) = started(stored)
    assert told(stored, number)[1:] == [(hour(2), "skipped", "overlap")]
    assert f"Job {job_id} was still queued" in events_of(stored, type="schedule_skipped")[0]["message"]
    finish(stored, job_id)
    keep(stored, clock, HOUR)
    assert len(started(stored)) == 2


def test_allow_starts_it_beside_the_other(stored: Store, clock: ManualClock) -> None:
    add(stored, overlap="allow")
    for _ in range(3):
        keep(stored, clock, HOUR)
    assert len(started(stored)) == 3


def test_queue_starts_one_after_the_other(stored: Store, clock: ManualClock) -> None:
    number = add(stored, overlap="queue")
    for _ in range(3):
        keep(stored, clock, HOUR)
    (first,) = started(stored)
    outcomes = [(outcome, reason) for _, outcome, reason in told(stored, number)]
    assert outcomes == [("started", None), ("waiting", "overlap"), ("skipped", "full")]
    finish(stored, first, "failed")
    keep(stored, clock, 1)
    assert [outcome for _, outcome, _ in told(stored, number)] == ["started", "started", "skipped"]
    assert row(stored, number)["last_job_id"] == started(stored)[1]


def test_queue_and_all_start_every_missed_run_in_order(stored: Store, clock: ManualClock) -> None:
    number = add(stored, overlap="queue", catch_up="all", catch_up_most=3)
    keep(stored, clock, 3 * HOUR + 1800)
    for count in range(1, 4):
        assert len(started(stored)) == count
        keep(stored, clock, 1)
        assert len(started(stored)) == count
        finish(stored, started(stored)[-1])
        keep(stored, clock, 1)
    assert told(stored, number) == [(hour(each), "started", None) for each in (1, 2, 3)]


# --- people -----------------------------------------------------------------------------------------


def test_run_now_is_a_run_of_its_own(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    clock.advance(90)
    act(stored, engine.run_now, number, "console@127.0.0.1")
    keep(stored, clock)
    (job_id,) = started(stored)
    assert job_of(stored, job_id)["requested_by"] == "console@127.0.0.1 via schedule hourly"
    assert told(stored, number) == [(DAY + timedelta(seconds=90, microseconds=1), "started", None)]
    assert row(stored, number)["next_at"] == hour(1)
    with pytest.raises(ScheduleBusy, match=f"job {job_id} is still queued"):
        act(stored, engine.run_now, number, "nas")
    finish(stored, job_id)
    clock.advance(1)
    act(stored, engine.pause, number, "nas", "film night")
    act(stored, engine.run_now, number, "nas")
    keep(stored, clock)
    assert len(started(stored)) == 2


def test_a_paused_schedule_starts_nothing_and_misses_nothing(stored: Store, clock: ManualClock) -> None:
    number = add(stored, overlap="queue")
    keep(stored, clock, HOUR)
    keep(stored, clock, HOUR)
    act(stored, engine.pause, number, "nas", "film night")
    assert told(stored, number)[1:] == [(hour(2), "skipped", "paused")]
    keep(stored, clock, 5 * HOUR)
    assert len(started(stored)) == 1
    found = row(stored, number)
    assert (found["paused_by"], found["pause_reason"], found["next_at"]) == ("nas", "film night", None)
    act(stored, engine.resume, number, "nas")
    assert row(stored, number)["next_at"] == hour(8)
    assert len(told(stored, number)) == 2
    assert types_of(stored)[-2:] == ["schedule_paused", "schedule_resumed"]


def test_what_was_due_before_somebody_changed_or_paused_it_is_recorded(stored: Store, clock: ManualClock) -> None:
    changed, paused, resumed = (add(stored, name) for name in ("a", "b", "c"))
    clock.advance(2 * HOUR + 1800)
    act(stored, engine.change, changed, {"cron": "30 * * * *"}, "nas")
    act(stored, engine.pause, paused, "nas")
    act(stored, engine.resume, resumed, "nas")
    keep(stored, clock)
    assert told(stored, changed) == [(hour(1), "skipped", "changed")]
    assert told(stored, paused) == [(hour(1), "skipped", "paused")]
    assert told(stored, resumed) == [(hour(1), "skipped", "missed"), (hour(2), "started", None)]
    counts = [run["count"] for run in every(stored, sa.select(schedule_runs).where(schedule_runs.c.due_at == hour(1)))]
    assert sorted(counts) == [1, 2, 2]
    assert row(stored, changed)["next_at"] == hour(3.5)


def test_a_changed_time_counts_from_now(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    clock.advance(10 * 60)
    act(stored, engine.change, number, {"cron": "*/15 * * * *", "overlap": "queue"}, "nas")
    found = row(stored, number)
    assert (found["cron"], found["overlap"], found["next_at"]) == ("*/15 * * * *", "queue", DAY + timedelta(minutes=15))
    (event,) = events_of(stored, type="schedule_changed")
    assert event["data"]["changed"] == ["cron", "overlap"]


def test_what_cannot_be_is_refused(stored: Store) -> None:
    number = add(stored)
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"name": "hourly"}, ScheduleExists, "already"),
        ({"name": " "}, InputInvalid, "name"),
        ({"name": "a/b"}, InputInvalid, "name"),
        ({"name": "12"}, InputInvalid, "name"),
        ({"cron": "99 * * * *"}, CronInvalid, "minute"),
        ({"time_zone": "Berlin"}, InputInvalid, "time zone"),
        ({"catch_up": "twice"}, InputInvalid, "catch-up"),
        ({"overlap": "maybe"}, InputInvalid, "overlap"),
        ({"catch_up": "all"}, InputInvalid, "overlap"),
        ({"catch_up_most": 0}, InputInvalid, "1 to 1,000"),
        ({"priority": 10**7}, InputInvalid, "priority"),
        ({"workflow": ""}, InputInvalid, "template or a workflow"),
        ({"request": {"scoop": {}}}, InputInvalid, "scope"),
        ({"request": {"items": "k"}}, InputInvalid, "items must be a list"),
    ]
    for said, error, words in wrong:
        with pytest.raises(error, match=words):
            add(stored, **{"name": "other", **said})
    other = add(stored, "other")
    with pytest.raises(ScheduleExists):
        act(stored, engine.change, other, {"name": "hourly"}, "nas")
    act(stored, engine.remove, number, "nas")
    for work in (engine.pause, engine.resume, engine.remove, engine.run_now):
        with pytest.raises(NotFound):
            act(stored, work, number, "nas")


def test_removing_one_keeps_its_jobs(stored: Store, clock: ManualClock) -> None:
    number = add(stored)
    keep(stored, clock, HOUR)
    act(stored, engine.remove, number, "nas")
    keep(stored, clock, HOUR)
    assert (told(stored, number), len(started(stored))) == ([], 1)


def test_the_last_thousand_runs_are_kept(stored: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.KEPT == 1000
    monkeypatch.setattr(kept, "KEPT", 3)
    number = add(stored, overlap="allow")
    for _ in range(6):
        keep(stored, clock, HOUR)
    assert [due for due, _, _ in told(stored, number)] == [hour(each) for each in (4, 5, 6)]


# --- many engines, and none ---------------------------------------------------------------------------


def test_engines_at_once_start_each_run_once(
    stored: Store, database_url: str, stores: Callable[..., Store], clock: ManualClock
) -> None:
    numbers = [add(stored, f"s{each}", overlap="allow", catch_up="all") for each in range(4)]
    clock.advance(5 * HOUR + 1800)
    others = [stored, *(stores(database_url, clock) for _ in range(2 if stored.shared else 1))]
    gate = threading.Barrier(len(others))

    def work(store: Store) -> None:
        gate.wait()
        while keep_time(store, as_stored) <= clock.now():  # type: ignore[operator]
            pass

    threads = [threading.Thread(target=work, args=(each,)) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in numbers:
        assert told(stored, number) == [(hour(each), "started", None) for each in range(1, 6)]
    assert len(started(stored)) == 20
    of_runs = [run["job_id"] for run in every(stored, sa.select(schedule_runs))]
    assert sorted(of_runs) == started(stored)


PROGRAM = """
import sys
from datetime import datetime
from dalsegno import open_store
from dalsegno.clock import ManualClock
from dalsegno.engine.orders import as_stored
from dalsegno.engine.timekeeper import keep_time
keep_time(open_store(sys.argv[1], ManualClock(datetime.fromisoformat(sys.argv[2]))), as_stored)
"""


@pytest.mark.parametrize("edge", ["before", "after"])
def test_a_kill_at_any_commit_starts_nothing_twice_and_loses_nothing(
    stored: Store, database_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, edge: str
) -> None:
    number = add(stored, overlap="allow", catch_up="all", catch_up_most=3)
    clock.advance(5 * HOUR + 1800)
    command = [sys.executable, "-c", PROGRAM, database_url, clock.now().isoformat()]
    for visit in (1, 2):
        monkeypatch.setenv("DALSEGNO_FAULT", f"schedule.commit.{edge}:{visit}")
        assert subprocess.run(command, timeout=60, check=False).returncode == -9
    keep(stored, clock)
    assert told(stored, number) == [
        (hour(1), "skipped", "missed"),
        *((hour(each), "started", None) for each in (3, 4, 5)),
    ]
    assert len(started(stored)) == 3


def test_an_engine_keeps_time_by_itself(store: Store) -> None:
    """Real time: what was missed is made up for at once, and a run that is asked for is taken up."""
    store.write("workflow", lambda tx: apply_workflow(tx, WORKFLOW))

    @service("work")
    def work(_: object) -> None:
        return None

    number = add(store, request={"items": ["k"]})
    past = datetime.now(UTC) - timedelta(hours=2)
    store.write("past", lambda tx: tx.conn.execute(sa.update(schedules).values(next_at=past)))
    with Engine(store, [work], replace(SWIFT, prepare=None)):
        pass
    assert started(store) == []
    with Engine(store, [work], SWIFT):
        wait_until(lambda: started(store), "the missed run")
        wait_until(lambda: job_of(store, started(store)[0])["status"] == "completed", "its job")
        act(store, engine.run_now, number, "nas")
        wait_until(lambda: len(started(store)) == 2, "the run that was asked for")
