"""What has changed since the last look, in one small question: the live stream asks it a few times a second.

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
    to_text,
    workers,
    workflows,
)
from dalsegno.store.store import Store, Tx

MOST = 5_000
"""Events that are looked through; of more it is only said that they are too many to tell one by one."""
LAST = 100
"""Rows at the end of a log whose ids are its fingerprint: on PostgreSQL a smaller id may appear later."""


NOWHERE = Cursor(2**62, 2**62)
"""After everything."""


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


def look(
    store: Store, after: Cursor | None, seen: Cursor, item_ids: Collection[int] = (), *, slowly: bool = False
) -> tuple[Happened, Marks]:
    """What happened between `after` and the end; and beyond it, what is there already and comes after `seen`.

    Also the marks of what people wait for without an event, their commands and the log; `slowly`, of all that has none.
    One statement, so all of it is of one moment.
    """
    low = NOWHERE if after is None else after
    asked = {"low_tx": low.tx, "low_id": low.id, "seen_tx": seen.tx, "seen_id": seen.id,
             "now": to_text(store.clock.now())}  # fmt: skip
    (row,) = store.glance(_LOOK[store.shared, slowly], asked)
    end = _cursor(row["end_tx"], row["end_id"])
    head = _cursor(row["head_tx"], row["head_id"]) if store.shared and after is not None else end
    kinds: list[tuple[str, int | None, int]] = [tuple(kind) for kind in row["kinds"] or ()]
    touched: list[int] = []
    since = end if after is None else after
    if item_ids and max(end, head) > since:
        about = _range(since, max(end, head)) | {"items": list(item_ids)}
        touched = store.read(lambda tx: list(tx.conn.execute(_TOUCHED[store.shared], about).scalars()))
    told = sorted({kind[:2] for kind in kinds}, key=str)
    found = Happened(end, head, told, touched, sum(count for _, _, count in kinds) > MOST)
    names = [*_QUICK_MARKS, *(_SLOW_MARKS if slowly else ())]
    return found, {name: [row[f"{name}_{part}"] for part in range(_WIDTHS[name])] for name in names}


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


def _count(table: sa.Table, *where: Any) -> sa.ScalarSelect[Any]:
    return sa.select(sa.func.count()).select_from(table).where(*where).scalar_subquery()


_WAITING = sa.select(commands.c.id).where(sa.text("commands.status = 'pending'")).order_by(commands.c.id).limit(LAST)


def _quick_marks(shared: bool) -> dict[str, list[sa.ScalarSelect[Any]]]:
    return {"logs": [_ids(logs, shared)], "commands": [_ids(commands, shared), _sum(_WAITING)]}


def _slow_marks(shared: bool) -> dict[str, list[sa.ScalarSelect[Any]]]:
    """Of small tables that change all the time; once a second is often enough for a person."""
    now: Any = sa.func.clock_timestamp() if shared else sa.bindparam("now", type_=UtcTime)
    sum_of = sa.func.sum
    return {
        "workers": [_of(processes.c.heartbeat_at), _count(processes), _count(processes, processes.c.lease_until > now),
                    _of(workers.c.updated_at), _count(workers)],
        "limits": [_of(limits.c.granted, sum_of), _of(limits.c.updated_at), _count(limits),
                   _count(permits, sa.text("NOT permits.released"))],
        "breakers": [_of(breakers.c.updated_at), _of(breakers.c.failures, sum_of), _count(breakers)],
        "workflows": [_of(workflows.c.id), _of(workflows.c.updated_at)],
        "config": [_of(config_revisions.c.id), _of(config_revisions.c.applied_at)],
    }  # fmt: skip


_QUICK_MARKS, _SLOW_MARKS = _quick_marks(False), _slow_marks(False)
_WIDTHS = {name: len(parts) for name, parts in (_QUICK_MARKS | _SLOW_MARKS).items()}

# --- the order of the log -------------------------------------------------------------------------

# Statements are made once: SQLAlchemy takes longer over making one than SQLite over answering it. By whether events are
# ordered by (tx, id), as on PostgreSQL.


def _by_tx(tx: Tx) -> bool:
    return tx.shared


def _range(low: Cursor, high: Cursor, **more: int) -> dict[str, Any]:
    return {"low_tx": low.tx, "low_id": low.id, "high_tx": high.tx, "high_id": high.id, **more}


def _order(by_tx: bool) -> tuple[sa.Column[int], ...]:
    return (events.c.tx, events.c.id) if by_tx else (events.c.id,)


def _within(by_tx: bool) -> tuple[sa.ColumnElement[bool], ...]:
    own: Any = sa.tuple_(events.c.tx, events.c.id) if by_tx else events.c.id
    return (own > _place(by_tx, "low"), own <= _place(by_tx, "high"))


def _newest(by_tx: bool, *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    newest_first = [column.desc() for column in _order(by_tx)]
    return sa.select(events.c.tx, events.c.id).where(*where).order_by(*newest_first).limit(1)


def _kinds(by_tx: bool) -> sa.ScalarSelect[Any]:
    """Types and jobs of what comes after the low end and was not told, each with how often, as one list."""
    low, seen = (_place(by_tx, name) for name in ("low", "seen"))
    own = sa.tuple_(events.c.tx, events.c.id) if by_tx else events.c.id
    new = (own > low, sa.or_(_is_safe(), own > seen)) if by_tx else (own > low,)
    some = sa.select(events.c.type, events.c.job_id).where(*new).order_by(*_order(by_tx)).limit(MOST + 1).subquery()
    each = sa.select(some.c.type, some.c.job_id, sa.func.count().label("count")).group_by(some.c.type, some.c.job_id)
    kinds = each.subquery()
    row, all_rows = (sa.func.json_build_array, sa.func.json_agg) if by_tx else (sa.func.json_array,
                                                                                sa.func.json_group_array)  # fmt: skip
    return sa.select(all_rows(row(kinds.c.type, kinds.c.job_id, kinds.c.count), type_=sa.JSON)).scalar_subquery()


def _is_safe() -> sa.ColumnElement[bool]:
    """Nothing can be put before it any more."""
    return events.c.tx < sa.literal_column(SAFE_TX)


def _place(by_tx: bool, name: str) -> Any:
    tx, id = (sa.bindparam(f"{name}_{part}", type_=sa.BigInteger) for part in ("tx", "id"))
    return sa.tuple_(tx, id) if by_tx else id


def _all(by_tx: bool) -> sa.Select[Any]:
    query = sa.select(events).where(*_within(by_tx)).order_by(*_order(by_tx))
    return query.limit(sa.bindparam("most", type_=sa.Integer))


def _touched(by_tx: bool) -> sa.Select[Any]:
    about = events.c.item_id.in_(sa.bindparam("items", expanding=True))
    return sa.select(events.c.item_id).where(about, *_within(by_tx)).distinct()


_END = {False: _newest(False), True: _newest(True, events.c.tx < sa.bindparam("safe", type_=sa.BigInteger))}
_EVENTS = {by_tx: _all(by_tx) for by_tx in (False, True)}
_TOUCHED = {by_tx: _touched(by_tx) for by_tx in (False, True)}


def _look(shared: bool, slowly: bool) -> sa.Select[Any]:
    """Where the log ends, what is new in it, and the marks, as one row."""
    ends = {"end": _newest(True, _is_safe()), "head": _newest(True)} if shared else {"end": _newest(False)}
    places = [
        newest.with_only_columns(events.c[part]).scalar_subquery().label(f"{name}_{part}")
        for name, newest in ends.items()
        for part in ("tx", "id")
    ]
    marks = _quick_marks(shared) | (_slow_marks(shared) if slowly else {})
    numbered = [part.label(f"{name}_{number}") for name, parts in marks.items() for number, part in enumerate(parts)]
    return sa.select(*places, _kinds(shared).label("kinds"), *numbered)


_LOOK = {(shared, slowly): _look(shared, slowly) for shared in (False, True) for slowly in (False, True)}


def _cursor(tx: int | None, id: int | None) -> Cursor:
    return Cursor() if tx is None or id is None else Cursor(tx, id)


def _first(tx: Tx, query: sa.Select[Any], params: dict[str, Any] | None = None) -> Cursor:
    row = tx.conn.execute(query, params or {}).first()
    return Cursor() if row is None else Cursor(*row)
