"""What explanations are made from: every read of the database, each through an index.

The cost of none grows with what is done or pending: rows are reached by key, and lines are counted up to `CAP`.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from dalsegno.errors import NotFound
from dalsegno.insight.explain.words import CAP, LISTED
from dalsegno.insight.holds import known_services
from dalsegno.insight.workers import list_nodes, list_processes
from dalsegno.model.records import (
    BreakerRecord,
    HoldRecord,
    ItemRecord,
    JobRecord,
    LaneRecord,
    LeaseRecord,
    LimitRecord,
    NodeRecord,
    PermitRecord,
    ProcessRecord,
    Record,
    StageRecord,
    WaitRecord,
    WorkerRecord,
)
from dalsegno.model.states import ItemStatus
from dalsegno.store.schema import (
    breakers,
    events,
    holds,
    items,
    jobs,
    lanes,
    leases,
    limits,
    permits,
    processes,
    stages,
    waits,
)
from dalsegno.store.store import Tx

R = TypeVar("R", bound=Record)

# Conditions of partial indexes, written as the indexes have them: SQLite compares texts.
_ACTIVE = sa.text("jobs.status IN ('running', 'pause_requested')")
_QUEUED = sa.text("jobs.status = 'queued'")
_LIVE = sa.text("stages.status IN ('running', 'pause_requested')")
_CLAIMABLE = sa.text("stages.claimable")
_RETURNED = sa.text("items.returned")
_HELD = sa.text("NOT permits.released")
_IN_LINE = sa.text("waits.offered_at IS NULL")


class LastEvent(NamedTuple):
    """The last thing that happened to an item; empty where nothing has yet."""

    at: datetime | None
    data: dict[str, Any]


class Earlier(NamedTuple):
    """What is ready for a service in the stages before one."""

    ready: int
    top: int | None
    """The priority of the first of them."""


class Busy(NamedTuple):
    ready: int
    claimed: int
    running: int


class Facts:
    """One look at the database. What several gates ask for is read once."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.now = tx.now
        if tx.shared:  # young tables have no statistics, and all that is read has an index
            tx.conn.execute(sa.text("SET LOCAL enable_seqscan = off"))

    # --- one row, by its key ----------------------------------------------------------------------

    def job(self, job_id: int) -> JobRecord:
        return self._known("job", JobRecord, jobs, job_id)

    def stage(self, stage_id: int) -> StageRecord:
        return self._known("stage", StageRecord, stages, stage_id)

    def item(self, item_id: int) -> ItemRecord:
        return self._known("item", ItemRecord, items, item_id)

    def lane(self, name: str) -> LaneRecord:
        return self._known("lane", LaneRecord, lanes, name)

    def lease(self, item_id: int) -> LeaseRecord:
        return self._known("lease", LeaseRecord, leases, item_id)

    def process(self, process_id: int) -> ProcessRecord | None:
        """Alive or not."""
        return self._one(ProcessRecord, processes, process_id)

    def hold(self, name: str) -> HoldRecord | None:
        return self._one(HoldRecord, holds, name)

    def limit(self, name: str) -> LimitRecord | None:
        return self._one(LimitRecord, limits, name)

    def breaker(self, name: str) -> BreakerRecord | None:
        return self._one(BreakerRecord, breakers, name)

    def wait(self, item_id: int) -> WaitRecord | None:
        return self._one(WaitRecord, waits, item_id)

    def _known(self, what: str, kind: type[R], table: sa.Table, key: int | str) -> R:
        found = self._one(kind, table, key)
        if found is None:
            raise NotFound(what=what, id=key)
        return found

    def _one(self, kind: type[R], table: sa.Table, key: int | str) -> R | None:
        (column,) = table.primary_key.columns
        return self._first(kind, sa.select(table).where(column == key))

    def _first(self, kind: type[R], query: sa.Select[Any]) -> R | None:
        row = self.tx.row(query)
        return None if row is None else kind.model_validate(dict(row))

    # --- who is at work ---------------------------------------------------------------------------

    @cached_property
    def _processes(self) -> list[tuple[ProcessRecord, list[WorkerRecord]]]:
        return [(line.process, line.workers) for line in list_processes(self.tx) if line.alive]

    @cached_property
    def alive(self) -> dict[int, ProcessRecord]:
        return {process.id: process for process, _ in self._processes}

    @cached_property
    def workers(self) -> list[WorkerRecord]:
        """Of live processes, in the order they were hired."""
        return [worker for _, hired in self._processes for worker in sorted(hired, key=lambda worker: worker.id)]

    @cached_property
    def nodes(self) -> dict[str, NodeRecord]:
        return {node.name: node for node in list_nodes(self.tx)}

    def offers(self, service: str) -> dict[int, int]:
        """Live processes that offer it, with how many workers. One that has just started is known by its node."""
        found: dict[int, int] = {}
        for process, hired in self._processes:
            many = sum(worker.service == service for worker in hired)
            if not hired and process.node in self.nodes:
                many = self.nodes[process.node].max_concurrency.get(service, 0)
            if many:
                found[process.id] = many
        return found

    def services(self) -> set[str]:
        """Every name that means a service to somebody."""
        known = known_services(self.tx) | {name for node in self.nodes.values() for name in node.max_concurrency}
        for table in (holds, limits, breakers):
            named = self.tx.conn.execute(sa.select(table.c.name).where(table.c.name.startswith("service:"))).scalars()
            known |= {name.removeprefix("service:") for name in named}
        return known

    def busy(self, service: str) -> Busy:
        """How many of its items are ready, claimed and running."""
        some = sa.select(sa.func.sum(stages.c.ready)).where(stages.c.service == service, _CLAIMABLE)
        ready = self.tx.conn.execute(some).scalar() or 0
        live = self.tx.rows(sa.select(stages.c.service, stages.c.claimed, stages.c.running).where(_LIVE))
        mine = [row for row in live if row["service"] == service]
        return Busy(int(ready), sum(row["claimed"] for row in mine), sum(row["running"] for row in mine))

    # --- a lane's jobs, a job's stages ------------------------------------------------------------

    def active_jobs(self, lane: LaneRecord) -> list[int]:
        """At least as many as the lane takes, where there are."""
        query = sa.select(jobs.c.id).where(jobs.c.lane == lane.name, _ACTIVE).order_by(jobs.c.id)
        return list(self.tx.conn.execute(query.limit(max(lane.max_active or 0, LISTED))).scalars())

    def queued_before(self, job: JobRecord) -> int:
        """Jobs that its lane admits before this one."""
        place = sa.tuple_(jobs.c.priority, jobs.c.order_seq) < (job.priority, job.order_seq)
        queued = self.tx.rows(
            sa.select(jobs.c.scheduled_at, jobs.c.cancel_requested_at)
            .where(jobs.c.lane == job.lane, _QUEUED, place)
            .order_by(jobs.c.priority, jobs.c.order_seq)
            .limit(CAP + 1)
        )
        return sum(
            row["cancel_requested_at"] is None and (row["scheduled_at"] is None or row["scheduled_at"] <= self.now)
            for row in queued
        )

    def next_in(self, lane: LaneRecord) -> list[tuple[int, int]]:
        """The places of the jobs that it admits next, as many as it takes at a time."""
        due = sa.or_(jobs.c.scheduled_at.is_(None), jobs.c.scheduled_at <= self.now)
        queued = sa.select(jobs.c.priority, jobs.c.order_seq).where(
            jobs.c.lane == lane.name, _QUEUED, jobs.c.cancel_requested_at.is_(None), due
        )
        some = queued.order_by(jobs.c.priority, jobs.c.order_seq).limit(lane.max_active or 1)
        return [(row[0], row[1]) for row in self.tx.conn.execute(some)]

    def first_priority(self, lane: str) -> int:
        """Of the jobs that wait in this lane, at least one."""
        queued = sa.select(jobs.c.priority).where(jobs.c.lane == lane, _QUEUED)
        return int(self.tx.conn.execute(queued.order_by(jobs.c.priority, jobs.c.order_seq).limit(1)).scalar_one())

    def stages(self, job_id: int) -> list[StageRecord]:
        rows = self.tx.rows(sa.select(stages).where(stages.c.job_id == job_id).order_by(stages.c.seq))
        return [StageRecord.model_validate(dict(row)) for row in rows]

    # --- a stage's items --------------------------------------------------------------------------

    def failed_item(self, stage: StageRecord) -> ItemRecord | None:
        """One that failed, among the first with trouble."""
        if not stage.failed:
            return None
        trouble = sa.select(items).where(items.c.stage_id == stage.id, items.c.error_code.is_not(None))
        some = trouble.order_by(items.c.seq).limit(CAP).subquery()
        failed = sa.select(some).where(some.c.status == ItemStatus.FAILED)
        return self._first(ItemRecord, failed.order_by(some.c.seq).limit(1))

    def first_ready(self, stage: StageRecord) -> ItemRecord | None:
        """The item of this stage that a claim would take first."""
        query = sa.select(items).where(items.c.stage_id == stage.id).order_by(items.c.seq).limit(1)
        return self._first(ItemRecord, query.where(_RETURNED if stage.returned else items.c.seq > stage.low_seq))

    def first_due(self, stage: StageRecord) -> datetime | None:
        """The index of due items knows no stages: the first of all are looked through for ours."""
        soon = sa.select(items.c.stage_id, items.c.due_at).where(items.c.due_at.is_not(None)).order_by(items.c.due_at)
        return next((row["due_at"] for row in self.tx.rows(soon.limit(CAP)) if row["stage_id"] == stage.id), None)

    def last_event(self, item_id: int) -> LastEvent:
        query = sa.select(events.c.at, events.c.data).where(events.c.item_id == item_id)
        row = self.tx.row(query.order_by(events.c.id.desc()).limit(1))
        return LastEvent(None, {}) if row is None else LastEvent(row["at"], row["data"] or {})

    # --- who comes first --------------------------------------------------------------------------

    def ready_before(self, stage: StageRecord) -> Earlier:
        """In the stages before this one that a claim for its service looks at first."""
        sums = (sa.func.coalesce(sa.func.sum(stages.c.ready), 0), sa.func.min(stages.c.priority))
        query = sa.select(*sums).where(stages.c.service == stage.service, _CLAIMABLE, _before(stage))
        ready, top = self.tx.conn.execute(query).one()
        return Earlier(int(ready), top)

    def returned_before(self, item: ItemRecord) -> int:
        """Of its stage, up to the cap."""
        query = sa.select(items.c.id).where(items.c.stage_id == item.stage_id, _RETURNED, items.c.seq < item.seq)
        return self._up_to_cap(query.order_by(items.c.seq))

    def in_line(self, name: str, stage_id: int) -> int:
        """Items of this stage that wait at a limit or a breaker, up to the cap."""
        return self._up_to_cap(_line(name, stage_id))

    def before_in_line(self, name: str, stage: StageRecord, item: ItemRecord) -> int:
        """Items that wait there and come before this one in the global order, up to the cap."""
        before = self._up_to_cap(_line(name, stage.id).where(waits.c.seq < item.seq))
        ids = list(self.tx.conn.execute(_stages_in_line(name)).scalars())
        earlier = sa.select(stages.c.id).where(stages.c.id.in_(ids), _before(stage))
        for stage_id in list(self.tx.conn.execute(earlier).scalars()):
            if before <= CAP:
                before += self.in_line(name, stage_id)
        return before

    def _up_to_cap(self, query: sa.Select[Any]) -> int:
        """How many rows, looking at no more than there is a word for."""
        some = query.limit(CAP + 1).subquery()
        return int(self.tx.conn.execute(sa.select(sa.func.count()).select_from(some)).scalar_one())

    # --- permits ----------------------------------------------------------------------------------

    def live_permits(self, limit: LimitRecord) -> list[PermitRecord]:
        """Of calls that have not ended, enough to know whether the limit is used up."""
        if limit.concurrent is None:
            return []
        query = sa.select(permits).where(permits.c.name == limit.name, _HELD).limit(limit.concurrent + LISTED)
        return [PermitRecord.model_validate(dict(row)) for row in self.tx.rows(query)]

    def last_granted(self, limit: LimitRecord) -> datetime | None:
        last = sa.select(permits.c.granted_at).where(permits.c.name == limit.name, permits.c.number == limit.granted)
        return self.tx.conn.execute(last).scalar()


def _before(stage: StageRecord) -> sa.ColumnElement[bool]:
    """Stages that come before this one in the global order."""
    return sa.tuple_(stages.c.priority, stages.c.order_seq, stages.c.id) < (stage.priority, stage.order_seq, stage.id)


def _line(name: str, stage_id: int) -> sa.Select[Any]:
    """In the order of the index, so that a count that stops early has read no more than it counted."""
    here = sa.select(waits.c.item_id).where(waits.c.name == name, _IN_LINE, waits.c.stage_id == stage_id)
    return here.order_by(waits.c.seq)


def _stages_in_line(name: str) -> sa.Select[Any]:
    """Which stages have items there: one seek each, however many items of every stage there are."""
    least = sa.select(sa.func.min(waits.c.stage_id).label("value")).where(waits.c.name == name, _IN_LINE)
    found = least.cte("line", recursive=True)
    following = least.where(waits.c.stage_id > found.c.value).scalar_subquery()
    found = found.union_all(sa.select(following).where(found.c.value.is_not(None)))
    return sa.select(found.c.value).where(found.c.value.is_not(None)).limit(CAP)
