"""Streaming `each` as a state machine: what an item made is known at every moment, and from which result.

The moves are those of machine.py. Here every handler's result tells what it was made from, and a model beside the
database says which follower must exist, from what, and how often it may have been run.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from dalsegno import Backoff, Lane, Step, Workflow, submit
from dalsegno.engine.commander import retry_item
from dalsegno.engine.item import Item
from dalsegno.engine.scheduler import admit, sweep
from dalsegno.engine.skip import SKIPPABLE
from dalsegno.engine.verdict import Rules, decide
from dalsegno.model.outcome import Done, Outcome, Skip
from dalsegno.model.states import ITEM_SATISFIED, JOB_FINISHED, JOB_UNFINISHED
from tests.stateful.audit import Picture, Row, Trail, look
from tests.stateful.machine import LANES, SERVICES, EngineMachine, Process, holds

SHAPES: dict[str, tuple[tuple[str, str], ...]] = {
    "two": (("b", "a"),),
    "three": (("b", "a"), ("c", "b")),
    "diamond": (("b", "a"), ("c", "a")),
    "tree": (("b", "a"), ("c", "a"), ("d", "b")),
}
"""Which step follows which; `a` has the items that were given."""
KINDS = (
    *("done", "done", "result", "result", "flat", "empty", "skip", "skip_result"),
    *("retry_at_once", "retry_at_once", "retry", "fail", "release", "pause"),
)
STAYS = ("pending", "interrupted", "canceled")
"""A follower in one of these has made nothing yet that could be stale."""


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Step], int, Lane]:
    """A chain of two or three, or one with two that follow the same; how many items; a lane."""
    shape = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    stops = draw(st.sampled_from(("", "", "a", "b")))

    def step(number: int, key: str, after: tuple[str, ...]) -> Step:
        return Step(
            key=key,
            service=SERVICES[number % len(SERVICES)],
            depends_on=after,
            follow="each" if after else "all",
            on_failure="stop" if key == stops else "continue",
            max_interruptions=draw(st.integers(2, 20)),
        )

    steps = [step(0, "a", ()), *(step(number, key, (after,)) for number, (key, after) in enumerate(shape, 1))]
    return steps, draw(st.integers(1, 3)), draw(st.sampled_from(LANES))


@dataclass
class Tally(Trail):
    """The trail, and how often each thing happened to each item."""

    seen: Counter[tuple[int, str]] = field(default_factory=Counter)
    first: dict[tuple[int, str], int] = field(default_factory=dict)
    canceled: set[int] = field(default_factory=set)
    """Jobs that were asked to stop at some time: from what finished then, nothing followed."""

    def step(self, event: Any) -> None:
        super().step(event)
        if event["item_id"] is not None:
            what = (event["item_id"], event["type"])
            self.seen[what] += 1
            self.first.setdefault(what, self.seen.total())
        if event["type"] == "job_cancel_requested":
            self.canceled.add(event["job_id"])

    def successes(self, item_id: int) -> int:
        return self.seen[item_id, "item_succeeded"] + self.seen[item_id, "item_skipped"]

    def began(self, item_id: int) -> float:
        return self.first.get((item_id, "item_started"), math.inf)

    def was_done(self, item_id: int) -> float:
        """When it succeeded for the first time."""
        return min(self.first.get((item_id, kind), math.inf) for kind in ("item_succeeded", "item_skipped"))


# --- what the rows alone must tell --------------------------------------------------------------


def followed(picture: Picture) -> list[tuple[Row, Row]]:
    """Every follower with its parent; fails where there is not exactly one."""
    by_place = {(stage["job_id"], stage["key"]): stage["id"] for stage in picture.stages.values()}
    pairs = []
    places = Counter((item["stage_id"], item["key"]) for item in picture.items.values())
    assert set(places.values()) <= {1}, f"an item exists twice: {places}"
    for item in picture.items.values():
        stage = picture.stages[item["stage_id"]]
        if stage["follow"] != "each":
            assert item["parent_id"] is None, item
            continue
        (before,) = stage["depends_on"]
        parent = picture.items.get(item["parent_id"])
        assert parent is not None, f"a follower without a parent: {item}"
        assert parent["stage_id"] == by_place[stage["job_id"], before], (item, parent)
        assert (parent["key"], parent["job_id"]) == (item["key"], item["job_id"]), (item, parent)
        assert item["input_hash"] is not None, item
        pairs.append((item, parent))
    return pairs


def lonely(picture: Picture) -> list[tuple[Row, str]]:
    """Every satisfied item that lacks a follower, with the step in which it lacks it."""
    found = {(item["parent_id"], item["stage_id"]) for item in picture.items.values()}
    by_place = {(stage["job_id"], stage["key"]): stage["id"] for stage in picture.stages.values()}
    return [
        (item, key)
        for item in picture.items.values()
        if item["status"] in ITEM_SATISFIED
        for key in picture.stages[item["stage_id"]]["followed_by"]
        if (item["id"], by_place[item["job_id"], key]) not in found
    ]


def check_verdicts(picture: Picture, canceled: set[int]) -> None:
    """A finished job says how it went, and left nothing behind."""
    for job in picture.jobs.values():
        if job["status"] not in JOB_FINISHED or job["id"] in canceled:
            continue
        mine = [stage for stage in picture.stages.values() if stage["job_id"] == job["id"]]
        stopped = any(stage["failed"] and stage["on_failure"] == "stop" for stage in mine)
        failed = any(stage["failed"] for stage in mine)
        right = "failed" if stopped else "completed_with_errors" if failed else "completed"
        assert job["status"] == right, (job, mine)
        for stage in mine:
            assert not stage["claimed"] + stage["running"], (job, stage)
            assert not stage["interrupted"], (job, stage)
            if stage["status"] != "failed":
                # Policy stop leaves what it did not get to.
                assert not stage["pending"], (job, stage)


# --- the machine --------------------------------------------------------------------------------


class StreamingMachine(EngineMachine):
    """Give a subclass a `store` whose clock is a ManualClock."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = self.trail = Tally()
        self.read: dict[Item, Any] = {}
        """What each handler found when it asked for its input."""
        self.said: dict[Item, Outcome] = {}
        self.fed: dict[int, Any] = {}
        """Follower → the result it must be made from."""
        self.made_from: dict[int, Any] = {}
        self.successes: Counter[int] = Counter()
        self.resets: Counter[int] = Counter()
        self.hashes: dict[str, str] = {}
        self.by_hand: set[int] = set()
        """Items that were skipped by hand and not done since: what follows them is as it was."""

    # Nothing of these is about streams: others test them, here they would only use up steps.
    plan = reprioritise = rescue_again = read_tail = sweep = None  # type: ignore[assignment]

    # --- jobs ---------------------------------------------------------------------------------

    @initialize(what=streams())
    def one_job(self, what: tuple[list[Step], int, Lane]) -> None:
        self.submit_one(what)
        admit(self.store)

    @precondition(lambda self: len(self.picture.jobs) < 2)
    @rule(what=streams())
    def submit(self, what: tuple[list[Step], int, Lane]) -> None:  # type: ignore[override]
        self.submit_one(what)

    def submit_one(self, what: tuple[list[Step], int, Lane]) -> None:
        steps, count, lane = what
        self.numbers += 1
        workflow = Workflow(name=f"stream-{self.numbers}", lane=lane, steps=tuple(steps))
        keys = [f"k{number}" for number in range(count)]
        job_id = submit(self.store, workflow, items={"a": keys}).job_id
        self.expected |= {(job_id, "a", key) for key in keys}

    # --- handlers -----------------------------------------------------------------------------

    def start(self, item: Item) -> None:
        if item.started_at is None:
            self.read[item] = self.input(item)
        super().start(item)

    def input(self, item: Item) -> Any:
        """What `item.input` says: the result its parent has at this moment."""
        parent = look(self.store).items.get(item.claimed.parent_id or 0)
        return None if parent is None else parent["result"]

    def hand_in(self, process: Process, item: Item, kind: str) -> None:
        if kind != "release" or item.begun:
            self.start(item)
        self.said[item] = self.made(item, kind)
        process.settler.put(item, self.said[item])

    def made(self, item: Item, kind: str) -> Outcome:
        """What a handler makes: of its input, of its input and something new, or of nothing."""
        match kind:
            case "done":
                return Done({"of": self.read[item]})
            case "result":
                self.numbers += 1
                return Done({"n": self.numbers, "of": self.read[item]})
            case "flat":
                return Done({"n": 0})
            case "empty":
                return Done()
            case "skip_result":
                return Skip("there already", {"of": self.read[item]})
            case _:
                return self.outcome(kind)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), kind=st.sampled_from(KINDS), crash=st.integers(0, 9))
    def settle(self, data: st.DataObject, kind: str, crash: int) -> None:
        super().settle(data, kind, crash)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=5))
    def settle_many(self, data: st.DataObject, kinds: list[str]) -> None:
        super().settle_many(data, kinds)

    @precondition(lambda self: self.living() and any(s["claimable"] for s in self.picture.stages.values()))
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    def work(self, data: st.DataObject, kinds: list[str]) -> None:
        super().work(data, kinds)

    @precondition(lambda self: self.living() and any(s["claimable"] for s in self.picture.stages.values()))
    @rule(kind=st.sampled_from(KINDS), want=st.integers(1, 4))
    def work_alike(self, kind: str, want: int) -> None:
        """A turn in every service, all with the same end: the shortest way to a follower's follower."""
        process = self.living()[0]
        for name in SERVICES:
            if self.take(process, name, want):
                self.finish(process, list(process.hand), kind, follow_up=True)

    @precondition(lambda self: self.picked(*SKIPPABLE))
    @rule(data=st.data(), more=st.lists(st.integers(0, 30), max_size=3))
    def skip(self, data: st.DataObject, more: list[int]) -> None:
        """By hand: it counts as done and made nothing. Followers that are there stay, those that lack come of it."""
        before = self.picture.items
        super().skip(data, more)
        for number, item in look(self.store).items.items():
            if number not in before:
                self.fed[number] = None
            elif item["status"] == "skipped" != before[number]["status"]:
                self.successes[number] += 1
                self.made_from[number] = self.fed.get(number)
                self.by_hand.add(number)

    @precondition(lambda self: self.picked(*ITEM_SATISFIED))
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    def once_more(self, data: st.DataObject, kinds: list[str]) -> None:
        """An operator wants something again that was done; it ends in one way after the other."""
        row = self.pick(data, self.picked(*ITEM_SATISFIED), "item")
        self.command(lambda tx: retry_item(tx, row["id"], "desk", force=True))
        process, name = self.living()[0], self.picture.stages[row["stage_id"]]["service"]
        for kind in kinds:
            admit(self.store)
            self.take(process, name, 1)
            for item in [item for item in process.hand if item.id == row["id"]]:
                self.finish(process, [item], kind, follow_up=True)

    def picked(self, *statuses: str) -> list[Row]:
        return [item for item in self.picture.items.values() if item["status"] in statuses]

    @precondition(lambda self: self.job_ids(*JOB_UNFINISHED))
    @rule()
    def come_to_rest(self) -> None:
        """As far as it goes, so that what an operator asks for next meets finished jobs."""
        process = self.living()[0]
        for _ in range(8):
            self.picture = look(self.store)
            if not self.job_ids(*JOB_UNFINISHED):
                return
            self.push(process)

    @rule(seconds=st.sampled_from((1, 40)))
    def time_passes(self, seconds: int) -> None:
        super().time_passes(seconds)
        sweep(self.store)

    # --- the model ----------------------------------------------------------------------------

    def flush(self, process: Process, some: list[Item], *, follow_up: bool) -> None:
        before = look(self.store)
        ended = {item.id: self.verdict(item) for item in some if holds(before, item)}
        super().flush(process, some, follow_up=follow_up)
        after = look(self.store)
        done = [item for item in some if ended.get(item.id) in ITEM_SATISFIED]
        for item in done:
            self.successes[item.id] += 1
            self.made_from[item.id] = self.read[item]
            self.by_hand.discard(item.id)
        for item in done:
            if before.jobs[item.job_id]["cancel_requested_at"] is None:
                for stage_id in item.stage.followed_by:
                    self.pass_on(item, stage_id, ended, before, after)

    def verdict(self, item: Item) -> str:
        return decide(item, self.said[item], self.clock.now(), Rules(Backoff())).status

    def pass_on(self, parent: Item, stage_id: int, ended: dict[int, str], before: Picture, after: Picture) -> None:
        """What must have become of one follower now that its parent is done."""
        result = self.said[parent].result  # type: ignore[union-attr]
        mine = [item for item in after.items_of(stage_id) if item["key"] == parent.key]
        assert len(mine) == 1, f"{parent} has {len(mine)} followers in stage {stage_id}"
        (now,) = mine
        self.expected.add((parent.job_id, after.stages[stage_id]["key"], parent.key))
        was = before.items.get(now["id"])
        if was is None:
            assert now["status"] == "pending"
            self.fed[now["id"]] = result
        elif self.fed[now["id"]] == result:
            assert now["id"] in ended or now == was, f"touched although nothing changed: {was} → {now}"
        else:
            self.fed[now["id"]] = result
            status = ended.get(now["id"], was["status"])
            if status not in STAYS:
                self.resets[now["id"]] += 1
                assert now["status"] == "pending", f"what it follows changed: {was} → {now}"
                assert now["lease"] > was["lease"], f"its old lease still counts: {was} → {now}"

    @invariant()
    def all_is_well(self) -> None:
        super().all_is_well()
        picture, seen = self.picture, self.tally.seen
        for item_id in picture.items:
            assert self.tally.successes(item_id) == self.successes[item_id]
            assert seen[item_id, "item_reset"] == self.resets[item_id], "started over without a reason, or not at all"
            asked = seen[item_id, "item_force_retried"] + self.resets[item_id]
            assert self.successes[item_id] <= 1 + asked, "something finished ran again, and nobody had asked"
        for item, parent in followed(picture):
            assert self.successes[parent["id"]] > 0, f"it follows what was never done: {item}"
            assert self.tally.was_done(parent["id"]) < self.tally.began(item["id"]), f"too early: {item}"
            text = json.dumps(self.fed[item["id"]], sort_keys=True)
            assert self.hashes.setdefault(text, item["input_hash"]) == item["input_hash"], item
            if item["job_id"] in self.tally.canceled:
                continue  # from what finished while it was canceled nothing followed, not even a start from anew
            if parent["status"] in ITEM_SATISFIED and parent["id"] not in self.by_hand:
                assert parent["result"] == self.fed[item["id"]], (parent, item)
            if item["status"] in ITEM_SATISFIED:
                assert self.made_from[item["id"]] == self.fed[item["id"]], f"made from something else: {item}"
        assert {item["job_id"] for item, _ in lonely(picture)} <= self.tally.canceled
        assert len(set(self.hashes.values())) == len(self.hashes), "two results share a hash"
        check_verdicts(picture, self.tally.canceled)
