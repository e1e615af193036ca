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

MOST = 5_000
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
    end = position(tx)
    head = _first(tx, _LAST[_by_tx(tx)]) if _by_tx(tx) else end
    kinds: set[tuple[str, int | None]] = set()
    counted = 0
    for low, high in ((after, end), (max(seen, end), head)):
        if high > low:
            for kind, job_id, count in tx.conn.execute(_KINDS[_by_tx(tx)], _range(low, high, most=MOST + 1)):
                kinds.add((kind, job_id))
                counted += count
    touched: list[int] = []
    if item_ids and max(end, head) > after:
        asked = _range(after, max(end, head)) | {"items": list(item_ids)}
        touched = list(tx.conn.execute(_TOUCHED[_by_tx(tx)], asked).scalars())
    return Happened(end, head, sorted(kinds, key=str), touched, counted > MOST)


def between(tx: Tx, after: Cursor, end: Cursor | None = None, limit: int = 500) -> list[EventRecord]:
    """The next events after a cursor, up to another or to the end."""
    upto = end or position(tx)
    if upto <= after:
        return []
    return [
        EventRecord.model_validate(dict(row)) for row in tx.rows(_EVENTS[_by_tx(tx)], _range(after, upto, most=limit))
    ]


def known(tx: Tx, cursor: Cursor) -> bool:
    """Whether the log has the event a reader came to, or has not begun."""
    if cursor.id == 0:
        return True
    own = (events.c.tx == max(0, cursor.tx), events.c.id == cursor.id)
    return tx.row(sa.select(events.c.id).where(*own)) is not None


def position(tx: Tx) -> Cursor:
    """Where the log ends now: a stream that goes on from here misses nothing that this transaction did not see."""
    return _first(tx, _END[_by_tx(tx)], {"safe": tx.hot.safe_tx(tx)} if _by_tx(tx) else {})


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


def _sum(ids: sa.Select[tuple[Any]]) -> sa.ScalarSelect[Any]:
    some = ids.subquery()
    return sa.select(sa.func.sum(some.c.id)).scalar_subquery()


def _ids(table: sa.Table) -> sa.ScalarSelect[Any]:
    return _sum(sa.select(table.c.id).order_by(table.c.id.desc()).limit(LAST))


_WAITING = sa.select(commands.c.id).where(sa.text("commands.status = 'pending'")).order_by(commands.c.id).limit(LAST)
_QUICK = sa.select(_ids(logs), _ids(commands), _sum(_WAITING))
_WORKERS = (
    sa.select(workers.c.process_id, sa.func.max(workers.c.updated_at), sa.func.count())
    .group_by(workers.c.process_id)
    .order_by(workers.c.process_id)
)
_PROCESSES = sa.select(processes.c.id, processes.c.heartbeat_at, processes.c.lease_until).order_by(processes.c.id)
_PERMITS = sa.select(sa.func.count()).where(sa.text("NOT permits.released")).select_from(permits).scalar_subquery()


def _of(column: sa.Column[Any], function: Any = sa.func.max) -> sa.ScalarSelect[Any]:
    return sa.select(function(column)).scalar_subquery()


_SLOW = sa.select(
    _of(limits.c.granted, sa.func.sum), _of(limits.c.updated_at), _of(limits.c.name, sa.func.count), _PERMITS,
    _of(breakers.c.updated_at), _of(breakers.c.failures, sa.func.sum), _of(breakers.c.name, sa.func.count),
    _of(workflows.c.id), _of(workflows.c.updated_at),
    _of(config_revisions.c.id), _of(config_revisions.c.applied_at),
)  # fmt: skip


def quick_marks(tx: Tx) -> Fingerprints:
    """Of what people wait for: their commands and the log."""
    row = tx.conn.execute(_QUICK).one()
    return {"logs": row[:1], "commands": row[1:]}


def slow_marks(tx: Tx) -> Fingerprints:
    """Of small tables that change all the time; once a second is often enough for a person."""
    now = tx.hot.database_now(tx)
    seen = tx.conn.execute(_PROCESSES).all()
    alive = [(row[0], row[1], row[2] > now) for row in seen]
    row = tx.conn.execute(_SLOW).one()
    return {
        "workers": [*(tuple(each) for each in tx.conn.execute(_WORKERS)), *alive],
        "limits": row[:4],
        "breakers": row[4:7],
        "workflows": row[7:9],
        "config": row[9:],
    }


# --- the order of the log -------------------------------------------------------------------------

# Statements are made once: SQLAlchemy takes longer over making one than SQLite over answering it. By whether events are
# ordered by (tx, id), as on PostgreSQL.


def _by_tx(tx: Tx) -> bool:
    return tx.conn.dialect.name == "postgresql"


def _range(low: Cursor, high: Cursor, **more: int) -> dict[str, Any]:
    return {"low_tx": low.tx, "low_id": low.id, "high_tx": high.tx, "high_id": high.id, **more}


def _order(by_tx: bool) -> tuple[sa.Column[int], ...]:
    return (events.c.tx, events.c.id) if by_tx else (events.c.id,)


def _within(by_tx: bool) -> tuple[sa.ColumnElement[bool], ...]:
    number = {name: sa.bindparam(name, type_=sa.BigInteger) for name in ("low_tx", "low_id", "high_tx", "high_id")}
    if not by_tx:
        return (events.c.id > number["low_id"], events.c.id <= number["high_id"])
    place = sa.tuple_(events.c.tx, events.c.id)
    low, high = sa.tuple_(number["low_tx"], number["low_id"]), sa.tuple_(number["high_tx"], number["high_id"])
    return (place > low, place <= high)


def _newest(by_tx: bool, *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    newest_first = [column.desc() for column in _order(by_tx)]
    return sa.select(events.c.tx, events.c.id).where(*where).order_by(*newest_first).limit(1)


def _some(by_tx: bool) -> sa.Select[Any]:
    query = sa.select(events.c.type, events.c.job_id).where(*_within(by_tx)).order_by(*_order(by_tx))
    some = query.limit(sa.bindparam("most", type_=sa.Integer)).subquery()
    return sa.select(some.c.type, some.c.job_id, sa.func.count()).group_by(some.c.type, some.c.job_id)


def _all(by_tx: bool) -> sa.Select[Any]:
    query = sa.select(events).where(*_within(by_tx)).order_by(*_order(by_tx))
    return query.limit(sa.bindparam("most", type_=sa.Integer))


def _touched(by_tx: bool) -> sa.Select[Any]:
    about = events.c.item_id.in_(sa.bindparam("items", expanding=True))
    return sa.select(events.c.item_id).where(about, *_within(by_tx)).distinct()


_LAST = {by_tx: _newest(by_tx) for by_tx in (False, True)}
_END = {False: _newest(False), True: _newest(True, events.c.tx < sa.bindparam("safe", type_=sa.BigInteger))}
_KINDS = {by_tx: _some(by_tx) for by_tx in (False, True)}
_EVENTS = {by_tx: _all(by_tx) for by_tx in (False, True)}
_TOUCHED = {by_tx: _touched(by_tx) for by_tx in (False, True)}


def _first(tx: Tx, query: sa.Select[Any], params: dict[str, Any] | None = None) -> Cursor:
    row = tx.conn.execute(query, params or {}).first()
    return Cursor() if row is None else Cursor(*row)
