"""What has changed since the last look, in a few small questions: the live stream asks them four times a second.

Events are read in the order of the log (see `insight.events`) and only counted by type and job. What changes without
an event (workers, permits, log lines, commands) is known by a fingerprint of rows that is cheap to make.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from dalsegno.insight.events import Cursor
from dalsegno.model.records import EventRecord
from dalsegno.store.schema import (
    breakers,
    commands,
    config_revisions,
    events,
    limits,
    logs,
    permits,
    processes,
    workers,
    workflows,
)
from dalsegno.store.store import Tx

MOST = 20_000
"""Events that are looked through; of more it is only said that they are too many to tell one by one."""
LAST = 100
"""Rows at the end of a log whose ids are its fingerprint: on PostgreSQL a smaller id may appear later."""


class Happened(NamedTuple):
    end: Cursor
    """The last event that nothing can be put before any more."""
    head: Cursor
    """The last one there is. On PostgreSQL it is beyond `end` while an older transaction is still writing."""
    kinds: list[tuple[str, int | None]]
    """Types of events, with the job they are about."""
    items: list[int]
    """Those of the items asked about that something happened to."""
    too_many: bool


def happened(tx: Tx, after: Cursor, seen: Cursor, item_ids: Collection[int] = ()) -> Happened:
    """Between `after` and the end; and beyond it, what is there already and comes after `seen`."""
    end = _last(tx, events.c.tx < tx.hot.safe_tx(tx)) or Cursor()
    head = (_last(tx) or Cursor()) if _by_tx(tx) else end
    kinds: set[tuple[str, int | None]] = set()
    counted = 0
    for low, high in ((after, end), (max(seen, end), head)):
        if high > low:
            some = (
                sa.select(events.c.type, events.c.job_id)
                .where(*_between(tx, low, high))
                .order_by(*_order(tx))
                .limit(MOST + 1)
                .subquery()
            )
            query = sa.select(some.c.type, some.c.job_id, sa.func.count()).group_by(some.c.type, some.c.job_id)
            for kind, job_id, count in tx.conn.execute(query):
                kinds.add((kind, job_id))
                counted += count
    touched: list[int] = []
    if item_ids and max(end, head) > after:
        about = events.c.item_id.in_(item_ids)
        query_items = sa.select(events.c.item_id).where(about, *_between(tx, after, max(end, head))).distinct()
        touched = list(tx.conn.execute(query_items).scalars())
    return Happened(end, head, sorted(kinds, key=str), touched, counted > MOST)


def between(tx: Tx, after: Cursor, end: Cursor | None = None, limit: int = 500) -> list[EventRecord]:
    """The next events after a cursor, up to another or to the end."""
    upto = end or _last(tx, events.c.tx < tx.hot.safe_tx(tx))
    if upto is None or upto <= after:
        return []
    query = sa.select(events).where(*_between(tx, after, upto)).order_by(*_order(tx)).limit(limit)
    return [EventRecord.model_validate(dict(row)) for row in tx.rows(query)]


def known(tx: Tx, cursor: Cursor) -> bool:
    """Whether the log has the event a reader came to, or has not begun."""
    if cursor.id == 0:
        return True
    own = (events.c.tx == max(0, cursor.tx), events.c.id == cursor.id)
    return tx.row(sa.select(events.c.id).where(*own)) is not None


def position(tx: Tx) -> Cursor:
    """Where the log ends now: a stream that goes on from here misses nothing that this transaction did not see."""
    return _last(tx, events.c.tx < tx.hot.safe_tx(tx)) or Cursor()


def written(cursor: Cursor) -> str:
    """A cursor as one word: the id, and on PostgreSQL the transaction before it."""
    return str(cursor.id) if cursor.tx <= 0 else f"{cursor.tx}-{cursor.id}"


def read_cursor(text: str) -> Cursor | None:
    """None: nobody here wrote that."""
    first, _, second = text.partition("-")
    digits = [part for part in (first, second or "0") if part.isascii() and part.isdecimal() and len(part) < 19]
    if len(digits) != 2:
        return None
    numbers = [int(part) for part in digits]
    return Cursor(numbers[0], numbers[1]) if second else Cursor(0 if numbers[0] else -1, numbers[0])


# --- what changes without an event ----------------------------------------------------------------

Fingerprints = dict[str, Sequence[Any]]


def quick_marks(tx: Tx) -> Fingerprints:
    """Of what people wait for: their commands and the log."""
    waiting = sa.select(commands.c.id).where(sa.text("commands.status = 'pending'")).order_by(commands.c.id)
    marks = sa.select(_ids(logs), _ids(commands), _sum(waiting.limit(LAST)))
    row = tx.conn.execute(marks).one()
    return {"logs": row[:1], "commands": row[1:]}


def slow_marks(tx: Tx) -> Fingerprints:
    """Of small tables that change all the time; once a second is often enough for a person."""
    by_process = sa.select(workers.c.process_id, sa.func.max(workers.c.updated_at), sa.func.count())
    now = tx.hot.database_now(tx)
    alive = sa.select(processes.c.id, processes.c.heartbeat_at, processes.c.lease_until > now)
    held = sa.select(sa.func.count()).where(sa.text("NOT permits.released")).select_from(permits).scalar_subquery()
    granted = sa.select(sa.func.sum(limits.c.granted), sa.func.max(limits.c.updated_at), sa.func.count(), held)
    tripped = sa.select(sa.func.max(breakers.c.updated_at), sa.func.sum(breakers.c.failures), sa.func.count())
    versions = sa.select(sa.func.max(workflows.c.id), sa.func.max(workflows.c.updated_at))
    applied = sa.select(sa.func.max(config_revisions.c.id), sa.func.max(config_revisions.c.applied_at))
    rows = [
        *tx.conn.execute(by_process.group_by(workers.c.process_id).order_by(workers.c.process_id)),
        *tx.conn.execute(alive.order_by(processes.c.id)),
    ]
    return {
        "workers": [tuple(row) for row in rows],
        "limits": tuple(tx.conn.execute(granted).one()),
        "breakers": tuple(tx.conn.execute(tripped).one()),
        "workflows": tuple(tx.conn.execute(versions).one()),
        "config": tuple(tx.conn.execute(applied).one()),
    }


def _ids(table: sa.Table) -> sa.ScalarSelect[Any]:
    return _sum(sa.select(table.c.id).order_by(table.c.id.desc()).limit(LAST))


def _sum(ids: sa.Select[tuple[Any]]) -> sa.ScalarSelect[Any]:
    some = ids.subquery()
    return sa.select(sa.func.sum(some.c.id)).scalar_subquery()


# --- the order of the log -------------------------------------------------------------------------


def _by_tx(tx: Tx) -> bool:
    return tx.conn.dialect.name == "postgresql"


def _order(tx: Tx) -> tuple[sa.Column[int], ...]:
    return (events.c.tx, events.c.id) if _by_tx(tx) else (events.c.id,)


def _between(tx: Tx, low: Cursor, high: Cursor) -> tuple[sa.ColumnElement[bool], ...]:
    if not _by_tx(tx):
        return (events.c.id > low.id, events.c.id <= high.id)
    place = sa.tuple_(events.c.tx, events.c.id)
    return (place > (low.tx, low.id), place <= (high.tx, high.id))


def _last(tx: Tx, *where: sa.ColumnElement[bool]) -> Cursor | None:
    newest_first = [column.desc() for column in _order(tx)]
    row = tx.row(sa.select(events.c.tx, events.c.id).where(*where).order_by(*newest_first).limit(1))
    return None if row is None else Cursor(row["tx"], row["id"])
