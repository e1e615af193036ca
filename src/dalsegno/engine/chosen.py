"""Some items of one job, chosen to be changed by hand: locked, sorted out by who may be, and taken out of line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.engine.rows import lock_job, lock_stages
from dalsegno.model.states import ItemStatus
from dalsegno.store.hot import Delta
from dalsegno.store.schema import items, waits

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

COLUMNS = (
    items.c.id, items.c.stage_id, items.c.seq, items.c.key, items.c.status, items.c.returned, items.c.due_at,
    items.c.error_code,
)  # fmt: skip


class Changed(NamedTuple):
    ids: list[int]
    refused: Counter[str]
    """How many were not changed, by why."""


@dataclass(frozen=True, slots=True)
class Chosen:
    job: sa.RowMapping
    stages: list[sa.RowMapping]
    """All of the job's, in the order in which they can run."""
    rows: list[sa.RowMapping]
    """Those that may be changed."""
    refused: Counter[str]

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows]


def choose(tx: Tx, job_id: int, ids: Sequence[int], allowed: Collection[str], *, busy: str) -> Chosen:
    """Lock the job, its stages, then the items. What somebody has in hand right now is passed by: it is `busy`."""
    job = lock_job(tx, job_id)
    stages = lock_stages(tx, job_id)
    if job["cancel_requested_at"] is not None:
        return Chosen(job, stages, [], Counter({"being_canceled": len(ids)}))
    query = sa.select(*COLUMNS).where(items.c.id.in_(ids)).order_by(items.c.id)
    rows = tx.rows(query.with_for_update(skip_locked=True))
    refused = Counter(str(row["status"]) for row in rows if row["status"] not in allowed)
    refused[busy] += len(ids) - len(rows)
    return Chosen(job, stages, [row for row in rows if row["status"] in allowed], +refused)


def take_out(tx: Tx, chosen: Chosen, target: ItemStatus, **values: Any) -> tuple[dict[int, Delta], set[int]]:
    """They end without being done: nobody may claim them, and they wait for nothing any more.

    Returns what that changed on each stage, and the jobs whose stages have nothing in hand now.
    """
    numbers = chosen.ids
    sources = sorted({row["status"] for row in chosen.rows})
    parked = set(tx.conn.execute(sa.select(waits.c.item_id).where(waits.c.item_id.in_(numbers))).scalars())
    tx.conn.execute(
        sa.update(items)
        .where(items.c.id.in_(numbers), items.c.status.in_(sources))
        .values(status=target, returned=False, due_at=None, finished_at=tx.now, **values)
    )
    tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_(numbers)))
    low = {stage["id"]: stage["low_seq"] for stage in chosen.stages}
    deltas: dict[int, Delta] = {}
    for row in chosen.rows:
        delta = deltas.setdefault(row["stage_id"], Delta())
        delta.move(row["status"], target)
        fresh = row["seq"] > low[row["stage_id"]] and row["due_at"] is None and row["id"] not in parked
        if row["status"] == ItemStatus.PENDING and (row["returned"] or fresh):
            delta.ready -= 1
            delta.returned -= bool(row["returned"])
    return deltas, tx.hot.adjust(tx, deltas)
