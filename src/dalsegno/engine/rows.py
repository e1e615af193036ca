"""Rows that commands lock and change: the job first, then its stages in order of id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.errors import JobPruned, NotFound
from dalsegno.store.schema import items, jobs, prunings, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

NO_PAUSE: dict[str, Any] = {"pause_reason": None, "paused_by": None, "paused_at": None, "pause_until": None}
"""The columns of a job or a stage that nobody has paused."""
HANDED_OUT: sa.ColumnElement[bool] = (
    items.c.seq <= sa.select(stages.c.low_seq).where(stages.c.id == items.c.stage_id).scalar_subquery()
)
"""Whether an item that waits once more comes back. One beyond its stage's mark was skipped before its turn came: it is
as fresh as ever, and claimed when the mark passes it."""


def lock_job(tx: Tx, job_id: int) -> sa.RowMapping:
    job = tx.row(sa.select(jobs).where(jobs.c.id == job_id).with_for_update())
    if job is None:
        raise NotFound(what="job", id=job_id)
    if tx.row(sa.select(prunings).where(prunings.c.job_id == job_id)) is not None:
        raise JobPruned(id=job_id)
    return job


def lock_stages(tx: Tx, job_id: int) -> list[sa.RowMapping]:
    return tx.rows(sa.select(stages).where(stages.c.job_id == job_id).order_by(stages.c.id).with_for_update())


def set_job(tx: Tx, job_id: int, **values: Any) -> None:
    tx.conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(updated_at=tx.now, **values))


def set_stage(tx: Tx, stage_id: int, **values: Any) -> None:
    tx.conn.execute(sa.update(stages).where(stages.c.id == stage_id).values(**values))
