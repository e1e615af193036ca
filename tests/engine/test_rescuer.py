"""A process dies: what it had only claimed costs nothing, what it had begun is interrupted, nobody is stranded."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, Lane, Store, Workflow, service, submit
from dalsegno.clock import this_host
from dalsegno.engine.claimer import _stage_infos
from dalsegno.engine.planner import advance
from dalsegno.engine.rescuer import rescue, rescue_all
from dalsegno.engine.scheduler import sweep
from dalsegno.store.schema import leases, processes, workers
from tests.helpers import (
    SWIFT,
    admit,
    assert_sound,
    begin,
    claim,
    command,
    events_of,
    every,
    item_of,
    items_of,
    job_of,
    keys,
    lane_of,
    one_step,
    register,
    run_job,
    settle,
    status_of,
    statuses_of,
    submitted,
    types_of,
    wait_until,
    work_off,
)

CATALOG = Lane(name="catalog")


@service("work", workers=2)
def work(item: Item) -> None:
    return None


def test_what_was_only_claimed_returns_as_if_never_touched(store: Store) -> None:
    me, dead = register(store), register(store)
    job = submitted(store, items=3).job_id
    claim(store, dead, 2)
    rescue(store, dead)
    assert statuses_of(store, job) == {"pending": 3}
    assert {(row["attempt"], row["interruptions"], row["error_code"]) for row in items_of(store, job)} == {(0, 0, None)}
    assert [item.key for item in claim(store, me, 3)] == keys(3)
    assert_sound(store, job)


def test_what_had_begun_is_interrupted_at_no_cost_and_goes_on_by_itself(store: Store) -> None:
    me, dead = register(store), register(store)
    job = submitted(store, one_step(max_attempts=1), items=2).job_id
    begin(store, claim(store, dead))
    rescue(store, dead)
    first = item_of(store, job, keys(1)[0])
    assert (first["status"], first["attempt"], first["interruptions"]) == ("pending", 0, 1)
    trail = types_of(store, item_id=first["id"])
    assert trail == ["item_claimed", "item_started", "item_interrupted", "item_requeued"]
    assert status_of(store, job) == "running"
    assert len(work_off(store, me)) == 2
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_rescuing_twice_changes_nothing(store: Store) -> None:
    dead = register(store)
    job = submitted(store, items=2).job_id
    begin(store, claim(store, dead))
    rescue(store, dead)
    before = items_of(store, job), len(events_of(store))
    rescue(store, dead)
    assert (items_of(store, job), len(events_of(store))) == before


def test_the_catalog_lane_pauses_after_a_crash_and_is_held_until_resumed(store: Store) -> None:
    dead = register(store)
    workflow = one_step(lane=CATALOG)
    job = submitted(store, workflow, items=3).job_id
    waiting = submit(store, workflow, items=keys(1)).job_id
    begin(store, claim(store, dead, 2)[:1])
    rescue(store, dead)
    assert status_of(store, job) == "paused"
    assert job_of(store, job)["pause_reason"] == "crash recovery"
    assert statuses_of(store, job) == {"interrupted": 1, "pending": 2}
    assert lane_of(store, "catalog")["held_reason"] == "crash recovery"
    admit(store)
    assert status_of(store, waiting) == "queued"
    assert "recovery" in types_of(store, job_id=job)
    command(store, "resume", job_id=job)
    assert lane_of(store, "catalog")["held_at"] is None
    assert statuses_of(store, job) == {"pending": 3}
    assert run_job(store, [work], waiting) == "completed"
    assert status_of(store, job) == "completed"
    assert_sound(store, job, waiting)


def test_a_lane_that_pauses_does_so_even_if_its_job_held_nothing(store: Store) -> None:
    dead = register(store)
    job = submitted(store, one_step(lane=CATALOG), items=1).job_id
    rescue(store, dead)
    assert status_of(store, job) == "paused"


def test_a_poison_item_fails_after_its_interruptions_are_used_up(store: Store) -> None:
    job = submitted(store, one_step(max_interruptions=3), items=2).job_id
    for round_ in range(3):
        dead = register(store)
        (item,) = claim(store, dead)
        assert item.interruptions == round_
        begin(store, [item])
        rescue(store, dead)
    poison, other = items_of(store, job)
    assert (poison["status"], poison["error_code"], poison["attempt"]) == ("failed", "interrupted_too_often", 0)
    assert "3 times" in poison["error_message"]
    work_off(store, register(store))
    assert status_of(store, job) == "completed_with_errors"
    assert other["status"] == "pending"
    assert_sound(store, job)


def test_only_begun_leases_count_towards_the_cap(store: Store) -> None:
    job = submitted(store, one_step(max_interruptions=1), items=1).job_id
    for _ in range(5):
        dead = register(store)
        claim(store, dead)
        rescue(store, dead)
    assert items_of(store, job)[0]["interruptions"] == 0
    assert statuses_of(store, job) == {"pending": 1}


def test_a_success_clears_the_count_of_interruptions(store: Store) -> None:
    me, dead = register(store), register(store)
    job = submitted(store, items=1).job_id
    begin(store, claim(store, dead))
    rescue(store, dead)
    settle(store, claim(store, me), interruptions=0)
    assert items_of(store, job)[0]["interruptions"] == 0


def test_a_process_whose_lease_ran_out_is_found_and_one_that_beats_is_left(store: Store) -> None:
    me, silent, alive = register(store), register(store), register(store)

    def silence(tx: object) -> None:
        past = store.clock.now() - timedelta(seconds=5)
        elsewhere = {"host": "another machine", "pid": 1}
        tx.conn.execute(sa.update(processes).where(processes.c.id == silent).values(lease_until=past, **elsewhere))
        tx.conn.execute(sa.update(processes).where(processes.c.id == alive).values(**elsewhere))

    store.write("test", silence)
    job = submitted(store, items=4).job_id
    begin(store, claim(store, silent, 2))
    claim(store, alive, 2)
    assert rescue_all(store, me) == 1
    assert statuses_of(store, job) == {"pending": 2, "claimed": 2}
    assert [row["id"] for row in every(store, sa.select(processes.c.id))] == [me, alive]
    assert store.write("beat", lambda tx: tx.hot.renew(tx, silent, 60)) is False
    assert store.write("beat", lambda tx: tx.hot.renew(tx, alive, 60)) is True
    assert_sound(store, job)


def test_a_dead_process_of_this_machine_is_found_before_its_lease_runs_out(store: Store) -> None:
    me, gone = register(store), register(store)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead = sa.update(processes).where(processes.c.id == gone).values(pid=child.pid, host=this_host())
    store.write("test", lambda tx: tx.conn.execute(dead))
    assert rescue_all(store, me) == 1


def test_a_dead_process_of_another_container_is_not_judged_by_its_pid(store: Store) -> None:
    me, there = register(store), register(store)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    other = sa.update(processes).where(processes.c.id == there).values(pid=child.pid, host="elsewhere")
    store.write("test", lambda tx: tx.conn.execute(other))
    assert rescue_all(store, me) == 0


def test_more_leases_than_one_batch_are_rescued(store: Store) -> None:
    dead = register(store)
    job = submitted(store, items=1300).job_id
    held = [item for _ in range(3) for item in claim(store, dead, 500)]
    begin(store, held[:600])
    rescue(store, dead)
    assert statuses_of(store, job) == {"pending": 1300}
    assert_sound(store, job)


def test_an_engine_that_starts_recovers_what_the_last_one_left(store: Store) -> None:
    dead = register(store)
    job = submitted(store, items=5).job_id
    begin(store, claim(store, dead, 2))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    store.write("test", lambda tx: tx.conn.execute(sa.update(processes).values(pid=gone.pid)))
    assert run_job(store, [work], job) == "completed"
    assert statuses_of(store, job) == {"succeeded": 5}
    assert_sound(store, job)


def test_the_sweep_finishes_what_a_crash_left_between_two_transactions(store: Store) -> None:
    me = register(store)
    job = submitted(store, items=2).job_id
    settle(store, claim(store, me, 2), then=False)  # died before it could advance the job
    assert status_of(store, job) == "running"
    sweep(store)
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_the_sweep_requeues_interruptions_nobody_requeued(store: Store) -> None:
    me = register(store)
    job = submitted(store, items=2).job_id
    settle(store, claim(store, me), "interrupted", interruptions=1)
    assert statuses_of(store, job) == {"interrupted": 1, "pending": 1}
    sweep(store)
    assert statuses_of(store, job) == {"pending": 2}
    assert_sound(store, job)


def test_an_engine_declared_dead_starts_over_and_finishes_its_work(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    """A node that slept: another one took its leases while it was away."""
    store = stores(postgres_url)
    asleep, awake = threading.Event(), threading.Event()
    runs: list[str] = []

    @service("work", workers=1)
    def sleepy(item: Item) -> str:
        runs.append(item.key)
        number = len(runs)
        if number == 1:
            asleep.set()
            assert awake.wait(30)
        return f"run {number}"

    job = submit(store, one_step(), items=["k"]).job_id
    with Engine(store, [sleepy], SWIFT) as engine:
        assert asleep.wait(30)
        engine._settler.wake()
        wait_until(lambda: statuses_of(store, job)["running"], "the begin to be written")
        rescue(store, engine._heart.process_id)
        engine._heart.wake()
        wait_until(lambda: len(every(store, sa.select(processes))) == 1, "the engine to register again")
        awake.set()

        def finished() -> bool:
            engine._rescuer.wake()  # what was claimed under the dead process's name is nobody's
            return status_of(store, job) == "completed"

        wait_until(finished, "the job to be completed")
    # Once when it slept, once for good; and once more if it claimed under its old name before it learned of its death.
    assert runs in (["k", "k"], ["k", "k", "k"])
    assert items_of(store, job)[0]["result"] == f"run {len(runs)}", "the late finish of an earlier run was refused"
    assert_sound(store, job)


@pytest.mark.parametrize("lost", ["claimed", "running"])
def test_a_canceled_job_whose_worker_died_ends_all_the_same(store: Store, lost: str) -> None:
    from dalsegno.engine.scheduler import cancel_some

    dead = register(store)
    job = submitted(store, items=3).job_id
    held = claim(store, dead)
    if lost == "running":
        begin(store, held)
    command(store, "cancel", job_id=job)
    cancel_some(store)
    assert status_of(store, job) == "running"
    rescue(store, dead)
    cancel_some(store)
    store.write("advance", lambda tx: advance(tx, [job]))
    assert status_of(store, job) == "canceled"
    assert statuses_of(store, job) == {"canceled": 3}
    assert_sound(store, job)


def test_who_was_declared_dead_does_not_report_its_workers(store: Store) -> None:
    engine = Engine(store, [work], SWIFT)  # not started: nobody beats
    engine._heart.register({})
    engine.pools["work"]._threads["work-1"] = threading.current_thread()
    engine._roster.report()
    assert len(every(store, sa.select(workers))) == 1
    rescue(store, engine._heart.process_id)
    engine.pools["work"]._threads["work-2"] = threading.current_thread()
    engine._roster.report()
    assert every(store, sa.select(workers)) == []


def test_what_comes_back_is_written_down_together_before_it_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit for each of the thousands that a dead process had taken would be the slowest way to go on."""
    job = left_behind(store, 1000)
    commits: list[str] = []
    write = store.write
    monkeypatch.setattr(store, "write", lambda name, work: (commits.append(name), write(name, work))[1])
    unwritten: list[str] = []

    @service("work", workers=2)
    def quick(item: Item) -> None:
        if not item.begun:
            unwritten.append(item.key)

    assert run_job(store, [quick], job) == "completed"
    assert not unwritten
    assert 1 <= commits.count("begin") < 500
    assert types_of(store, job_id=job).count("item_started") == 1000
    assert_sound(store, job)


def test_what_was_written_down_ahead_can_still_be_taken_back(store: Store) -> None:
    job = left_behind(store, 400)
    stopped, go_on = threading.Event(), threading.Event()
    runs: list[str] = []

    @service("work", workers=1)
    def work(item: Item) -> None:
        runs.append(item.key)
        if len(runs) == 200:
            stopped.set()
            assert go_on.wait(30)

    with Engine(store, [work], SWIFT):
        assert stopped.wait(30)
        wait_until(lambda: statuses_of(store, job)["succeeded"] == 199, "the others to be settled")
        assert statuses_of(store, job)["running"] > 1, "some are written down ahead"
        named = every(store, sa.select(leases.c.item_id).where(leases.c.worker.is_not(None)))
        assert len(named) <= 1, "nobody works on those that wait"
        command(store, "pause", job_id=job)
        wait_until(lambda: statuses_of(store, job) == {"succeeded": 199, "running": 1, "pending": 200}, "a way back")
        go_on.set()
        wait_until(lambda: status_of(store, job) == "paused", "the pause")
        command(store, "resume", job_id=job)
        wait_until(lambda: status_of(store, job) == "completed", "the end")
    assert sorted(runs) == keys(400), "each ran once"
    assert_sound(store, job)


@pytest.mark.parametrize("how", ["taken back", "given back", "given up"])
def test_no_lease_ends_while_it_may_be_beginning(store: Store, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """PostgreSQL would count it as claimed although it runs, or find the two waiting for each other."""

    @service("work")
    def work(item: Item) -> None:
        """Never called: what waits in the pool may be written down as begun by the worker of another item."""

    engine = Engine(store, [work], SWIFT)
    pool, settler = engine.pools["work"], engine._settler
    job = submitted(store, one_step(timeout=1.0)).job_id
    (row,) = claim(store, register(store))
    item = Item(row, store.read(lambda tx: _stage_infos(tx, {row.stage_id}))[row.stage_id])
    settler.hold([item])
    if how == "taken back":
        pool.feed([item])
        command(store, "pause", job_id=job)
        engine._claimer._take_back_closed()
    elif how == "given back":
        pool.feed([item])
        engine._give_back(pool)
    else:
        item.started_at = store.clock.now() - timedelta(minutes=1)
        pool.running["work-1"] = item
        settler._time_out(pool, "work-1", item)
    alone: list[bool] = []
    write = store.write

    def watched(name: str, work: Any) -> Any:
        if name == "settle":
            alone.append(settler.beginning.lock.locked())
        return write(name, work)

    monkeypatch.setattr(store, "write", watched)
    settler.flush()
    pool.stop()
    assert alone == [True]
    assert statuses_of(store, job) == {"pending": 3}
    assert_sound(store, job)


@pytest.mark.parametrize(("interrupted", "most"), [(True, 20), (False, 2), (False, 9)])
def test_nothing_is_written_down_ahead_that_another_death_would_cost_something(
    store: Store, interrupted: bool, most: int
) -> None:
    job = left_behind(store, 100, one_step(max_interruptions=most), begun=interrupted)
    before = types_of(store, job_id=job).count("item_started")
    begun: list[int] = []

    @service("work", workers=1)
    def work(item: Item) -> None:
        begun.append(types_of(store, job_id=job).count("item_started") - before)

    engine = Engine(store, [work], SWIFT)
    engine.pools["work"]._mean = 0.0  # as quick as can be
    with engine:
        wait_until(lambda: status_of(store, job) == "completed", "the end")
    assert begun == list(range(1, 101)), "each when its turn came"
    assert_sound(store, job)


def left_behind(store: Store, count: int, workflow: Workflow | None = None, *, begun: bool = False) -> int:
    """A job all of whose items a process had taken that died."""
    dead = register(store)
    job = submitted(store, workflow, items=count).job_id
    held = claim(store, dead, count)
    assert len(held) == count
    if begun:
        begin(store, held)
    rescue(store, dead)
    return job
