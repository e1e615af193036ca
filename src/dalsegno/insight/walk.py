"""A page of a long list, by key, within a bounded time.

What an index finds is read in its order, and what else was asked for is looked at row by row. Where that is not done in
a moment, it is read a stretch at a time; when the time is up, the stretch is cut off, and the page says so and where to
go on: a list of ten million rows never keeps anyone waiting.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from dalsegno.errors import InputInvalid
from dalsegno.store.patience import TimeUp, at_most
from dalsegno.store.store import Tx

T = TypeVar("T")
Condition = sa.ColumnElement[bool]
Place = tuple[int, ...]

SECONDS = 0.05
"""For a page that asks for keys alone."""
TEXT_SECONDS = 0.3
"""For one that looks for a text."""
_PLACE = re.compile(r"[0-9]{1,19}")
FIRST, LARGEST = 500, 8_000
"""Rows in a stretch."""
QUICK = 0.02
"""Seconds in which most pages are there without a look at where they end."""
AT_FIRST = 1.0
"""Seconds that the first stretch has, so that every page comes further, however slow the disk."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    lines: list[T]
    next_cursor: str | None
    """Where to go on; None: that was all."""
    partial: bool = False
    """The time was up before the page was full: there may be more, further on."""
    looked: int = 0
    """How many rows were looked at."""


class Budget:
    """How long a look may take; `share`: its part of the time, where a page is made of several."""

    def __init__(self, seconds: float, share: float = 1.0) -> None:
        self._seconds = seconds * share
        self.quick = QUICK * share
        self._began = time.monotonic()
        self.came_further = False
        """A stretch was looked through: from now on the time is hard."""

    @property
    def spent(self) -> bool:
        return self.used >= 1

    @property
    def used(self) -> float:
        """How much of it, from 0 to 1 and beyond."""
        return (time.monotonic() - self._began) / self._seconds

    @property
    def left(self) -> float:
        """Seconds."""
        left = self._seconds * (1 - self.used)
        return left if self.came_further else max(left, AT_FIRST)


_BY_INDEX = """
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL jit = off
"""
"""A stretch is a piece of an index, whatever PostgreSQL expects of its filter: left to itself it now and then reads ten
million rows in parallel to find the next fifty, or sorts thousands for the first six."""


def begin(tx: Tx, seconds: float) -> Budget:
    """Before the first stretch of a page."""
    by_index(tx)
    return Budget(seconds)


def by_index(tx: Tx) -> None:
    """What is read from here on is a short piece of an index."""
    if tx.shared:
        tx.raw.execute(_BY_INDEX)


@dataclass(frozen=True, slots=True)
class Walk:
    """What to read, and along which index."""

    select: sa.Select[Any]
    keys: Sequence[sa.ColumnElement[Any]]
    """The order, which is the index's; the last differs from row to row."""
    along: Sequence[Condition] = ()
    """What the index itself finds."""
    wanted: Sequence[Condition] = ()
    """What each row is asked."""
    forward: bool = False
    first: Place | None = None
    """Where it begins and ends, where that is known. Not a condition among others: of two lower bounds of a stretch
    SQLite takes the wrong one, and reads everything in between."""
    last: Place | None = None

    def beyond(self, place: Place) -> Condition:
        return self._than(place, "<" if not self.forward else ">")

    def up_to(self, place: Place) -> Condition:
        return self._than(place, ">=" if not self.forward else "<=")

    def _than(self, place: Place, operator: str) -> Condition:
        left: Any = self.keys[0] if len(self.keys) == 1 else sa.tuple_(*self.keys)
        right: Any = place[0] if len(self.keys) == 1 else sa.tuple_(*place)
        found: Condition = left.op(operator, is_comparison=True)(right)
        return found

    def start(self, after: Place | None) -> list[Condition]:
        if after is not None:
            return [self.beyond(after)]
        if self.first is None:
            return []
        return [self._than(self.first, ">=" if self.forward else "<=")]

    def stop(self, end: Place | None) -> list[Condition]:
        return [self.up_to(end)] if end is not None else []

    def over(self, place: Place) -> bool:
        """It lies on or behind the last place."""
        return self.last is not None and (place >= self.last if self.forward else place <= self.last)

    @property
    def before(self) -> Place:
        """From where everything is beyond."""
        if self.first is None:
            return (ahead(self.forward),) * len(self.keys)
        return (*self.first[:-1], self.first[-1] + (-1 if self.forward else 1))

    def ordered(self, select: sa.Select[Any]) -> sa.Select[Any]:
        return select.order_by(*(key.asc() if self.forward else key.desc() for key in self.keys))


def ahead(forward: bool) -> int:
    """A number that comes before all others."""
    return 0 if forward else 2**63 - 1


@dataclass(slots=True)
class Walked:
    rows: list[sa.RowMapping]
    place: Place | None
    """Up to where everything was looked at."""
    more: bool
    """There is something beyond."""
    looked: int


def walk(tx: Tx, path: Walk, *, after: Place | None, limit: int, budget: Budget) -> Walked:
    """The next rows of it, at most `limit`."""
    if after is not None and path.over(after):
        return Walked([], after, False, 0)
    if not path.wanted:
        return _at_once(tx, path, after, limit)
    with suppress(TimeUp), at_most(tx, min(budget.quick, budget.left)):
        return _at_once(tx, path, after, limit)
    found = Walked([], after, True, 0)
    stretch = FIRST
    while found.more and len(found.rows) < limit:
        began = budget.used
        need = limit - len(found.rows)
        try:
            rows, end = _stretch(tx, path, found.place, stretch, need, budget)
        except TimeUp:
            found.place = found.place or path.before
            break
        budget.came_further = True
        found.rows += rows
        found.looked += stretch
        if len(rows) == need:
            found.place = _place(path, rows)
            break
        found.place, found.more = end or found.place, end is not None
        if budget.spent:
            break
        spent = max(budget.used - began, 0.001)
        stretch = int(min(LARGEST, stretch * min(4.0, 0.25 / spent)) or 1)
        stretch = max(stretch, FIRST // 5)
    return found


def _at_once(tx: Tx, path: Walk, after: Place | None, limit: int) -> Walked:
    within = (*path.along, *path.start(after), *path.stop(path.last), *path.wanted)
    rows = tx.rows(path.ordered(path.select.where(*within)).limit(limit))
    return Walked(rows, _place(path, rows) or after, len(rows) == limit, len(rows))


def _stretch(
    tx: Tx, path: Walk, after: Place | None, stretch: int, need: int, budget: Budget
) -> tuple[list[sa.RowMapping], Place | None]:
    """What is wanted of the next so many rows, and where they end; None: with the list."""
    with at_most(tx, budget.left):
        end = end_of(tx, path, after, stretch)
    if end is not None and path.over(end):
        end = None
    bounds = [*path.start(after), *path.stop(end or path.last)]
    wanted = path.ordered(path.select.where(*path.along, *bounds, *path.wanted)).limit(need)
    with at_most(tx, budget.left):
        return tx.rows(wanted), end


def end_of(tx: Tx, path: Walk, after: Place | None, stretch: int) -> Place | None:
    """The last place of the next stretch; None: there are not so many any more."""
    names = [key.label(f"k{number}") for number, key in enumerate(path.keys)]
    query = path.ordered(sa.select(*names).where(*path.along, *path.start(after))).limit(1).offset(stretch - 1)
    row = tx.row(query)
    return None if row is None else tuple(row[name.key] for name in names)


def _place(path: Walk, rows: Sequence[sa.RowMapping]) -> Place | None:
    return tuple(rows[-1][key.key] for key in path.keys) if rows else None  # type: ignore[index]


def page_of(lines: list[T], found: Walked, limit: int, place: Callable[[T], Place]) -> Page[T]:
    """What was found as a page; one line more than the page has shows that there is another."""
    if len(lines) > limit:
        return Page(lines[:limit], cursor_of(place(lines[limit - 1])), looked=found.looked)
    onward = cursor_of(found.place) if found.more and found.place else None
    return Page(lines, onward, partial=onward is not None, looked=found.looked)


# --- cursors ----------------------------------------------------------------------------------------


def cursor_of(place: Place) -> str:
    return ".".join(map(str, place))


def place_of(cursor: str | None, length: int) -> Place | None:
    if cursor is None:
        return None
    parts = cursor.split(".")
    if len(parts) != length or not all(_PLACE.fullmatch(part) and int(part) < 2**63 for part in parts):
        raise InputInvalid(problem="This cursor is not one of ours; take next_cursor of the page before.")
    return tuple(map(int, parts))
