"""What is told of items while they run: which phase they are in, and how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.engine.item import Item
from dalsegno.model.states import JOB_ACTIVE, STAGE_FINISHED, ItemStatus
from dalsegno.store.hot import Event
from dalsegno.store.schema import items, jobs, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

# A job is as far along as its stages are on average: totals of stages that are not planned yet are unknown.
_done = stages.c.succeeded + stages.c.failed + stages.c.skipped + stages.c.canceled
_share = sa.case(
    (stages.c.status.in_(sorted(STAGE_FINISHED)), 1.0),
    (stages.c.total > 0, _done * 1.0 / stages.c.total),
    else_=0.0,
)
_JOB_PROGRESS = (
    sa.update(jobs)
    .where(jobs.c.id.in_(sa.bindparam("ids", expanding=True)), jobs.c.status.in_(sorted(JOB_ACTIVE)))
    .values(progress=sa.select(sa.func.avg(_share)).where(stages.c.job_id == jobs.c.id).scalar_subquery())
)


def note_phase(tx: Tx, item: Item) -> None:
    if tx.conn.execute(fenced(item).values(phase=item.current_phase)).rowcount:
        event = Event("item_phase", item.worker, item.job_id, item.stage.id, item.id,
                      data={"phase": item.current_phase})  # fmt: skip
        tx.hot.insert_events(tx, [event])


def note_progress(tx: Tx, moved: list[tuple[Item, bool]], job_ids: list[int]) -> None:
    """Each with whether the service said it got on: entering a phase alone does not clear its interruptions."""
    for item, progressed in sorted(moved, key=lambda pair: pair[0].id):
        told = {"phase": item.current_phase, "progress": item.fraction, "progress_text": item.text}
        tx.conn.execute(fenced(item).values(told | {"interruptions": 0} if progressed else told))
    if job_ids:
        tx.conn.execute(_JOB_PROGRESS, {"ids": job_ids})


def fenced(item: Item) -> sa.Update:
    """Of this item, while it is ours and runs."""
    return sa.update(items).where(
        items.c.id == item.id, items.c.lease == item.claimed.lease, items.c.status == ItemStatus.RUNNING
    )
