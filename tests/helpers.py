"""What tests say often: small workflows, one step of the engine by hand, and waiting without sleeping."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from dalsegno import Backoff, Engine, EngineOptions, Lane, Service, Step, Store, Submitted, Workflow, submit
from dalsegno.engine import scheduler
from dalsegno.engine.commander import apply_pending, request
from dalsegno.engine.heart import Heart
from dalsegno.engine.planner import advance
from dalsegno.model.identity import identity
from dalsegno.model.states import JOB_FINISHED, TRANSITIONS, ItemStatus
from dalsegno.store.hot import Claimed, Settled, Settlement
from dalsegno.store.schema import COUNTERS, commands, events, items, jobs, lanes, leases, stages, waits

T = TypeVar("T")

SWIFT = EngineOptions(node="test", backoff=Backoff(base=0.02, cap=0.05, jitter=0.0), drain_seconds=10.0)
"""An engine that does not make a test wait for its retries."""

EVENT_STATUS = {
    "item_claimed": "claimed",
    "item_started": "running",
    "item_succeeded": "succeeded",
    "item_skipped": "skipped",
    "item_failed": "failed",
    "item_interrupted": "interrupted",
    "item_canceled": "canceled",
    "item_returned": "pending",
    "item_requeued": "pending",
    "item_retried": "pending",
    "item_force_retried": "pending",
    "item_reset": "pending",
}
"""The status an item has after each of its events."""


def wait_until(check: Callable[[], T], what: str = "it", timeout: float = 30.0) -> T:
    """The first truthy answer of `check`; an error that says what never came."""
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what}; last answer: {answer!r}")
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)


# --- workflows ----------------------------------------------------------------------------------


def one_step(service: str = "work", *, lane: Lane | None = None, **step: Any) -> Workflow:
    return named(Step(key="a", service=service, **step), lane=lane)


def chain(*services: str, follow: str = "all", **step: Any) -> Workflow:
    """Steps a, b, c… each after the one before."""
    letters = "abcdefghijkl"[: len(services)]
    steps: list[Step] = []
    for key, name in zip(letters, services, strict=True):
        before = tuple(step.key for step in steps[-1:])
        steps.append(Step(key=key, service=name, depends_on=before, follow=follow if before else "all", **step))
    return named(*steps)


def named(*steps: Step, lane: Lane | None = None) -> Workflow:
    """A workflow named after its content: a stored version never changes, and tests want many shapes."""
    lane = lane or Lane()
    shape = {"lane": lane.model_dump(), "steps": [step.model_dump() for step in steps]}
    return Workflow(name=f"w-{identity(shape)[:12]}", lane=lane, steps=steps)


def keys(count: int) -> list[str]:
    return [f"k{number:05}" for number in range(1, count + 1)]


# --- one step of the engine by hand -------------------------------------------------------------


def register(store: Store, seconds: float = 60.0) -> int:
    """A process to hold leases under; returns its id."""
    heart = Heart(store, "test", {}, seconds, lambda: None)
    heart.register({})
    return heart.process_id


def admit(store: Store) -> None:
    while scheduler.admit(store):
        pass


def submitted(store: Store, workflow: Workflow | None = None, items: Any = 3, **options: Any) -> Submitted:
    """A job that runs: submitted and admitted. `items` may be a count."""
    found = submit(store, workflow or one_step(), items=keys(items) if isinstance(items, int) else items, **options)
    admit(store)
    return found


def claim(store: Store, process_id: int, want: int = 1, service: str = "work") -> list[Claimed]:
    return store.write("claim", lambda tx: tx.hot.claim(tx, service, process_id, want))


def begin(store: Store, claimed: Iterable[Claimed], worker: str = "work-1") -> set[int]:
    rows = [(item.id, item.lease, store.clock.now(), worker) for item in claimed]
    return store.write("begin", lambda tx: tx.hot.begin(tx, rows))


def settled(store: Store, item: Claimed, status: str = ItemStatus.SUCCEEDED, **fields: Any) -> Settled:
    """The row that ends this lease."""
    if status in (ItemStatus.FAILED, ItemStatus.INTERRUPTED):
        fields = {"error_code": "test", **fields}
    fields = {
        "started_at": store.clock.now(),
        "attempt": item.attempt,
        "interruptions": item.interruptions,
        **fields,
    }
    return Settled(item.id, item.lease, item.stage_id, item.job_id, status, **fields)


def settle(
    store: Store,
    claimed: Sequence[Claimed],
    status: str = ItemStatus.SUCCEEDED,
    *,
    then: bool = True,
    **fields: Any,
) -> Settlement:
    """End these leases, and (`then`) let the jobs that ran dry move on."""
    rows = [settled(store, item, status, **fields) for item in claimed]
    done = store.write("settle", lambda tx: tx.hot.settle(tx, rows))
    if then and done.quiet_jobs:
        store.write("advance", lambda tx: advance(tx, done.quiet_jobs))
    return done


def work_off(store: Store, process_id: int, service: str = "work") -> list[Claimed]:
    """Claim and succeed until nothing is left for the service."""
    done: list[Claimed] = []
    while some := claim(store, process_id, 100, service):
        settle(store, some)
        done += some
    return done


def command(store: Store, kind: str, **target: Any) -> sa.RowMapping:
    """Ask for something and apply it by hand; returns the command's row."""
    number = store.write("request", lambda tx: request(tx, kind, **target))
    apply_pending(store)
    return one(store, sa.select(commands).where(commands.c.id == number))


def ask(store: Store, kind: str, **target: Any) -> int:
    """Only ask: a running engine applies it."""
    return store.write("request", lambda tx: request(tx, kind, **target))


# --- reading ------------------------------------------------------------------------------------


def every(store: Store, statement: sa.Executable) -> list[sa.RowMapping]:
    return store.read(lambda tx: tx.rows(statement))


def one(store: Store, statement: sa.Executable) -> sa.RowMapping:
    row = store.read(lambda tx: tx.row(statement))
    assert row is not None, "no such row"
    return row


def job_of(store: Store, job_id: int) -> sa.RowMapping:
    return one(store, sa.select(jobs).where(jobs.c.id == job_id))


def status_of(store: Store, job_id: int) -> str:
    return job_of(store, job_id)["status"]


def lane_of(store: Store, name: str = "default") -> sa.RowMapping:
    return one(store, sa.select(lanes).where(lanes.c.name == name))


def stage_of(store: Store, job_id: int, key: str = "a") -> sa.RowMapping:
    return one(store, sa.select(stages).where(stages.c.job_id == job_id, stages.c.key == key))


def item_of(store: Store, job_id: int, key: str, step: str = "a") -> sa.RowMapping:
    return one(
        store,
        sa.select(items)
        .join(stages, stages.c.id == items.c.stage_id)
        .where(items.c.job_id == job_id, items.c.key == key, stages.c.key == step),
    )


def items_of(store: Store, job_id: int, step: str | None = None) -> list[sa.RowMapping]:
    query = sa.select(items).join(stages, stages.c.id == items.c.stage_id).where(items.c.job_id == job_id)
    if step is not None:
        query = query.where(stages.c.key == step)
    return every(store, query.order_by(stages.c.seq, items.c.seq))


def statuses_of(store: Store, job_id: int, step: str | None = None) -> Counter[str]:
    return Counter(item["status"] for item in items_of(store, job_id, step))


def events_of(store: Store, **where: Any) -> list[sa.RowMapping]:
    """In the order in which they were written, which is that of whoever had the row of the item or the job."""
    query = sa.select(events).order_by(events.c.id)
    return every(store, query.filter_by(**where))


def types_of(store: Store, **where: Any) -> list[str]:
    return [event["type"] for event in events_of(store, **where)]


# --- what must always hold ----------------------------------------------------------------------


def strays(store: Store) -> dict[str, int]:
    """Events and logs on PostgreSQL that no month is there for."""
    counts = {name: len(every(store, sa.text(f"SELECT 1 FROM {name}_default"))) for name in ("events", "logs")}
    return {name: count for name, count in counts.items() if count}


def assert_counters(store: Store) -> None:
    """Every stage's counters equal a recount of its items, and leases are exactly the leased items."""

    def look(tx: Any) -> None:
        for stage in tx.rows(sa.select(stages)):
            rows = tx.rows(sa.select(items).where(items.c.stage_id == stage["id"]))
            count = Counter(row["status"] for row in rows)
            said = {status: stage[status] for status in COUNTERS}
            assert said == {status: count[status] for status in COUNTERS}, stage["key"]
            assert stage["total"] == len(rows)
            in_line = set(tx.conn.execute(sa.select(waits.c.item_id).where(waits.c.offered_at.is_(None))).scalars())
            waiting = [
                row for row in rows if row["status"] == "pending" and row["due_at"] is None and row["id"] not in in_line
            ]
            if stage["status"] != "canceled":
                assert stage["ready"] == len(waiting), (stage["key"], stage["ready"], len(waiting))
                assert stage["returned"] == sum(bool(row["returned"]) for row in rows)
            fresh = [row for row in waiting if not row["returned"]]
            assert all(stage["low_seq"] < row["seq"] <= stage["high_seq"] for row in fresh), stage["key"]
            held = {row["item_id"]: row for row in tx.rows(sa.select(leases).where(leases.c.stage_id == stage["id"]))}
            leased = {row["id"]: row for row in rows if row["status"] in ("claimed", "running")}
            assert held.keys() == leased.keys(), stage["key"]
            for item_id, row in leased.items():
                assert held[item_id]["number"] == row["lease"]
                assert (held[item_id]["begun_at"] is not None) == (row["status"] == "running")

    store.read(look)


def assert_trails(store: Store, job_id: int) -> None:
    """Each item's events are a legal path through TRANSITIONS that ends where the item is now."""
    legal = {(move.source, move.target) for move in TRANSITIONS["item"]}
    trails: dict[int, list[str]] = {}
    for event in events_of(store, job_id=job_id):
        if event["item_id"] is not None and event["type"] in EVENT_STATUS:
            trails.setdefault(event["item_id"], ["pending"]).append(EVENT_STATUS[event["type"]])
    for item in items_of(store, job_id):
        trail = trails.get(item["id"], ["pending"])
        steps = list(itertools.pairwise(trail))
        assert not [step for step in steps if step not in legal], (item["key"], trail)
        assert trail[-1] == item["status"], (item["key"], trail)


def assert_job_trail(store: Store, job_id: int) -> None:
    """The job's and its stages' events are legal paths too."""
    for kind, table, column in (("job", jobs, "job_id"), ("stage", stages, "stage_id")):
        legal = {(move.source, move.target) for move in TRANSITIONS[kind]}
        known = {f"{kind}_{move.target}": move.target for move in TRANSITIONS[kind]}
        start = "queued" if kind == "job" else "pending"
        where = table.c.id == job_id if kind == "job" else table.c.job_id == job_id
        for row in every(store, sa.select(table).where(where)):
            told = types_of(store, **{column: row["id"]})
            trail = [start, *(known[event] for event in told if event in known)]
            steps = list(itertools.pairwise(trail))
            assert not [step for step in steps if step not in legal], (kind, row["id"], trail)
            assert trail[-1] == row["status"], (kind, row["id"], trail)


def assert_sound(store: Store, *job_ids: int) -> None:
    """Everything that must hold at any moment."""
    assert_counters(store)
    for job_id in job_ids:
        assert_trails(store, job_id)
        assert_job_trail(store, job_id)


# --- a whole engine -----------------------------------------------------------------------------


def run_job(
    store: Store, services: Iterable[Service], job_id: int, *, until: Iterable[str] = JOB_FINISHED,
    options: EngineOptions = SWIFT, timeout: float = 30.0,
) -> str:  # fmt: skip
    """Run an engine until the job has one of these statuses; returns it."""
    with Engine(store, services, options):
        return wait_for_job(store, job_id, until, timeout)


def wait_for_job(store: Store, job_id: int, until: Iterable[str] = JOB_FINISHED, timeout: float = 30.0) -> str:
    wanted = set(until)
    wait_until(lambda: status_of(store, job_id) in wanted, f"job {job_id} to be {sorted(wanted)}", timeout)
    return status_of(store, job_id)
