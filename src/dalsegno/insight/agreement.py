"""Whether what is written down agrees with itself: stages with their items, items with their events, leases with both.

It reads a stretch at a time, each on a snapshot of its own, so it works beside a busy engine and in flat memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import sqlalchemy as sa

from dalsegno.insight.drawer import STATES
from dalsegno.model.states import TRANSITIONS
from dalsegno.store.manifest import Told, untold
from dalsegno.store.patience import TimeUp, at_most
from dalsegno.store.schema import COUNTERS, events, items, jobs, leases, stages, waits
from dalsegno.store.store import Store, Tx

KEPT = 100
"""Disagreements that are named; of the others only how many there are."""
STRETCH = 2_000
JOB_EVENTS = {f"job_{move.target}": str(move.target) for move in TRANSITIONS["job"]}
RECOUNT = "Stop the engines and tell the developers: this must not happen. Restoring a backup taken before it mends it."
REST = "Tell the developers: this must not happen. The work itself is not in danger; force-retry does the item again."


@dataclass(frozen=True, slots=True)
class Disagreement:
    kind: str
    subject: str
    """What it is about: `stage:3`, `item:17`, `job:2`, `song:5` or a path."""
    says: str
    fix: str


@dataclass(slots=True)
class Agreement:
    """What was looked at, and what does not fit."""

    looked: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    """Disagreements by kind."""
    named: list[Disagreement] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)
    """What could not be looked at, and why."""
    complete: bool = True
    """False: the time was up."""
    seconds: float = 0.0

    def disagrees(self, kind: str, subject: str, says: str, fix: str) -> None:
        self.found[kind] += 1
        if len(self.named) < KEPT:
            self.named.append(Disagreement(kind, subject, says, fix))

    @property
    def agrees(self) -> bool:
        return not self.found


class Deadline:
    """So many seconds for everything; None: as long as it takes."""

    def __init__(self, seconds: float | None) -> None:
        self._begun = time.monotonic()
        self._end = None if seconds is None else self._begun + seconds

    def is_over(self) -> bool:
        return self._end is not None and time.monotonic() > self._end

    def left(self) -> float | None:
        return None if self._end is None else self._end - time.monotonic()

    def spent(self) -> float:
        return time.monotonic() - self._begun


def check_records(store: Store, report: Agreement, deadline: Deadline, told: Told = untold) -> None:
    """Jobs, stages, items, leases and events with each other."""
    for look in (_jobs, _stages, _items):
        look(store, report, deadline, told)
    store.read(lambda tx: _leases(tx, report))


def stretches(store: Store, column: sa.Column[int], size: int = STRETCH) -> Iterator[tuple[int, int, int]]:
    """Ranges of ids that hold about `size` rows each, and how many there are at the most."""
    last = store.read(lambda tx: tx.conn.execute(sa.select(sa.func.max(column))).scalar()) or 0
    after = 0
    while after < last:
        upto = sa.select(column).where(column > after).order_by(column).limit(1).offset(size - 1)
        end = store.read(lambda tx, upto=upto: tx.conn.execute(upto).scalar()) or last  # type: ignore[misc]
        yield after, end, last
        after = end


def _each(
    store: Store, table: sa.Table, what: str, report: Agreement, deadline: Deadline, told: Told,
    look: Callable[[Tx, int, int], None],
) -> None:  # fmt: skip
    for after, end, last in stretches(store, table.c.id):
        if deadline.is_over():
            report.complete = False
            return
        try:
            store.read(lambda tx, after=after, end=end: _in_time(tx, deadline, look, after, end))  # type: ignore[misc]
        except TimeUp:
            report.complete = False
            return
        told(what, end, last)


def _in_time(tx: Tx, deadline: Deadline, look: Callable[[Tx, int, int], None], after: int, end: int) -> None:
    left = deadline.left()
    with at_most(tx, left) if left is not None else nullcontext():
        look(tx, after, end)


def _jobs(store: Store, report: Agreement, deadline: Deadline, told: Told) -> None:
    newest = (
        sa.select(events.c.type)
        .where(events.c.job_id == jobs.c.id, events.c.item_id.is_(None), events.c.type.in_(JOB_EVENTS))
        .order_by(events.c.id.desc())
        .limit(1)
        .correlate(jobs)
        .scalar_subquery()
    )

    def look(tx: Tx, after: int, end: int) -> None:
        query = sa.select(jobs.c.id, jobs.c.status, newest.label("event")).where(jobs.c.id > after, jobs.c.id <= end)
        for row in tx.rows(query):
            report.looked["jobs"] += 1
            told_status = JOB_EVENTS.get(row["event"] or "", "queued" if row["event"] is None else "")
            if row["event"] is not None and told_status != row["status"]:
                says = f"it is {row['status']}, and its last event is {row['event']}"
                report.disagrees("job_event", f"job:{row['id']}", says, REST)

    _each(store, jobs, "jobs", report, deadline, told, look)


def _stages(store: Store, report: Agreement, deadline: Deadline, told: Told) -> None:
    in_line = sa.exists().where(waits.c.item_id == items.c.id, waits.c.offered_at.is_(None))
    ready = sa.and_(items.c.status == "pending", items.c.due_at.is_(None), ~in_line)
    counted = sa.select(
        items.c.stage_id,
        *(_sum(items.c.status == status).label(status) for status in COUNTERS),
        _sum(ready).label("ready"),
        _sum(items.c.returned).label("returned"),
    )

    def look(tx: Tx, after: int, end: int) -> None:
        inside = items.c.stage_id.between(after + 1, end)
        rows = {row["stage_id"]: row for row in tx.rows(counted.where(inside).group_by(items.c.stage_id))}
        live = sa.select(leases.c.stage_id, sa.func.count().label("count")).where(
            leases.c.stage_id.between(after + 1, end)
        )
        held = {row["stage_id"]: row["count"] for row in tx.rows(live.group_by(leases.c.stage_id))}
        for stage in tx.rows(sa.select(stages).where(stages.c.id > after, stages.c.id <= end)):
            report.looked["stages"] += 1
            found = rows.get(stage["id"])
            _compare_stage(stage, dict(found) if found is not None else {}, held.get(stage["id"], 0), report)

    _each(store, stages, "stages", report, deadline, told, look)


def _sum(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


def _compare_stage(stage: sa.RowMapping, found: dict[str, int], held: int, report: Agreement) -> None:
    subject = f"stage:{stage['id']}"
    recount = {str(status): found.get(status, 0) or 0 for status in COUNTERS}
    wrong = [
        f"{status} {stage[status]}, counted {count}" for status, count in recount.items() if stage[status] != count
    ]
    if wrong:
        report.disagrees("stage_counters", subject, f"its counters are wrong: {'; '.join(wrong)}", RECOUNT)
    live = recount["claimed"] + recount["running"]
    if held != live:
        report.disagrees("leases", subject, f"{live} of its items are in hand, and {held} leases are there", RECOUNT)
    if stage["status"] != "canceled":
        for name in ("ready", "returned"):
            count = found.get(name, 0) or 0
            if stage[name] != count:
                says = f"{name} is {stage[name]}, counted {count}"
                report.disagrees("stage_counters", subject, says, RECOUNT)


def _items(store: Store, report: Agreement, deadline: Deadline, told: Told) -> None:
    newest = (
        sa.select(events.c.type)
        .where(events.c.item_id == items.c.id, events.c.type.in_(STATES))
        .order_by(events.c.id.desc())
        .limit(1)
        .correlate(items)
        .scalar_subquery()
    )

    def look(tx: Tx, after: int, end: int) -> None:
        query = sa.select(items.c.id, items.c.key, items.c.status, newest.label("event"))
        for row in tx.conn.execute(query.where(items.c.id > after, items.c.id <= end)):
            report.looked["items"] += 1
            if row.event is None:
                if row.status != "pending":
                    report.looked["items whose events are gone"] += 1
            elif STATES[row.event] != row.status:
                says = f"{row.key} is {row.status}, and its last event is {row.event}"
                report.disagrees("item_event", f"item:{row.id}", says, REST)

    _each(store, items, "items", report, deadline, told, look)


def _leases(tx: Tx, report: Agreement) -> None:
    """A lease and its item have the same number, and both know whether it has begun."""
    query = sa.select(
        leases.c.item_id, leases.c.number, leases.c.begun_at, items.c.lease, items.c.status
    ).outerjoin(items, items.c.id == leases.c.item_id)  # fmt: skip
    for row in tx.conn.execute(query):
        report.looked["leases"] += 1
        wanted = "claimed" if row.begun_at is None else "running"
        if row.lease != row.number or row.status != wanted:
            says = f"it has lease {row.lease} and is {row.status}; the lease says {row.number} and {wanted}"
            report.disagrees("leases", f"item:{row.item_id}", says, RECOUNT)
