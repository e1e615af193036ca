"""Items across all jobs, by query: newest stage first, and in a stage the last item first.

That is the order of an index, so no table is sorted, whatever is asked. Counters of stages say where nothing can be
found; what went wrong, what is leased, an error group and named things have small indexes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.grammar import Condition, Grammar, Key, age, containing, grammar, like, number, word
from dalsegno.insight.items import TROUBLE, ItemLine
from dalsegno.insight.query import Query, Value
from dalsegno.insight.walk import (
    SECONDS,
    TEXT_SECONDS,
    Budget,
    Page,
    Place,
    Walk,
    Walked,
    ahead,
    begin,
    page_of,
    place_of,
    walk,
)
from dalsegno.model.records import ItemRecord
from dalsegno.model.states import ITEM_LEASED, ItemStatus
from dalsegno.store.patience import TimeUp, at_most
from dalsegno.store.schema import STAGE_LEFT, STAGE_TROUBLE, bulk_items, items, jobs, leases, stages
from dalsegno.store.store import Tx

STAGES = 300
"""Stages asked at once where each has little to look at."""
LITTLE = 600
"""Items that are looked at in one go."""
MOST_LEASES = 20_000
MOST_NAMES = 2_000
"""Named things that are looked up one by one; more are found by walking."""

_WORKER = sa.select(leases.c.worker).where(leases.c.item_id == items.c.id).scalar_subquery()
_SINCE = sa.func.coalesce(
    items.c.finished_at,
    items.c.started_at,
    sa.select(jobs.c.created_at).where(jobs.c.id == items.c.job_id).scalar_subquery(),
)


def _error(value: Value, _now: datetime) -> Condition:
    """Its code, or part of what it says."""
    pattern = like(value.text)
    code, message = items.c.error_code, items.c.error_message
    return sa.or_(code.ilike(pattern, escape="\\"), message.ilike(f"%{pattern}%", escape="\\"))


def _changed_by(value: Value, _now: datetime) -> Condition:
    """As a scalar: PostgreSQL could read all that the command changed, once for all items, to answer EXISTS."""
    place = sa.select(bulk_items.c.seq).where(
        bulk_items.c.command_id == int(value.text),
        bulk_items.c.stage_id == items.c.stage_id,
        bulk_items.c.seq == items.c.seq,
    )
    return place.correlate(items).scalar_subquery().is_not(None)


ITEMS = grammar(
    "items",
    containing(items.c.key, items.c.error_message),
    Key("state", "How it stands.", word(items.c.status), values=tuple(ItemStatus)),
    Key("job", "The number of its job.", number(stages.c.job_id), kind="number"),
    Key("stage", "The stage of its job.", word(stages.c.key)),
    Key("service", "The service that does it.", word(stages.c.service)),
    Key("key", "What it is about, such as song:17.", word(items.c.key), names=lambda value: value.text),
    Key("error", "The code of its error, or a part of the message.", _error, kind="text"),
    Key("group", "The group of errors alike.", word(items.c.fingerprint)),
    Key("attempt", "How often it has failed.", number(items.c.attempt), kind="number"),
    Key("worker", "Who is at it.", word(_WORKER)),
    Key("bulk", "The number of a command about many items that changed it.", _changed_by, kind="id"),
    Key("age", "Since it last ended or began, or its job was submitted.", age(_SINCE), kind="age"),
)
OF_STAGES = ("job", "stage", "service")
LEFT = ITEM_LEASED | {ItemStatus.PENDING, ItemStatus.INTERRUPTED}


@dataclass(frozen=True, slots=True)
class Selection:
    """A query about items, made ready: which stages, which index, what each row is asked."""

    of_stages: list[Condition]
    along: list[Condition]
    wanted: list[Condition]
    states: frozenset[str]
    """Those it can be about."""
    group: str | None
    names: list[str] | None
    leased: bool
    text: bool
    bulk: int | None = None
    """The command that changed all of them."""

    @property
    def troubled(self) -> bool:
        return bool(self.along)


def select_items(tx: Tx, query: Query, *, among: Grammar = ITEMS, now: datetime | None = None) -> Selection:
    now = now or tx.now
    states = _states(query)
    group = next((t.values[0].text for t in query.of("group") if not t.negated and len(t.values) == 1), None)
    group = None if group is None or "*" in group else group
    wrong = group is not None or any(not term.negated for key in ("error", "group") for term in query.of(key))
    wrong = wrong or TROUBLE.issuperset(states)
    of_stages = [among.condition(term, now) for key in OF_STAGES for term in query.of(key)]
    asked = [among.keys[term.key] for term in query.terms if term.key and not term.negated]
    of_stages += [stages.c.service.in_(key.services) for key in asked if key.services]
    bulk, rest = bulk_of(query)
    at_work = ITEM_LEASED.issuperset(states) or any(not term.negated for term in query.of("worker"))
    return Selection(
        of_stages,
        [items.c.error_code.is_not(None)] if wrong else [],
        among.where(rest, now, but=OF_STAGES),
        states,
        group,
        _names(tx, query, among),
        leased=bool(states) and at_work,
        text=bool(query.of("") or query.of("error")),
        bulk=bulk,
    )


def find_items(
    tx: Tx,
    query: Query,
    *,
    among: Grammar = ITEMS,
    cursor: str | None = None,
    limit: int = 50,
    forward: bool = False,
    seconds: float | None = None,
) -> Page[ItemLine]:
    """A page of items; `forward`: in the order in which they were planned."""
    chosen = select_items(tx, query, among=among)
    after = place_of(cursor, 2)
    budget = begin(tx, seconds or (TEXT_SECONDS if chosen.text else SECONDS))
    found = walk_items(tx, chosen, sa.select(items), after=after, limit=limit + 1, budget=budget, forward=forward)
    stages_of = _stages_of(tx, {row["stage_id"] for row in found.rows})
    lines = [_line(row, *stages_of[row["stage_id"]]) for row in found.rows]
    return page_of(lines, found, limit, lambda line: (line.item.stage_id, line.item.seq))


def walk_items(
    tx: Tx,
    chosen: Selection,
    select: sa.Select[Any],
    *,
    after: Place | None,
    limit: int,
    budget: Budget,
    forward: bool = False,
) -> Walked:
    """The rows of a selection; `select` has at least stage_id and seq of items."""
    if not chosen.states:
        return Walked([], after, False, 0)
    path = straight(tx, chosen, select, forward=forward)
    if path is not None:
        return walk(tx, path, after=after, limit=limit, budget=budget)
    return _by_stage(tx, chosen, select, after=after, limit=limit, budget=budget, forward=forward)


def straight(tx: Tx, chosen: Selection, select: sa.Select[Any], *, forward: bool = False) -> Walk | None:
    """The one index along which all of them lie. None: they are looked for stage by stage."""
    keys = (items.c.stage_id, items.c.seq)
    inside = [items.c.stage_id.in_(sa.select(stages.c.id).where(*chosen.of_stages))] if chosen.of_stages else []
    wanted = [*chosen.wanted, *inside]
    if chosen.bulk is not None:
        if tx.shared:
            tx.raw.execute("SET LOCAL enable_mergejoin = off; SET LOCAL enable_hashjoin = off")
        here = sa.and_(items.c.stage_id == bulk_items.c.stage_id, items.c.seq == bulk_items.c.seq)
        along = [bulk_items.c.command_id == chosen.bulk]
        return Walk(select.join(bulk_items, here), (bulk_items.c.stage_id, bulk_items.c.seq), along, wanted, forward)
    if chosen.group is not None:
        return Walk(select, keys, [items.c.fingerprint == chosen.group, *chosen.along], wanted, forward)
    if chosen.leased:
        # Of leases there are few. As one question, PostgreSQL might go through all items in their order.
        held = list(tx.conn.execute(sa.select(leases.c.item_id).limit(MOST_LEASES)).scalars())
        return Walk(select.where(items.c.id.in_(held), *wanted), keys, forward=forward)
    # Of what is wrong most has failed; what is not, is rare: the counters say in which stages to look for it.
    at_hand = (chosen.troubled and ItemStatus.FAILED in chosen.states) or not chosen.wanted
    if at_hand and chosen.names is None and not chosen.of_stages:
        return Walk(select, keys, chosen.along, chosen.wanted, forward=forward)
    return None


def _by_stage(
    tx: Tx,
    chosen: Selection,
    select: sa.Select[Any],
    *,
    after: Place | None,
    limit: int,
    budget: Budget,
    forward: bool,
) -> Walked:
    found = Walked([], after, True, 0)
    for some in reach(tx, chosen, after=after, forward=forward):
        for bunch in bunches(some, chosen):
            step = _in_stages(tx, chosen, select, bunch, found, limit, budget, forward)
            found.rows += step.rows
            found.looked += step.looked
            found.place = step.place or found.place
            if len(found.rows) >= limit:
                return found
            if step.more or budget.spent:
                # A stage that is through is left behind: the next page begins with the next one.
                found.place = step.place if step.more else _behind(bunch[-1]["id"], forward)
                last = bunch[-1] is some[-1] and len(some) < STAGES
                found.more = step.more or not last
                return found
    found.more = False
    return found


def reach(
    tx: Tx, chosen: Selection, *, after: Place | None = None, forward: bool = False
) -> Iterator[Sequence[sa.RowMapping]]:
    """The stages that may have some of them, a few hundred at a time."""
    order = stages.c.id.asc() if forward else stages.c.id.desc()
    counted = _holding(chosen.states)
    columns = (stages.c.id, counted.label("few"), stages.c.total)
    where = [counted > 0, *stages_at_hand(chosen.states), *chosen.of_stages]
    query = sa.select(*columns).where(*where).order_by(order).limit(STAGES)
    # The stage it stopped in, and what comes after it.
    bound = [] if after is None else [stages.c.id >= after[0] if forward else stages.c.id <= after[0]]
    while True:
        some = tx.rows(query.where(*bound))
        yield some
        if len(some) < STAGES:
            return
        bound = [stages.c.id > some[-1]["id"] if forward else stages.c.id < some[-1]["id"]]


def _in_stages(
    tx: Tx,
    chosen: Selection,
    select: sa.Select[Any],
    bunch: Sequence[sa.RowMapping],
    so_far: Walked,
    limit: int,
    budget: Budget,
    forward: bool,
) -> Walked:
    """One stage, a stretch at a time, or a few small ones at once."""
    need = limit - len(so_far.rows)
    if len(bunch) == 1 and chosen.names is None:
        along = [items.c.stage_id == bunch[0]["id"], *chosen.along]
        after = so_far.place if so_far.place and so_far.place[0] == bunch[0]["id"] else None
        path = Walk(select, (items.c.seq,), along, chosen.wanted, forward=forward)
        step = walk(tx, path, after=None if after is None else after[1:], limit=need, budget=budget)
        step.place = None if step.place is None else (bunch[0]["id"], *step.place)
        return step
    within = [items.c.stage_id.in_([row["id"] for row in bunch]), *chosen.along]
    if chosen.names is not None:
        # Within, or the databases may go by the order and read whole stages for a handful of things.
        within = [items.c.id.in_(sa.select(items.c.id).where(*within, items.c.key.in_(chosen.names)))]
    path = Walk(select, (items.c.stage_id, items.c.seq), forward=forward)
    after_place = [] if so_far.place is None else [path.beyond(so_far.place)]
    try:
        with at_most(tx, budget.left):
            rows = tx.rows(path.ordered(select.where(*within, *chosen.wanted, *after_place)).limit(need))
    except TimeUp:
        return Walked([], so_far.place or (bunch[0]["id"], ahead(forward)), True, 0)
    budget.came_further = True
    place = _at(rows[-1]) if len(rows) == need else _behind(bunch[-1]["id"], forward)
    return Walked(rows, place, False, sum(row["few"] for row in bunch))


def bunches(some: Sequence[sa.RowMapping], chosen: Selection) -> list[list[sa.RowMapping]]:
    """Stages in their order: large ones alone, small ones together."""
    found: list[list[sa.RowMapping]] = []
    room = 0
    for row in some:
        size = len(chosen.names) if chosen.names is not None else row["few"] if chosen.troubled else row["total"]
        if not found or size > room:
            found.append([])
            room = LITTLE
        found[-1].append(row)
        room -= size
    return found


def _behind(stage_id: int, forward: bool) -> Place:
    return (stage_id, 2**62 if forward else 0)


def _holding(states: frozenset[str]) -> Any:
    return sum((stages.c[state] for state in sorted(states)), start=sa.literal(0))


def stages_at_hand(states: Set[str]) -> list[Any]:
    """The words of an index of all stages that may hold some: most hold nothing but what is done."""
    if TROUBLE.issuperset(states):
        return [sa.text(f"({STAGE_TROUBLE})")]
    return [sa.text(STAGE_LEFT)] if LEFT.issuperset(states) else []


def bulk_of(query: Query) -> tuple[int | None, Query]:
    """The command whose items it is about, where it names one, and what else it asks."""
    named = (t for t in query.of("bulk") if not t.negated and len(t.values) == 1)
    term = next(named, None)
    if term is None:
        return None, query
    return int(term.values[0].text), Query(tuple(each for each in query.terms if each is not term))


def _states(query: Query) -> frozenset[str]:
    """Which states are left by everything the query says about them."""
    left = frozenset(map(str, ItemStatus))
    for term in query.of("state"):
        named = {value.text for value in term.values}
        left = left - named if term.negated else left & named
    return left


def _names(tx: Tx, query: Query, among: Grammar) -> list[str] | None:
    """The keys of the things that are asked for, where they are named and not too many."""
    for term in query.terms:
        key = among.keys.get(term.key)
        if term.negated or key is None or key.names is None:
            continue
        found: list[str] = []
        for value in term.values:
            named = key.names(value)
            if isinstance(named, str):
                found.append(named)
            else:
                found += list(tx.conn.execute(named.limit(MOST_NAMES + 1)).scalars())
        if len(found) <= MOST_NAMES and not any("*" in name for name in found):
            return found
    return None


def _stages_of(tx: Tx, ids: set[int]) -> dict[int, tuple[str, str]]:
    if not ids:
        return {}
    rows = tx.rows(sa.select(stages.c.id, stages.c.key, stages.c.service).where(stages.c.id.in_(ids)))
    return {row["id"]: (row["key"], row["service"]) for row in rows}


def _at(row: sa.RowMapping) -> Place:
    return row["stage_id"], row["seq"]


def _line(row: sa.RowMapping, stage: str, service: str) -> ItemLine:
    return ItemLine(stage, ItemRecord.model_validate(dict(row)), service)
