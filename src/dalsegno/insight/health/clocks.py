"""Clocks: this machine's and every node's beside the database's, and moments that lie in the future."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa

from dalsegno.clock import Clock
from dalsegno.insight.health.finding import Finding, Severity, found
from dalsegno.insight.health.loops import read_loops
from dalsegno.store.schema import events, nodes
from dalsegno.store.store import Tx

SKEW = 2.0
FAR = 30.0
"""Seconds: as long as the shortest lease."""


def look(tx: Tx, clock: Clock) -> list[Finding]:
    before = clock.now()
    there = tx.hot.database_now(tx)
    here = before + (clock.now() - before) / 2
    skews = {process.node: process.clock_skew or 0.0 for process in read_loops(tx) if process.alive}
    own = (here - there).total_seconds()
    findings = [*_skewed(own, skews), *_from_the_future(tx, here)]
    most = max(1.0, abs(own), *map(abs, skews.values()))
    return findings or [found("clocks_fine", "ok", "clocks", most_seconds=most)]


def _skewed(own: float, skews: dict[str, float]) -> Iterable[Finding]:
    if abs(own) >= SKEW:
        yield found("clock_here", _severity(own), "clock", skew_seconds=abs(own))
    for node, skew in skews.items():
        if abs(skew) >= SKEW:
            yield found(
                "clock_skew", _severity(skew), f"clock:{node}", node=node, skew_seconds=abs(skew), ahead=skew > 0
            )


def _severity(skew: float) -> Severity:
    return "error" if abs(skew) >= FAR else "warning"


def _from_the_future(tx: Tx, now: datetime) -> Iterable[Finding]:
    """The newest of what was written down. On SQLite nothing else tells that a clock was set."""
    query = sa.select(events.c.at).order_by(events.c.tx.desc(), events.c.id.desc())
    if not tx.shared:
        query = sa.select(events.c.at).order_by(events.c.id.desc())
    moments = [
        tx.conn.execute(query.limit(1)).scalar(),
        tx.conn.execute(sa.select(sa.func.max(nodes.c.last_seen))).scalar(),
    ]
    ahead = max((moment - now for moment in moments if moment is not None), default=timedelta())
    if ahead.total_seconds() >= FAR:
        yield found("clock_set_back", "error", "clock:past", ahead_seconds=ahead.total_seconds())
