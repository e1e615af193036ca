"""Events: listed by job or item, or tailed so that none is ever missed.

Ids are not commit order on PostgreSQL: a transaction that took its id first may commit last. A tail therefore
reads by (tx, id) and stops at the oldest transaction that is still writing.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from dalsegno.model.records import EventRecord
from dalsegno.store.schema import events
from dalsegno.store.store import Tx

PAGE = 500


class Cursor(NamedTuple):
    """How far a reader has come."""

    tx: int = -1
    id: int = 0


def tail(
    tx: Tx, after: Cursor, *, job_id: int | None = None, item_id: int | None = None, limit: int = PAGE
) -> list[EventRecord]:
    """The next events after a cursor, oldest first; continue from `cursor_of` the last of them."""
    query = (
        sa.select(events)
        .where(sa.tuple_(events.c.tx, events.c.id) > (after.tx, after.id), events.c.tx < tx.hot.safe_tx(tx))
        .order_by(events.c.tx, events.c.id)
        .limit(limit)
    )
    return _records(tx, _about(query, job_id, item_id))


def cursor_of(event: EventRecord) -> Cursor:
    return Cursor(event.tx, event.id)


def latest(tx: Tx, *, job_id: int | None = None, item_id: int | None = None, limit: int = 50) -> list[EventRecord]:
    """The last events a tail could have seen, oldest first: `tail` from the last of them misses nothing."""
    query = (
        sa.select(events)
        .where(events.c.tx < tx.hot.safe_tx(tx))
        .order_by(events.c.tx.desc(), events.c.id.desc())
        .limit(limit)
    )
    return _records(tx, _about(query, job_id, item_id))[::-1]


def events_of_item(tx: Tx, item_id: int, limit: int = 1000) -> list[EventRecord]:
    """An item's timeline."""
    return _records(tx, sa.select(events).where(events.c.item_id == item_id).order_by(events.c.id).limit(limit))


def _about(query: sa.Select[tuple[object]], job_id: int | None, item_id: int | None) -> sa.Select[tuple[object]]:
    if job_id is not None:
        query = query.where(events.c.job_id == job_id)
    if item_id is not None:
        query = query.where(events.c.item_id == item_id)
    return query


def _records(tx: Tx, query: sa.Select[tuple[object]]) -> list[EventRecord]:
    return [EventRecord.model_validate(dict(row)) for row in tx.rows(query)]
