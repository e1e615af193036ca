"""Streaming: an item that is done brings forth its follower in every stage that follows `each`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.rows import HANDED_OUT
from dalsegno.model.states import STAGE_FINISHED, ItemStatus, StageStatus
from dalsegno.store.hot import Delta, Event, NewItem
from dalsegno.store.schema import items, jobs, leases, stages

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.store.store import Tx

Parent = tuple["Item", str | None]
_STAGE = (
    sa.select(
        stages.c.job_id, stages.c.service, stages.c.high_seq, stages.c.status, stages.c.on_failure, stages.c.failed
    )
    .where(stages.c.id == sa.bindparam("stage"))
    .with_for_update()
)


def follow(tx: Tx, parents: Sequence[Parent]) -> set[int]:
    """Add a follower for each parent; where there is one already and the result changed, it starts over.

    Returns the jobs with a stage that was finished and has work again.
    """
    by_stage: dict[int, list[Parent]] = {}
    for parent in parents:
        for stage_id in parent[0].stage.followed_by:
            by_stage.setdefault(stage_id, []).append(parent)
    reopened: set[int] = set()
    for stage_id, some in sorted(by_stage.items()):
        reopened |= _follow(tx, stage_id, some)
    return reopened


def _follow(tx: Tx, stage_id: int, parents: list[Parent]) -> set[int]:
    stage = tx.row(_STAGE, {"stage": stage_id})
    assert stage is not None
    canceling = sa.select(jobs.c.cancel_requested_at).where(jobs.c.id == stage["job_id"])
    if tx.conn.execute(canceling).scalar() is not None:
        return set()  # what still finishes counts, and nothing follows from it
    rows = [
        NewItem(stage["high_seq"] + number, item.key, None, item.id, _hash(result))
        for number, (item, result) in enumerate(parents, 1)
    ]
    inserted, delta = _insert(tx, stage_id, stage, rows)
    for row in rows:
        if row.key not in inserted:
            _start_over(tx, stage_id, row, delta)
    tx.hot.adjust(tx, {stage_id: delta})
    if delta.counts[ItemStatus.FAILED]:
        _open_again(tx, stage_id)
    tx.announce(f"work:{stage['service']}")
    if not delta.ready or stage["status"] not in STAGE_FINISHED:
        return set()
    if stage["on_failure"] == "stop" and stage["failed"] + delta.counts[ItemStatus.FAILED]:
        return set()  # it stopped at a failure that still stands: what comes now waits for a retry with the rest
    tx.conn.execute(
        sa.update(stages).where(stages.c.id == stage_id).values(status=StageStatus.PENDING, finished_at=None)
    )
    tx.hot.insert_events(tx, [Event("stage_pending", "follower", stage["job_id"], stage_id, message="reopened")])
    return {stage["job_id"]}


def add_followers(tx: Tx, stage_id: int, parents: Sequence[tuple[int, str]]) -> None:
    """Followers of `(item, key)` that were skipped by hand, as far as they are missing; those that are there stay."""
    stage = tx.row(_STAGE, {"stage": stage_id})
    assert stage is not None
    rows = [
        NewItem(stage["high_seq"] + number, key, None, item_id, _hash(None))
        for number, (item_id, key) in enumerate(parents, 1)
    ]
    inserted, delta = _insert(tx, stage_id, stage, rows)
    if inserted:
        tx.hot.adjust(tx, {stage_id: delta})
        tx.announce(f"work:{stage['service']}")


def _insert(tx: Tx, stage_id: int, stage: sa.RowMapping, rows: list[NewItem]) -> tuple[set[str], Delta]:
    """Those whose keys the stage lacks, and what that changes on it."""
    inserted = {key for _, key in tx.hot.insert_missing(tx, stage["job_id"], stage_id, rows)}
    delta = Delta()
    if inserted:
        tx.conn.execute(sa.update(stages).where(stages.c.id == stage_id).values(high_seq=stage["high_seq"] + len(rows)))
        delta.total = delta.ready = len(inserted)
        delta.counts[ItemStatus.PENDING] = len(inserted)
    return inserted, delta


def _open_again(tx: Tx, stage_id: int) -> None:
    """A failure had closed the stage (policy stop), and that failure is no more."""
    tx.conn.execute(
        sa.update(stages)
        .where(stages.c.id == stage_id, stages.c.status == StageStatus.RUNNING, stages.c.failed == 0)
        .values(open=True, claimable=stages.c.ready > 0)
    )


def _start_over(tx: Tx, stage_id: int, row: NewItem, delta: Delta) -> None:
    """The follower exists. If what it follows changed, what it made is stale."""
    found = tx.row(
        sa.select(items.c.id, items.c.job_id, items.c.status, items.c.input_hash, HANDED_OUT.label("handed_out")).where(
            items.c.stage_id == stage_id, items.c.key == row.key
        )
    )
    if found is None or found["input_hash"] == row.input_hash:
        return
    values: dict[str, Any] = {"input_hash": row.input_hash, "parent_id": row.parent_id}
    stays = (ItemStatus.PENDING, ItemStatus.INTERRUPTED, ItemStatus.CANCELED)
    if found["status"] not in stays:
        # A leased follower loses its lease: the number moves on, so what it finishes now is refused.
        tx.conn.execute(sa.delete(leases).where(leases.c.item_id == found["id"]))
        values |= {"status": ItemStatus.PENDING, "returned": HANDED_OUT, "finished_at": None, "attempt": 0,
                   "error_code": None, "error_message": None, "lease": items.c.lease + 1}  # fmt: skip
        delta.move(found["status"], ItemStatus.PENDING)
        delta.ready += 1
        delta.returned += bool(found["handed_out"])
    tx.conn.execute(sa.update(items).where(items.c.id == found["id"]).values(**values))
    if found["status"] not in stays:
        event = Event("item_reset", "follower", found["job_id"], stage_id, found["id"],
                      message="what it follows changed")  # fmt: skip
        tx.hot.insert_events(tx, [event])


def _hash(result: str | None) -> str:
    return hashlib.sha256((result or "null").encode()).hexdigest()
