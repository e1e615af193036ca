"""The planner: what follows when something changed, and which items a stage has.

`advance` moves jobs and stages along their DAG. It runs in a transaction of its own and locks the job first, then its
stages in order of id; whoever settles or claims holds stages only, so nobody waits in a circle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.engine.holds import held
from dalsegno.engine.looper import Looper
from dalsegno.engine.rows import NO_PAUSE, lock_job
from dalsegno.engine.submit import number_items
from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.model.progression import Change, StageView, progress
from dalsegno.model.states import ITEM_SATISFIED, JOB_FINISHED, STAGE_FINISHED, JobStatus, StageStatus
from dalsegno.store.hot import Delta, Event, NewItem
from dalsegno.store.schema import UtcTime, items, jobs, processes, stages

if TYPE_CHECKING:
    from dalsegno.engine.service import Service, Services
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

CHUNK = 1000
TRIES = 3
LEASED = stages.c.claimed + stages.c.running
STAGE_LIVE = (StageStatus.RUNNING, StageStatus.PAUSE_REQUESTED, StageStatus.PAUSED)


# --- moving along the DAG -----------------------------------------------------------------------


_JOBS = (
    sa.select(jobs.c.id, jobs.c.status, jobs.c.cancel_requested_at, jobs.c.current_stage)
    .where(jobs.c.id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(jobs.c.id)
    .with_for_update()
)
_STAGES = (
    sa.select(
        stages.c.id, stages.c.job_id, stages.c.key, stages.c.seq, stages.c.service, stages.c.status,
        stages.c.depends_on, stages.c.follow, stages.c.on_failure, stages.c.open, stages.c.planned, stages.c.pending,
        LEASED.label("leased"), stages.c.failed, stages.c.interrupted, stages.c.last_error,
        stages.c.pause_reason.is_not(None).label("held"),
    )
    .where(stages.c.job_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(stages.c.id)
    .with_for_update()
)  # fmt: skip


_moved = sa.update(stages).where(stages.c.id == sa.bindparam("stage"), stages.c.status == sa.bindparam("source"))
_OPEN_STAGE = _moved.values(
    status=StageStatus.RUNNING,
    open=sa.true(),
    claimable=stages.c.ready > 0,
    finished_at=None,
    started_at=sa.func.coalesce(stages.c.started_at, sa.bindparam("now", type_=UtcTime)),
)
_CLOSE_STAGE = _moved.values(
    status=sa.bindparam("target"),
    open=sa.false(),
    claimable=sa.false(),
    finished_at=sa.bindparam("finished", type_=UtcTime),
)
_END_STAGE = _CLOSE_STAGE.values(**NO_PAUSE)  # one that is reopened later starts with a clean slate
_SET_CURRENT = sa.update(jobs).where(jobs.c.id == sa.bindparam("job")).values(current_stage=sa.bindparam("current"))


def advance(tx: Tx, job_ids: Iterable[int], events: list[Event] | None = None) -> None:
    """Let every job and stage that can move do so. `events` are the caller's, to be written before ours."""
    wanted = sorted(set(job_ids))
    events = list(events or ())
    if wanted:
        found = tx.rows(_JOBS, {"ids": wanted})
        by_job: dict[int, list[sa.RowMapping]] = {row["id"]: [] for row in found}
        for row in tx.rows(_STAGES, {"ids": wanted}):
            by_job[row["job_id"]].append(row)
        for job in found:
            _advance(tx, job, by_job[job["id"]], events)
    if events:
        tx.hot.insert_events(tx, events)


def _advance(tx: Tx, job: sa.RowMapping, rows: list[sa.RowMapping], events: list[Event]) -> None:
    views = [
        StageView(
            id=row["id"],
            key=row["key"],
            seq=row["seq"],
            status=row["status"],
            depends_on=tuple(row["depends_on"]),
            follow=row["follow"],
            on_failure=row["on_failure"],
            open=row["open"],
            planned=row["planned"],
            pending=row["pending"],
            leased=row["leased"],
            failed=row["failed"],
            interrupted=row["interrupted"],
            held=row["held"],
        )
        for row in rows
    ]
    by_id = {row["id"]: row for row in rows}
    status = {row["id"]: row["status"] for row in rows}
    changes = progress(job["status"], job["cancel_requested_at"] is not None, views)
    values: dict[str, Any] = {}
    for change in changes:
        if change.id is None:
            values |= _job_values(tx, job["id"], change, events)
            if change.status == JobStatus.FAILED:
                values |= _reason(rows, status)
        else:
            _move_stage(tx, by_id[change.id], change, status[change.id], events)
            status[change.id] = change.status
    current = next((view.key for view in views if view.status in STAGE_LIVE), None)
    if current != job["current_stage"]:
        values["current_stage"] = current
    if values.keys() == {"current_stage"}:
        tx.conn.execute(_SET_CURRENT, {"job": job["id"], "current": current})
    elif values:
        tx.conn.execute(sa.update(jobs).where(jobs.c.id == job["id"]).values(**values))


def _move_stage(tx: Tx, stage: sa.RowMapping, change: Change, source: str, events: list[Event]) -> None:
    if change.status == StageStatus.RUNNING:
        tx.conn.execute(_OPEN_STAGE, {"stage": change.id, "source": source, "now": tx.now})
        tx.announce(f"work:{stage['service']}" if stage["planned"] else "plan")
    else:
        ended = change.status in STAGE_FINISHED
        closed = {"stage": change.id, "source": source, "target": change.status, "finished": tx.now if ended else None}
        tx.conn.execute(_END_STAGE if ended else _CLOSE_STAGE, closed)
    events.append(Event(f"stage_{change.status}", "planner", stage["job_id"], change.id))


def _reason(rows: list[sa.RowMapping], status: dict[int, str]) -> dict[str, Any]:
    """Why a job failed: the first of its stages that did."""
    culprit = next(row for row in rows if status[row["id"]] == StageStatus.FAILED)
    text = f'stage "{culprit["key"]}" failed: {culprit["last_error"] or "no reason was given"}'
    return {  # unless something more exact is known already
        "error_code": sa.func.coalesce(jobs.c.error_code, "stage_failed"),
        "error_message": sa.func.coalesce(jobs.c.error_message, text[:2000]),
    }


def _job_values(tx: Tx, job_id: int, change: Change, events: list[Event]) -> dict[str, Any]:
    values: dict[str, Any] = {"status": change.status, "updated_at": tx.now}
    if change.status in JOB_FINISHED:
        values |= {"finished_at": tx.now, "cancel_requested_at": None, **NO_PAUSE}
        values["progress"] = 1.0 if change.status.startswith(JobStatus.COMPLETED) else jobs.c.progress
    level = "error" if change.status == JobStatus.FAILED else "info"
    events.append(Event(f"job_{change.status}", "planner", job_id, level=level))
    tx.announce("jobs")
    return values


# --- planning stages ----------------------------------------------------------------------------


class Upstream(NamedTuple):
    """A finished item of a step this one depends on."""

    step: str
    key: str
    result: Any


class Plan:
    """What a service's `plan` gets: the job's settings and what came before."""

    def __init__(self, store: Store, stage: sa.RowMapping, job: sa.RowMapping) -> None:
        self._store = store
        self._stage = stage
        self.job_id: int = job["id"]
        self.step: str = stage["key"]
        self.params: dict[str, Any] = stage["params"] or {}
        self.scope: Any = job["scope"]
        self.options: dict[str, Any] = job["options"] or {}
        self.snapshot: dict[str, Any] = {**(job["snapshot"] or {}), **(job["overrides"] or {})}

    def steps(self) -> list[str]:
        """The steps of the job, in order."""
        query = sa.select(stages.c.key).where(stages.c.job_id == self.job_id).order_by(stages.c.seq)
        return self._store.read(lambda tx: list(tx.conn.execute(query).scalars()))

    def upstream(self) -> Iterator[Upstream]:
        """The finished items of the steps this one depends on, in their order."""
        needed = list(self._stage["depends_on"])
        before = self._store.read(
            lambda tx: tx.rows(
                sa.select(stages.c.id, stages.c.key)
                .where(stages.c.job_id == self.job_id, stages.c.key.in_(needed))
                .order_by(stages.c.seq)
            )
        )
        for stage in before:
            yield from self._finished(stage["id"], stage["key"])

    def _finished(self, stage_id: int, step: str) -> Iterator[Upstream]:
        after = 0
        query = (
            sa.select(items.c.seq, items.c.key, items.c.result)
            .where(
                items.c.stage_id == stage_id,
                items.c.seq > sa.bindparam("after"),
                items.c.status.in_(sorted(ITEM_SATISFIED)),
            )
            .order_by(items.c.seq)
            .limit(CHUNK)
        )
        while True:
            page = self._store.read(lambda tx, after=after: tx.rows(query, {"after": after}))  # type: ignore[misc]
            for row in page:
                yield Upstream(step, row["key"], row["result"])
            if len(page) < CHUNK:
                return
            after = page[-1]["seq"]


class Planner(Looper):
    """Lists the items of stages that have just opened, for the services this process offers."""

    name = "planner"

    def __init__(self, store: Store, services: Services, process_id: Callable[[], int]) -> None:
        super().__init__()
        self.interval = store.poll_seconds
        self._store = store
        self._services = services
        self._process_id = process_id
        self._failed: dict[int, int] = {}

    def tick(self) -> float | None:
        stage = self._store.write("plan.claim", self._claim)
        if stage is None:
            return None
        try:
            self._plan(stage, self._services.get(stage["service"]))
        except Exception as error:
            return self._plan_failed(stage, error)
        self._failed.pop(stage["id"], None)
        return 0

    def _claim(self, tx: Tx) -> sa.RowMapping | None:
        """The first unplanned stage of ours that is not held, marked so that no other process plans it too."""
        still = held(tx)  # planning runs the service's own code, so a hold is for it as well
        if still.everything:
            return None
        row = tx.row(
            sa.select(stages)
            .where(
                stages.c.status == StageStatus.RUNNING,
                stages.c.planned.is_(False),
                stages.c.service.in_(set(self._services.names()) - still.services),
                *_outside(still.lanes),
                sa.or_(
                    stages.c.planner_id.is_(None),
                    stages.c.planner_id == self._process_id(),
                    stages.c.planner_id.not_in(sa.select(processes.c.id)),
                ),
            )
            .order_by(stages.c.priority, stages.c.order_seq, stages.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if row is not None:
            tx.conn.execute(sa.update(stages).where(stages.c.id == row["id"]).values(planner_id=self._process_id()))
        return row

    def _plan(self, stage: sa.RowMapping, service: Service) -> None:
        if service.planner is None:
            specs: Iterator[Any] = iter([stage["key"]])
        else:
            job = self._store.read(lambda tx: tx.row(sa.select(jobs).where(jobs.c.id == stage["job_id"])))
            assert job is not None
            specs = iter(service.planner(Plan(self._store, stage, job)))
        added = 0
        while chunk := list(islice(specs, CHUNK)):
            rows = list(number_items(chunk))
            added += self._store.write("plan.chunk", lambda tx, rows=rows: add_items(tx, stage["id"], rows))  # type: ignore[misc]
        self._store.write("plan.finish", lambda tx: self._finish(tx, stage, added))
        self._store.write("advance", lambda tx: advance(tx, [stage["job_id"]]))

    def _finish(self, tx: Tx, stage: sa.RowMapping, added: int) -> None:
        tx.conn.execute(sa.update(stages).where(stages.c.id == stage["id"]).values(planned=True, planner_id=None))
        event = Event("stage_planned", "planner", stage["job_id"], stage["id"], data={"added": added})
        tx.hot.insert_events(tx, [event])

    def _give_up(self, tx: Tx, stage: sa.RowMapping, error: str) -> None:
        """With what follows from it, in one go: no sweep looks for a running job whose stages are all done."""
        lock_job(tx, stage["job_id"])
        fail_stage(tx, stage, error)
        advance(tx, [stage["job_id"]])

    def _plan_failed(self, stage: sa.RowMapping, error: Exception) -> float:
        tries = self._failed[stage["id"]] = self._failed.get(stage["id"], 0) + 1
        logger.error('planning stage "%s" of job %s failed', stage["key"], stage["job_id"], exc_info=error)
        text = (str(error) if isinstance(error, DalSegnoError) else f"{type(error).__name__}: {error}")[:2000]
        if tries >= TRIES or isinstance(error, InputInvalid):  # wrong items stay wrong
            self._store.write("plan.fail", lambda tx: self._give_up(tx, stage, text))
            del self._failed[stage["id"]]
            return 0
        return float(0.2 * 2**tries)


def _outside(held_lanes: frozenset[str]) -> list[sa.ColumnElement[bool]]:
    """Only stages of jobs in other lanes than these."""
    return [stages.c.job_id.not_in(sa.select(jobs.c.id).where(jobs.c.lane.in_(held_lanes)))] if held_lanes else []


def add_items(tx: Tx, stage_id: int, rows: list[NewItem]) -> int:
    """Add the items whose keys the stage lacks; returns how many those were."""
    stage = tx.row(
        sa.select(stages.c.job_id, stages.c.service, stages.c.high_seq, stages.c.open)
        .where(stages.c.id == stage_id)
        .with_for_update()
    )
    assert stage is not None
    top = stage["high_seq"]
    numbered = [row._replace(seq=top + number) for number, row in enumerate(rows, 1)]
    inserted = len(tx.hot.insert_missing(tx, stage["job_id"], stage_id, numbered))
    if inserted:
        tx.conn.execute(sa.update(stages).where(stages.c.id == stage_id).values(high_seq=top + len(rows)))
        delta = Delta()
        delta.total = delta.ready = inserted
        delta.counts["pending"] = inserted  # type: ignore[index]
        tx.hot.adjust(tx, {stage_id: delta})
        tx.announce(f"work:{stage['service']}")
    return inserted


def fail_stage(tx: Tx, stage: sa.RowMapping, error: str) -> None:
    """A stage that cannot be planned fails, and its job with it. One that was paused meanwhile is tried again later."""
    failed = tx.conn.execute(
        sa.update(stages)
        .where(stages.c.id == stage["id"], stages.c.status == StageStatus.RUNNING)
        .values(
            status=StageStatus.FAILED,
            open=False,
            claimable=False,
            planner_id=None,
            finished_at=tx.now,
            last_error=error,
        )
    ).rowcount
    if not failed:
        return
    tx.conn.execute(
        sa.update(jobs)
        .where(jobs.c.id == stage["job_id"])
        .values(error_code="plan_failed", error_message=error, updated_at=tx.now)
    )
    event = Event("stage_failed", "planner", stage["job_id"], stage["id"], level="error", message=error)
    tx.hot.insert_events(tx, [event])
