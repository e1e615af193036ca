"""What one settle writes: the states, and everything that belongs to the same outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.follower import follow
from dalsegno.engine.grouping import note_errors
from dalsegno.engine.item import Item
from dalsegno.model.outcome import Outcome
from dalsegno.model.states import ITEM_SATISFIED, ItemStatus
from dalsegno.store.hot import Settled, Settlement
from dalsegno.store.schema import artifacts, stages, waits

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

Ended = tuple[Item, Outcome]


def groups_of(batch: list[Ended]) -> Iterable[list[Ended]]:
    """Items that others follow go job by job: their transaction also locks the followers' stages."""
    plain: list[Ended] = []
    by_job: dict[int, list[Ended]] = {}
    for pair in batch:
        (by_job.setdefault(pair[0].job_id, []) if pair[0].stage.followed_by else plain).append(pair)
    if plain:
        yield plain
    yield from by_job.values()


def write_settlement(tx: Tx, group: Sequence[Ended], rows: Sequence[Settled]) -> Settlement:
    done = tx.hot.settle(tx, rows)
    satisfied = []
    failures: dict[int, Settled] = {}
    errors: list[tuple[str, Settled]] = []
    waiting: list[dict[str, Any]] = []
    recorded: dict[Callable[[sa.Connection, list[Any]], None], list[Any]] = {}
    for (item, _), row in zip(group, rows, strict=True):
        if row.plain and not (item.artifacts or item.writes or item.records or item.notes or item.stage.followed_by):
            continue
        if row.id not in done.accepted:
            continue
        for note in item.notes:
            note(tx.conn)
        if row.error_code is not None:
            errors.append((item.stage.service, row))
        if row.status in ITEM_SATISFIED:
            if item.artifacts:
                tx.conn.execute(sa.insert(artifacts), [_artifact(item, a, tx.now) for a in item.artifacts])
            for write in item.writes:
                write(tx.conn)
            for write_all, own in item.records:
                recorded.setdefault(write_all, []).append(own)
            if item.stage.followed_by:
                satisfied.append((item, row.result))
        elif row.status == ItemStatus.FAILED:
            failures[row.stage_id] = row
        elif row.waits_for is not None:
            waiting.append(_wait(item, row.waits_for, tx.now))
        elif row.status == ItemStatus.PENDING:
            tx.announce("due" if row.due_at is not None else f"work:{item.stage.service}")
    for write_all, own_rows in recorded.items():
        write_all(tx.conn, own_rows)
    if waiting:
        tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_([row["item_id"] for row in waiting])))
        tx.conn.execute(sa.insert(waits), waiting)
        tx.announce("flow")
    if satisfied:
        done.quiet_jobs.update(follow(tx, satisfied))
    for stage_id, row in sorted(failures.items()):
        tx.conn.execute(sa.update(stages).where(stages.c.id == stage_id).values(last_error=row.error_message))
    if errors:
        note_errors(tx, errors)
    return done


def _artifact(item: Item, artifact: Any, now: datetime) -> dict[str, Any]:
    return {
        **artifact._asdict(),
        "job_id": item.job_id,
        "stage_id": item.stage.id,
        "item_id": item.id,
        "created_at": now,
    }


def _wait(item: Item, name: str, now: datetime) -> dict[str, Any]:
    claimed = item.claimed
    return {"item_id": claimed.id, "name": name, "stage_id": claimed.stage_id, "job_id": claimed.job_id,
            "seq": claimed.seq, "since": now}  # fmt: skip
