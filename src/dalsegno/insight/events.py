"""Events: listed by job or item, or tailed so that none is ever missed.

Ids are not commit order on PostgreSQL: a transaction that took its id first may commit last, and connections take
ids in advance. Everything here therefore reads by (tx, id), and a tail stops at the oldest transaction that is still
writing. On SQLite ids say it all.
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
    safe, order = tx.hot.safe_tx(tx), _order(tx)
    beyond = sa.tuple_(*order) > (after.tx, after.id) if len(order) == 2 else events.c.id > after.id
    query = sa.select(events).where(beyond, events.c.tx < safe).order_by(*order).limit(limit)
    found = _records(tx, _about(query, job_id, item_id))
    if len(found) == limit:
        return Page(found, Cursor(found[-1].tx, found[-1].id))
    return Page(found, _end(tx, safe) or after)


def latest(tx: Tx, *, job_id: int | None = None, item_id: int | None = None, limit: int = 50) -> Page:
    """The last events; a tail from the page's cursor misses nothing that comes after."""
    safe = tx.hot.safe_tx(tx)
    newest_first = [column.desc() for column in _order(tx)]
    query = sa.select(events).where(events.c.tx < safe).order_by(*newest_first).limit(limit)
    return Page(_records(tx, _about(query, job_id, item_id))[::-1], _end(tx, safe) or Cursor())


def _end(tx: Tx, safe: int) -> Cursor | None:
    """The last event that nothing can be put before any more."""
    newest_first = [column.desc() for column in _order(tx)]
    row = tx.row(sa.select(events.c.tx, events.c.id).where(events.c.tx < safe).order_by(*newest_first).limit(1))
    return None if row is None else Cursor(row["tx"], row["id"])


def events_of_item(tx: Tx, item_id: int, limit: int = 1000) -> list[EventRecord]:
    """An item's timeline."""
    return _records(tx, sa.select(events).where(events.c.item_id == item_id).order_by(*_order(tx)).limit(limit))


def _order(tx: Tx) -> tuple[sa.Column[int], ...]:
    """The order in which things happened, by the columns of the primary key: no table is sorted for a page of it."""
    return (events.c.tx, events.c.id) if tx.conn.dialect.name == "postgresql" else (events.c.id,)


def _about(query: sa.Select[tuple[object]], job_id: int | None, item_id: int | None) -> sa.Select[tuple[object]]:
    if job_id is not None:
        query = query.where(events.c.job_id == job_id)
    if item_id is not None:
        query = query.where(events.c.item_id == item_id)
    return query


def _records(tx: Tx, query: sa.Select[tuple[object]]) -> list[EventRecord]:
    return [EventRecord.model_validate(dict(row)) for row in tx.rows(query)]
