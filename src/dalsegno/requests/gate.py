"""The gate of an upstream for calls that are no item's: the same limits and breaker, and no waiting in line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.engine import breakers, limits
from dalsegno.engine.breakers import Way
from dalsegno.engine.limits import Denied, Permit, Pulse
from dalsegno.errors import UpstreamBusy
from dalsegno.model.breaker import Breaker
from dalsegno.store.schema import breakers as breaker_rows
from dalsegno.store.schema import limits as limit_rows

if TYPE_CHECKING:
    from dalsegno.store.store import Store

NOBODY = 0
"""The process that holds such a permit. It never lives, so what is not given back is swept up."""
WAIT = 5.0
"""Seconds to come back after, where nobody knows better."""


class Gate:
    def __init__(self, store: Store, policy: Breaker) -> None:
        self._store = store
        self._policy = policy
        self._pulse = Pulse(store.clock)

    @contextmanager
    def passing(self, name: str) -> Iterator[None]:
        """Around one call. Raises UpstreamBusy instead of waiting; how it went is told to the breaker."""
        way = self._pass(name)
        held = self._take(name)
        try:
            yield
        except Exception as error:
            self._judge(name, way, error)
            raise
        else:
            if way.probe or way.failures:
                self._store.write("breaker", lambda tx: breakers.went_well(tx, name, way))
        finally:
            if held:
                self._store.write("permit", lambda tx: limits.give_back(tx, held))

    def _pass(self, name: str) -> Way:
        query = sa.select(breaker_rows).where(breaker_rows.c.name == name)
        row = self._store.read(lambda tx: tx.row(query))
        if row is None:
            return Way(0)
        if row["state"] == breakers.CLOSED:
            return Way(row["epoch"], failures=row["failures"])
        found = self._store.write("breaker", lambda tx: breakers.enter(tx, name, NOBODY, None))
        if isinstance(found, Way):
            return found
        now = self._store.clock.now()
        raise _busy(name, found.reason, None if found.until is None else (found.until - now).total_seconds())

    def _take(self, name: str) -> list[Permit]:
        query = sa.select(limit_rows.c.name).where(limit_rows.c.name == name)
        if self._store.read(lambda tx: tx.row(query)) is None:
            return []
        taken = self._store.write("permit", lambda tx: limits.take(tx, self._pulse, [name], NOBODY))
        if isinstance(taken, Denied):
            raise _busy(name, f"its limit of calls ({taken.why}) is reached", taken.delay)
        return taken

    def _judge(self, name: str, way: Way, error: Exception) -> None:
        now = self._store.clock.now()
        trip = self._policy.judge(error, now)
        if trip is not None:
            self._store.write(
                "breaker", lambda tx: breakers.went_badly(tx, name, way, self._policy, trip, now, str(error)[:2000])
            )


def _busy(name: str, reason: str, delay: float | None) -> UpstreamBusy:
    wait = max(1, math.ceil(WAIT if delay is None else delay))
    return UpstreamBusy(name=name.partition(":")[2], reason=reason.rstrip("."), wait=wait)
