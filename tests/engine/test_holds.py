"""Holds of a service, a lane and everything; pauses of a stage; and how each of them ends."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from dalsegno import Engine, Item, Lane, Plan, Step, Store, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine.commander import cancel_job, request
from dalsegno.engine.holds import Held, held, hold, release
from dalsegno.engine.pauses import expire, pause_job, pause_stage, resume_job, resume_stage
from dalsegno.engine.planner import Planner
from dalsegno.engine.scheduler import cancel_some, look, sweep
from dalsegno.engine.service import Services
from dalsegno.errors import CommandRefused, InputInvalid, NotFound
from tests.helpers import (
    SWIFT,
    admit,
    assert_sound,
    begin,
    chain,
    claim,
    command,
    events_of,
    item_of,
    items_of,
    job_of,
    keys,
    lane_of,
    named,
    one_step,
    register,
    settle,
    stage_of,
    status_of,
    statuses_of,
    submitted,
    types_of,
    wait_for_job,
    wait_until,
    work_off,
)

NOTHING = Held(False, frozenset(), frozenset())


def held_now(store: Store) -> Held:
    return store.read(held)


# --- what is held -------------------------------------------------------------------------------


def test_each_level_is_held_and_released_by_its_name(still: Store) -> None:
    submit(still, one_step(), items=keys(1))
    assert held_now(still) == NOTHING
    for name in ("all", "service:work", "lane:default"):
        still.write("hold", lambda tx, name=name: hold(tx, name, "film night", "desk"))
    assert held_now(still) == Held(True, frozenset({"work"}), frozenset({"default"}))
    for name in ("all", "service:work", "lane:default"):
        assert still.write("release", lambda tx, name=name: release(tx, name, "desk"))
        assert not still.write("release", lambda tx, name=name: release(tx, name, "desk"))
    assert held_now(still) == NOTHING
    told = [kind for kind in types_of(still) if "hold" in kind or "lane" in kind]
    assert told == ["hold_set", "hold_set", "lane_held", "hold_released", "hold_released", "lane_released"]


@pytest.mark.parametrize("name", ["all", "service:work", "lane:default"])
def test_a_hold_is_over_when_its_time_has_come_even_before_it_is_removed(
    still: Store, clock: ManualClock, name: str
) -> None:
    submit(still, one_step(), items=keys(1))
    still.write("hold", lambda tx: hold(tx, name, "film night", "desk", clock.now() + timedelta(hours=2)))
    assert held_now(still) != NOTHING
    clock.advance(7200)
    assert held_now(still) == NOTHING


def test_what_cannot_be_held_is_refused(still: Store) -> None:
    with pytest.raises(NotFound, match="lane"):
        still.write("hold", lambda tx: hold(tx, "lane:nowhere", "why", "desk"))
    with pytest.raises(InputInvalid, match="neither"):
        still.write("hold", lambda tx: hold(tx, "everything", "why", "desk"))


def test_holding_again_changes_why_and_until_when_but_not_since_when(still: Store, clock: ManualClock) -> None:
    submit(still, one_step(), items=keys(1))
    still.write("hold", lambda tx: hold(tx, "lane:default", "film night", "desk"))
    since, later = clock.now(), clock.now() + timedelta(hours=3)
    clock.advance(60)
    for _ in range(2):
        still.write("hold", lambda tx: hold(tx, "lane:default", "long film", "shelf", later))
    lane = lane_of(still)
    assert (lane["held_reason"], lane["held_by"], lane["held_at"], lane["held_until"]) == (
        "long film", "shelf", since, later,
    )  # fmt: skip
    assert types_of(still).count("lane_held") == 2, "saying the same twice is no event"
    assert events_of(still, type="lane_held")[-1]["data"] == {"lane": "default", "until": later.isoformat()}


# --- what does not happen while held ------------------------------------------------------------


@pytest.mark.parametrize("name", ["all", "lane:default"])
def test_nothing_is_admitted_while_its_lane_or_everything_is_held(still: Store, clock: ManualClock, name: str) -> None:
    other = submit(still, one_step(lane=Lane(name="other", max_active=1)), items=keys(1)).job_id
    job = submit(still, one_step(), items=keys(1)).job_id
    still.write("hold", lambda tx: hold(tx, name, "film night", "desk", clock.now() + timedelta(hours=2)))
    admit(still)
    assert status_of(still, job) == "queued"
    assert status_of(still, other) == ("queued" if name == "all" else "running")
    clock.advance(7200)
    admit(still)
    assert (status_of(still, job), status_of(still, other)) == ("running", "running")


@pytest.mark.parametrize("name", ["all", "service:work", "lane:default"])
def test_nothing_is_planned_while_held(still: Store, name: str) -> None:
    asked: list[str] = []

    @service("work")
    def work(item: Item) -> None:
        return None

    @work.plan
    def plan(plan: Plan) -> list[str]:
        asked.append(plan.step)
        return ["one"]

    job = submitted(still, items=None).job_id
    me = register(still)
    planner = Planner(still, Services([work]), lambda: me)
    still.write("hold", lambda tx: hold(tx, name, "film night", "desk"))
    planner.tick()
    assert asked == []
    assert status_of(still, job) == "running", "a hold moves no job"
    still.write("release", lambda tx: release(tx, name, "desk"))
    planner.tick()
    assert asked == ["a"]
    assert statuses_of(still, job) == {"pending": 1}


class Gate:
    """A service whose items wait inside until the test lets them go."""

    def __init__(self, name: str = "work") -> None:
        self.inside: list[str] = []
        self.open = threading.Event()
        self.service = service(name, workers=1)(self._work)

    def _work(self, item: Item) -> None:
        self.inside.append(item.key)
        assert self.open.wait(30)


@pytest.mark.parametrize("name", ["all", "service:work", "lane:default"])
def test_a_hold_gives_the_prefetched_back_lets_the_begun_finish_and_moves_no_job(store: Store, name: str) -> None:
    gate = Gate()
    job = submit(store, one_step(), items=keys(6)).job_id
    with Engine(store, [gate.service], SWIFT):
        wait_until(lambda: gate.inside, "an item to begin")
        store.write("hold", lambda tx: hold(tx, name, "film night", "desk"))
        wait_until(lambda: statuses_of(store, job) == {"running": 1, "pending": 5}, "the claimed to come back")
        gate.open.set()
        wait_until(lambda: statuses_of(store, job) == {"succeeded": 1, "pending": 5}, "what had begun to finish")
        assert status_of(store, job) == "running"
        store.write("release", lambda tx: release(tx, name, "desk"))
        assert wait_for_job(store, job) == "completed"
    assert {(row["attempt"], row["interruptions"]) for row in items_of(store, job)} == {(0, 0)}
    assert_sound(store, job)


def test_the_hold_of_one_service_leaves_the_others_alone(store: Store) -> None:
    other = service("other")(lambda _item: None)
    work = service("work")(lambda _item: None)
    store.write("hold", lambda tx: hold(tx, "service:work", "film night", "desk"))
    stopped = submit(store, one_step(), items=keys(2)).job_id
    goes = submit(store, one_step("other"), items=keys(2)).job_id
    with Engine(store, [work, other], SWIFT):
        assert wait_for_job(store, goes) == "completed"
        assert statuses_of(store, stopped) == {"pending": 2}
        store.write("release", lambda tx: release(tx, "service:work", "desk"))
        assert wait_for_job(store, stopped) == "completed"


# --- who releases -------------------------------------------------------------------------------


def test_resuming_a_job_releases_the_lane_that_the_engine_held(still: Store) -> None:
    job = submitted(still).job_id
    still.write("pause", lambda tx: pause_job(tx, job, "crash recovery", "rescuer"))
    still.write("hold", lambda tx: hold(tx, "lane:default", "crash recovery", "rescuer"))
    command(still, "resume", job_id=job)
    assert held_now(still) == NOTHING


def test_resuming_or_canceling_a_job_leaves_the_lane_that_an_operator_held(still: Store) -> None:
    job, other = submitted(still).job_id, submitted(still).job_id
    still.write("hold", lambda tx: hold(tx, "lane:default", "film night", "desk"))
    command(still, "pause", job_id=job)
    assert command(still, "resume", job_id=job)["status"] == "applied"
    assert command(still, "cancel", job_id=other)["status"] == "applied"
    assert held_now(still).lanes == {"default"}
    refused = command(still, "resume", job_id=job)
    assert refused["status"] == "rejected"
    assert 'Its lane "default" is held: resume the lane.' in refused["error_message"]


# --- a job --------------------------------------------------------------------------------------


def test_a_job_pause_knows_who_why_since_when_and_until_when_and_resume_forgets_it(
    still: Store, clock: ManualClock
) -> None:
    job = submitted(still).job_id
    until, since = clock.now() + timedelta(hours=1), clock.now()
    payload = {"reason": "film night", "until": until.isoformat()}
    command(still, "pause", job_id=job, payload=payload, requested_by="desk")
    row = job_of(still, job)
    assert (row["status"], row["pause_reason"], row["paused_by"]) == ("paused", "film night", "desk")
    assert (row["paused_at"], row["pause_until"]) == (since, until)
    clock.advance(60)
    command(still, "pause", job_id=job, payload={"reason": "long film"}, requested_by="shelf")
    row = job_of(still, job)
    assert (row["pause_reason"], row["paused_by"]) == ("long film", "shelf")
    assert (row["paused_at"], row["pause_until"]) == (since, None)
    command(still, "resume", job_id=job)
    row = job_of(still, job)
    assert [row[name] for name in ("pause_reason", "paused_by", "paused_at", "pause_until")] == [None] * 4
    assert_sound(still, job)


@pytest.mark.parametrize("until", ["soon", 7, "2026-01-31T22:00"])
def test_an_until_that_is_no_moment_is_refused(still: Store, until: Any) -> None:
    job = submitted(still).job_id
    refused = command(still, "pause", job_id=job, payload={"until": until})
    assert (refused["status"], refused["error_code"]) == ("rejected", "input_invalid")
    assert status_of(still, job) == "running"


# --- a stage ------------------------------------------------------------------------------------


def pair() -> Any:
    """Two steps that do not need each other."""
    return named(Step(key="a", service="work"), Step(key="b", service="other"))


def test_a_stage_is_paused_while_its_job_goes_on_with_the_others(store: Store) -> None:
    me = register(store)
    job = submitted(store, pair(), {"a": keys(3), "b": keys(2)}).job_id
    begun = claim(store, me)
    begin(store, begun)
    payload = {"stage": "a", "reason": "film night"}
    assert command(store, "pause_stage", job_id=job, payload=payload, requested_by="desk")["status"] == "applied"
    row = stage_of(store, job)
    assert (row["status"], row["pause_reason"], row["paused_by"]) == ("pause_requested", "film night", "desk")
    assert claim(store, me, 5) == []
    settle(store, begun)
    assert stage_of(store, job)["status"] == "paused"
    assert len(work_off(store, me, "other")) == 2
    assert stage_of(store, job, "b")["status"] == "completed"
    assert status_of(store, job) == "running"
    assert command(store, "resume_stage", job_id=job, payload={"stage": "a"})["status"] == "applied"
    row = stage_of(store, job)
    assert [row[name] for name in ("pause_reason", "paused_by", "paused_at", "pause_until")] == [None] * 4
    assert len(work_off(store, me)) == 2
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_a_stage_resumed_before_its_last_lease_ended_goes_on_at_once(store: Store) -> None:
    me = register(store)
    job = submitted(store).job_id
    begun = claim(store, me)
    store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))
    store.write("resume", lambda tx: resume_stage(tx, job, "a", "desk"))
    assert stage_of(store, job)["status"] == "running"
    settle(store, [*begun, *claim(store, me, 5)])
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_a_stage_that_is_paused_before_its_turn_does_not_open_when_it_comes(store: Store) -> None:
    me = register(store)
    job = submitted(store, chain("work", "other"), {"a": keys(1), "b": keys(2)}).job_id
    store.write("pause", lambda tx: pause_stage(tx, job, "b", "film night", "desk"))
    work_off(store, me)
    assert (stage_of(store, job)["status"], stage_of(store, job, "b")["status"]) == ("completed", "pending")
    sweep(store)
    assert (status_of(store, job), claim(store, me, 5, "other")) == ("running", [])
    store.write("resume", lambda tx: resume_stage(tx, job, "b", "desk"))
    assert len(work_off(store, me, "other")) == 2
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_a_stage_paused_by_itself_stays_so_when_its_job_is_paused_and_resumed(store: Store) -> None:
    me = register(store)
    job = submitted(store, pair(), {"a": keys(1), "b": keys(1)}).job_id
    store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))
    command(store, "pause", job_id=job)
    assert status_of(store, job) == "paused"
    command(store, "resume", job_id=job)
    admit(store)
    assert (stage_of(store, job)["status"], stage_of(store, job, "b")["status"]) == ("paused", "running")
    command(store, "pause", job_id=job)
    store.write("resume", lambda tx: resume_stage(tx, job, "a", "desk"))
    assert stage_of(store, job)["status"] == "paused", "its job still is"
    command(store, "resume", job_id=job)
    admit(store)
    work_off(store, me)
    work_off(store, me, "other")
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_a_stage_of_a_paused_job_can_be_told_to_stay(store: Store) -> None:
    job = submitted(store).job_id
    command(store, "pause", job_id=job)
    store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))
    command(store, "resume", job_id=job)
    admit(store)
    assert (status_of(store, job), stage_of(store, job)["status"]) == ("running", "paused")
    assert_sound(store, job)


def test_the_follower_of_a_paused_stage_does_what_it_has_and_waits(store: Store) -> None:
    a, b = Gate("work"), service("other")(lambda _item: None)
    job = submit(store, chain("work", "other", follow="each"), items=keys(4)).job_id
    with Engine(store, [a.service, b], SWIFT):
        wait_until(lambda: a.inside, "an item to begin")
        store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))
        wait_until(lambda: statuses_of(store, job, "a") == {"running": 1, "pending": 3}, "the claimed to come back")
        a.open.set()
        wait_until(lambda: statuses_of(store, job, "b") == {"succeeded": 1}, "the follower of what had begun")
        wait_until(lambda: stage_of(store, job)["status"] == "paused", "the pause")
        assert (status_of(store, job), stage_of(store, job, "b")["status"]) == ("running", "running")
        store.write("resume", lambda tx: resume_stage(tx, job, "a", "desk"))
        assert wait_for_job(store, job) == "completed"
    assert statuses_of(store, job) == {"succeeded": 8}
    assert_sound(store, job)


def test_a_paused_follower_collects_what_comes_and_does_it_later(store: Store) -> None:
    work, other = service("work")(lambda _item: None), service("other")(lambda _item: None)
    job = submit(store, chain("work", "other", follow="each"), items=keys(4)).job_id
    store.write("pause", lambda tx: pause_stage(tx, job, "b", "film night", "desk"))
    with Engine(store, [work, other], SWIFT):
        wait_until(lambda: statuses_of(store, job, "b") == {"pending": 4}, "the followers")
        wait_until(lambda: stage_of(store, job)["status"] == "completed", "the first stage")
        assert status_of(store, job) == "running"
        store.write("resume", lambda tx: resume_stage(tx, job, "b", "desk"))
        assert wait_for_job(store, job) == "completed"
    assert_sound(store, job)


def test_items_of_a_paused_stage_are_retried_and_canceled_as_usual(store: Store) -> None:
    me = register(store)
    job = submitted(store, one_step(max_attempts=1), items=3).job_id
    failed = claim(store, me)
    store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))
    settle(store, failed, "failed")
    assert stage_of(store, job)["status"] == "paused"
    assert command(store, "retry_item", item_id=failed[0].id)["status"] == "applied"
    assert (item_of(store, job, "k00001")["status"], stage_of(store, job)["status"]) == ("pending", "paused")
    assert claim(store, me) == []
    store.write("cancel", lambda tx: cancel_job(tx, job, "desk"))
    cancel_some(store)
    assert (status_of(store, job), stage_of(store, job)["status"]) == ("canceled", "canceled")
    assert stage_of(store, job)["pause_reason"] is None
    assert_sound(store, job)


def test_what_was_interrupted_in_a_paused_stage_runs_first_after_it_is_resumed(store: Store) -> None:
    me = register(store)
    job = submitted(store, one_step(lane=Lane(name="careful", recovery="pause")), items=2).job_id
    begun = claim(store, me)
    begin(store, begun)
    store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))
    settle(store, begun, "interrupted")
    sweep(store)
    assert (status_of(store, job), statuses_of(store, job)) == ("running", {"interrupted": 1, "pending": 1})
    store.write("resume", lambda tx: resume_stage(tx, job, "a", "desk"))
    sweep(store)
    assert [item.key for item in claim(store, me)] == [begun[0].key]


@pytest.mark.parametrize("kind", ["pause_stage", "resume_stage"])
def test_a_stage_that_is_not_there_is_said_with_the_nearest_name(store: Store, kind: str) -> None:
    job = submitted(store, named(Step(key="download", service="work")), {"download": keys(1)}).job_id
    refused = command(store, kind, job_id=job, payload={"stage": "donwload"})
    assert refused["error_message"] == f'Job {job} has no stage "donwload". Did you mean "download"?'
    assert command(store, kind, job_id=job, payload={})["error_code"] == "input_invalid"
    with pytest.raises(NotFound):
        store.write("request", lambda tx: request(tx, kind, job_id=99, payload={"stage": "download"}))


def test_a_stage_that_cannot_be_paused_or_resumed_is_refused(store: Store) -> None:
    me = register(store)
    job = submitted(store, pair(), {"a": keys(1), "b": keys(1)}).job_id
    with pytest.raises(CommandRefused, match="Only a stage that was paused by itself"):
        store.write("resume", lambda tx: resume_stage(tx, job, "a", "desk"))
    work_off(store, me)
    with pytest.raises(CommandRefused, match='Stage "a" cannot be paused: it is completed'):
        store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))
    work_off(store, me, "other")
    with pytest.raises(CommandRefused, match=f"Job {job} cannot be paused: it is completed"):
        store.write("pause", lambda tx: pause_stage(tx, job, "a", "film night", "desk"))


# --- the clock ----------------------------------------------------------------------------------


def test_every_pause_ends_by_itself_when_its_time_has_come(still: Store, clock: ManualClock) -> None:
    until = clock.now() + timedelta(hours=2)
    whole = submitted(still).job_id
    part = submitted(still, pair(), {"a": keys(1), "b": keys(1)}).job_id
    for name in ("all", "service:work", "lane:default"):
        still.write("hold", lambda tx, name=name: hold(tx, name, "film night", "desk", until))
    still.write("pause", lambda tx: pause_job(tx, whole, "film night", "desk", until))
    still.write("pause", lambda tx: pause_stage(tx, part, "a", "film night", "desk", until))
    clock.advance(7199)
    seen = still.read(look)
    assert (seen.over, seen.next) == (False, until)
    expire(still)
    assert (status_of(still, whole), stage_of(still, part)["status"]) == ("paused", "paused")
    clock.advance(1)
    assert still.read(look).over
    expire(still)
    assert not still.read(look).over
    assert (status_of(still, whole), stage_of(still, part)["status"]) == ("queued", "running")
    assert lane_of(still)["held_at"] is None
    ended = [event for event in events_of(still) if event["source"] == "clock"]
    assert sorted(event["type"] for event in ended) == [
        "hold_released", "hold_released", "job_queued", "lane_released", "stage_resumed",
    ]  # fmt: skip
    assert_sound(still, whole, part)


def test_a_job_whose_time_comes_while_it_drains_goes_on_when_it_has(still: Store, clock: ManualClock) -> None:
    me = register(still)
    job = submitted(still).job_id
    begun = claim(still, me)
    still.write("pause", lambda tx: pause_job(tx, job, "film night", "desk", clock.now() + timedelta(minutes=1)))
    clock.advance(61)
    assert not still.read(look).over
    expire(still)
    assert status_of(still, job) == "pause_requested"
    settle(still, begun)
    assert still.read(look).over
    expire(still)
    assert status_of(still, job) == "queued"


def test_the_clock_does_not_release_the_lane_that_a_crash_held(still: Store, clock: ManualClock) -> None:
    job = submitted(still).job_id
    still.write("pause", lambda tx: pause_job(tx, job, "film night", "desk", clock.now() + timedelta(minutes=1)))
    still.write("hold", lambda tx: hold(tx, "lane:default", "crash recovery", "rescuer"))
    clock.advance(61)
    expire(still)
    assert (status_of(still, job), held_now(still).lanes) == ("queued", {"default"})
    assert still.write("resume", lambda tx: resume_job(tx, job, {}, "desk"))
    assert held_now(still) == NOTHING


def test_a_running_engine_goes_on_when_the_time_has_come(store: Store) -> None:
    work = service("work")(lambda _item: None)
    job = submit(store, one_step(), items=keys(3)).job_id
    store.write(
        "hold", lambda tx: hold(tx, "all", "a short film", "desk", store.clock.now() + timedelta(milliseconds=300))
    )
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
    assert "hold_released" in types_of(store)
