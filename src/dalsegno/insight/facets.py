"""Facets: what else a list of items could be narrowed to, each with how many there are.

From the counters of stages where the query is about nothing else; otherwise of the first few hundred that it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from dalsegno.insight.finding import ITEMS, LEFT, select_items, stages_at_hand, walk_items
from dalsegno.insight.grammar import Grammar
from dalsegno.insight.groups import find_groups
from dalsegno.insight.query import Query
from dalsegno.insight.walk import SECONDS, begin
from dalsegno.model.states import ItemStatus
from dalsegno.store.schema import items, stages
from dalsegno.store.store import Tx

CAP = 300
"""Items that are looked at one by one."""
STAGES = 2_000
"""Stages, the newest, whose counters are added up: of those with failures, of those with work left, and of all."""
GROUPS = 5
MOST = 50
COUNTED = ("state", "job", "stage", "service")
EVERY = frozenset(ItemStatus)
FAILED = frozenset({ItemStatus.FAILED})


@dataclass(frozen=True, slots=True)
class Facet:
    value: str
    count: int
    more: bool = False
    """At least so many."""
    label: str = ""
    """What to call it, where the value is no word."""


@dataclass(frozen=True, slots=True)
class Facets:
    state: list[Facet]
    stage: list[Facet]
    service: list[Facet]
    group: list[Facet]
    """Groups of errors that items still have, those met last first, whatever the query."""


def item_facets(tx: Tx, query: Query, *, among: Grammar = ITEMS) -> Facets:
    group = [
        Facet(line.group.fingerprint, line.items, line.more, f"{line.group.code}: {line.group.template}")
        for line in find_groups(tx, Query(), limit=GROUPS).lines
        if line.items
    ]
    if by_counters(query):
        narrowed = {without: _tally(tx, query.without(without), among) for without in ("stage", "service")
                    if query.of(without)}  # fmt: skip
        own = _tally(tx, query, among)
        asked = select_items(tx, query, among=among).states
        return Facets(
            own.by_state(),
            narrowed.get("stage", own).by("key", asked),
            narrowed.get("service", own).by("service", asked),
            group,
        )
    columns = sa.select(items.c.stage_id, items.c.seq, items.c.status)
    rows, more = some_items(tx, query, columns, among)
    named = _named(tx, {row["stage_id"] for row in rows})
    return Facets(
        counted((row["status"] for row in rows), more),
        counted((named[row["stage_id"]][0] for row in rows), more),
        counted((named[row["stage_id"]][1] for row in rows), more),
        group,
    )


def by_counters(query: Query) -> bool:
    """Whether the counters of stages can tell: then states are counted whatever states it asks for."""
    return all(term.key in COUNTED for term in query.terms)


def item_states(tx: Tx, query: Query, *, among: Grammar = ITEMS) -> list[Facet]:
    """How many there are in each state, of the first that a query finds."""
    rows, more = some_items(tx, query, sa.select(items.c.stage_id, items.c.seq, items.c.status), among)
    return counted((row["status"] for row in rows), more)


def some_items(tx: Tx, query: Query, columns: sa.Select[Any], among: Grammar) -> tuple[list[sa.RowMapping], bool]:
    """The first that a query finds, and whether there are more."""
    chosen = select_items(tx, query, among=among)
    found = walk_items(tx, chosen, columns, after=None, limit=CAP + 1, budget=begin(tx, SECONDS / 4))
    return found.rows[:CAP], found.more or len(found.rows) > CAP


def counted(values: Any, more: bool) -> list[Facet]:
    return [Facet(str(value), count, more) for value, count in Counter(values).most_common() if value is not None]


class _Tally:
    """Items by what their stages say of themselves, as far as the counters were read."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """By the key of the stage, its service and the state."""
        self.partial: set[str] = set()
        """The states of which there may be more."""

    def by_state(self) -> list[Facet]:
        counts = dict.fromkeys(map(str, ItemStatus), 0)
        for (_, _, state), count in self.counts.items():
            counts[state] += count
        return [Facet(state, count, state in self.partial) for state, count in counts.items() if count]

    def by(self, name: Literal["key", "service"], states: Set[str]) -> list[Facet]:
        counts: Counter[str] = Counter()
        for (key, service, state), count in self.counts.items():
            if state in states:
                counts[key if name == "key" else service] += count
        more = bool(self.partial & states)
        return [Facet(value, count, more) for value, count in counts.most_common(MOST) if count]


def _tally(tx: Tx, query: Query, among: Grammar) -> _Tally:
    """Whatever states it asks for. What failed or waits may lie behind any number of stages that are through, so its
    stages are found by indexes of their own; but those of a job are few."""
    tally = _Tally()
    of_stages = select_items(tx, query, among=among).of_stages
    of_a_job = any(not term.negated for term in query.of("job"))
    for states in (EVERY,) if of_a_job else (FAILED, LEFT, EVERY - FAILED - LEFT):
        columns = (stages.c.key, stages.c.service, *(stages.c[state] for state in sorted(states)))
        newest = sa.select(*columns).where(*stages_at_hand(states), *of_stages).order_by(stages.c.id.desc())
        some = newest.limit(STAGES).subquery()
        sums = (sa.func.sum(some.c[state]).label(state) for state in sorted(states))
        read = 0
        totals = sa.select(some.c.key, some.c.service, sa.func.count().label("read"), *sums)
        for row in tx.rows(totals.group_by(some.c.key, some.c.service)):
            read += row["read"]
            for state in states:
                tally.counts[row["key"], row["service"], state] += int(row[state])
        if read == STAGES:
            tally.partial |= states
    return tally


def _named(tx: Tx, ids: set[int]) -> dict[int, tuple[str, str]]:
    query = sa.select(stages.c.id, stages.c.key, stages.c.service).where(stages.c.id.in_(ids))
    return {row["id"]: (row["key"], row["service"]) for row in tx.rows(query)} if ids else {}
