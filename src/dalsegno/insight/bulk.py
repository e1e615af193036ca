"""Before something is done to all that a query finds: to how many, to how many not and why, and to which first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from dalsegno.engine.bulk import ACTIONS, Found
from dalsegno.insight.finding import ITEMS, Selection, select_items, walk_items
from dalsegno.insight.grammar import Grammar
from dalsegno.insight.query import Query, parse
from dalsegno.insight.walk import TEXT_SECONDS, begin, cursor_of, place_of
from dalsegno.store.schema import items, jobs, stages
from dalsegno.store.store import Tx

Action = Literal["bulk_retry", "bulk_force_retry", "bulk_cancel"]
CAP = 10_000
"""Items that are looked at one by one; where counters of stages say it all, there is no limit."""
NAMES = 10


@dataclass(frozen=True, slots=True)
class Preview:
    action: str
    query: str
    eligible: int
    refused: dict[str, int]
    """How many it will not be done to, by why: a state, or `being_canceled`."""
    more: bool
    """There are more than these numbers say."""
    names: list[str]
    """What the first eligible ones are called."""

    @property
    def found(self) -> int:
        return self.eligible + sum(self.refused.values())


def preview(tx: Tx, action: Action, query: Query, *, among: Grammar = ITEMS) -> Preview:
    chosen = select_items(tx, query, among=among)
    canceling = _canceling(tx)
    if not canceling and all(term.key in ("state", "job", "stage", "service") for term in query.terms):
        counts, more = _by_counters(tx, chosen), False
    else:
        counts, more = _one_by_one(tx, chosen, canceling)
    eligible = sum(count for state, count in counts.items() if state in ACTIONS[action])
    refused = {state: count for state, count in sorted(counts.items()) if count and state not in ACTIONS[action]}
    return Preview(action, str(query), eligible, refused, more, _names(tx, query, action, among) if eligible else [])


def preview_of(tx: Tx, action: Action, ids: Sequence[int]) -> Preview:
    """The same for items that were named one by one."""
    canceling = _canceling(tx)
    columns = (items.c.id, items.c.key, items.c.job_id, items.c.status)
    rows = tx.rows(sa.select(*columns).where(items.c.id.in_(ids)).order_by(items.c.id.desc()))
    told = {row["id"]: "being_canceled" if row["job_id"] in canceling else str(row["status"]) for row in rows}
    counts = Counter(told.values())
    eligible = [row["key"] for row in rows if told[row["id"]] in ACTIONS[action]]
    refused = {state: count for state, count in sorted(counts.items()) if state not in ACTIONS[action]}
    return Preview(action, "", len(eligible), refused, False, eligible[:NAMES])


def matching(tx: Tx, text: str, as_of: datetime, cursor: str | None, limit: int, *, among: Grammar = ITEMS) -> Found:
    """What a command about many items goes on with: an engine's `Finder`."""
    chosen = select_items(tx, parse(text, among), among=among, now=as_of)
    columns = sa.select(items.c.id, items.c.stage_id, items.c.seq)
    after, budget = place_of(cursor, 2), begin(tx, TEXT_SECONDS)
    found = walk_items(tx, chosen, columns, after=after, limit=limit, budget=budget)
    onward = cursor_of(found.place) if found.more and found.place else None
    return Found([row["id"] for row in found.rows], onward)


def _canceling(tx: Tx) -> set[int]:
    query = sa.select(jobs.c.id).where(jobs.c.finished_at.is_(None), jobs.c.cancel_requested_at.is_not(None))
    return set(tx.conn.execute(query).scalars())


def _by_counters(tx: Tx, chosen: Selection) -> Counter[str]:
    if not chosen.states:
        return Counter()
    sums = [sa.func.sum(stages.c[state]).label(state) for state in sorted(chosen.states)]
    row = tx.row(sa.select(*sums).where(*chosen.of_stages))
    return Counter({str(state): int(count or 0) for state, count in (row or {}).items()})


def _one_by_one(tx: Tx, chosen: Selection, canceling: set[int]) -> tuple[Counter[str], bool]:
    columns = sa.select(items.c.stage_id, items.c.seq, items.c.job_id, items.c.status)
    found = walk_items(tx, chosen, columns, after=None, limit=CAP + 1, budget=begin(tx, TEXT_SECONDS))
    rows = found.rows[:CAP]
    told = ("being_canceled" if row["job_id"] in canceling else str(row["status"]) for row in rows)
    return Counter(told), found.more or len(found.rows) > CAP


def _names(tx: Tx, query: Query, action: Action, among: Grammar) -> list[str]:
    """Of the first that it will be done to."""
    asked = Query((*query.terms, *Query().with_("state", *sorted(ACTIONS[action])).terms))
    chosen = select_items(tx, asked, among=among)
    columns = sa.select(items.c.stage_id, items.c.seq, items.c.key)
    found = walk_items(tx, chosen, columns, after=None, limit=NAMES, budget=begin(tx, TEXT_SECONDS))
    return [row["key"] for row in found.rows]
