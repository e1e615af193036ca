"""How many items a query finds, by state, within a bounded time: exact where the time is enough, else at least so many.

Counted by the database, a stretch of an index at a time, so that nothing is read that could not be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.finding import Selection, bunches, reach, straight
from dalsegno.insight.walk import Budget, Place, Walk, end_of
from dalsegno.store.patience import TimeUp, at_most
from dalsegno.store.schema import items
from dalsegno.store.store import Tx

FIRST, LARGEST = 2_000, 50_000
"""Rows in a stretch."""
Condition = sa.ColumnElement[bool]


def tally_items(tx: Tx, chosen: Selection, label: sa.ColumnElement[Any], budget: Budget) -> tuple[Counter[str], bool]:
    """How many there are for each value of `label`, and whether there are more."""
    counts = Counter[str]()
    if not chosen.states:
        return counts, False
    try:
        for query in _stretches(tx, chosen, sa.select(label).select_from(items), budget):
            if budget.spent and budget.came_further:
                return counts, True
            with at_most(tx, budget.left):
                for value, count in tx.conn.execute(query):
                    counts[str(value)] += int(count)
            budget.came_further = True
    except TimeUp:
        return counts, True
    return counts, False


def _stretches(tx: Tx, chosen: Selection, select: sa.Select[Any], budget: Budget) -> Iterator[sa.Select[Any]]:
    path = straight(tx, chosen, select)
    if path is not None:
        yield from _along(tx, path, budget)
        return
    for some in reach(tx, chosen):
        for bunch in bunches(some, chosen):
            ids = [row["id"] for row in bunch]
            if len(bunch) == 1 and chosen.names is None:
                along = [items.c.stage_id == ids[0], *chosen.along]
                yield from _along(tx, Walk(select, (items.c.seq,), along, chosen.wanted), budget)
                continue
            within: list[Condition] = [items.c.stage_id.in_(ids), *chosen.along]
            if chosen.names is not None:
                within.append(items.c.key.in_(chosen.names))
            yield _counted(select, [*within, *chosen.wanted])


def _along(tx: Tx, path: Walk, budget: Budget) -> Iterator[sa.Select[Any]]:
    """One stretch after the other; longer ones while there is time."""
    after: Place | None = None
    stretch = FIRST
    while True:
        began = budget.used
        with at_most(tx, budget.left):
            end = end_of(tx, path, after, stretch)
        yield _counted(path.select, [*path.along, *path.start(after), *path.stop(end), *path.wanted])
        if end is None:
            return
        after = end
        spent = max(budget.used - began, 0.001)
        stretch = max(FIRST, int(min(LARGEST, stretch * min(4.0, 0.25 / spent))))


def _counted(select: sa.Select[Any], where: Sequence[Condition]) -> sa.Select[Any]:
    (label,) = select.selected_columns
    return select.add_columns(sa.func.count()).where(*where).group_by(label)
