"""The engine as a whole: starting, stopping, one at a time on SQLite, and a database that goes away."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, Store, service, submit
from dalsegno.errors import EngineAlreadyRunning
from dalsegno.store.schema import leases, processes, workers
from tests.conftest import Postgres
from tests.helpers import (
    SWIFT,
    assert_sound,
    chain,
    every,
    items_of,
    keys,
    one_step,
    run_job,
    stage_of,
    status_of,
    statuses_of,
    wait_for_job,
    wait_until,
)


@service("work", workers=4)
def work(item: Item) -> dict[str, Any]:
    return {"made": item.key}


def test_a_thousand_items_go_through_once_each(store: Store) -> None:
    ran: list[str] = []

    @service("work", workers=8)
    def count(item: Item) -> None:
        ran.append(item.key)

    job = submit(store, one_step(), items=keys(1000)).job_id
    assert run_job(store, [count], job) == "completed"
    assert sorted(ran) == keys(1000)
    assert_sound(store, job)


def test_an_idle_engine_picks_up_new_work_without_being_told(store: Store) -> None:
    with Engine(store, [work], SWIFT):
        for _ in range(3):
            job = submit(store, one_step(), items=keys(2)).job_id
            assert wait_for_job(store, job) == "completed"


def test_work_submitted_by_another_process_is_picked_up(store: Store, database_url: str) -> None:
    program = (
        "import sys; from dalsegno import *; s = open_store(sys.argv[1]);"
        "print(submit(s, Workflow(name='w', steps=[Step(key='a', service='work')]), items=['x']).job_id); s.close()"
    )
    with Engine(store, [work], SWIFT):
        done = subprocess.run(
            [sys.executable, "-c", program, database_url], capture_output=True, text=True, check=True, timeout=60
        )
        assert wait_for_job(store, int(done.stdout)) == "completed"


# --- stopping -----------------------------------------------------------------------------------


def test_stopping_lets_running_items_finish_and_gives_the_rest_back(store: Store) -> None:
    inside = threading.Semaphore(0)
    leave = threading.Event()

    @service("work", workers=2)
    def slow(item: Item) -> str:
        inside.release()
        assert leave.wait(30)
        return "finished"

    job = submit(store, one_step(max_attempts=1), items=keys(10)).job_id
    engine = Engine(store, [slow], SWIFT).start()
    assert inside.acquire(timeout=30)
    assert inside.acquire(timeout=30)
    clean: list[bool] = []
    stopper = threading.Thread(target=lambda: clean.append(engine.stop(drain_seconds=30)))
    stopper.start()
    wait_until(lambda: statuses_of(store, job)["claimed"] == 0, "the claimed to be given back")
    leave.set()
    stopper.join(30)
    assert clean == [True]
    assert statuses_of(store, job) == {"succeeded": 2, "pending": 8}
    assert {(row["attempt"], row["interruptions"]) for row in items_of(store, job)} == {(0, 0)}
    assert every(store, sa.select(leases)) == every(store, sa.select(processes)) == []
    assert every(store, sa.select(workers)) == []
    assert_sound(store, job)
    assert run_job(store, [work], job) == "completed"


def test_what_still_runs_at_the_deadline_is_interrupted_without_cost(store: Store) -> None:
    begun, leave = threading.Event(), threading.Event()
    told: list[bool] = []

    @service("work", workers=1)
    def endless(item: Item) -> None:
        begun.set()
        wait_until(lambda: item.cancelled, "the item to be told")
        told.append(True)
        leave.wait(30)

    job = submit(store, one_step(max_attempts=1), items=keys(3)).job_id
    engine = Engine(store, [endless], SWIFT).start()
    assert begun.wait(30)
    assert engine.stop(drain_seconds=0.1) is False
    first, *rest = items_of(store, job)
    assert (first["status"], first["attempt"], first["interruptions"]) == ("interrupted", 0, 1)
    assert {row["status"] for row in rest} == {"pending"}
    assert every(store, sa.select(leases)) == []
    leave.set()
    wait_until(lambda: told, "the handler to notice")
    assert_sound(store, job)
    assert run_job(store, [work], job) == "completed"
    assert_sound(store, job)


def test_stopping_twice_or_without_a_start_is_harmless(store: Store) -> None:
    engine = Engine(store, [work], SWIFT)
    assert engine.stop() is True
    engine.start()
    assert engine.stop() is True
    assert engine.stop() is True


def test_stopping_in_the_middle_of_a_busy_run_loses_nothing(store: Store) -> None:
    ran: list[str] = []

    @service("work", workers=4)
    def count(item: Item) -> None:
        ran.append(item.key)

    job = submit(store, chain("work", "work", follow="each"), items=keys(1500)).job_id
    for target in (50, 400, 1000):
        with Engine(store, [count], SWIFT):
            wait_until(lambda target=target: len(ran) >= target, f"{target} items")
        assert_sound(store, job)
        assert statuses_of(store, job)["interrupted"] == 0
    assert run_job(store, [count], job) == "completed"
    assert len(ran) == 3000, "a finished item ran again"
    assert_sound(store, job)


# --- one engine on SQLite, many on PostgreSQL ------------------------------------------------------


def test_a_second_engine_on_the_same_file_is_refused(sqlite_url: str, stores: Callable[..., Store]) -> None:
    import os

    first, second = stores(sqlite_url), stores(sqlite_url)
    with Engine(first, [work], SWIFT):
        with pytest.raises(EngineAlreadyRunning, match=str(os.getpid())) as caught:
            Engine(second, [work], SWIFT).start()
        assert "dalsegno submit" in str(caught.value)
        job = submit(second, one_step(), items=keys(3)).job_id
        assert wait_for_job(second, job) == "completed"
    with Engine(second, [work], SWIFT):
        job = submit(first, one_step(), items=keys(3)).job_id
        assert wait_for_job(first, job) == "completed"


def test_a_second_engine_in_another_process_is_refused(sqlite_url: str, stores: Callable[..., Store]) -> None:
    program = (
        "import sys; from dalsegno import *; from dalsegno.errors import EngineAlreadyRunning\n"
        "try: Engine(open_store(sys.argv[1]), []).start()\n"
        "except EngineAlreadyRunning as error: print(error); sys.exit(7)"
    )
    with Engine(stores(sqlite_url), [work], SWIFT):
        done = subprocess.run(
            [sys.executable, "-c", program, sqlite_url], capture_output=True, text=True, check=False, timeout=60
        )
    assert (done.returncode, "one engine at a time" in done.stdout) == (7, True), done


def test_two_engines_on_postgresql_share_the_work(postgres_url: str, stores: Callable[..., Store]) -> None:
    ran: list[tuple[str, str]] = []
    both = threading.Barrier(2, timeout=30)

    def counting(name: str) -> Any:
        first = threading.Event()

        @service("work", workers=1)
        def count(item: Item) -> None:
            if not first.is_set():
                first.set()
                both.wait()
            ran.append((name, item.key))

        return count

    one, other = stores(postgres_url), stores(postgres_url)
    job = submit(one, one_step(), items=keys(300)).job_id
    with Engine(one, [counting("one")], SWIFT), Engine(other, [counting("other")], SWIFT):
        assert wait_for_job(one, job) == "completed"
    assert sorted(key for _, key in ran) == keys(300)
    assert {name for name, _ in ran} == {"one", "other"}
    assert_sound(one, job)


# --- a database that goes away --------------------------------------------------------------------


class Counted:
    """A service that counts, and calls back when it has seen so many."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.service = service("work", workers=4)(self._work)

    def _work(self, item: Item) -> None:
        self.ran.append(item.key)


def cut_all(postgres: Postgres) -> int:
    """What a crashed backend or an administrator does to every connection of ours."""
    with postgres.admin() as admin:
        found = admin.execute(
            "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'dalsegno%' AND pid <> pg_backend_pid()) AS cut"
        ).fetchone()
    assert found is not None
    return found[0]


def steadily(store: Store, job: int) -> str:
    """The job's status, also while connections are being cut."""
    try:
        return status_of(store, job)
    except Exception:
        return "away"


def test_cutting_every_connection_during_a_run_strands_nothing(
    postgres: Postgres, postgres_url: str, stores: Callable[..., Store]
) -> None:
    store, watcher = stores(postgres_url), stores(postgres_url)
    counted, cut = Counted(), 0
    job = submit(store, chain("work", "work", follow="each"), items=keys(1500)).job_id
    with Engine(store, [counted.service], SWIFT):
        for target in range(100, 2600, 250):
            wait_until(lambda target=target: len(counted.ran) >= target, f"{target} items", timeout=60)
            cut += cut_all(postgres)
        wait_until(lambda: steadily(watcher, job) == "completed", "the job to complete", timeout=60)
        wait_until(lambda: not every(watcher, sa.select(leases)), "the leases to end", timeout=60)
    assert cut > 0
    assert statuses_of(watcher, job) == {"succeeded": 3000}
    assert set(counted.ran) == set(keys(1500))
    assert_sound(watcher, job)


def test_a_server_restart_during_a_run_strands_nothing(
    postgres: Postgres, postgres_url: str, stores: Callable[..., Store]
) -> None:
    store = stores(postgres_url)
    counted = Counted()
    job = submit(store, one_step(), items=keys(3000)).job_id
    with Engine(store, [counted.service], SWIFT):
        for target in (200, 1500):
            wait_until(lambda target=target: len(counted.ran) >= target, f"{target} items", timeout=60)
            postgres.restart()
        wait_until(lambda: steadily(store, job) == "completed", "the job to complete", timeout=60)
    assert statuses_of(store, job) == {"succeeded": 3000}
    assert stage_of(store, job)["succeeded"] == 3000
    assert_sound(store, job)


def test_an_engine_that_listens_again_hears_new_work(
    postgres: Postgres, postgres_url: str, stores: Callable[..., Store]
) -> None:
    store, other = stores(postgres_url), stores(postgres_url)
    with Engine(store, [work], SWIFT):
        first = submit(other, one_step(), items=keys(1)).job_id
        wait_for_job(other, first)
        cut_all(postgres)

        def submitted() -> int:
            try:
                return submit(other, one_step(), items=keys(2)).job_id
            except Exception:
                return 0

        job = wait_until(submitted, "the other side to be connected again")
        wait_until(lambda: steadily(other, job) == "completed", "the job to complete")


def test_without_notify_polling_is_enough(postgres_url: str, stores: Callable[..., Store]) -> None:
    """As behind PgBouncer in transaction mode: nobody hears anything."""
    store = stores(postgres_url)
    other = stores(postgres_url, channel="another_")
    with Engine(store, [work], SWIFT):
        job = submit(other, one_step(), items=keys(2)).job_id
        assert wait_for_job(other, job) == "completed"


def test_the_roster_says_who_works_on_what(store: Store) -> None:
    leave = threading.Event()

    @service("work", workers=2)
    def slow(item: Item) -> None:
        item.progress(0.25, "quarter")
        assert leave.wait(30)

    job = submit(store, one_step(), items=["k"]).job_id
    with Engine(store, [slow], SWIFT):
        busy = wait_until(
            lambda: [row for row in every(store, sa.select(workers)) if row["status"] == "busy"], "a busy worker"
        )
        assert [(row["service"], row["job_id"]) for row in busy] == [("work", job)]
        (process,) = every(store, sa.select(processes))
        assert process["node"] == "test"
        leave.set()
        wait_for_job(store, job)
    assert every(store, sa.select(workers)) == []


def test_a_connection_error_is_a_psycopg_error_no_more(postgres_url: str, stores: Callable[..., Store]) -> None:
    """What a caller sees when its connection is cut is one of ours, with what to do."""
    from dalsegno.errors import DatabaseUnavailable

    store = stores(postgres_url)

    def suicide(tx: Any) -> None:
        tx.raw.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(DatabaseUnavailable, match="does not answer") as caught:
        store.write("test", suicide)
    assert not isinstance(caught.value, psycopg.Error)
    wait_until(lambda: steadily_works(store), "the store to work again")


def steadily_works(store: Store) -> bool:
    try:
        store.write("test", lambda _tx: None)
    except Exception:
        return False
    return True


def test_services_are_closed_when_their_engine_has_stopped_and_a_fault_there_stops_nothing(store: Store) -> None:
    closed: list[str] = []

    def fail() -> None:
        closed.append("first")
        raise OSError("no")

    first, second = service("first")(lambda item: None), service("second")(lambda item: None)
    first.closing, second.closing = fail, lambda: closed.append("second")
    with Engine(store, [first, second], SWIFT):
        assert closed == []
    assert closed == ["first", "second"]
