"""Items of a job, stage by stage, and everything about one of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from dalsegno.errors import InputInvalid, NotFound
from dalsegno.insight.events import events_of_item
from dalsegno.model.records import ArtifactRecord, EventRecord, ItemRecord, LeaseRecord, StageRecord
from dalsegno.model.states import ItemStatus
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.schema import artifacts, items, jobs, leases, stages
from dalsegno.store.store import Tx

TROUBLE = frozenset({ItemStatus.FAILED, ItemStatus.INTERRUPTED})
"""States that always carry an error code, and so are found through the small index of trouble."""


@dataclass(frozen=True, slots=True)
class ItemLine:
    stage: str
    item: ItemRecord
    service: str = ""


@dataclass(frozen=True, slots=True)
class ItemDetail:
    item: ItemRecord
    stage: StageRecord
    lease: LeaseRecord | None
    parent: ItemRecord | None
    """The item it follows."""
    artifacts: list[ArtifactRecord]
    events: list[EventRecord]


def list_items(
    tx: Tx,
    job_id: int,
    *,
    stage: str | None = None,
    state: Collection[str] = (),
    after: int | None = None,
    limit: int = 50,
) -> list[ItemLine]:
    """A page of a job's items in their order; `after` is the last id of the page shown before it."""
    chosen = _stages(tx, job_id, stage)
    start_stage, start_seq = _position(tx, after)
    wanted = [ItemStatus(name) for name in sorted(state)] or list(ItemStatus)
    found: list[ItemLine] = []
    for row in chosen:
        # Counters say where nothing is to be found: a million done items are not walked for one that failed.
        if row["seq"] < start_stage or not any(row[name] for name in wanted) or len(found) >= limit:
            continue
        query = sa.select(items).where(items.c.stage_id == row["id"]).order_by(items.c.seq).limit(limit - len(found))
        if row["seq"] == start_stage:
            query = query.where(items.c.seq > start_seq)
        if state:
            query = query.where(items.c.status.in_(wanted))
        if TROUBLE.issuperset(wanted):
            query = query.where(items.c.error_code.is_not(None))
        records = [ItemRecord.model_validate(dict(item)) for item in tx.rows(query)]
        found += [ItemLine(row["key"], record, row["service"]) for record in records]
    return found


def item_detail(tx: Tx, item_id: int) -> ItemDetail:
    item = _item(tx, item_id)
    if item is None:
        raise NotFound(what="item", id=item_id)
    stage = tx.row(sa.select(stages).where(stages.c.id == item.stage_id))
    lease = tx.row(sa.select(leases).where(leases.c.item_id == item_id))
    files = tx.rows(sa.select(artifacts).where(artifacts.c.item_id == item_id).order_by(artifacts.c.id))
    assert stage is not None
    return ItemDetail(
        item,
        StageRecord.model_validate(dict(stage)),
        None if lease is None else LeaseRecord.model_validate(dict(lease)),
        None if item.parent_id is None else _item(tx, item.parent_id),
        [ArtifactRecord.model_validate(dict(row)) for row in files],
        events_of_item(tx, item_id),
    )


def _item(tx: Tx, item_id: int) -> ItemRecord | None:
    row = tx.row(sa.select(items).where(items.c.id == item_id))
    return None if row is None else ItemRecord.model_validate(dict(row))


def _stages(tx: Tx, job_id: int, key: str | None) -> list[sa.RowMapping]:
    rows = tx.rows(sa.select(stages).where(stages.c.job_id == job_id).order_by(stages.c.seq))
    if not rows and tx.row(sa.select(jobs.c.id).where(jobs.c.id == job_id)) is None:
        raise NotFound(what="job", id=job_id)
    if key is None:
        return rows
    if key not in [row["key"] for row in rows]:
        hint = did_you_mean(key, [row["key"] for row in rows])
        raise InputInvalid(problem=f'Job {job_id} has no stage "{key}".{hint}')
    return [row for row in rows if row["key"] == key]


def _position(tx: Tx, after: int | None) -> tuple[int, int]:
    """The place of an item in its job: the number of its stage, and its own."""
    if after is None:
        return 0, 0
    row = tx.row(
        sa.select(stages.c.seq.label("stage"), items.c.seq)
        .join(stages, stages.c.id == items.c.stage_id)
        .where(items.c.id == after)
    )
    if row is None:
        raise NotFound(what="item", id=after)
    return row["stage"], row["seq"]
