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


class Page(NamedTuple):
    events: list[EventRecord]
    """Oldest first."""
    cursor: Cursor
    """Where to go on: after the last event looked at, also where it was about something else."""


def tail(tx: Tx, after: Cursor, *, job_id: int | None = None, item_id: int | None = None, limit: int = PAGE) -> Page:
    """The next events after a cursor."""
    safe = tx.hot.safe_tx(tx)
    query = (
        sa.select(events)
        .where(sa.tuple_(events.c.tx, events.c.id) > (after.tx, after.id), events.c.tx < safe)
        .order_by(events.c.tx, events.c.id)
        .limit(limit)
    )
    found = _records(tx, _about(query, job_id, item_id))
    if len(found) == limit:
        return Page(found, Cursor(found[-1].tx, found[-1].id))
    return Page(found, _end(tx, safe) or after)


def latest(tx: Tx, *, job_id: int | None = None, item_id: int | None = None, limit: int = 50) -> Page:
    """The last events; a tail from the page's cursor misses nothing that comes after."""
    safe = tx.hot.safe_tx(tx)
    query = sa.select(events).where(events.c.tx < safe).limit(limit)
    # Each order has its index: one job's few events are not looked for among everybody's.
    if job_id is None and item_id is None:
        query = query.order_by(events.c.tx.desc(), events.c.id.desc())
    else:
        query = query.order_by(events.c.id.desc())
    return Page(_records(tx, _about(query, job_id, item_id))[::-1], _end(tx, safe) or Cursor())


def _end(tx: Tx, safe: int) -> Cursor | None:
    """The last event that nothing can be put before any more."""
    row = tx.row(
        sa.select(events.c.tx, events.c.id)
        .where(events.c.tx < safe)
        .order_by(events.c.tx.desc(), events.c.id.desc())
        .limit(1)
    )
    return None if row is None else Cursor(row["tx"], row["id"])


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
