"""Ways that stand open: names that nobody limits and whose breaker has heard of no trouble."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.engine import breakers
from dalsegno.engine.breakers import Way
from dalsegno.store.schema import breakers as breaker_rows
from dalsegno.store.schema import limits as limit_rows

if TYPE_CHECKING:
    from dalsegno.store.store import Store

MOMENT = 0.25
"""Seconds for which a name that nobody limits is taken to stay so, unless something is heard."""
MOST_OPEN = 1000

_name: sa.BindParameter[str] = sa.bindparam("name")
_GUARD = sa.select(
    sa.exists(sa.select(limit_rows.c.name).where(limit_rows.c.name == _name)).label("limited"),
    *(
        sa.select(column).where(breaker_rows.c.name == _name).scalar_subquery().label(column.name)
        for column in (breaker_rows.c.state, breaker_rows.c.failures, breaker_rows.c.epoch, breaker_rows.c.trips)
    ),
)


class Ways:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, tuple[Way, float]] = {}
        self._suspects: Counter[str] = Counter()
        self._moves = 0
        self._lock = threading.Lock()

    def changed(self) -> None:
        """Somebody may be limited, or in trouble, who was not."""
        with self._lock:
            self._moves += 1
            self._open.clear()

    def find(self, name: str) -> Way | None:
        """Nobody limits it and all is well there: then there is nothing to write down before the call, nor after it.

        Where no other process makes calls, what was read counts until somebody is heard to change a limit or a breaker,
        and no longer than a moment.
        """
        now = time.monotonic()
        with self._lock:
            if name in self._suspects:
                return None
            known, moves = self._open.get(name), self._moves
        if known is not None and now < known[1]:
            return known[0]
        (found,) = self._store.glance(_GUARD, {"name": name})
        if found["limited"] or found["failures"] or found["state"] not in (None, breakers.CLOSED):
            return None
        way = Way(found["epoch"] or 0, trips=found["trips"] or 0)
        with self._lock:
            if moves != self._moves:
                return None
            if not self._store.shared and len(self._open) < MOST_OPEN:
                self._open[name] = (way, now + MOMENT)
        return way

    @contextmanager
    def suspected(self, name: str | None) -> Iterator[None]:
        """While an error of its is judged, nobody passes it but through the database."""
        if name is None:
            yield
            return
        with self._lock:
            self._moves += 1
            self._open.pop(name, None)
            self._suspects[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._suspects[name] -= 1
                if not self._suspects[name]:
                    del self._suspects[name]
