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
from dalsegno.store.postgres_sql import SAFE_TX
from dalsegno.store.schema import (
    UtcTime,
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
from dalsegno.store.store import Store, Tx

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


def look(store: Store, after: Cursor | None, seen: Cursor, item_ids: Collection[int] = ()) -> tuple[Happened, Marks]:
    """What happened between `after` and the end; and beyond it, what is there already and comes after `seen`.

    Also the marks of what people wait for without an event: their commands and the log. No transaction is needed: what
    is before the end stays as it is, and what is beyond it is looked at again.
    """
    (row,) = store.glance(_NOW[store.shared], {})
    end = _cursor(row["end_tx"], row["end_id"])
    head = _cursor(row["head_tx"], row["head_id"]) if store.shared and after is not None else end
    kinds: set[tuple[str, int | None]] = set()
    counted = 0
    since = end if after is None else after
    for low, high in ((since, end), (max(seen, end), head)):
        if high > low:
            for kind in store.glance(_KINDS[store.shared], _range(low, high, most=MOST + 1)):
                kinds.add((kind["type"], kind["job_id"]))
                counted += kind["count"]
    touched: list[int] = []
    if item_ids and max(end, head) > since:
        asked = _range(since, max(end, head)) | {"items": list(item_ids)}
        touched = store.read(lambda tx: list(tx.conn.execute(_TOUCHED[store.shared], asked).scalars()))
    found = Happened(end, head, sorted(kinds, key=str), touched, counted > MOST)
    return found, {"logs": (row["logs"],), "commands": (row["commands"], row["waiting"])}


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

Marks = dict[str, Sequence[Any]]


def slow_marks(store: Store) -> Marks:
    """Of small tables that change all the time; once a second is often enough for a person."""
    (row,) = store.glance(_SLOW, {})
    marks = list(row.values())
    alive = store.glance(_PROCESSES[store.shared], {})
    now = store.clock.now()
    return {
        "workers": [
            (
                each["id"],
                each["heartbeat_at"],
                each["newest"],
                each["count"],
                each["lease_until"] > each.get("now", now),
            )
            for each in alive
        ],
        "limits": marks[:4],
        "breakers": marks[4:7],
        "workflows": marks[7:9],
        "config": marks[9:],
    }


def _sum(ids: sa.Select[tuple[Any]]) -> sa.ScalarSelect[Any]:
    some = ids.subquery()
    return sa.select(sa.func.sum(some.c.id)).scalar_subquery()


def _ids(table: sa.Table, shared: bool) -> sa.ScalarSelect[Any]:
    """Changes with every row that is added. Of one writer the last id says it all."""
    if not shared:
        return sa.select(sa.func.max(table.c.id)).scalar_subquery()
    return _sum(sa.select(table.c.id).order_by(table.c.id.desc()).limit(LAST))


def _of(column: sa.Column[Any], function: Any = sa.func.max) -> sa.ScalarSelect[Any]:
    return sa.select(function(column)).scalar_subquery()


_WAITING = sa.select(commands.c.id).where(sa.text("commands.status = 'pending'")).order_by(commands.c.id).limit(LAST)
_PERMITS = sa.select(sa.func.count()).where(sa.text("NOT permits.released")).select_from(permits).scalar_subquery()
_SLOW = sa.select(
    *(
        mark.label(f"mark_{number}")
        for number, mark in enumerate((
            _of(limits.c.granted, sa.func.sum), _of(limits.c.updated_at), _of(limits.c.name, sa.func.count), _PERMITS,
            _of(breakers.c.updated_at), _of(breakers.c.failures, sa.func.sum), _of(breakers.c.name, sa.func.count),
            _of(workflows.c.id), _of(workflows.c.updated_at),
            _of(config_revisions.c.id), _of(config_revisions.c.applied_at),
        ))
    )
)  # fmt: skip


def _processes(shared: bool) -> sa.Select[Any]:
    own = workers.c.process_id == processes.c.id
    query = sa.select(
        processes.c.id,
        processes.c.heartbeat_at,
        processes.c.lease_until,
        sa.select(sa.func.max(workers.c.updated_at)).where(own).scalar_subquery().label("newest"),
        sa.select(sa.func.count()).select_from(workers).where(own).scalar_subquery().label("count"),
    ).order_by(processes.c.id)
    return query.add_columns(sa.func.clock_timestamp(type_=UtcTime).label("now")) if shared else query


_PROCESSES = {shared: _processes(shared) for shared in (False, True)}

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
    return sa.select(some.c.type, some.c.job_id, sa.func.count().label("count")).group_by(some.c.type, some.c.job_id)


def _all(by_tx: bool) -> sa.Select[Any]:
    query = sa.select(events).where(*_within(by_tx)).order_by(*_order(by_tx))
    return query.limit(sa.bindparam("most", type_=sa.Integer))


def _touched(by_tx: bool) -> sa.Select[Any]:
    about = events.c.item_id.in_(sa.bindparam("items", expanding=True))
    return sa.select(events.c.item_id).where(about, *_within(by_tx)).distinct()


_END = {False: _newest(False), True: _newest(True, events.c.tx < sa.bindparam("safe", type_=sa.BigInteger))}
_KINDS = {by_tx: _some(by_tx) for by_tx in (False, True)}
_EVENTS = {by_tx: _all(by_tx) for by_tx in (False, True)}
_TOUCHED = {by_tx: _touched(by_tx) for by_tx in (False, True)}


def _now(shared: bool) -> sa.Select[Any]:
    """Where the log ends, and the quick marks, as one row."""
    safe = events.c.tx < sa.literal_column(SAFE_TX)
    ends = {"end": _newest(True, safe), "head": _newest(True)} if shared else {"end": _newest(False)}
    places = [
        newest.with_only_columns(events.c[part]).scalar_subquery().label(f"{name}_{part}")
        for name, newest in ends.items()
        for part in ("tx", "id")
    ]
    marks = {"logs": _ids(logs, shared), "commands": _ids(commands, shared), "waiting": _sum(_WAITING)}
    return sa.select(*places, *(mark.label(name) for name, mark in marks.items()))


_NOW = {shared: _now(shared) for shared in (False, True)}


def _cursor(tx: int | None, id: int | None) -> Cursor:
    return Cursor() if tx is None or id is None else Cursor(tx, id)


def _first(tx: Tx, query: sa.Select[Any], params: dict[str, Any] | None = None) -> Cursor:
    row = tx.conn.execute(query, params or {}).first()
    return Cursor() if row is None else Cursor(*row)
