"""When a job gets its turn: smaller runs first. A job's stages carry its order, however many items they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.chosen import Changed
from dalsegno.engine.rows import lock_job, lock_stages, set_job
from dalsegno.engine.submit import PRIORITIES
from dalsegno.errors import CommandRefused, InputInvalid
from dalsegno.model.states import JOB_FINISHED
from dalsegno.store.hot import Event
from dalsegno.store.schema import jobs, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Tx


def checked_priority(priority: Any) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or priority not in PRIORITIES:
        raise InputInvalid(problem=f"priority must be a whole number within ±1,000,000, not {priority!r}.")
    return priority


def set_priority(tx: Tx, job_id: int, priority: Any, by: str) -> None:
    """Smaller runs first. One row per stage, however many items there are."""
    number = checked_priority(priority)
    job = lock_job(tx, job_id)
    if job["status"] in JOB_FINISHED:
        fix = "Its order no longer matters."
        raise CommandRefused(what="Job", id=job_id, verb="re-prioritised", state=job["status"], fix=fix)
    lock_stages(tx, job_id)
    set_job(tx, job_id, priority=number)
    tx.conn.execute(sa.update(stages).where(stages.c.job_id == job_id).values(priority=number))
    data = {"from": job["priority"], "to": number}
    tx.hot.insert_events(tx, [Event("job_priority_changed", by, job_id, data=data)])
    tx.announce("jobs")


def prioritise(tx: Tx, job_ids: Sequence[int], priority: int, by: str, note: dict[str, Any]) -> Changed:
    """The same for many jobs at once; those that are over and those that have it already are left alone."""
    query = sa.select(jobs.c.id, jobs.c.status, jobs.c.priority).where(jobs.c.id.in_(job_ids)).order_by(jobs.c.id)
    rows = tx.rows(query.with_for_update())
    refused = Counter(
        "finished" if row["status"] in JOB_FINISHED else "same_priority"
        for row in rows
        if row["status"] in JOB_FINISHED or row["priority"] == priority
    )
    chosen = [row for row in rows if row["status"] not in JOB_FINISHED and row["priority"] != priority]
    ids = [row["id"] for row in chosen]
    if ids:
        own = sa.select(stages.c.id).where(stages.c.job_id.in_(ids)).order_by(stages.c.id)
        tx.conn.execute(own.with_for_update())
        tx.conn.execute(sa.update(jobs).where(jobs.c.id.in_(ids)).values(priority=priority, updated_at=tx.now))
        tx.conn.execute(sa.update(stages).where(stages.c.job_id.in_(ids)).values(priority=priority))
        data = [{"from": row["priority"], "to": priority, **note} for row in chosen]
        told = [Event("job_priority_changed", by, each, data=one) for each, one in zip(ids, data, strict=True)]
        tx.hot.insert_events(tx, told)
        tx.announce("jobs")
    return Changed(ids, refused)
