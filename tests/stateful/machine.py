"""The engine as a state machine: random operators, random workers, random deaths, one transaction at a time.

Several processes live in this one. Each has a real Settler, Planner and row in `processes`; none has a
thread. What the loops of the engine would do is done by rules, in any order Hypothesis likes.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dalsegno import Backoff, Lane, Plan, Step, Store, Workflow, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine.claimer import _stage_infos
from dalsegno.engine.commander import cancel_job, retry_item, set_priority
from dalsegno.engine.engine import _pause_by_service
from dalsegno.engine.executor import AsyncLoop
from dalsegno.engine.heart import Heart
from dalsegno.engine.holds import held, hold, release
from dalsegno.engine.item import Item
from dalsegno.engine.pauses import expire, pause_job, pause_stage, resume_job, resume_stage
from dalsegno.engine.planner import Planner
from dalsegno.engine.rescuer import rescue
from dalsegno.engine.scheduler import admit, cancel_some, sweep, wake_due
from dalsegno.engine.service import Services
from dalsegno.engine.settler import Rules, Settler
from dalsegno.engine.skip import SKIPPABLE, skip_items
from dalsegno.errors import CommandRefused, TwinActive
from dalsegno.model.outcome import (
    Done,
    Fail,
    Interrupted,
    Outcome,
    PauseJob,
    Release,
    Retry,
    Skip,
    Throttled,
)
from dalsegno.model.states import JOB_FINISHED, JOB_UNFINISHED, STAGE_FINISHED
from dalsegno.store.hot import Claimed
from dalsegno.store.schema import metadata
from dalsegno.store.store import Tx
from tests.stateful.audit import Picture, Row, Tail, Trail, check, event_places, is_open, look

SERVICES = ("collect", "download", "upload")
LANES = (
    Lane(name="free"),
    Lane(name="single", max_active=1, recovery="continue"),
    Lane(name="careful", max_active=2, recovery="pause"),
)
OUTCOMES = (
    "done",
    "result",
    "skip",
    "retry",
    "retry_at_once",
    "fail",
    "throttled",
    "release",
    "interrupted",
    "pause",
)
PRIORITIES = (50, 100, 150)
HOLDS = ("all", *(f"service:{name}" for name in SERVICES), *(f"lane:{lane.name}" for lane in LANES))
MOST_JOBS = 5


@st.composite
def workflows(draw: st.DrawFn) -> tuple[list[Step], dict[str, list[str]], Lane, int]:
    """The steps of a small DAG, the items given to some of them, a lane and a priority."""
    steps: list[Step] = []
    given: dict[str, list[str]] = {}
    for number in range(draw(st.integers(1, 4))):
        before = [step.key for step in steps]
        needs = draw(st.lists(st.sampled_from(before), unique=True, max_size=2)) if before else []
        each = len(needs) == 1 and draw(st.booleans())
        step = Step(
            key=f"s{number}",
            service=draw(st.sampled_from(SERVICES)),
            depends_on=tuple(needs),
            follow="each" if each else "all",
            default_params={"plan": draw(st.integers(0, 3))},
            on_failure=draw(st.sampled_from(("continue", "stop"))),
            max_attempts=draw(st.integers(1, 3)),
            max_interruptions=draw(st.integers(1, 3)),
        )
        steps.append(step)
        if not each and draw(st.booleans()):
            given[step.key] = [f"g{number}.{n}" for n in range(draw(st.integers(1, 4)))]
    return steps, given, draw(st.sampled_from(LANES)), draw(st.sampled_from(PRIORITIES))


@dataclass
class Process:
    """A simulated engine process: what it holds, and whether it still breathes."""

    heart: Heart
    settler: Settler
    planner: Planner
    hand: list[Item] = field(default_factory=list)
    alive: bool = True

    @property
    def id(self) -> int:
        return self.heart.process_id


class EngineMachine(RuleBasedStateMachine):
    """Give a subclass a `store` whose clock is a ManualClock."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.clock: ManualClock = self.store.clock  # type: ignore[assignment]
        self.clock.__init__(datetime(2026, 1, 1, tzinfo=UTC))  # type: ignore[misc]
        self.store.write("empty", empty)
        self.expected: set[tuple[int, str, str]] = set()
        """Every item that must exist: (job, step, key)."""
        self.processes: list[Process] = []
        self.rescued: list[Process] = []
        self.trail = Trail()
        self.tail = Tail()
        self.picture: Picture = look(self.store)
        self.numbers = 0

    # --- helpers ------------------------------------------------------------------------------

    def start_process(self) -> Process:
        heart = Heart(self.store, "node", {}, 60.0, lambda: None)
        heart.register({})
        rules = Rules(Backoff(base=10, cap=60), random.Random(0))
        settler = Settler(self.store, {}, AsyncLoop(), rules, _pause_by_service, lambda: None)
        planner = Planner(self.store, Services(self.services()), lambda: heart.process_id)
        process = Process(heart, settler, planner)
        self.processes.append(process)
        return process

    def services(self) -> list[Any]:
        found = []
        for name in SERVICES:
            made = service(name)(lambda _item: None)
            made.plan(self.planned)
            found.append(made)
        return found

    def planned(self, plan: Plan) -> list[str]:
        keys = [f"{plan.step}.{number}" for number in range(plan.params["plan"])]
        keys += [f"{plan.step}<{up.step}/{up.key}" for up in plan.upstream()]
        self.expected |= {(plan.job_id, plan.step, key) for key in keys}
        return keys

    def living(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    def held(self) -> list[tuple[Process, Item]]:
        return [(process, item) for process in self.processes for item in process.hand]

    def job_ids(self, *statuses: str) -> list[int]:
        return [key for key, job in self.picture.jobs.items() if not statuses or job["status"] in statuses]

    def pick(self, data: st.DataObject, choices: list[Any], label: str) -> Any:
        return choices[data.draw(st.integers(0, len(choices) - 1), label=label)]

    def is_live(self, item: Item) -> bool:
        return holds(self.picture, item)

    # --- submitting and planning --------------------------------------------------------------

    @initialize()
    def two_processes(self) -> None:
        self.start_process()
        self.start_process()

    @precondition(lambda self: len(self.picture.jobs) < MOST_JOBS)
    @rule(what=workflows())
    def submit(self, what: tuple[list[Step], dict[str, list[str]], Lane, int]) -> None:
        steps, given, lane, priority = what
        self.numbers += 1
        workflow = Workflow(name=f"w{self.numbers}", lane=lane, steps=tuple(steps))
        job_id, created = submit(self.store, workflow, items=given or None, priority=priority)
        assert created
        self.expected |= {(job_id, step, key) for step, keys in given.items() for key in keys}

    @precondition(lambda self: self.job_ids("queued"))
    @rule()
    def admit(self) -> None:
        self.check_admission(lambda: admit(self.store))

    def check_admission(self, work: Any) -> None:
        """Per lane, whoever is let in comes before whoever is left waiting."""
        before = self.picture
        work()
        after = look(self.store)
        for name in after.lanes:
            waited = [j for j, row in before.jobs.items() if row["lane"] == name and row["status"] == "queued"]
            waited.sort(key=lambda j: (before.jobs[j]["priority"], before.jobs[j]["order_seq"]))
            waited = [j for j in waited if before.jobs[j]["cancel_requested_at"] is None]
            let_in = [j for j in waited if after.jobs[j]["status"] != "queued"]
            assert let_in == waited[: len(let_in)]
            assert not let_in or not before.held(self.clock.now(), lane=name), "admitted in a held lane"

    @precondition(lambda self: self.living() and any(unplanned(s) for s in self.picture.stages.values()))
    @rule(data=st.data())
    def plan(self, data: st.DataObject) -> None:
        before = self.picture
        self.pick(data, self.living(), "process").planner.tick()
        for key, stage in look(self.store).stages.items():
            if stage["planned"] and not before.stages[key]["planned"]:
                lane = before.jobs[stage["job_id"]]["lane"]
                assert not before.held(self.clock.now(), lane=lane, service=stage["service"]), "planned while held"

    # --- claiming, beginning, settling --------------------------------------------------------

    @precondition(lambda self: self.living() and any(s["claimable"] for s in self.picture.stages.values()))
    @rule(data=st.data(), name=st.sampled_from(SERVICES), want=st.integers(1, 6))
    def claim(self, data: st.DataObject, name: str, want: int) -> None:
        self.take(self.pick(data, self.living(), "process"), name, want)

    def take(self, process: Process, name: str, want: int) -> int:
        expected = expected_claim(look(self.store), name, want, self.clock.now())
        claimed = self.store.write("claim", lambda tx: claim_as_a_claimer_does(tx, name, process.id, want))
        assert [row.id for row in claimed] == expected
        infos = self.store.read(lambda tx: _stage_infos(tx, {row.stage_id for row in claimed})) if claimed else {}
        work = [Item(row, infos[row.stage_id]) for row in claimed]
        process.settler.hold(work)
        process.hand += work
        return len(work)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        process, item = self.pick(data, self.held(), "item")
        if item.begun:
            return
        live = self.is_live(item)
        self.start(item)
        assert process.settler.beginning.begin([item]) == live
        if not live:
            self.check_nothing_changed()

    def start(self, item: Item) -> None:
        if item.started_at is None:
            item.started_at = self.clock.now()
            item.worker = "worker-1"

    @precondition(lambda self: self.held())
    @rule(data=st.data(), kind=st.sampled_from(OUTCOMES), crash=st.integers(0, 9))
    def settle(self, data: st.DataObject, kind: str, crash: int) -> None:
        """One item in hand ends; once in ten the process dies between the settle and what follows from it."""
        process, item = self.pick(data, self.held(), "item")
        self.finish(process, [item], kind, follow_up=crash != 0)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(OUTCOMES), min_size=2, max_size=5))
    def settle_many(self, data: st.DataObject, kinds: list[str]) -> None:
        process, _ = self.pick(data, self.held(), "process")
        some = process.hand[: len(kinds)]
        for item, kind in zip(some, kinds, strict=False):
            self.hand_in(process, item, kind)
        self.flush(process, some, follow_up=True)

    @precondition(lambda self: self.living() and any(s["claimable"] for s in self.picture.stages.values()))
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4))
    def work(self, data: st.DataObject, kinds: list[str]) -> None:
        """A whole turn: claim, begin some, settle all. It lets histories get deep."""
        process = self.pick(data, self.living(), "process")
        ready = sorted({stage["service"] for stage in self.picture.stages.values() if stage["claimable"]})
        before = len(process.hand)
        self.take(process, self.pick(data, ready, "service"), len(kinds))
        some = process.hand[before:]
        for number, (item, kind) in enumerate(zip(some, kinds, strict=False)):
            if number % 2:
                self.start(item)
                assert process.settler.beginning.begin([item])
            self.hand_in(process, item, kind)
        self.flush(process, some, follow_up=True)

    def finish(self, process: Process, some: list[Item], kind: str, *, follow_up: bool) -> None:
        for item in some:
            self.hand_in(process, item, kind)
        self.flush(process, some, follow_up=follow_up)

    def hand_in(self, process: Process, item: Item, kind: str) -> None:
        outcome = self.outcome(kind)
        if kind != "release" or item.begun:
            self.start(item)
        process.settler.put(item, outcome)

    def outcome(self, kind: str) -> Outcome:
        match kind:
            case "result":
                self.numbers += 1
                return Done({"n": self.numbers})
            case "skip":
                return Skip("there already")
            case "retry":
                return Retry("no luck")
            case "retry_at_once":
                return Retry("no luck", delay=0)
            case "fail":
                return Fail("never", code="never")
            case "throttled":
                return Throttled(self.clock.now() + timedelta(seconds=30), "slow down")
            case "release":
                return Release("not now")
            case "stopped":
                return Interrupted("stopped", "stopped")
            case "pause":
                return PauseJob("disk is full", "disk_full")
            case _:
                return Done()

    def flush(self, process: Process, some: list[Item], *, follow_up: bool) -> None:
        before = look(self.store)
        live = {i.id for i in some if i.id in before.leases and before.leases[i.id]["number"] == i.claimed.lease}
        if follow_up:
            process.settler.flush()
        else:
            while process.settler._ended:
                process.settler._settle_some()
            process.settler._quiet.clear()
            process.settler._pausing.clear()
        process.hand = [item for item in process.hand if item not in some]
        after = look(self.store)
        changed = {key for key in before.leases if after.leases.get(key) != before.leases[key]}
        # Only the live ones may move; a follower that starts over may lose its lease as well.
        own = {item.id for item in some}
        assert live <= changed, "a finish under a live lease was refused"
        assert not (own - live) & changed
        for item in some:
            if item.id not in live:
                assert after.items[item.id] == before.items[item.id], "a finish from a stale lease was accepted"
        for key in changed - own:
            assert after.items[key]["parent_id"] in live, "a lease ended that nobody spoke for"
        for item in some:
            row = after.items[item.id]
            stage = after.stages[item.stage.id]
            if item.id in live and row["status"] == "failed" and stage["on_failure"] == "stop":
                assert not stage["open"], "a failure did not stop its stage"
            canceling = before.jobs[item.job_id]["cancel_requested_at"] is not None
            if item.id in live and row["status"] in ("succeeded", "skipped") and not canceling:
                for follower in item.stage.followed_by:
                    step = after.stages[follower]["key"]
                    self.expected.add((item.job_id, step, item.key))

    @precondition(lambda self: any(not self.is_live(item) for _, item in self.held()))
    @rule(data=st.data(), kind=st.sampled_from(OUTCOMES))
    def settle_stale(self, data: st.DataObject, kind: str) -> None:
        """Somebody else has the item by now, or has had it: nothing at all may change."""
        stale = [(process, item) for process, item in self.held() if not self.is_live(item)]
        process, item = self.pick(data, stale, "item")
        self.hand_in(process, item, kind)
        process.settler._settle_some()
        assert not process.settler._quiet
        assert not process.settler._pausing
        process.hand.remove(item)
        self.check_nothing_changed()

    def check_nothing_changed(self) -> None:
        assert look(self.store) == self.picture

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        """What the claimer does after a pause, a hold or a cancel: what has not begun goes back."""
        process, _ = self.pick(data, self.held(), "process")
        closed = {stage["id"] for stage in self.picture.stages.values() if not stage["open"] or self.stands(stage)}
        some = [item for item in process.hand if item.stage.id in closed and item.started_at is None]
        self.finish(process, some, "release", follow_up=True)

    def stands(self, stage: Row) -> bool:
        lane = self.picture.jobs[stage["job_id"]]["lane"]
        return self.picture.held(self.clock.now(), lane=lane, service=stage["service"])

    # --- deaths -------------------------------------------------------------------------------

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Silent from now on, as far as the others can see; a zombie may still speak (settle)."""
        self.pick(data, self.living(), "process").alive = False
        if len(self.living()) < 2:
            self.start_process()

    @precondition(lambda self: self.missing())
    @rule(data=st.data())
    def rescue(self, data: st.DataObject) -> None:
        self.bury(self.pick(data, self.missing(), "process"))

    def missing(self) -> list[Process]:
        return [process for process in self.processes if not process.alive and process not in self.rescued]

    def bury(self, process: Process) -> None:
        before = look(self.store)
        rescue(self.store, process.id)
        after = look(self.store)
        self.rescued.append(process)
        assert process.id not in after.processes
        for key, lease in before.leases.items():
            if lease["process_id"] != process.id:
                assert after.leases[key] == lease
                continue
            was, now = before.items[key], after.items[key]
            assert key not in after.leases
            assert now["attempt"] == was["attempt"], "a death cost an attempt"
            if was["status"] == "claimed":
                assert now["status"] == "pending"
                assert now["interruptions"] == was["interruptions"], "what never began was counted"
            else:
                assert now["interruptions"] == was["interruptions"] + 1
                most = before.stages[was["stage_id"]]["max_interruptions"]
                if now["interruptions"] >= most:
                    assert now["status"] == "failed"
                else:
                    assert now["status"] in ("interrupted", "pending")

    @precondition(lambda self: self.rescued)
    @rule(data=st.data())
    def rescue_again(self, data: st.DataObject) -> None:
        """Doing it twice changes nothing."""
        rescue(self.store, self.pick(data, self.rescued, "process").id)
        self.check_nothing_changed()

    # --- time ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((1, 15, 40)))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        wake_due(self.store)
        for item in look(self.store).items.values():
            assert item["due_at"] is None or item["due_at"] > self.clock.now()
        expire(self.store)
        now = look(self.store)
        ends = [row["held_until"] for row in (*now.holds.values(), *now.lanes.values())]
        ends += [stage["pause_until"] for stage in now.stages.values()]
        ends += [job["pause_until"] for job in now.jobs.values() if job["status"] == "paused"]
        assert all(end is None or end > self.clock.now() for end in ends), "something is paused past its time"

    @rule()
    def sweep(self) -> None:
        sweep(self.store)

    # --- operators ----------------------------------------------------------------------------

    def until(self, seconds: int | None) -> datetime | None:
        return None if seconds is None else self.clock.now() + timedelta(seconds=seconds)

    @precondition(lambda self: self.job_ids())
    @rule(data=st.data(), seconds=st.sampled_from((None, 20)))
    def pause(self, data: st.DataObject, seconds: int | None) -> None:
        job_id = self.pick(data, self.job_ids(), "job")
        if self.command(lambda tx: pause_job(tx, job_id, "film night", "desk", self.until(seconds))):
            canceling = self.picture.jobs[job_id]["cancel_requested_at"] is not None
            now = look(self.store).jobs[job_id]["status"]
            assert now in ("pause_requested", "paused") or (canceling and now == "canceled")
        else:
            assert self.picture.jobs[job_id]["status"] in JOB_FINISHED

    @precondition(lambda self: self.job_ids("paused", "pause_requested"))
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        job_id = self.pick(data, self.job_ids("paused", "pause_requested"), "job")
        resumed = self.store.write("command", lambda tx: resume_job(tx, job_id, {}, "desk"))
        assert resumed == (self.picture.jobs[job_id]["status"] == "paused")
        if not resumed:
            self.check_nothing_changed()

    @precondition(lambda self: self.job_ids(*JOB_UNFINISHED))
    @rule(data=st.data(), seconds=st.sampled_from((None, 20)))
    def pause_stage(self, data: st.DataObject, seconds: int | None) -> None:
        unfinished = self.job_ids(*JOB_UNFINISHED)
        some = [stage for stage in self.picture.stages.values() if stage["job_id"] in unfinished]
        stage = self.pick(data, some, "stage")
        job_id, key, until = stage["job_id"], stage["key"], self.until(seconds)
        if self.command(lambda tx: pause_stage(tx, job_id, key, "no disk", "shelf", until)):
            now = look(self.store).stages[stage["id"]]
            assert now["pause_reason"] == "no disk" or now["status"] == "canceled"
            assert not now["open"]
        else:
            assert stage["status"] in STAGE_FINISHED

    @precondition(lambda self: any(stage["pause_reason"] for stage in self.picture.stages.values()))
    @rule(data=st.data())
    def resume_stage(self, data: st.DataObject) -> None:
        some = [stage for stage in self.picture.stages.values() if stage["pause_reason"]]
        stage = self.pick(data, some, "stage")
        job_id, key = stage["job_id"], stage["key"]
        assert self.command(lambda tx: resume_stage(tx, job_id, key, "shelf"))

    @rule(name=st.sampled_from(HOLDS), seconds=st.sampled_from((None, 5, 20)))
    def hold(self, name: str, seconds: int | None) -> None:
        if name.startswith("lane:") and name.removeprefix("lane:") not in self.picture.lanes:
            return
        self.store.write("hold", lambda tx: hold(tx, name, "film night", "desk", self.until(seconds)))
        after = look(self.store)
        assert (after.jobs, after.stages, after.items) == (
            self.picture.jobs, self.picture.stages, self.picture.items,
        ), "a hold moves nothing"  # fmt: skip

    @rule(name=st.sampled_from(HOLDS))
    def release(self, name: str) -> None:
        self.store.write("release", lambda tx: release(tx, name, "desk"))

    @precondition(lambda self: self.job_ids())
    @rule(data=st.data(), rare=st.integers(0, 3))
    def cancel(self, data: st.DataObject, rare: int) -> None:
        job_id = self.pick(data, self.job_ids(), "job")
        if rare == 0:
            self.command(lambda tx: cancel_job(tx, job_id, "desk"))

    @precondition(lambda self: any(job["cancel_requested_at"] for job in self.picture.jobs.values()))
    @rule()
    def cancel_some(self) -> None:
        cancel_some(self.store)

    @precondition(lambda self: any(i["status"] not in ("pending", "claimed") for i in self.picture.items.values()))
    @rule(data=st.data(), force=st.booleans())
    def retry(self, data: st.DataObject, force: bool) -> None:
        allowed = {"failed", "interrupted"} | ({"succeeded", "skipped"} if force else set())
        likely = [item for item in self.picture.items.values() if item["status"] in allowed]
        row = self.pick(data, likely or list(self.picture.items.values()), "item")
        item_id = row["id"]
        done = self.command(lambda tx: retry_item(tx, item_id, "desk", force=force))
        refused = row["status"] not in allowed or self.picture.jobs[row["job_id"]]["cancel_requested_at"] is not None
        assert done == (not refused)
        if done:
            now = look(self.store)
            assert now.items[item_id]["status"] == "pending"
            assert now.items[item_id]["attempt"] == 0
            assert now.jobs[row["job_id"]]["status"] in JOB_UNFINISHED
        else:
            self.check_nothing_changed()

    @precondition(lambda self: any(item["status"] in SKIPPABLE for item in self.picture.items.values()))
    @rule(data=st.data(), more=st.lists(st.integers(0, 30), max_size=3))
    def skip(self, data: st.DataObject, more: list[int]) -> None:
        """Some items of a job are not wanted; what follows them goes on."""
        likely = [item for item in self.picture.items.values() if item["status"] in SKIPPABLE]
        job_id = self.pick(data, likely, "item")["job_id"]
        own = [item for item in likely if item["job_id"] == job_id]
        some = {own[number % len(own)]["id"] for number in (0, *more)}
        changed = self.store.write("skip", lambda tx: skip_items(tx, job_id, sorted(some), "desk", {}))
        job = self.picture.jobs[job_id]
        if job["cancel_requested_at"] is not None:
            assert (changed.ids, changed.refused) == ([], {"being_canceled": len(some)})
            self.check_nothing_changed()
            return
        assert (set(changed.ids), changed.refused) == (some, {})
        now = look(self.store)
        for key in some:
            item = self.picture.items[key]
            assert now.items[key]["status"] == "skipped"
            if job["status"] != "canceled":
                followers = self.picture.stages[item["stage_id"]]["followed_by"]
                self.expected |= {(job_id, step, item["key"]) for step in followers}

    @precondition(lambda self: self.job_ids())
    @rule(data=st.data(), priority=st.sampled_from(PRIORITIES))
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        job_id = self.pick(data, self.job_ids(), "job")
        self.command(lambda tx: set_priority(tx, job_id, priority, "desk"))

    def command(self, work: Any) -> bool:
        try:
            self.store.write("command", work)
        except (CommandRefused, TwinActive) as refusal:
            note(str(refusal))
            return False
        return True

    @rule(limit=st.integers(1, 20))
    def read_tail(self, limit: int) -> None:
        self.tail.read(self.store, limit)

    # --- what must hold after every step ------------------------------------------------------

    @invariant()
    def all_is_well(self) -> None:
        before, self.picture = self.picture, look(self.store)
        check(self.picture)
        self.trail.follow(self.store)
        self.trail.check(self.picture)
        found = [
            (item["job_id"], self.picture.stages[item["stage_id"]]["key"], item["key"])
            for item in self.picture.items.values()
        ]
        assert len(found) == len(set(found)), "an item exists twice"
        assert set(found) == self.expected, "an item was lost, or came from nowhere"
        for key, item in before.items.items():
            assert self.picture.items[key]["lease"] >= item["lease"], "a lease number went back"
        for item in self.picture.items.values():
            beyond = item["seq"] > self.picture.stages[item["stage_id"]]["low_seq"]
            assert not (beyond and (item["returned"] or item["id"] in self.picture.leases)), "out of turn"
        for lease in self.picture.leases.values():
            job = self.picture.jobs[self.picture.stages[lease["stage_id"]]["job_id"]]
            assert job["status"] not in JOB_FINISHED, "a finished job still has leases"

    # --- the end ------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Everything that was begun comes to its end, whatever happened on the way."""
        if sys.exc_info()[0] is not None:
            return  # a step failed already: that is the finding, not what follows from it
        for process in list(self.processes):
            if process not in self.rescued:
                process.alive = False
                self.bury(process)
        last = self.start_process()
        for _ in range(200):
            self.all_is_well()
            if not self.job_ids(*JOB_UNFINISHED):
                break
            self.push(last)
        else:
            stuck = [job for job in self.picture.jobs.values() if job["status"] in JOB_UNFINISHED]
            raise AssertionError(f"never finished: {stuck}, {list(self.picture.stages.values())}")
        assert not self.picture.leases
        self.drain_tail()

    def push(self, process: Process) -> None:
        for job_id in self.job_ids("paused"):
            self.store.write("command", lambda tx, job_id=job_id: resume_job(tx, job_id, {}, "desk"))
        for name in HOLDS:
            self.store.write("release", lambda tx, name=name: release(tx, name, "desk"))
        for stage in [stage for stage in self.picture.stages.values() if stage["pause_reason"]]:
            self.store.write("command", lambda tx, s=stage: resume_stage(tx, s["job_id"], s["key"], "shelf"))
        self.clock.advance(3600)
        wake_due(self.store)
        cancel_some(self.store)
        admit(self.store)
        process.planner.tick()
        for name in SERVICES:
            self.take(process, name, 50)
        if process.hand:
            self.finish(process, list(process.hand), "done", follow_up=True)
        sweep(self.store)

    def drain_tail(self) -> None:
        everything = event_places(self.store)
        deadline = time.monotonic() + 20
        while len(self.tail.places) < len(everything):
            if self.tail.read(self.store, 100) == 0:
                # On a busy server somebody else's transaction (autovacuum) may hold the horizon for a moment.
                assert time.monotonic() < deadline, "the tail does not reach the end"
                time.sleep(0.01)
        assert self.tail.places == everything, "an event was missed, came twice or out of order"


def unplanned(stage: Row) -> bool:
    return stage["status"] == "running" and not stage["planned"]


def holds(picture: Picture, item: Item) -> bool:
    lease = picture.leases.get(item.id)
    return lease is not None and lease["number"] == item.claimed.lease


def claim_as_a_claimer_does(tx: Tx, name: str, process_id: int, want: int) -> list[Claimed]:
    still = held(tx)
    if still.everything or name in still.services:
        return []
    return tx.hot.claim(tx, name, process_id, want, still.lanes)


def expected_claim(picture: Picture, name: str, want: int, now: datetime) -> list[int]:
    """What a claim must answer: nothing that is held; by priority, job and stage; what came back before the fresh."""
    candidates = [s for s in picture.stages.values() if s["service"] == name and is_open(picture, s)]
    candidates = [s for s in candidates if not picture.held(now, lane=picture.jobs[s["job_id"]]["lane"], service=name)]
    candidates.sort(key=lambda stage: (picture.jobs[stage["job_id"]]["priority"], stage["order_seq"], stage["id"]))
    answer: list[int] = []
    for stage in candidates:
        ready = [i for i in picture.items_of(stage["id"]) if i["status"] == "pending" and i["due_at"] is None]
        ready.sort(key=lambda item: (not item["returned"], item["seq"]))
        taken = ready[: want - len(answer)]
        answer += [item["id"] for item in sorted(taken, key=lambda item: item["seq"])]
    return answer


def empty(tx: Any) -> None:
    """Every example starts with empty tables; making a database for each would cost more than the example."""
    if tx.conn.dialect.name == "postgresql":
        names = ", ".join(metadata.tables)
        tx.conn.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
        return
    for table in reversed(metadata.sorted_tables):
        tx.conn.execute(sa.delete(table))
