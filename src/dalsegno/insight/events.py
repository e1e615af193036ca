"""Events: listed by job or item, or tailed so that none is ever missed.

Ids are not commit order on PostgreSQL: a transaction that took its id first may commit last. Lists and tails
therefore read by (tx, id), and a tail stops at the oldest transaction that is still writing. What happened to one item
or one job is told apart by ids: whoever waited for another writes later, and may be the older transaction all the same.
On SQLite ids say it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import sqlalchemy as sa

from dalsegno.insight.grammar import Condition, Grammar, Key, age, containing, grammar, moment, number, word
from dalsegno.insight.query import Query, only
from dalsegno.insight.walk import SECONDS, TEXT_SECONDS, Place, Walk, begin, page_of, place_of, walk
from dalsegno.insight.walk import Page as Found
from dalsegno.model.records import EventRecord
from dalsegno.model.states import JOB_FINISHED, Level
from dalsegno.store.schema import events, jobs, stages
from dalsegno.store.store import Tx

PAGE = 500
BESIDE = timedelta(seconds=5)
"""Transactions whose events are further apart did not wait for each other. At full speed each second more is 30,000
keys that a page passes over."""
STRIDE = 100
"""Transactions: how far the first look for such an event goes."""


class Cursor(NamedTuple):
    """How far a reader has come."""

    tx: int = -1
    id: int = 0


class Page(NamedTuple):
    events: list[EventRecord]
    """Oldest first."""
    cursor: Cursor
    """Where to go on: after the last event looked at, also where it was about something else."""


_STAGE = sa.select(stages.c.key).where(stages.c.id == events.c.stage_id).scalar_subquery()

EVENTS = grammar(
    "events",
    containing(events.c.message, events.c.type),
    Key("kind", "What happened, such as item_failed or job_*.", word(events.c.type)),
    Key("level", "How bad it is.", word(events.c.level), values=tuple(Level)),
    Key("job", "The number of its job.", number(events.c.job_id), kind="number"),
    Key("stage", "The stage of its job.", word(_STAGE)),
    Key("item", "The number of its item.", number(events.c.item_id), kind="number"),
    Key("by", "Who or what did it.", word(events.c.source)),
    Key("age", "How long ago.", age(events.c.at), kind="age"),
    Key("at", "When.", moment(events.c.at), kind="moment"),
)


def find_events(
    tx: Tx, query: Query, *, among: Grammar = EVENTS, cursor: str | None = None, limit: int = 50
) -> Found[EventRecord]:
    """A page of events, newest first."""
    order: Sequence[sa.Column[int]] = _order(tx)
    if only(query, "item") is not None:
        order = (events.c.id,)  # an item's index; left the choice, PostgreSQL may walk all events for it
    item, job = only(query, "item"), only(query, "job")
    along: list[Condition] = [] if item is None else [events.c.item_id == int(item)]
    if item is None and _wide(query):
        along = [events.c.item_id.is_(None), *([] if job is None else [events.c.job_id == int(job)])]
    bounds = _Bounds()
    if job is not None and item is None:
        found_bounds = _bounds(tx, int(job), order)
        if found_bounds is None:
            return Found([], None)
        bounds = found_bounds
    along += bounds.within
    path = Walk(sa.select(events), order, along, among.where(query, tx.now), first=bounds.newest, last=bounds.oldest)
    budget = begin(tx, TEXT_SECONDS if query.of("") else SECONDS)
    found = walk(tx, path, after=place_of(cursor, len(order)), limit=limit + 1, budget=budget)
    lines = [EventRecord.model_validate(dict(row)) for row in found.rows]
    return page_of(lines, found, limit, lambda e: (e.tx, e.id) if len(order) == 2 else (e.id,))


def _wide(query: Query) -> bool:
    """It asks only for what is never about an item."""
    kinds = [value.text for term in query.of("kind") if not term.negated for value in term.values]
    return bool(kinds) and all(kind.startswith(("job_", "stage_")) for kind in kinds)


class _Bounds(NamedTuple):
    """Between which events a job's lie."""

    newest: Place | None = None
    oldest: Place | None = None
    within: Sequence[Condition] = ()


def _bounds(tx: Tx, job_id: int, order: Sequence[sa.Column[int]]) -> _Bounds | None:
    """Whatever happened to a job's items was written before its last event of its own, and after its first."""
    own = sa.select(events.c.tx, events.c.id, events.c.at).where(events.c.job_id == job_id, events.c.item_id.is_(None))
    first = tx.row(own.order_by(events.c.id).limit(1))
    if first is None:
        return None
    ended = sa.select(jobs.c.id).where(jobs.c.id == job_id, jobs.c.status.in_(sorted(JOB_FINISHED)))
    last = None if tx.row(ended) is None else tx.row(own.order_by(events.c.id.desc()).limit(1))
    if len(order) == 1:
        return _Bounds(None if last is None else (last["id"],), (first["id"],))
    # The key has the id as well: what lies between the bounds and is of other times is passed over within the index.
    within = [events.c.id >= first["id"], *([] if last is None else [events.c.id <= last["id"]])]
    return _Bounds(None if last is None else _apart(tx, last, 1), _apart(tx, first, -1), within)


def _apart(tx: Tx, event: sa.RowMapping, onward: int) -> Place | None:
    """Where transactions lie that cannot have run beside that of an event; None: there is none such.

    A cancel or the end of a job waits for settles that are the younger transactions, and a submit may be younger than
    who admits it. How many come between is not known: each look goes twice as far.
    """
    if event["tx"] == 0:  # all of the past of another cluster, in the order in which it was written
        return 0, event["id"]
    stride = STRIDE
    while True:
        place = event["tx"] + stride * onward
        beyond = events.c.tx > place if onward > 0 else events.c.tx < place
        keys = (key.asc() if onward > 0 else key.desc() for key in (events.c.tx, events.c.id))
        found = tx.row(sa.select(events.c.tx, events.c.id, events.c.at).where(beyond).order_by(*keys).limit(1))
        if found is None:
            return None
        if (found["at"] - event["at"]) * onward > BESIDE:
            return found["tx"], found["id"]
        stride *= 2


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
    """An item's timeline, by number: whoever moves it has locked its row, and who waited for that is the older
    transaction."""
    return _records(tx, sa.select(events).where(events.c.item_id == item_id).order_by(events.c.id).limit(limit))


def _order(tx: Tx) -> tuple[sa.Column[int], ...]:
    """The order in which things happened, by the columns of the primary key: no table is sorted for a page of it."""
    return (events.c.tx, events.c.id) if tx.shared else (events.c.id,)


def _about(query: sa.Select[tuple[object]], job_id: int | None, item_id: int | None) -> sa.Select[tuple[object]]:
    if job_id is not None:
        query = query.where(events.c.job_id == job_id)
    if item_id is not None:
        query = query.where(events.c.item_id == item_id)
    return query


def _records(tx: Tx, query: sa.Select[tuple[object]]) -> list[EventRecord]:
    return [EventRecord.model_validate(dict(row)) for row in tx.rows(query)]
