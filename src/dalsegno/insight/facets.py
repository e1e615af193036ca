"""Facets: what else a list of items could be narrowed to, each with how many there are.

From the counters of stages where the query is about nothing else; otherwise of the first few hundred that it finds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.finding import ITEMS, select_items, walk_items
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
"""Stages, the newest, whose counters are added up."""
GROUPS = 5
MOST = 50
COUNTED = ("state", "job", "stage", "service")


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
        if not query.of("stage") and not query.of("service"):
            return Facets(*_at_once(tx, query, among), group)
        return Facets(
            _states(tx, query.without("state"), among),
            _sums(tx, query.without("stage"), stages.c.key, among),
            _sums(tx, query.without("service"), stages.c.service, among),
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


def _newest(tx: Tx, query: Query, among: Grammar) -> sa.Subquery:
    chosen = select_items(tx, query, among=among)
    columns = (stages.c.key, stages.c.service, *(stages.c[state] for state in ItemStatus))
    return sa.select(*columns).where(*chosen.of_stages).order_by(stages.c.id.desc()).limit(STAGES).subquery()


def _at_once(tx: Tx, query: Query, among: Grammar) -> tuple[list[Facet], list[Facet], list[Facet]]:
    """States, stages and services by one look at the counters: nothing that it asks for tells them apart."""
    some = _newest(tx, query, among)
    sums = (sa.func.sum(some.c[state]).label(state) for state in ItemStatus)
    rows = tx.rows(sa.select(some.c.key, some.c.service, *sums).group_by(some.c.key, some.c.service))
    states = {str(state): sum(int(row[state] or 0) for row in rows) for state in ItemStatus}
    asked = select_items(tx, query, among=among).states
    by: dict[str, Counter[str]] = {"key": Counter(), "service": Counter()}
    for row in rows:
        for name, counts in by.items():
            counts[row[name]] += sum(int(row[state] or 0) for state in asked)
    found = [[Facet(value, count) for value, count in counts.most_common(MOST) if count] for counts in by.values()]
    return [Facet(state, count) for state, count in states.items() if count], found[0], found[1]


def _states(tx: Tx, query: Query, among: Grammar) -> list[Facet]:
    some = _newest(tx, query, among)
    row = tx.row(sa.select(*(sa.func.sum(some.c[state]).label(state) for state in ItemStatus)))
    return [Facet(str(state), int(count)) for state, count in (row or {}).items() if count]


def _sums(tx: Tx, query: Query, column: Any, among: Grammar) -> list[Facet]:
    states = select_items(tx, query, among=among).states
    some = _newest(tx, query, among)
    many = sum((some.c[state] for state in sorted(states)), start=sa.literal(0))
    total = sa.func.sum(many)
    own = some.c[column.name]
    rows = tx.conn.execute(sa.select(own, total).group_by(own).order_by(total.desc()).limit(MOST))
    return [Facet(str(value), int(count)) for value, count in rows if count]


def _named(tx: Tx, ids: set[int]) -> dict[int, tuple[str, str]]:
    query = sa.select(stages.c.id, stages.c.key, stages.c.service).where(stages.c.id.in_(ids))
    return {row["id"]: (row["key"], row["service"]) for row in tx.rows(query)} if ids else {}
