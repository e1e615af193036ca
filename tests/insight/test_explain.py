"""Why is it not running? One test a gate: what closes it, since when, and what opens it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Breaker, Engine, Item, Lane, Limit, ProviderError, Step, Store, Workflow, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine import flow, scheduler
from dalsegno.engine.breakers import probe
from dalsegno.engine.holds import hold
from dalsegno.engine.limits import set_limit
from dalsegno.engine.planner import advance, fail_stage
from dalsegno.errors import InputInvalid, NotFound
from dalsegno.insight.explain import (
    ASKED,
    GATES,
    Explanation,
    Gate,
    explain,
    explain_item,
    explain_job,
    explain_service,
    explain_stage,
    when,
)
from dalsegno.insight.waiting import why_queued
from dalsegno.model.records import JobRecord
from dalsegno.model.states import JOB_FINISHED
from dalsegno.store.schema import (
    breakers,
    holds,
    items,
    jobs,
    limits,
    nodes,
    permits,
    processes,
    stages,
    waits,
    workers,
)
from dalsegno.store.store import Tx
from tests.helpers import (
    SWIFT,
    admit,
    ask,
    begin,
    chain,
    claim,
    command,
    every,
    item_of,
    keys,
    named,
    one_step,
    settle,
    stage_of,
    status_of,
    statuses_of,
    submitted,
    wait_for_job,
    wait_until,
)

LATER = timedelta(minutes=30)


@pytest.fixture
def process(still: Store) -> int:
    """A live process on node nas that offers service work with two idle workers."""
    return at_work(still)


def at_work(store: Store, *, node: str = "nas", busy: int = 0, names: tuple[str, ...] = ("work-1", "work-2")) -> int:
    def add(tx: Tx) -> int:
        now = tx.now
        tx.insert_new(
            nodes,
            {"name": node, "labels": {}, "max_concurrency": {"work": 2}, "last_seen": now, "awake_state": "awake"},
        )
        values = {"node": node, "host": "h", "pid": 77, "version": "1", "started_at": now, "heartbeat_at": now}
        number = tx.insert_new(processes, {**values, "lease_until": now + timedelta(hours=1)})
        for place, name in enumerate(names):
            doing = {"status": "busy", "item_id": 900 + place, "text": "song"} if place < busy else {}
            tx.insert_new(workers, {"process_id": number, "name": name, "service": "work", "updated_at": now, **doing})
        return int(number)

    return store.write("test", add)


def add(store: Store, table: sa.Table, **values: Any) -> None:
    store.write("test", lambda tx: tx.conn.execute(sa.insert(table).values(**values)))


def change(store: Store, table: sa.Table, where: Any, **values: Any) -> None:
    store.write("test", lambda tx: tx.conn.execute(sa.update(table).where(where).values(**values)))


def of_job(store: Store, job_id: int) -> Explanation:
    return checked(store.read(lambda tx: explain_job(tx, job_id)))


def of_stage(store: Store, job_id: int, key: str = "a") -> Explanation:
    return checked(store.read(lambda tx: explain(tx, "stage", f"{job_id}/{key}")))


def of_item(store: Store, job_id: int, key: str = "k00001", step: str = "a") -> Explanation:
    number = item_of(store, job_id, key, step)["id"]
    return checked(store.read(lambda tx: explain_item(tx, number)))


def of_service(store: Store, name: str = "work") -> Explanation:
    return checked(store.read(lambda tx: explain_service(tx, name)))


def checked(found: Explanation) -> Explanation:
    """What holds for every explanation."""
    closed = [gate for gate in found.gates if gate.state == "closed"]
    assert found.first_closed == (closed[0] if closed else None)
    assert found.answer.endswith("."), found.answer
    assert "unknown" not in found.answer.lower()
    order = list(GATES)
    places = [order.index(gate.code) for gate in found.gates if gate.code != "alive"]
    assert places == sorted(places), [gate.code for gate in found.gates]
    for gate in found.gates:
        assert gate.says.endswith("."), gate
        assert "None" not in gate.says + (gate.opens or ""), gate
        assert gate.state == "open" or gate.opens, gate
    return found


def shut(found: Explanation, code: str) -> Gate:
    """The first closed gate, which must be this one."""
    assert found.first_closed is not None, found
    assert found.first_closed.code == code, found
    return found.first_closed


# --- 1, 2: the end --------------------------------------------------------------------------------


def test_what_is_done_says_so_and_how_to_run_it_again(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    settle(still, claim(still, process))
    gate = shut(of_item(still, job), "finished")
    number = item_of(still, job, "k00001")["id"]
    assert gate.since == still.clock.now()
    assert (gate.says, gate.opens) == ("It is done.", f"dalsegno force-retry {number}")
    assert of_item(still, job).answer.startswith("It is done, since now (")
    assert shut(of_job(still, job), "finished").opens == f"dalsegno force-retry ITEM (dalsegno items {job} lists them)"
    assert of_job(still, job).status == "completed"
    assert shut(of_stage(still, job), "finished").says == "It is done."


def test_what_failed_says_why_and_names_the_item_to_retry(still: Store, process: int) -> None:
    job = submitted(still, one_step(on_failure="stop"), items=1).job_id
    settle(still, claim(still, process), "failed", attempt=3, error_message="no route to host")
    number = item_of(still, job, "k00001")["id"]
    gate = shut(of_item(still, job), "finished")
    assert gate.says == "It failed after 3 attempts: no route to host."
    assert gate.opens == f"dalsegno retry {number}"
    assert gate.data["error_code"] == "test"
    for found in (of_job(still, job), of_stage(still, job)):
        gate = shut(found, "finished")
        assert gate.opens == f"dalsegno retry {number}"
        assert "It failed" in gate.says
        assert gate.since == still.clock.now()


def test_done_with_errors_names_one_of_them(still: Store, process: int) -> None:
    job = submitted(still, items=2).job_id
    first, second = claim(still, process, 2)
    settle(still, [first])
    settle(still, [second], "failed")
    assert shut(of_job(still, job), "finished").says == "It is done, and 1 item has failed."
    assert shut(of_stage(still, job), "finished").opens == f"dalsegno retry {second.id}"


def test_a_skipped_stage_names_the_one_that_failed(still: Store, process: int) -> None:
    job = submitted(still, chain("work", "work", on_failure="stop"), items=1).job_id
    (item,) = claim(still, process)
    settle(still, [item], "failed")
    gate = shut(of_stage(still, job, "b"), "finished")
    assert gate.says == 'It was skipped: stage "a" did not complete.'
    assert gate.opens == f"dalsegno retry {item.id}"


def test_a_job_that_is_being_canceled_does_not_come_back(still: Store, process: int) -> None:
    job = submitted(still, items=2).job_id
    claimed = claim(still, process)
    begin(still, claimed)
    command(still, "cancel", job_id=job)
    for found in (of_job(still, job), of_stage(still, job), of_item(still, job, "k00002")):
        gate = shut(found, "cancel")
        assert gate.since == still.clock.now()
        assert gate.says == f"Job {job} is being canceled; 1 item still ends."
        assert gate.opens is not None
        assert gate.opens.startswith("never")
    running = of_item(still, job, "k00001")
    assert running.answer.startswith("It runs now, on work-1")
    assert "is being canceled" in running.answer


# --- 3 to 7: the job and its lane -----------------------------------------------------------------


def test_a_hold_on_everything_comes_first(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    now = still.clock.now()
    still.write("test", lambda tx: hold(tx, "all", "film night", "anna", now + LATER))
    for found in (of_job(still, job), of_stage(still, job), of_item(still, job), of_service(still)):
        gate = shut(found, "all_held")
        assert (gate.since, gate.until) == (now, now + LATER)
        assert gate.says == "Everything is held by anna: film night."
        assert gate.opens is not None
        assert re.fullmatch(r"by itself at .*\d\d:\d\d:\d\d UTC; or now: dalsegno resume --all", gate.opens)
        assert gate.data == {"hold": "all", "by": "anna", "why": "film night"}


def test_a_hold_ends_at_its_end(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    now = still.clock.now()
    add(still, holds, name="all", held_at=now - LATER, held_by="anna", held_reason="film night", held_until=now)
    assert of_item(still, job).first_closed is None


def test_a_held_lane(still: Store, process: int) -> None:
    job = submit(still, one_step(lane=Lane(name="catalog")), items=keys(1)).job_id
    now = still.clock.now()
    still.write("test", lambda tx: hold(tx, "lane:catalog", "crash recovery", "rescuer"))
    for found in (of_job(still, job), of_stage(still, job), of_item(still, job)):
        gate = shut(found, "lane_held")
        assert (gate.since, gate.until) == (now, None)
        assert gate.says == 'Lane "catalog" is held by rescuer: crash recovery.'
        assert gate.opens == "dalsegno resume --lane catalog"
    command(still, "pause", job_id=job)
    assert shut(of_job(still, job), "lane_held").opens == f"dalsegno resume {job}", "which opens both"
    assert command(still, "resume", job_id=job)["status"] == "applied"
    assert shut(of_job(still, job), "lane_turn").data["reason"] == "next"
    still.write("test", lambda tx: hold(tx, "lane:catalog", "film night", "anna"))
    command(still, "pause", job_id=job)
    assert shut(of_job(still, job), "lane_held").opens == "dalsegno resume --lane catalog", "an operator's own hold"


def test_a_job_for_later(still: Store, process: int) -> None:
    at = still.clock.now() + LATER
    job = submitted(still, items=1, scheduled_at=at).job_id
    for found in (of_job(still, job), of_item(still, job)):
        gate = shut(found, "scheduled")
        assert (gate.since, gate.until) == (still.clock.now(), at)
        assert gate.opens is not None
        assert gate.opens.startswith("by itself at ")
        assert "in 30 min" in found.answer


def test_a_full_lane_names_who_is_active_and_how_many_are_before(still: Store, process: int) -> None:
    workflow = one_step(lane=Lane(name="catalog", max_active=1))
    first, second, third = (submitted(still, workflow, items=1).job_id for _ in range(3))
    gate = shut(of_job(still, second), "lane_turn")
    assert gate.says == f'Lane "catalog" takes 1 job at a time: job {first} is active.'
    assert gate.opens == f"when job {first} has ended"
    assert gate.since == still.clock.now()
    gate = shut(of_item(still, third), "lane_turn")
    assert gate.says == f'Lane "catalog" takes 1 job at a time: job {first} is active and 1 job is before it.'
    assert gate.opens == f"when job {first} has ended; to be next: dalsegno priority {third} 99"
    assert gate.data["active"] == [first]
    assert (gate.data["before"], gate.data["reason"]) == (1, "full")
    command(still, "set_priority", job_id=third, payload={"priority": 99})
    assert shut(of_job(still, third), "lane_turn").data["before"] == 0, "the command it names does put it first"


def test_a_list_of_queued_jobs_says_of_each_what_its_explanation_says(still: Store) -> None:
    """Though what they share is read once for all of them."""
    two, one = one_step(lane=Lane(name="two", max_active=2)), one_step(lane=Lane(name="one", max_active=1))
    for number in range(5):
        submit(still, two, items=keys(1), priority=number % 2)
        submit(still, one, items=keys(1))
        submit(still, one_step(), items=keys(1))
    later = submit(still, two, items=keys(1), priority=-7, scheduled_at=still.clock.now() + LATER).job_id

    def compare() -> set[tuple[str, str | None]]:
        waiting = [JobRecord.model_validate(dict(row)) for row in every(still, sa.select(jobs).order_by(jobs.c.id))]
        found = still.read(lambda tx: why_queued(tx, waiting))
        assert set(found) == {job.id for job in waiting if job.status == "queued"}
        for job_id, gate in found.items():
            first = of_job(still, job_id).first_closed
            assert first is not None
            same = [(each.code, each.data.get("reason"), each.until, each.data.get("active")) for each in (gate, first)]
            assert same[0] == same[1], job_id
        return {(gate.code, gate.data.get("reason")) for gate in found.values()}

    assert compare() == {("lane_turn", "no_engine"), ("lane_turn", "full"), ("scheduled", None)}
    at_work(still)
    assert compare() == {("lane_turn", "next"), ("lane_turn", "full"), ("scheduled", None)}
    still.write("admit", lambda tx: scheduler._admit(tx, "two"))
    command(still, "cancel", job_id=later)
    change(still, jobs, jobs.c.id == 2, cancel_requested_at=still.clock.now())
    assert {("cancel", None), ("lane_turn", "next"), ("lane_turn", "full")} >= compare()
    still.write("test", lambda tx: hold(tx, "lane:one", "film night", "anna"))
    assert ("lane_held", None) in compare()


def test_a_queued_job_waits_for_an_engine(still: Store) -> None:
    job = submit(still, one_step(), items=keys(1)).job_id
    gate = shut(of_job(still, job), "lane_turn")
    assert (gate.data["reason"], gate.opens) == ("no_engine", "dalsegno agent")
    at_work(still)
    gate = shut(of_job(still, job), "lane_turn")
    assert gate.data["reason"] == "next"
    assert gate.opens == "by itself within 1 s: an engine admits it"


def test_a_paused_job(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    command(still, "pause", job_id=job, payload={"reason": "film night"}, requested_by="anna")
    for found in (of_job(still, job), of_stage(still, job), of_item(still, job)):
        gate = shut(found, "job_paused")
        assert gate.since == still.clock.now()
        assert gate.says == f"Job {job} is paused by anna: film night."
        assert gate.opens == f"dalsegno resume {job}"
        assert gate.data["reason"] == "paused"
    assert of_job(still, job).answer.startswith(f"Job {job} is paused by anna: film night, since now (")
    until = still.clock.now() + LATER
    change(still, jobs, jobs.c.id == job, pause_until=until)
    gate = shut(of_job(still, job), "job_paused")
    assert gate.until == until
    assert gate.opens is not None
    assert gate.opens.startswith("by itself at ")


def test_a_job_that_is_asked_to_pause_says_what_still_runs(still: Store, process: int) -> None:
    job = submitted(still, items=2).job_id
    (item,) = claim(still, process)
    begin(still, [item])
    change(
        still, workers, workers.c.name == "work-1", status="busy", job_id=job, stage_id=item.stage_id, item_id=item.id
    )
    command(still, "pause", job_id=job, payload={"reason": "film night"}, requested_by="anna")
    gate = shut(of_job(still, job), "job_paused")
    assert gate.says == (
        f"Job {job} is asked to pause by anna: film night; 1 item still ends (item {item.id} on work-1)."
    )
    assert gate.data["reason"] == "draining"
    assert gate.opens == f"when they have ended, it is paused; then: dalsegno resume {job}"
    assert of_job(still, job).answer.startswith("It runs now: 1 item runs")
    shut(of_item(still, job, "k00002"), "job_paused")


# --- 8 to 10: the stage -----------------------------------------------------------------------------


def test_a_stage_waits_for_the_one_before(still: Store, process: int) -> None:
    job = submitted(still, chain("work", "work"), items={"a": keys(3), "b": keys(1)}).job_id
    settle(still, claim(still, process))
    for found in (of_stage(still, job, "b"), of_item(still, job, "k00001", "b")):
        gate = shut(found, "depends")
        assert gate.says == 'Stage "b" waits for stage "a": "a" is running, 1 of 3 items done.'
        assert gate.opens == 'when stage "a" is done (2 items left)'
        assert gate.since == still.clock.now()
        assert gate.data["waits_for"] == [{"key": "a", "status": "running", "left": 2, "total": 3}]


def test_a_stage_is_about_to_open(still: Store, process: int) -> None:
    job = submitted(still, chain("work", "work"), items={"a": keys(1), "b": keys(1)}).job_id
    settle(still, claim(still, process))
    change(still, stages, stages.c.id == stage_of(still, job, "b")["id"], status="pending", open=False, claimable=False)
    for found in (of_job(still, job), of_stage(still, job, "b"), of_item(still, job, "k00001", "b")):
        gate = shut(found, "depends")
        assert gate.says.endswith('hat stage "b" depends on is done; it is about to open.')
        assert (gate.opens, gate.data["reason"]) == ("by itself within 5 s: the engine opens the stage", "opening")
    still.write("advance", lambda tx: advance(tx, [job]))
    assert of_stage(still, job, "b").first_closed is None


def test_a_stage_that_follows_waits_for_the_next_item(still: Store, process: int) -> None:
    job = submitted(still, chain("work", "work", follow="each"), items=2).job_id
    gate = shut(of_stage(still, job, "b"), "depends")
    assert gate.data["reason"] == "follows"
    assert gate.opens == 'when stage "a" is done with its next item (2 items left)'


def test_a_follower_names_the_item_it_follows(store: Store) -> None:
    permit = threading.Semaphore(0)

    @service("next")
    def following(item: Item) -> None:
        permit.acquire()

    @service("work")
    def work(item: Item) -> None:
        pass

    job = submit(store, chain("work", "next", follow="each"), items=keys(1)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: stage_of(store, job, "b")["total"] == 1, "the follower")
    found = of_item(store, job, "k00001", "b")
    parent = item_of(store, job, "k00001")["id"]
    assert [gate.says for gate in found.gates if gate.code == "depends"] == [
        f"It follows item {parent}, which is succeeded."
    ]
    shut(found, "offered")


def test_a_stage_that_is_not_planned(still: Store, process: int) -> None:
    job = submit(still, one_step()).job_id
    admit(still)
    gate = shut(of_stage(still, job), "planned")
    assert (gate.data["reason"], gate.since) == ("next", still.clock.now())
    assert gate.opens == 'by itself: a process that offers "work" lists them'
    change(still, stages, stages.c.job_id == job, planner_id=process)
    gate = shut(of_stage(still, job), "planned")
    assert gate.data["reason"] == "listing"
    assert gate.says == "Process 77 on nas is listing its items; so far 0."
    other = submit(still, one_step("elsewhere")).job_id
    admit(still)
    gate = shut(of_job(still, other), "planned")
    assert gate.data["reason"] == "no_process"
    assert gate.opens is not None
    assert gate.opens.startswith("dalsegno agent --services")


def test_a_stage_paused_by_itself(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    now = still.clock.now()
    payload = {"stage": "a", "reason": "quota", "until": (now + LATER).isoformat()}
    command(still, "pause_stage", job_id=job, payload=payload, requested_by="anna")
    for found in (of_stage(still, job), of_item(still, job), of_job(still, job)):
        gate = shut(found, "stage_paused")
        assert (gate.since, gate.until) == (now, now + LATER)
        assert gate.says == 'Stage "a" is paused by anna: quota.'
        assert gate.opens is not None
        assert gate.opens.endswith(f"dalsegno resume {job} --stage a")


def test_a_stage_may_be_paused_before_its_turn(still: Store, process: int) -> None:
    job = submitted(still, chain("work", "work"), items={"a": keys(1), "b": keys(1)}).job_id
    command(still, "pause_stage", job_id=job, payload={"stage": "b"}, requested_by="anna")
    shut(of_stage(still, job, "b"), "depends")
    settle(still, claim(still, process))
    gate = shut(of_item(still, job, "k00001", "b"), "stage_paused")
    assert gate.opens == f"dalsegno resume {job} --stage b"
    assert shut(of_job(still, job), "stage_paused") is not None


def test_a_failure_closed_the_stage(still: Store, process: int) -> None:
    job = submitted(still, one_step(on_failure="stop"), items=3).job_id
    first, second = claim(still, process, 2)
    begin(still, [second])
    settle(still, [first], "failed", error_message="no route to host")
    found = of_item(still, job, "k00003")
    gate = shut(found, "stage_stopped")
    assert gate.says == f'Item {first.id} failed, and stage "a" stops at a failure: no route to host.'
    assert (gate.opens, gate.since) == (f"dalsegno retry {first.id}", still.clock.now())
    assert gate.data["reason"] == "failure"


def test_a_failure_behind_a_thousand_other_troubles_is_not_searched_for(still: Store, process: int) -> None:
    job = submitted(still, one_step(on_failure="stop"), items=1003).job_id
    claimed = claim(still, process, 1003)
    due = still.clock.now() + LATER
    settle(still, claimed[:1001], "pending", due_at=due, attempt=1, error_code="net")
    settle(still, claimed[1001:1002], "failed", error_message="no route to host")
    gate = shut(of_stage(still, job), "stage_stopped")
    assert gate.says.startswith('An item failed, and stage "a" stops at a failure: ')
    assert gate.opens == f"dalsegno retry ITEM (dalsegno items {job} --state failed lists them)"


def test_a_stage_with_nothing_left_to_do_is_about_to_end(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    settle(still, claim(still, process), then=False)
    for found in (of_job(still, job), of_stage(still, job)):
        gate = shut(found, "empty")
        assert gate.says.endswith("t has nothing left to do.")
        assert gate.opens == "by itself within 5 s: the engine ends the stage"
    still.write("advance", lambda tx: advance(tx, [job]))
    shut(of_stage(still, job), "finished")


def test_a_job_whose_stages_have_ended_is_about_to_end(still: Store, process: int) -> None:
    job = submit(still, one_step()).job_id
    admit(still)
    still.write("plan", lambda tx: fail_stage(tx, stage_of(still, job), "no such folder"))
    gate = shut(of_job(still, job), "empty")
    assert (gate.says, gate.opens) == ("All its stages have ended.", "by itself within 5 s: the engine ends the job")
    still.write("advance", lambda tx: advance(tx, [job]))
    assert shut(of_job(still, job), "finished").says == "It failed: no such folder."


# --- 11 to 14: the service and the nodes ------------------------------------------------------------


def test_a_held_service(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    now = still.clock.now()
    still.write("test", lambda tx: hold(tx, "service:work", "new key", "anna"))
    for found in (of_job(still, job), of_stage(still, job), of_item(still, job), of_service(still)):
        gate = shut(found, "service_held")
        assert (gate.since, gate.until) == (now, None)
        assert 'ervice "work" is held by anna: new key.' in gate.says
        assert gate.opens == "dalsegno resume --service work"
    assert of_service(still).status == "held"


def test_nobody_offers_the_service(still: Store) -> None:
    job = submitted(still, items=1).job_id
    gate = shut(of_item(still, job), "offered")
    assert gate.says == 'No engine is at work on this database, so nobody offers service "work".'
    assert gate.opens is not None
    assert gate.opens.startswith("dalsegno agent --services MODULE")
    number = at_work(still, names=("other-1",))
    change(still, workers, workers.c.process_id == number, service="other")
    gate = shut(of_item(still, job), "offered")
    assert gate.says == 'No live process offers service "work"; node nas did.'
    assert gate.data["engines"] == 1
    assert gate.since == still.clock.now(), "when that node was last seen"
    assert of_service(still).status == "offline"


def test_a_process_that_has_just_started_is_known_by_its_node(still: Store) -> None:
    job = submitted(still, items=3).job_id
    at_work(still, names=())
    found = of_item(still, job)
    assert found.first_closed is None
    assert found.answer == "It is next in line: a worker will take it."


def test_a_dead_process_offers_nothing(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    change(still, processes, processes.c.id == process, lease_until=datetime(2020, 1, 1, tzinfo=UTC))
    gate = shut(of_item(still, job), "offered")
    assert gate.data["engines"] == 0


def test_an_open_breaker(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    now = still.clock.now()
    values = {"kind": "quota", "reason": "Daily quota used up.", "error": "HTTP 429", "tripped_at": now}
    add(still, breakers, name="service:work", state="open", resume_at=now + LATER, updated_at=now, **values)
    for found in (of_job(still, job), of_stage(still, job), of_item(still, job), of_service(still)):
        gate = shut(found, "breaker")
        assert (gate.since, gate.until) == (now, now + LATER)
        assert "reaker service:work is open: Daily quota used up." in gate.says
        assert gate.opens is not None
        assert re.fullmatch(r"by itself at .* UTC; or now: dalsegno breaker probe service:work", gate.opens)
        assert (gate.data["kind"], gate.data["error"]) == ("quota", "HTTP 429")
    change(still, breakers, breakers.c.name == "service:work", resume_at=None)
    assert shut(of_item(still, job), "breaker").opens == (
        "dalsegno breaker probe service:work tries once; dalsegno breaker reset service:work closes it"
    )
    assert of_service(still).status == "stopped"


def test_a_half_open_breaker_waits_for_its_probe(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    now = still.clock.now()
    add(
        still, breakers, name="service:work", state="half_open", kind="outage", reason="HTTP 503", tripped_at=now,
        probe_process_id=process, probe_item_id=42, probe_at=now, updated_at=now,
    )  # fmt: skip
    gate = shut(of_item(still, job), "breaker")
    assert gate.says == "Breaker service:work is half open: HTTP 503; a probe is running (item 42)."
    assert gate.opens == "when the probe succeeds; or now: dalsegno breaker reset service:work"
    assert gate.since == now
    change(still, breakers, breakers.c.name == "service:work", probe_process_id=None, probe_item_id=None, probe_at=None)
    assert of_item(still, job).first_closed is None, "it may be the probe itself"


def limit(store: Store, name: str, **values: Any) -> None:
    add(store, limits, name=name, updated_at=store.clock.now(), **values)


def permit(store: Store, name: str, number: int, ago: float, **values: Any) -> None:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    tick = round(at.timestamp() * 1e6)
    add(store, permits, name=name, number=number, tick=tick, granted_at=at, process_id=1, **values)


def test_a_limit_of_concurrent_calls(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    limit(still, "service:work", concurrent=2, granted=3)
    permit(still, "service:work", 1, 60, item_id=7)
    permit(still, "service:work", 2, 50, item_id=8, released=True)
    assert of_item(still, job).first_closed is None
    permit(still, "service:work", 3, 40, item_id=9)
    for found in (of_item(still, job), of_service(still)):
        gate = shut(found, "limit")
        assert gate.says.endswith("imit service:work is used up: 2 of 2 calls at once, held by item 7, item 9.")
        assert gate.opens == "by itself, when one of them has ended"
        assert gate.until is None
        assert gate.since is not None
        assert abs((datetime.now(UTC) - gate.since).total_seconds() - 40) < 5
        assert gate.data["reason"] == "concurrent"
    assert of_service(still).status == "limited"


def test_a_limit_of_calls_in_a_window(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    skew = 5_000_000
    limit(still, "service:work", rate=2, window=60.0, granted=3, skew=skew)
    for number, ago in ((1, 50), (2, 20), (3, 10)):
        permit(still, "service:work", number, ago)
        change(still, permits, permits.c.number == number, tick=permits.c.tick + skew)
    gate = shut(of_item(still, job), "limit")
    assert gate.says == "Limit service:work is used up: it allows 2 in 1 min."
    assert gate.until is not None
    assert abs((gate.until - still.clock.now()).total_seconds() - 40) < 5, "permit 2 leaves the window then"
    assert gate.opens is not None
    assert gate.opens.startswith("by itself at ")
    assert gate.data["reason"] == "rate"
    still.clock.advance(45)  # type: ignore[attr-defined]
    change(still, permits, permits.c.number == 2, tick=permits.c.tick - 45_000_000)
    assert of_item(still, job).first_closed is None


def test_a_pruned_permit_is_taken_for_the_youngest_pruned(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    tick = round((datetime.now(UTC) - timedelta(seconds=10)).timestamp() * 1e6)
    limit(still, "service:work", rate=5, window=60.0, granted=9, tick=tick, pruned_tick=tick)
    gate = shut(of_item(still, job), "limit")
    assert gate.until is not None
    assert abs((gate.until - still.clock.now()).total_seconds() - 50) < 5
    change(still, limits, limits.c.name == "service:work", granted=4)
    assert of_item(still, job).first_closed is None, "fewer than the rate were ever granted"


@pytest.mark.parametrize("what", ["rate", "concurrent"])
def test_a_limit_of_nothing_lasts_until_it_is_changed(still: Store, process: int, what: str) -> None:
    job = submitted(still, items=1).job_id
    limit(still, "service:work", **{what: 0})
    gate = shut(of_item(still, job), "limit")
    assert (gate.until, gate.data["reason"]) == (None, what)
    assert gate.opens is not None
    option = {"rate": "--rate N/min", "concurrent": "--concurrent N"}[what]
    assert gate.opens.startswith(f"dalsegno limit service:work {option} (it is 0")
    change(still, limits, limits.c.name == "service:work", **{f"{what}_setting": "queue_concurrency"})
    assert shut(of_item(still, job), "limit").opens == gate.opens.replace(
        f"limit service:work {option}", "settings queue_concurrency N"
    )


def test_a_limit_of_a_node_counts_where_no_other_node_has_room(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    limit(still, "node:nas", concurrent=0)
    gate = shut(of_item(still, job), "node_limit")
    assert gate.data["name"] == "node:nas"
    found = checked(still.read(lambda tx: explain(tx, "node", "nas")))
    assert found.first_closed is not None
    assert found.first_closed.code == "limit"
    at_work(still, node="attic")
    assert of_item(still, job).first_closed is None


# --- 15 to 17: the item -------------------------------------------------------------------------------


def test_an_interrupted_item(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    still.clock.advance(5)  # type: ignore[attr-defined]
    settle(still, claim(still, process), "interrupted", error_message="its process died")
    gate = shut(of_item(still, job), "interrupted")
    assert gate.says == "It was interrupted: its process died."
    assert gate.opens == "by itself within 5 s: the sweep brings it back"
    assert gate.since == still.clock.now()
    assert shut(of_stage(still, job), "interrupted").says == "1 item is interrupted."
    assert shut(of_job(still, job), "interrupted").says == 'Stage "a": 1 item is interrupted.'


def test_an_item_after_a_failure_waits_for_its_backoff(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    due = still.clock.now() + LATER
    settle(still, claim(still, process), "pending", due_at=due, attempt=2, error_code="net", error_message="timed out")
    gate = shut(of_item(still, job), "due")
    assert gate.says == "It waits after failed attempt 2: timed out."
    assert (gate.since, gate.until, gate.data["reason"]) == (still.clock.now(), due, "backoff")
    assert gate.opens is not None
    assert gate.opens.startswith("by itself at ")
    gate = shut(of_stage(still, job), "due")
    assert gate.says == "1 item waits until due."
    assert gate.until == due


def test_a_throttled_item(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    due = still.clock.now() + LATER
    settle(still, claim(still, process), "pending", due_at=due, data='{"throttled": "slow down"}')
    gate = shut(of_item(still, job), "due")
    assert (gate.says, gate.data["reason"]) == ("It was asked to wait: slow down.", "throttled")


def in_line(store: Store, job_id: int, name: str, *, since: datetime) -> None:
    """All ready items of stage a wait for this name, as the engine will write it."""

    def move(tx: Tx) -> None:
        for row in tx.rows(sa.select(items).where(items.c.job_id == job_id, items.c.status == "pending")):
            values = {key: row[key] for key in ("stage_id", "job_id", "seq")}
            tx.conn.execute(sa.insert(waits).values(item_id=row["id"], name=name, since=since, **values))
        here = stages.c.job_id == job_id
        tx.conn.execute(sa.update(stages).where(here).values(ready=0, claimable=False, low_seq=stages.c.high_seq))

    store.write("test", move)


def test_an_item_in_line_for_a_source(still: Store, process: int) -> None:
    first, urgent = submitted(still, items=2).job_id, submitted(still, items=3, priority=1).job_id
    since = still.clock.now()
    for job in (first, urgent):
        in_line(still, job, "source:qq", since=since)
    limit(still, "source:qq", concurrent=1, granted=1)
    permit(still, "source:qq", 1, 30, item_id=7)
    gate = shut(of_item(still, first, "k00002"), "waits")
    assert gate.says == (
        "It met source:qq on its way and waits there; 4 items are before it in line. "
        "Limit source:qq is used up: 1 of 1 call at once, held by item 7."
    )
    assert (gate.since, gate.data["before"], gate.data["cause"]) == (since, 4, "limit")
    assert gate.opens == "by itself, when one of them has ended"
    assert shut(of_item(still, urgent, "k00001"), "waits").data["before"] == 0
    now = still.clock.now()
    values = {"kind": "outage", "reason": "HTTP 503", "tripped_at": now, "resume_at": now + LATER}
    add(still, breakers, name="source:qq", state="open", updated_at=now, **values)
    gate = shut(of_item(still, first, "k00002"), "waits")
    assert (gate.until, gate.data["cause"]) == (now + LATER, "breaker")
    gate = shut(of_stage(still, first), "waits")
    assert gate.says.startswith("In line: 2 items for source:qq. Breaker source:qq is open")
    assert gate.data["line"] == {"source:qq": 2}
    change(still, waits, waits.c.job_id == first, offered_at=now)
    gate = shut(of_item(still, first), "waits")
    assert (gate.data["reason"], gate.opens) == ("offered", "by itself, any moment now")


def test_a_long_line_is_counted_up_to_a_thousand(still: Store, process: int) -> None:
    job = submitted(still, items=1200).job_id
    in_line(still, job, "source:qq", since=still.clock.now())
    gate = shut(of_item(still, job, "k01200"), "waits")
    assert "more than 1,000 items are before it" in gate.says
    assert (gate.data["before"], gate.data["more"]) == (1000, True)
    assert "more than 1,000 items for source:qq" in shut(of_stage(still, job), "waits").says


def test_others_come_first(still: Store) -> None:
    at_work(still, busy=2)
    first, second = submitted(still, items=3).job_id, submitted(still, items=2).job_id
    gate = shut(of_item(still, second, "k00002"), "order")
    assert gate.says == (
        "It is ready, but 4 items come first; 2 workers are busy with item 900 on work-1, item 901 on work-2."
    )
    assert gate.opens == f"by itself, in its turn; to put its job first: dalsegno priority {second} 99"
    assert (gate.data["before"], gate.data["workers"]) == (4, 2)
    assert gate.since == still.clock.now()
    gate = shut(of_item(still, first, "k00001"), "order")
    assert gate.says.startswith("It is next in line, but no worker is free; 2 workers are busy with")
    assert shut(of_stage(still, second), "order").says.startswith("2 items are ready; the first is item")
    assert shut(of_job(still, second), "order").data["before"] == 3
    command(still, "set_priority", job_id=second, payload={"priority": 99})
    assert shut(of_item(still, second, "k00001"), "order").data["before"] == 0


def test_what_came_back_goes_first(still: Store) -> None:
    number = at_work(still, busy=2)
    job = submitted(still, items=4).job_id
    claimed = claim(still, number, 2)
    settle(still, claimed, "pending")
    assert [shut(of_item(still, job, key), "order").data["before"] for key in keys(4)] == [0, 1, 2, 3]


def test_next_in_line(still: Store, process: int) -> None:
    job = submitted(still, items=3).job_id
    found = of_item(still, job, "k00002")
    assert found.first_closed is None
    assert found.answer == "It is next in line: worker work-2 will take it."
    assert shut(of_item(still, job, "k00003"), "order").says == "It is ready, but 2 items come first."
    assert of_stage(still, job).first_closed is None
    assert "next in line: worker work-1 will take it" in of_job(still, job).answer


def test_claimed_and_running(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    (item,) = claim(still, process)
    claimed_at = still.clock.now()
    still.clock.advance(3)  # type: ignore[attr-defined]
    gate = shut(of_item(still, job), "claimed")
    assert gate.says == "It was taken by process 77 on nas, which has not begun it yet."
    assert gate.since == claimed_at
    assert gate.opens == "by itself, when a worker of that process is free"
    begin(still, [item], "work-2")
    change(still, items, items.c.id == item.id, phase="transfer", progress=0.4, progress_text="4 of 10 MB")
    found = of_item(still, job)
    assert found.first_closed is None
    assert found.answer.startswith("It runs now, on work-2 (transfer, 40%, 4 of 10 MB), since now (")
    assert found.gates[-1].since == still.clock.now()
    assert of_stage(still, job).answer.startswith("It runs now: 1 item runs, 0 of 1 done")
    assert of_job(still, job).answer.startswith("It runs now")
    change(still, processes, processes.c.id == process, lease_until=datetime(2020, 1, 1, tzinfo=UTC))
    assert "no sign of life" in of_item(still, job).answer


# --- services, nodes, and what is not there -----------------------------------------------------------


def test_a_service_says_what_it_has_to_do(still: Store, process: int) -> None:
    gate = shut(of_service(still), "work")
    assert gate.says == "There is nothing for it to do: no item is ready."
    assert of_service(still).status == "idle"
    submitted(still, items=4)
    assert of_service(still).answer == "4 items are ready for it."
    begin(still, claim(still, process, 2)[:1])
    found = of_service(still)
    assert found.status == "working"
    assert found.answer == "It works: 1 item runs now, 1 are claimed, 2 are ready."


def test_a_node_says_whether_it_lives(still: Store) -> None:
    def of_node() -> Explanation:
        return checked(still.read(lambda tx: explain(tx, "node", "nas")))

    number = at_work(still, busy=1)
    found = of_node()
    assert (found.status, found.first_closed) == ("alive", None)
    assert found.answer == "It works: 1 of 2 workers busy with item 900 on work-1."
    seen = still.clock.now()
    still.clock.advance(600)  # type: ignore[attr-defined]
    change(still, processes, processes.c.id == number, lease_until=datetime(2020, 1, 1, tzinfo=UTC))
    gate = shut(of_node(), "alive")
    assert gate.since == seen
    assert gate.opens is not None
    assert gate.opens.startswith("start one there: dalsegno agent --services MODULE")
    assert of_node().answer.startswith("No process runs on it, since 10 min ago (")
    change(still, nodes, nodes.c.name == "nas", awake_state="sleep")
    assert shut(of_node(), "alive").says == "It is asleep."


@pytest.mark.parametrize(
    ("what", "target", "error", "says"),
    [
        ("job", "99", NotFound, "There is no job 99."),
        ("item", "99", NotFound, "There is no item 99."),
        ("stage", "99", NotFound, "There is no stage 99."),
        ("stage", "99/a", NotFound, "There is no job 99."),
        ("stage", "1/downlod", NotFound, 'There is no stage "downlod" of job 1 (did you mean "download"?).'),
        ("service", "wrok", NotFound, 'There is no service "wrok" (did you mean "work"?).'),
        ("node", "nsa", NotFound, 'There is no node "nsa" (did you mean "nas"?).'),
        ("itme", "1", InputInvalid, 'There is nothing to explain about a "itme". Did you mean "item"?'),
        ("item", "one", InputInvalid, 'An item is named by a number, not "one".'),
        ("stage", "9" * 30, InputInvalid, f'A stage is named by a number, or JOB/KEY, not "{"9" * 30}".'),
    ],
)
def test_what_is_not_there(still: Store, process: int, what: str, target: str, error: type, says: str) -> None:
    submitted(still, named(Step(key="download", service="work")), items=1)
    with pytest.raises(error, match=re.escape(says)):
        still.read(lambda tx: explain(tx, what, target))


def test_a_stage_by_its_number_and_by_its_name_is_the_same(still: Store, process: int) -> None:
    job = submitted(still, items=1).job_id
    number = stage_of(still, job)["id"]
    assert of_stage(still, job) == still.read(lambda tx: explain_stage(tx, number))
    assert of_stage(still, job) == still.read(lambda tx: explain(tx, "stage", str(number)))


def test_times_are_said_both_ways() -> None:
    now = datetime(2026, 1, 31, 14, 15, tzinfo=UTC)
    assert when(now - timedelta(minutes=12), now) == "12 min ago (14:03:00 UTC)"
    assert when(now + timedelta(hours=3), now) == "in 3 h (17:15:00 UTC)"
    assert when(now - timedelta(days=3), now) == "3 days ago (2026-01-28 14:15:00 UTC)"
    assert when(now + timedelta(seconds=0.2), now) == "now (14:15:00 UTC)"
    assert when(now + timedelta(seconds=90), now) == "in 2 min (14:16:30 UTC)"


def test_every_gate_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/explain.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(GATES)
    for what in ASKED:
        assert f"dalsegno explain {what} " in page


# --- closed by the engine itself ------------------------------------------------------------------------


class Door:
    """A service's calls go in and come out when the test says so."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self._open = threading.Event()

    def __call__(self, item: Item) -> None:
        self.inside.append(item.id)
        assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()


def test_calls_at_once_meet_a_real_limit(store: Store) -> None:
    door = Door()
    work = service("work", workers=4, limit=Limit(concurrent=1))(door)
    job = submit(store, one_step(), items=keys(6)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: door.inside, "one to be inside")
        for found in (of_item(store, job, "k00006"), of_service(store)):
            gate = shut(found, "limit")
            assert gate.says == f"Limit service:work is used up: 1 of 1 call at once, held by item {door.inside[0]}."
            assert gate.opens == "by itself, when one of them has ended"
            assert gate.data["items"] == door.inside
            assert gate.since is not None
        assert of_service(store).answer.startswith("It works: 1 item runs now")
        door.open()
        assert wait_for_job(store, job) == "completed"


def test_calls_in_a_window_meet_a_real_limit(store: Store) -> None:
    @service("work", workers=2, limit=Limit(rate=2, window=3600))
    def work(item: Item) -> None:
        pass

    job = submit(store, one_step(), items=keys(5)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: statuses_of(store, job) == {"succeeded": 2, "pending": 3}, "the rate to be used up")
        for found in (of_job(store, job), of_item(store, job, "k00005"), of_service(store)):
            gate = shut(found, "limit")
            assert "imit service:work is used up: it allows 2 in 1 h." in gate.says
            assert (gate.data["reason"], gate.data["rate"]) == ("rate", 2)
            assert gate.since is not None
            assert gate.until is not None
            assert 3500 < (gate.until - gate.since).total_seconds() <= 3601
        store.write("test", lambda tx: set_limit(tx, "service:work", Limit(rate=0), "anna"))
        opens = shut(of_item(store, job, "k00005"), "limit").opens
        assert opens is not None
        assert opens.startswith("dalsegno limit service:work --rate N/min (it is 0")
        store.write("test", lambda tx: set_limit(tx, "service:work", Limit(rate=100), "anna"))
        assert wait_for_job(store, job) == "completed"


def test_a_service_in_trouble_trips_a_real_breaker(store: Store) -> None:
    door = Door()
    troubled = threading.Event()
    troubled.set()

    @service("work", workers=2, breaker=Breaker())
    def work(item: Item) -> None:
        if troubled.is_set():
            raise ProviderError(429, headers={"Retry-After": "900"})
        door(item)

    job = submit(store, one_step(), items=keys(5)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: statuses_of(store, job) == {"pending": 5} and not of_service(store).gates[3].says.endswith(
            "lets calls through."), "the trip")  # fmt: skip
        for found in (of_job(store, job), of_stage(store, job), of_item(store, job), of_service(store)):
            gate = shut(found, "breaker")
            assert (gate.data["reason"], gate.data["kind"], gate.data["by"]) == ("open", "rate_limit", "engine")
            assert gate.since is not None
            assert gate.until == gate.since + timedelta(seconds=900)
            assert gate.opens is not None
            assert gate.opens.endswith("UTC; or now: dalsegno breaker probe service:work")
        troubled.clear()
        store.write("test", lambda tx: probe(tx, "service:work", "anna"))
        wait_until(lambda: door.inside, "the probe")
        gate = shut(of_service(store), "breaker")
        assert gate.data["reason"] == "probing"
        assert gate.says.endswith(f"; a probe is running (item {door.inside[0]}).")
        assert len(door.inside) == 1
        door.open()
        assert wait_for_job(store, job) == "completed"


def test_an_item_waits_in_line_at_a_real_limit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "PATIENCE", 0.05)
    door = Door()

    @service("work", workers=2)
    def work(item: Item) -> None:
        with item.permit("source:qq"):
            door(item)

    store.write("test", lambda tx: set_limit(tx, "source:qq", Limit(concurrent=1), "anna"))
    job = submit(store, one_step(), items=keys(4)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: len(every(store, sa.select(waits))) == 3, "three to stand in line")
        in_line = sorted(row["item_id"] for row in every(store, sa.select(waits)))
        for before, number in enumerate(in_line):
            gate = shut(checked(store.read(lambda tx, number=number: explain_item(tx, number))), "waits")  # type: ignore[misc]
            place = ("it is the first", "1 item is before it", "2 items are before it")[before]
            assert gate.says == (
                f"It met source:qq on its way and waits there; {place} in line. "
                f"Limit source:qq is used up: 1 of 1 call at once, held by item {door.inside[0]}."
            )
            assert (gate.data["before"], gate.data["cause"]) == (before, "limit")
            assert gate.opens == "by itself, when one of them has ended"
        found = of_stage(store, job)
        assert [gate.says for gate in found.gates if gate.code == "waits"] == [
            f"In line: 3 items for source:qq. {gate.says.partition('line. ')[2]}"
        ]
        assert found.answer.startswith("It runs now: 1 item runs")
        door.open()
        assert wait_for_job(store, job) == "completed"


def test_an_item_waits_in_line_at_a_real_breaker(store: Store) -> None:
    troubled = threading.Event()
    troubled.set()

    @service("work")
    def work(item: Item) -> None:
        with item.permit("source:qq"):
            if troubled.is_set():
                raise ProviderError(429, headers={"Retry-After": "900"})

    job = submit(store, one_step(), items=keys(2)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: len(every(store, sa.select(waits))) == 2, "both to stand in line")
        gate = shut(of_item(store, job, "k00002"), "waits")
        assert gate.says.startswith("It met source:qq on its way and waits there; 1 item is before it in line. ")
        assert "Breaker source:qq is open: " in gate.says
        assert (gate.data["cause"], gate.data["cause_data"]["kind"]) == ("breaker", "rate_limit")
        assert gate.until is not None
        assert shut(of_stage(store, job), "waits").until == gate.until
        troubled.clear()
        store.write("test", lambda tx: probe(tx, "source:qq", "anna"))
        assert wait_for_job(store, job) == "completed"


# --- a whole life -------------------------------------------------------------------------------------


def test_at_every_moment_of_a_life_there_is_an_answer(store: Store) -> None:
    """A job under a running engine: held up, failing, paused, resumed, done. Explain is asked all the time."""
    stop = threading.Event()
    seen: set[tuple[str, str]] = set()
    troubles: list[BaseException] = []
    job_ids: list[int] = []

    def look(tx: Tx) -> list[Explanation]:
        found = [explain_service(tx, "work"), explain(tx, "node", "test")]
        for job_id in job_ids:
            found.append(explain_job(tx, job_id))
            found += [explain_stage(tx, row["id"]) for row in tx.rows(sa.select(stages.c.id).filter_by(job_id=job_id))]
            found += [explain_item(tx, row["id"]) for row in tx.rows(sa.select(items.c.id).filter_by(job_id=job_id))]
        return found

    def ask_all() -> None:
        try:
            while not stop.is_set():
                for found in store.read(look):
                    checked(found)
                    closed = {gate.code for gate in found.gates if gate.state == "closed"}
                    seen.update((found.what, code) for code in closed | {found.gates[-1].code})
        except BaseException as error:
            troubles.append(error)

    gate = threading.Semaphore(2)
    tried: set[int] = set()

    @service("work", workers=2)
    def work(item: Item) -> None:
        if item.key == "k00003" and item.id not in tried:
            tried.add(item.id)
            raise RuntimeError("not yet")
        gate.acquire()

    @work.plan
    def _plan(_: Any) -> list[str]:
        return keys(4)

    workflow = Workflow(
        name="life",
        steps=(
            Step(key="a", service="work"),
            Step(key="b", service="work", depends_on=("a",), follow="each"),
            Step(key="c", service="work", depends_on=("b",)),
        ),
    )
    with Engine(store, [work], SWIFT):
        job_ids += [submit(store, workflow, priority=5).job_id, submit(store, workflow, priority=9).job_id]
        asker = threading.Thread(target=ask_all)
        asker.start()
        try:
            wait_until(lambda: stage_of(store, job_ids[0])["succeeded"] >= 1, "one done")
            wait_until(lambda: {("job", "running"), ("stage", "depends")} <= seen or troubles, "the answer about it")
            ask(store, "pause", job_id=job_ids[0], payload={"reason": "test"})
            wait_until(lambda: status_of(store, job_ids[0]) != "running", "the pause")
            for _ in range(30):
                gate.release()
            wait_until(lambda: status_of(store, job_ids[0]) == "paused", "paused")
            wait_until(lambda: ("job", "job_paused") in seen or troubles, "the answer about it")
            ask(store, "resume", job_id=job_ids[0])
            for _ in range(60):
                gate.release()
            for job_id in job_ids:
                wait_until(lambda job_id=job_id: status_of(store, job_id) in JOB_FINISHED, "the end")  # type: ignore[misc]
            wait_until(lambda: ("job", "finished") in seen or troubles, "the last answer")
        finally:
            stop.set()
            asker.join()
    assert not troubles, troubles
    assert {("job", "running"), ("job", "job_paused"), ("job", "finished"), ("stage", "depends")} <= seen, seen


# --- what it costs ------------------------------------------------------------------------------------


def crowded(store: Store, many: int) -> tuple[int, int]:
    """A job with this many done, pending, troubled, due and waiting items; returns it and an item in the middle."""
    number = at_work(store, busy=2)
    job = submitted(store, items=many).job_id
    for start in range(0, many // 4, 500):
        settle(store, claim(store, number, min(500, many // 4 - start)), then=False)
    settle(store, claim(store, number, 20), "pending", due_at=store.clock.now() + LATER, attempt=1, error_code="e")

    def wait(tx: Tx) -> None:
        low = stage_of_tx(tx, job)["low_seq"]
        last = sa.and_(items.c.job_id == job, items.c.seq > many - many // 4)
        rows = tx.rows(sa.select(items.c.id, items.c.stage_id, items.c.job_id, items.c.seq).where(last))
        values = [
            {"item_id": row["id"], "name": f"source:{row['seq'] % 3}", "since": tx.now, **{
                key: row[key] for key in ("stage_id", "job_id", "seq")}} for row in rows
        ]  # fmt: skip
        tx.conn.execute(sa.insert(waits), values)
        here = stages.c.job_id == job
        tx.conn.execute(
            sa.update(stages).where(here).values(ready=stages.c.ready - len(rows), high_seq=many - len(rows))
        )
        assert low < many - len(rows)

    store.write("test", wait)
    limit(store, "service:work", rate=many, granted=many)
    limit(store, "node:nas", concurrent=10)
    now = round(datetime.now(UTC).timestamp() * 1e6)
    rows = [
        {"name": "service:work", "number": place, "tick": now - 10**9 + place, "granted_at": store.clock.now(),
         "process_id": number, "released": True} for place in range(1, many + 1)
    ]  # fmt: skip
    store.write("test", lambda tx: tx.conn.execute(sa.insert(permits), rows))
    return job, item_of(store, job, keys(many)[many // 2])["id"]


def stage_of_tx(tx: Tx, job: int) -> sa.RowMapping:
    row = tx.row(sa.select(stages).where(stages.c.job_id == job))
    assert row is not None
    return row


def everything(tx: Tx, job: int, item: int) -> list[Explanation]:
    last = tx.conn.execute(sa.select(sa.func.max(waits.c.item_id))).scalar_one()
    stage = stage_of_tx(tx, job)["id"]
    return [
        explain_job(tx, job), explain_stage(tx, stage), explain_item(tx, item), explain_item(tx, last),
        explain_service(tx, "work"), explain(tx, "node", "nas"),
    ]  # fmt: skip


def recorded(store: Store, job: int, item: int) -> list[tuple[str, Any]]:
    """What all explanations together execute."""
    seen: list[tuple[str, Any]] = []

    def work(tx: Tx) -> None:
        def note(_conn: Any, _cursor: Any, statement: str, params: Any, _context: Any, _many: bool) -> None:
            seen.append((statement, params))

        sa.event.listen(tx.conn, "before_cursor_execute", note)
        everything(tx, job, item)

    store.read(work)
    return seen


FEW, MANY = 2_000, 40_000
BIG = {"items", "events", "waits", "permits", "leases"}


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "with statistics"])
def test_on_postgresql_explain_visits_as_much_with_40_000_items_as_with_2_000(
    fresh_database: Callable[..., str], stores: Callable[..., Store], analysed: bool
) -> None:
    visited = {}
    for many in (FEW, MANY):
        store = stores(fresh_database("postgres"), ManualClock(datetime.now(UTC)))
        job, item = crowded(store, many)
        if analysed:
            store.write("test", lambda tx: tx.raw.execute("ANALYZE"))
        statements = recorded(store, job, item)
        visited[many] = 0

        def work(tx: Tx, many: int = many, statements: Any = statements) -> None:
            for statement, params in statements:
                if statement.startswith("SET "):
                    tx.raw.execute(statement)
                    continue
                answer = tx.raw.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", params).fetchone()
                found = list(plan_nodes(answer[0][0]["Plan"]))
                wrong = [node for node in found if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG]
                assert not wrong, statement
                visited[many] += sum(
                    node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
                    for node in found
                    if "Scan" in node["Node Type"] and ("Relation Name" in node or "Index Name" in node)
                )

        store.read(work)
    # Lines are counted up to a thousand; with 2,000 items they are shorter than that.
    assert visited[MANY] <= visited[FEW] + 12_000, visited


def plan_nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for inner in plan.get("Plans", ()) for node in plan_nodes(inner))]


def test_on_sqlite_explain_searches_indexes_and_takes_as_many_steps_with_40_000_items_as_with_10_000(
    fresh_database: Callable[..., str], stores: Callable[..., Store]
) -> None:
    steps = {}
    for many in (10_000, MANY):
        store = stores(fresh_database("sqlite"), ManualClock(datetime.now(UTC)))
        job, item = crowded(store, many)
        statements = recorded(store, job, item)
        details: list[str] = []
        steps[many] = 0

        def tick(many: int = many) -> int:
            steps[many] += 1
            return 0

        def work(
            tx: Tx, job: int = job, item: int = item, statements: Any = statements, details: Any = details,
            tick: Any = tick,
        ) -> None:  # fmt: skip
            for statement, params in statements:
                details.extend(row[3] for row in tx.raw.execute(f"EXPLAIN QUERY PLAN {statement}", params))
            tx.raw.set_progress_handler(tick, 10)
            try:
                everything(tx, job, item)
            finally:
                tx.raw.set_progress_handler(None, 0)

        store.read(work)
        scans = [detail for detail in details if re.match(rf"SCAN ({'|'.join(BIG)})\b", detail)]
        # The first thousand of the index of due items, and the first one in line: each stops by itself.
        assert {re.sub(r".*USING ", "", scan) for scan in scans} <= {"INDEX ix_items_due", "INDEX ix_waits_line"}, scans
    assert steps[MANY] <= steps[10_000] * 1.2, steps
