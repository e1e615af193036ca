"""Before something is done to all that a query finds: to how many, to how many not and why, and to which first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from dalsegno.engine.bulk import ACTIONS, PRIORITY, Found, owners
from dalsegno.insight.finding import ITEMS, OF_STAGES, Selection, select_items, walk_items
from dalsegno.insight.grammar import Grammar
from dalsegno.insight.query import Query, parse
from dalsegno.insight.tally import tally_items
from dalsegno.insight.walk import SECONDS, TEXT_SECONDS, begin, cursor_of, place_of
from dalsegno.store.schema import items, jobs, stages, workflows
from dalsegno.store.store import Tx

Action = Literal["bulk_retry", "bulk_force_retry", "bulk_cancel", "bulk_skip", "bulk_priority"]
NAMES = 10
BATCH = 500
"""Looked at at once."""

_CANCELING = sa.select(jobs.c.id).where(jobs.c.finished_at.is_(None), jobs.c.cancel_requested_at.is_not(None))
_UNFINISHED = sa.select(jobs.c.id).where(jobs.c.finished_at.is_(None))
_WHY = sa.case((items.c.job_id.in_(_CANCELING), "being_canceled"), else_=items.c.status).label("why")


@dataclass(frozen=True, slots=True)
class Preview:
    action: str
    query: str
    eligible: int
    refused: dict[str, int]
    """How many it will not be done to, by why: a state, `being_canceled`; of jobs: `same_priority`."""
    more: bool
    """There are at least so many: the time for counting was up."""
    names: list[str]
    """What the first eligible ones are called."""
    unit: Literal["items", "jobs"] = "items"
    """What is counted: a priority is the jobs', so these are the jobs that own the items and are not over."""
    waiting: int | None = None
    """Of jobs: how many items of theirs wait."""

    @property
    def found(self) -> int:
        return self.eligible + sum(self.refused.values())


def preview(
    tx: Tx,
    action: Action,
    query: Query,
    *,
    among: Grammar = ITEMS,
    priority: int | None = None,
    seconds: float = SECONDS,
) -> Preview:
    """Counted for so many seconds; where counters of stages say it all, no time is needed."""
    if action == PRIORITY:
        return _of_jobs(tx, _jobs_found(tx, query, among, seconds), str(query), priority, seconds)
    chosen = select_items(tx, query, among=among)
    if all(term.key in ("state", "job", "stage", "service") for term in query.terms):
        counts, more = _by_counters(tx, chosen), False
    else:
        canceling = tx.row(_CANCELING.limit(1)) is not None
        label: sa.ColumnElement[Any] = _WHY if canceling else items.c.status
        counts, more = tally_items(tx, chosen, label, begin(tx, seconds))
    eligible = sum(count for state, count in counts.items() if state in ACTIONS[action])
    refused = {state: count for state, count in sorted(counts.items()) if count and state not in ACTIONS[action]}
    names = _names(tx, query, action, among) if eligible or more else []
    return Preview(action, str(query), eligible, refused, more, names)


def preview_of(tx: Tx, action: Action, ids: Sequence[int], *, priority: int | None = None) -> Preview:
    """The same for items that were named one by one."""
    if action == PRIORITY:
        mine = sa.select(jobs.c.id).where(jobs.c.id.in_(owners(tx, ids)), jobs.c.finished_at.is_(None))
        return _of_jobs(tx, iter([(list(tx.conn.execute(mine).scalars()), False)]), "", priority, SECONDS)
    rows = tx.rows(sa.select(items.c.key, _WHY).where(items.c.id.in_(ids)).order_by(items.c.id.desc()))
    counts = Counter(str(row["why"]) for row in rows)
    eligible = [row["key"] for row in rows if row["why"] in ACTIONS[action]]
    refused = {state: count for state, count in sorted(counts.items()) if state not in ACTIONS[action]}
    return Preview(action, "", len(eligible), refused, False, eligible[:NAMES])


def matching(
    tx: Tx,
    text: str,
    as_of: datetime,
    cursor: str | None,
    limit: int,
    /,
    *,
    jobs: bool = False,
    among: Grammar = ITEMS,
    seconds: float = TEXT_SECONDS,
) -> Found:
    """What a command about many items goes on with: an engine's `Finder`."""
    query = parse(text, among)
    chosen = select_items(tx, query, among=among, now=as_of)
    if jobs and all(term.key in OF_STAGES for term in query.terms):
        return _by_stages(tx, chosen, cursor, limit)
    if jobs:
        chosen = replace(chosen, of_stages=[*chosen.of_stages, stages.c.job_id.in_(_UNFINISHED)])
    columns = sa.select(items.c.id, items.c.stage_id, items.c.seq)
    after, budget = place_of(cursor, 2), begin(tx, seconds)
    found = walk_items(tx, chosen, columns, after=after, limit=limit, budget=budget)
    place, ids = found.place, [row["id"] for row in found.rows]
    if jobs and len(ids) == limit:
        place = (found.rows[-1]["stage_id"], 0)  # behind the stage: all its items are of one job
    return Found(owners(tx, ids) if jobs else ids, cursor_of(place) if found.more and place else None)


# --- items ----------------------------------------------------------------------------------------


def _by_counters(tx: Tx, chosen: Selection) -> Counter[str]:
    counts = Counter[str]()
    if not chosen.states:
        return counts
    canceling = stages.c.job_id.in_(_CANCELING).label("canceling")
    sums = [sa.func.sum(stages.c[state]).label(state) for state in sorted(chosen.states)]
    for row in tx.rows(sa.select(canceling, *sums).where(*chosen.of_stages).group_by(canceling)):
        for state in chosen.states:
            counts["being_canceled" if row["canceling"] else str(state)] += int(row[state] or 0)
    return +counts


def _names(tx: Tx, query: Query, action: Action, among: Grammar) -> list[str]:
    """Of the first that it will be done to."""
    asked = Query((*query.terms, *Query().with_("state", *sorted(ACTIONS[action])).terms))
    chosen = select_items(tx, asked, among=among)
    columns = sa.select(items.c.stage_id, items.c.seq, items.c.key)
    found = walk_items(tx, chosen, columns, after=None, limit=NAMES, budget=begin(tx, SECONDS))
    return [row["key"] for row in found.rows]


# --- jobs -----------------------------------------------------------------------------------------


def _by_stages(tx: Tx, chosen: Selection, cursor: str | None, limit: int) -> Found:
    """Jobs that are not over, with or without items. The newest first."""
    of_it = sa.select(stages.c.id).where(stages.c.job_id == jobs.c.id, *chosen.of_stages)
    found = sa.select(jobs.c.id).where(jobs.c.finished_at.is_(None), of_it.exists())
    after = place_of(cursor, 1)
    if after is not None:
        found = found.where(jobs.c.id < after[0])
    ids = list(tx.conn.execute(found.order_by(jobs.c.id.desc()).limit(limit)).scalars())
    return Found(ids, cursor_of((ids[-1],)) if len(ids) == limit else None)


def _jobs_found(tx: Tx, query: Query, among: Grammar, seconds: float) -> Iterator[tuple[list[int], bool]]:
    """The jobs of what a query finds, a few at a time, and whether there are more; the same one may come again."""
    cursor, more = None, True
    while more:
        found = matching(tx, str(query), tx.now, cursor, BATCH, jobs=True, among=among, seconds=seconds)
        cursor, more = found.cursor, found.cursor is not None
        yield found.ids, more


def _of_jobs(
    tx: Tx, found: Iterator[tuple[list[int], bool]], query: str, priority: int | None, seconds: float
) -> Preview:
    budget, more = begin(tx, seconds), False
    seen: set[int] = set()
    names: list[str] = []
    refused, waiting = 0, 0
    for some, more in found:  # noqa: B007 - how it was with the last of them
        fresh = [each for each in some if each not in seen]
        seen.update(fresh)
        rows = _looked_at(tx, fresh)
        refused += sum(row["priority"] == priority for row in rows)
        chosen = [row for row in rows if row["priority"] != priority]
        waiting += sum(int(row["waiting"] or 0) for row in chosen)
        names += [f"{row['id']}: {row['name']} ({row['priority']})" for row in chosen[: NAMES - len(names)]]
        if budget.spent:
            break
    told = {"same_priority": refused} if refused else {}
    return Preview(PRIORITY, query, len(seen) - refused, told, more, names, "jobs", waiting)


def _looked_at(tx: Tx, ids: Sequence[int]) -> list[sa.RowMapping]:
    waiting = sa.select(sa.func.sum(stages.c.pending)).where(stages.c.job_id == jobs.c.id).scalar_subquery()
    query = sa.select(jobs.c.id, jobs.c.priority, workflows.c.name, waiting.label("waiting"))
    owned = query.join(workflows, workflows.c.id == jobs.c.workflow_id).where(jobs.c.id.in_(ids))
    return tx.rows(owned.order_by(jobs.c.id.desc())) if ids else []
