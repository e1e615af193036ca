"""Pauses of a job and of a stage, and how they end: by an operator's resume, or by the clock.

A stage that is paused by itself has a `pause_reason`; one that stands still because its job does has none. So a job may
be paused and resumed around it, and a stage that has not begun can be told beforehand not to.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.holds import CLOCK, ENGINE, held, release, release_over
from dalsegno.engine.planner import advance
from dalsegno.engine.rows import NO_PAUSE, lock_job, lock_stages, set_job, set_stage
from dalsegno.errors import CommandRefused, InputInvalid
from dalsegno.model.states import JOB_FINISHED, STAGE_FINISHED, ItemStatus, JobStatus, StageStatus
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.hot import Delta, Event
from dalsegno.store.schema import UtcTime, items, jobs, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx


# --- a job --------------------------------------------------------------------------------------


def pause_job(tx: Tx, job_id: int, reason: str, by: str, until: datetime | None = None) -> None:
    """No new claim from here on; what has begun finishes; then the job is paused. Again: the newer reason counts."""
    job = lock_job(tx, job_id)
    if job["status"] in JOB_FINISHED:
        raise CommandRefused(what="Job", id=job_id, verb="paused", state=job["status"], fix="Nothing is left to pause.")
    if job["status"] in (JobStatus.PAUSE_REQUESTED, JobStatus.PAUSED):
        if changed := _changed(tx, job, reason, by, until):
            set_job(tx, job_id, **changed)
            tx.hot.insert_events(tx, [Event("job_pause_set", by, job_id, message=reason, data=_data(until))])
            tx.announce("jobs")
        return
    status = JobStatus.PAUSED if job["status"] == JobStatus.QUEUED else JobStatus.PAUSE_REQUESTED
    set_job(tx, job_id, status=status, pause_reason=reason, paused_by=by, paused_at=tx.now, pause_until=until)
    events = [Event(f"job_{status}", by, job_id, message=reason, data=_data(until))]
    for stage in lock_stages(tx, job_id):
        if stage["status"] == StageStatus.RUNNING:
            set_stage(tx, stage["id"], status=StageStatus.PAUSE_REQUESTED, open=False, claimable=False)
            events.append(Event("stage_pause_requested", by, job_id, stage["id"]))
    tx.hot.insert_events(tx, events)
    tx.announce("closed")
    tx.announce("jobs")  # who sleeps until the next pause ends must hear of this one
    advance(tx, [job_id])


def resume_job(tx: Tx, job_id: int, overrides: dict[str, Any], by: str) -> bool:
    """Back to the queue, with what was interrupted pending again. False while the job still drains.

    Whoever resumes a job has mended what made the engine hold its lane. The clock has not.
    """
    job = lock_job(tx, job_id)
    if job["status"] == JobStatus.PAUSE_REQUESTED:
        return False
    lane = f"lane:{job['lane']}"
    if job["status"] == JobStatus.QUEUED and release(tx, lane, by, held_by=ENGINE):
        return True
    if job["status"] != JobStatus.PAUSED:
        fix = "Only a paused job can be resumed."
        if job["status"] == JobStatus.QUEUED and job["lane"] in held(tx).lanes:
            fix = f'Its lane "{job["lane"]}" is held: resume the lane.'
        raise CommandRefused(what="Job", id=job_id, verb="resumed", state=job["status"], fix=fix)
    merged = {**(job["overrides"] or {}), **overrides} or None
    set_job(tx, job_id, status=JobStatus.QUEUED, overrides=merged, **NO_PAUSE)
    data = {"overrides": overrides} if overrides else None
    tx.hot.insert_events(tx, [Event("job_queued", by, job_id, message="resumed", data=data)])
    requeue_interrupted(tx, lock_stages(tx, job_id), by)
    if by != CLOCK:
        release(tx, lane, by, held_by=ENGINE)
    tx.announce("jobs")
    return True


def requeue_interrupted(tx: Tx, job_stages: Sequence[sa.RowMapping], by: str) -> int:
    """interrupted → pending in these (locked) stages; returns how many."""
    total = 0
    for stage in job_stages:
        if not stage["interrupted"]:
            continue
        rows = tx.conn.execute(
            sa.update(items)
            .where(
                items.c.stage_id == stage["id"],
                items.c.error_code.is_not(None),  # lets the small index answer
                items.c.status == ItemStatus.INTERRUPTED,
            )
            .values(status=ItemStatus.PENDING, returned=True)
            .returning(items.c.id)
        ).scalars()
        found = list(rows)
        delta = Delta()
        delta.counts[ItemStatus.INTERRUPTED] = -len(found)
        delta.counts[ItemStatus.PENDING] = delta.ready = delta.returned = len(found)
        tx.hot.adjust(tx, {stage["id"]: delta})
        tx.hot.insert_events(tx, [Event("item_requeued", by, stage["job_id"], stage["id"], item) for item in found])
        tx.announce(f"work:{stage['service']}")
        total += len(found)
    return total


# --- a stage ------------------------------------------------------------------------------------


def pause_stage(tx: Tx, job_id: int, key: str, reason: str, by: str, until: datetime | None = None) -> None:
    """The stage stands still once what has begun is done, or does not open; its job goes on with the others."""
    job, stage = _lock_stage(tx, job_id, key)
    for state, what, name in ((job["status"], "Job", job_id), (stage["status"], "Stage", f'"{key}"')):
        if state in JOB_FINISHED or state in STAGE_FINISHED:
            raise CommandRefused(what=what, id=name, verb="paused", state=state, fix="Nothing is left to pause.")
    values = _changed(tx, stage, reason, by, until)
    if not values:
        return
    kind = "stage_pause_set"
    if stage["status"] == StageStatus.RUNNING:
        kind = "stage_pause_requested"
        values |= {"status": StageStatus.PAUSE_REQUESTED, "open": False, "claimable": False}
    set_stage(tx, stage["id"], **values)
    tx.hot.insert_events(tx, [Event(kind, by, job_id, stage["id"], message=reason, data=_data(until))])
    tx.announce("closed")
    tx.announce("jobs")
    advance(tx, [job_id])


def resume_stage(tx: Tx, job_id: int, key: str, by: str) -> None:
    """The stage goes on where its job does, with what was interrupted first."""
    _, stage = _lock_stage(tx, job_id, key)
    if stage["pause_reason"] is None:
        fix = "Only a stage that was paused by itself can be; to resume the job, name no stage."
        raise CommandRefused(what="Stage", id=f'"{key}"', verb="resumed", state=stage["status"], fix=fix)
    set_stage(tx, stage["id"], **NO_PAUSE)
    tx.hot.insert_events(tx, [Event("stage_resumed", by, job_id, stage["id"])])
    requeue_interrupted(tx, [stage], by)
    advance(tx, [job_id])


def _lock_stage(tx: Tx, job_id: int, key: str) -> tuple[sa.RowMapping, sa.RowMapping]:
    job = lock_job(tx, job_id)
    by_key = {stage["key"]: stage for stage in lock_stages(tx, job_id)}
    if key not in by_key:
        raise InputInvalid(problem=f'Job {job_id} has no stage "{key}".{did_you_mean(key, by_key)}')
    return job, by_key[key]


def _changed(tx: Tx, row: sa.RowMapping, reason: str, by: str, until: datetime | None) -> dict[str, Any]:
    """The values of this pause, or nothing where it says what is said already."""
    if (row["pause_reason"], row["paused_by"], row["pause_until"]) == (reason, by, until):
        return {}
    since = row["paused_at"] or tx.now
    return {"pause_reason": reason, "paused_by": by, "paused_at": since, "pause_until": until}


def _data(until: datetime | None) -> dict[str, Any] | None:
    return None if until is None else {"until": until.isoformat()}


# --- the clock ----------------------------------------------------------------------------------


_NOW = sa.bindparam("now", type_=UtcTime)
_JOBS_OVER = sa.select(jobs.c.id).where(jobs.c.status == JobStatus.PAUSED, jobs.c.pause_until <= _NOW)
_STAGES_OVER = (
    sa.select(stages.c.job_id, stages.c.key).where(stages.c.pause_until <= _NOW).order_by(stages.c.job_id, stages.c.id)
)


def expire(store: Store) -> None:
    """End every hold and pause whose time has passed. A job that still drains is ended when it has."""
    store.write("expire", release_over)
    now = store.clock.now()
    paused_jobs, paused_stages = store.read(
        lambda tx: (
            list(tx.conn.execute(_JOBS_OVER.order_by(jobs.c.id), {"now": now}).scalars()),
            [(row["job_id"], row["key"]) for row in tx.rows(_STAGES_OVER, {"now": now})],
        )
    )
    for job_id in paused_jobs:
        store.write("expire", lambda tx, job_id=job_id: _expire_job(tx, job_id))  # type: ignore[misc]
    for job_id, key in paused_stages:
        store.write("expire", lambda tx, job_id=job_id, key=key: _expire_stage(tx, job_id, key))  # type: ignore[misc]


def _expire_job(tx: Tx, job_id: int) -> None:
    job = lock_job(tx, job_id)
    if job["status"] == JobStatus.PAUSED and _over(tx, job):  # nobody has resumed or prolonged it in between
        resume_job(tx, job_id, {}, CLOCK)


def _expire_stage(tx: Tx, job_id: int, key: str) -> None:
    if _over(tx, _lock_stage(tx, job_id, key)[1]):
        resume_stage(tx, job_id, key, CLOCK)


def _over(tx: Tx, row: sa.RowMapping) -> bool:
    return row["pause_until"] is not None and row["pause_until"] <= tx.now
