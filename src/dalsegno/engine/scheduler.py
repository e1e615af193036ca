"""The scheduler: admits jobs to their lanes, wakes items that waited, and finishes what was left half done."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.engine.commander import cancel_items
from dalsegno.engine.holds import EVERYTHING, hold, in_force
from dalsegno.engine.looper import Looper
from dalsegno.engine.pauses import expire, pause_job, requeue_interrupted
from dalsegno.engine.planner import LEASED, advance
from dalsegno.model.states import JOB_UNFINISHED, JobStatus, StageStatus
from dalsegno.store.hot import Delta, Event
from dalsegno.store.schema import UtcTime, holds, items, jobs, lanes, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

ADMIT_BATCH = 100
DUE_BATCH = 1000
SWEEP_EVERY = 5.0
BREATHER = 0.05
CANCEL_BATCH = 2000


class Scheduler(Looper):
    name = "scheduler"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.interval = store.poll_seconds
        self._store = store
        self._swept_at = float("-inf")
        self._looked_at = float("-inf")
        self._told: set[str] = set()

    def told(self, lane: str) -> None:
        """A job was submitted to this lane: admit it before looking at anything else."""
        self._told.add(lane)
        self.wake()

    def tick(self) -> float | None:
        told, self._told = self._told, set()
        for lane in told:
            self._store.write("admit", lambda tx, lane=lane: _admit(tx, lane))  # type: ignore[misc]
        if told and self._store.clock.monotonic() - self._looked_at < self.interval:
            return BREATHER  # what was just admitted is being claimed: do not compete with it
        self._looked_at = self._store.clock.monotonic()
        due = self._store.read(look)
        if due.over:
            expire(self._store)
            due = self._store.read(look)
        more = False
        if due.ripe:
            more |= wake_due(self._store)
        for lane in due.lanes:
            more |= self._store.write("admit", lambda tx, lane=lane: _admit(tx, lane)) == ADMIT_BATCH  # type: ignore[misc]
        if due.canceling:
            more |= cancel_some(self._store)
        if self._store.clock.monotonic() - self._swept_at >= SWEEP_EVERY:
            self._swept_at = self._store.clock.monotonic()
            sweep(self._store)
        if more:
            return 0
        if due.next is None:
            return None
        return min(self.interval, max(0.001, (due.next - self._store.clock.now()).total_seconds()))


class Due(NamedTuple):
    """What a look at the clock and the queues says."""

    ripe: bool
    over: bool
    """A hold or a pause has reached its `until`."""
    lanes: list[str]
    canceling: bool
    next: datetime | None


def look(tx: Tx) -> Due:
    """Everything a tick must know, in two statements."""
    row = tx.row(_LOOK, {"now": tx.now})
    assert row is not None
    lanes_waiting = list(tx.conn.execute(_LANES_WAITING, {"now": tx.now}).scalars())
    ripe = row["due_at"] is not None and row["due_at"] <= tx.now
    ends = [row[name] for name in _ENDS if row[name] is not None]
    soon = [moment for moment in (row["due_at"], row["scheduled_at"], *ends) if moment is not None and moment > tx.now]
    over = any(moment <= tx.now for moment in ends)
    return Due(ripe, over, lanes_waiting, row["canceling"], min(soon, default=None))


# --- admission ----------------------------------------------------------------------------------


_NOW = sa.bindparam("now", type_=UtcTime)
# In the very words of the indexes on jobs that wait and jobs that run: SQLite compares the words.
_QUEUED = jobs.c.status == sa.literal_column("'queued'")
_ACTIVE = sa.text("status IN ('running', 'pause_requested')")
_LIVE = sa.text("stages.status IN ('running', 'pause_requested')")


def _due(now: Any) -> sa.ColumnElement[bool]:
    return sa.and_(
        _QUEUED,
        jobs.c.cancel_requested_at.is_(None),
        sa.or_(jobs.c.scheduled_at.is_(None), jobs.c.scheduled_at <= now),
    )


_HELD = sa.or_(
    sa.and_(lanes.c.held_at.is_not(None), in_force(lanes.c.held_until)),
    sa.exists(sa.select(holds.c.name).where(holds.c.name == EVERYTHING, in_force(holds.c.held_until))),
)
# The first of each lane, and not EXISTS: PostgreSQL would look through all jobs at once for that.
_ITS_FIRST = (
    sa.select(jobs.c.id)
    .where(jobs.c.lane == lanes.c.name, _due(_NOW))
    .order_by(jobs.c.priority, jobs.c.order_seq)
    .limit(1)
    .scalar_subquery()
)
_LANES_WAITING = sa.select(lanes.c.name).where(sa.not_(_HELD), _ITS_FIRST.is_not(None))
_CANCELING = sa.select(jobs.c.id).where(
    jobs.c.status.in_(sorted(JOB_UNFINISHED)), jobs.c.cancel_requested_at.is_not(None)
)
_ENDS: dict[str, sa.Select[Any]] = {
    "hold_ends": sa.select(sa.func.min(holds.c.held_until)),
    "lane_ends": sa.select(sa.func.min(lanes.c.held_until)),
    # A job that still drains is ended when it has.
    "job_ends": sa.select(sa.func.min(jobs.c.pause_until)).where(
        jobs.c.pause_until.is_not(None), jobs.c.status == JobStatus.PAUSED
    ),
    "stage_ends": sa.select(sa.func.min(stages.c.pause_until)).where(stages.c.pause_until.is_not(None)),
}
_LOOK = sa.select(
    sa.select(sa.func.min(items.c.due_at)).where(items.c.due_at.is_not(None)).scalar_subquery().label("due_at"),
    sa.select(sa.func.min(jobs.c.scheduled_at))
    .where(_QUEUED, jobs.c.scheduled_at > _NOW)
    .scalar_subquery()
    .label("scheduled_at"),
    sa.exists(_CANCELING).label("canceling"),
    *(query.scalar_subquery().label(name) for name, query in _ENDS.items()),
)


def admit(store: Store) -> bool:
    """queued → running for as many jobs as their lanes have room for; True when there may be more."""
    more = False
    for lane in store.read(look).lanes:
        more |= store.write("admit", lambda tx, lane=lane: _admit(tx, lane)) == ADMIT_BATCH  # type: ignore[misc]
    return more


# Statements between a submit and the first item are built once: building one costs as much as running it.
_LANE = sa.select(lanes.c.max_active, _HELD.label("held")).where(lanes.c.name == sa.bindparam("which"))
_first = (
    sa.select(jobs.c.id)
    .where(jobs.c.lane == sa.bindparam("which"), _due(_NOW))
    .order_by(jobs.c.priority, jobs.c.order_seq)
    .limit(sa.bindparam("room"))
    .with_for_update(skip_locked=True)
    # As a plain subquery PostgreSQL may run it once per row of the join, and every run locks `room` other jobs.
    .cte("first")
    .prefix_with("MATERIALIZED", dialect="postgresql")
)
_ADMIT = (
    sa.update(jobs)
    .where(jobs.c.id.in_(sa.select(_first.c.id)), jobs.c.status == JobStatus.QUEUED)
    .values(status=JobStatus.RUNNING, started_at=sa.func.coalesce(jobs.c.started_at, _NOW), updated_at=_NOW)
    .returning(jobs.c.id)
)


def _admit(tx: Tx, name: str) -> int:
    which = {"which": name, "now": tx.now}
    lane = tx.row(_LANE, which)
    room = ADMIT_BATCH
    if lane is not None and lane["max_active"] is not None:
        # Only a lane with a limit needs its row locked: two schedulers must not both take the last place.
        lane = tx.row(_LANE.with_for_update(), which)
        assert lane is not None
        active = tx.conn.execute(
            sa.select(sa.func.count()).select_from(jobs).where(jobs.c.lane == name, _ACTIVE)
        ).scalar_one()
        room = min(room, lane["max_active"] - active)
    if lane is None or lane["held"] or room <= 0:
        return 0
    ids = list(tx.conn.execute(_ADMIT, {**which, "room": room}).scalars())
    if ids:
        advance(tx, ids, [Event("job_running", "scheduler", job_id) for job_id in sorted(ids)])
    return len(ids)


# --- items that waited --------------------------------------------------------------------------


def wake_due(store: Store) -> bool:
    """Items whose backoff or throttle is over become ready; True when there may be more."""
    ripe = store.read(
        lambda tx: list(
            tx.conn.execute(
                sa.select(items.c.stage_id)
                .where(items.c.due_at.is_not(None), items.c.due_at <= tx.now)
                .order_by(items.c.due_at)
                .limit(DUE_BATCH)
            ).scalars()
        )
    )
    if ripe:
        store.write("due", lambda tx: _wake_due(tx, sorted(set(ripe))))
    return len(ripe) == DUE_BATCH


def _wake_due(tx: Tx, stage_ids: list[int]) -> None:
    locked = tx.rows(
        sa.select(stages.c.id, stages.c.service)
        .where(stages.c.id.in_(stage_ids))
        .order_by(stages.c.id)
        .with_for_update()
    )
    rows = tx.conn.execute(
        sa.update(items)
        .where(items.c.stage_id.in_(stage_ids), items.c.due_at.is_not(None), items.c.due_at <= tx.now)
        .values(due_at=None, returned=True)
        .returning(items.c.stage_id)
    ).scalars()
    deltas: dict[int, Delta] = {}
    for stage_id in rows:
        delta = deltas.setdefault(stage_id, Delta())
        delta.ready += 1
        delta.returned += 1
    tx.hot.adjust(tx, deltas)
    for stage in locked:
        tx.announce(f"work:{stage['service']}")


# --- what was left half done --------------------------------------------------------------------


def cancel_some(store: Store) -> bool:
    """A step further with every job that is being canceled; True when there is more to do."""
    going = store.read(lambda tx: list(tx.conn.execute(_CANCELING.order_by(jobs.c.id)).scalars()))
    more = False
    for job_id in going:
        done = store.write("cancel", lambda tx, job_id=job_id: _cancel_some(tx, job_id))  # type: ignore[misc]
        more |= done >= CANCEL_BATCH
    return more


def _cancel_some(tx: Tx, job_id: int) -> int:
    tx.conn.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
    done = cancel_items(tx, job_id, CANCEL_BATCH)
    if done < CANCEL_BATCH:
        advance(tx, [job_id])
    return done


def sweep(store: Store) -> None:
    """Whatever a crash left between two transactions: stages run dry, interruptions nobody requeued."""
    # Not DISTINCT: SQLite would go through all stages by job, to have them in order.
    dry = sa.select(stages.c.job_id).where(_LIVE, LEASED == 0, sa.or_(stages.c.pending == 0, stages.c.open.is_(False)))
    stuck = sorted(set(store.read(lambda tx: list(tx.conn.execute(dry).scalars()))))
    for start in range(0, len(stuck), ADMIT_BATCH):
        some = stuck[start : start + ADMIT_BATCH]
        store.write("advance", lambda tx, some=some: advance(tx, some))  # type: ignore[misc]
    interrupted = store.read(
        lambda tx: tx.rows(
            sa.select(jobs.c.id, lanes.c.name.label("lane"), lanes.c.recovery)
            .join(lanes, lanes.c.name == jobs.c.lane)
            .join(stages, stages.c.job_id == jobs.c.id)
            .where(
                jobs.c.status == JobStatus.RUNNING,
                jobs.c.cancel_requested_at.is_(None),
                _LIVE,
                stages.c.status == StageStatus.RUNNING,
                stages.c.interrupted > 0,
            )
            .distinct()
        )
    )
    for row in interrupted:
        store.write("requeue", lambda tx, row=row: _after_interruption(tx, row))  # type: ignore[misc]


def _after_interruption(tx: Tx, row: sa.RowMapping) -> None:
    """What the lane's policy says about a running job whose items were interrupted by a stop."""
    if row["recovery"] == "continue":
        requeue_job(tx, row["id"])
    else:
        pause_job(tx, row["id"], "interrupted", "scheduler")
        hold(tx, f"lane:{row['lane']}", "interrupted", "scheduler")


def requeue_job(tx: Tx, job_id: int) -> None:
    """interrupted → pending for a running job of a lane that continues."""
    job = tx.row(sa.select(jobs.c.status).where(jobs.c.id == job_id).with_for_update())
    if job is None or job["status"] != JobStatus.RUNNING:
        return
    locked = tx.rows(sa.select(stages).where(stages.c.job_id == job_id).order_by(stages.c.id).with_for_update())
    requeue_interrupted(tx, locked, "rescuer")
