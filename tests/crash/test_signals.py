"""SIGTERM, one dead of two, poison, and an engine too many."""

from __future__ import annotations

import signal
from collections.abc import Callable

import sqlalchemy as sa

from dalsegno.store.schema import events
from tests.crash.harness import KILLED, Harness, eventually
from tests.crash.program import EXIT_LATE, EXIT_REFUSED
from tests.stateful.audit import Picture, check


def event_types(harness: Harness) -> set[str]:
    with harness.store() as store:
        return set(store.read(lambda tx: tx.conn.execute(sa.select(events.c.type).distinct()).scalars().all()))


def test_a_sigterm_lets_what_has_begun_finish_and_gives_back_the_rest(harness: Harness) -> None:
    child = harness.start(work=0.3)
    eventually("something begins", lambda: harness.begun(child.pid))
    child.terminate()
    assert child.wait() == 0, child.said()
    picture = harness.look()
    check(picture)
    assert not picture.leases
    assert not picture.processes
    assert {item["status"] for item in picture.items.values()} <= {"pending", "succeeded"}
    assert "item_interrupted" not in event_types(harness)
    lines = harness.journal()
    assert {line[1] for line in lines if line[0] == "begin"} == {line[1] for line in lines if line[0] == "end"}
    harness.note_kill()
    assert harness.start().wait() == 0, harness.children[-1].said()
    harness.judge()


def test_a_drain_that_runs_out_of_time_interrupts_without_cost(harness: Harness) -> None:
    child = harness.start(work=60, drain=0.2)
    eventually("something begins", lambda: harness.begun(child.pid))
    child.terminate()
    assert child.wait() == EXIT_LATE, child.said()
    picture = harness.look()
    check(picture)
    assert not picture.leases
    assert not picture.processes
    stopped = [item for item in picture.items.values() if item["status"] == "interrupted"]
    assert len(stopped) == len(set(harness.begun()))
    assert {item["attempt"] for item in picture.items.values()} == {0}
    assert harness.start().wait() == 0, harness.children[-1].said()
    harness.judge()


def test_a_second_sigterm_ends_at_once_and_everything_is_recovered(harness: Harness) -> None:
    child = harness.start(work=60)
    eventually("something begins", lambda: harness.begun(child.pid))
    child.terminate()
    eventually("it drains", lambda: harness.said("draining", child.pid))
    child.terminate()
    assert child.wait(5) == 128 + signal.SIGTERM
    harness.note_kill()
    assert harness.start().wait() == 0, harness.children[-1].said()
    harness.judge()


def test_a_restart_on_the_same_host_rescues_at_once(harness: Harness) -> None:
    """The lease would run for ten minutes more; the dead pid is seen by who comes next."""
    child = harness.start(work=60, lease=600)
    eventually("its begin is written down", lambda: harness.look().stages and running(harness))
    child.kill()
    kill = harness.note_kill()
    assert kill.running
    assert harness.start(lease=600).wait(30) == 0, harness.children[-1].said()
    harness.judge()


def running(harness: Harness) -> bool:
    return any(item["status"] == "running" for item in harness.look().items.values())


def test_when_one_of_two_engines_is_killed_the_other_finishes_everything(
    postgres_url: str, harnesses: Callable[[str], Harness]
) -> None:
    harness = harnesses(postgres_url)
    first = harness.start(items=120, work=0.03, lease=6)
    eventually("the first begins", lambda: harness.begun(first.pid))
    second = harness.start(items=120, work=0.03, lease=6)
    eventually("both work", lambda: harness.begun(first.pid) and harness.begun(second.pid))
    first.kill()
    assert second.wait() == 0, second.said()
    picture = harness.look()
    check(picture)
    assert {item["status"] for item in picture.items.values()} == {"succeeded"}
    assert {job["status"] for job in picture.jobs.values()} == {"completed"}
    assert len(picture.items) == 120 + 120 + 24 + 2
    assert not picture.leases
    assert not picture.processes


def run_with_poison(harness: Harness, key: str) -> Picture:
    """Restart until the job ends; the item `key` kills its process whenever it runs, and may do so three times."""
    deaths = 0
    while (code := harness.start(poison=key).wait()) != 0:
        assert code == KILLED
        deaths += 1
        assert deaths <= 4, "a poison item loops"
    # The first delivery is not written down as begun before its handler runs, so that death may cost nothing.
    assert deaths in (3, 4)
    picture = harness.look()
    check(picture)
    assert not picture.leases
    (job,) = picture.jobs.values()
    assert job["status"] == "completed_with_errors"
    (poison,) = [item for item in picture.items.values() if item["error_code"] and item["key"] == key]
    assert (poison["status"], poison["error_code"]) == ("failed", "interrupted_too_often")
    assert (poison["attempt"], poison["interruptions"]) == (0, 3)
    return picture


def test_an_item_that_kills_its_process_every_time_fails_and_the_others_complete(harness: Harness) -> None:
    picture = run_with_poison(harness, "box-0")
    assert sum(item["status"] != "succeeded" for item in picture.items.values()) == 1


def test_an_item_that_kills_its_process_does_not_take_its_neighbours_along(harness: Harness) -> None:
    picture = run_with_poison(harness, "part-2")
    assert sum(item["status"] != "succeeded" for item in picture.items.values()) == 1


def test_a_second_engine_on_one_sqlite_file_is_refused_with_the_pid_of_the_first(
    sqlite_url: str, harnesses: Callable[[str], Harness]
) -> None:
    harness = harnesses(sqlite_url)
    first = harness.start(work=0.3)
    eventually("the first works", lambda: harness.begun(first.pid))
    second = harness.start()
    assert second.wait() == EXIT_REFUSED
    assert f"process {first.pid}" in second.said()
    first.kill()
    harness.note_kill()
    assert harness.start().wait() == 0, "a lock outlived its process"
    harness.judge()
