"""What retention would take away now, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno.engine.forgetting import old_months
from dalsegno.engine.pruning import Candidate, Place, candidates, failed_bound, sure_now
from dalsegno.model.retention import Policy, Rule, cutoff
from dalsegno.store.schema import events, lanes, logs
from dalsegno.store.store import Store, Tx

MOST = 10_000
"""Jobs of a lane that are looked at for an answer."""
TABLES = {"events": events, "logs": logs}


@dataclass(frozen=True, slots=True)
class Goes:
    """Something that would go."""

    lane: str | None
    what: str
    count: int
    items: int
    because: str
    names: list[str]
    """The first of them."""
    more: bool = False
    """There are more than were looked at."""


@dataclass(frozen=True, slots=True)
class Preview:
    now: datetime
    goes: list[Goes]
    kept: list[Goes]
    """What is old enough and stays, since it could still be retried."""


def preview(store: Store, policies: Any) -> Preview:
    """Nothing is changed."""
    names = store.read(lambda tx: list(tx.conn.execute(sa.select(lanes.c.name).order_by(lanes.c.name)).scalars()))
    policy: Policy = policies(names)
    goes: list[Goes] = []
    kept: list[Goes] = []
    for lane in names:
        for found, into in zip(_jobs(store, lane, policy.of(lane)), (goes, kept, goes), strict=True):
            if found is not None:
                into.append(found)
    goes += store.read(lambda tx: _months(tx, policy) if store.shared else _rows(tx, policy))
    return Preview(store.read(sure_now), goes, kept)


def _jobs(store: Store, lane: str, rule: Rule) -> tuple[Goes | None, Goes | None, Goes | None]:
    before = cutoff(store.read(sure_now), rule.jobs)
    over: list[Candidate] = []
    more = False
    if before is not None:
        over, more = _walk(store, lane, Place(before, 0), troubled=False)
    bound = store.read(lambda tx: failed_bound(tx, lane, rule))
    failed, more_failed = _walk(store, lane, bound, troubled=True) if bound else ([], False)
    failed = [each for each in failed if each.retriable]
    gone = {each.id for each in failed}
    why_failed = f"older than {rule.failed:g} days" if rule.failed else ""
    if rule.failed_last:
        why_failed = f"{why_failed} or ".removeprefix(" or ") + f"not among the last {rule.failed_last:,} that failed"
    return (
        _goes(lane, "jobs", [each for each in over if not each.retriable], more,
              f"finished more than {rule.jobs:g} days ago, with nothing to retry"),
        _goes(lane, "jobs", [each for each in over if each.retriable and each.id not in gone], more,
              "items of them failed and could be retried"),
        _goes(lane, "failed jobs", failed, more_failed, why_failed),
    )  # fmt: skip


def _walk(store: Store, lane: str, before: Place, *, troubled: bool) -> tuple[list[Candidate], bool]:
    found: list[Candidate] = []
    after: Place | None = None
    while len(found) < MOST:
        page = store.read(lambda tx, after=after: candidates(tx, lane, before, after, troubled=troubled, limit=500))  # type: ignore[misc]
        found += page
        if len(page) < 500:
            return found, False
        after = page[-1].place
    return found, True


def _goes(lane: str, what: str, found: Sequence[Candidate], more: bool, because: str) -> Goes | None:
    if not found:
        return None
    names = [f"job {each.id}" for each in found[:5]]
    return Goes(lane, what, len(found), sum(each.items for each in found), because, names, more)


def _months(tx: Tx, policy: Policy) -> list[Goes]:
    return [
        Goes(None, month.table, month.rows, 0, f"all of it is older than {policy.longest(_kind(month.table)):g} days",
             [month.label])
        for month in old_months(policy)(tx)
    ]  # fmt: skip


def _rows(tx: Tx, policy: Policy) -> list[Goes]:
    found = []
    for kind, table in TABLES.items():
        days = policy.longest(_kind(kind))
        before = cutoff(sure_now(tx), days)
        count = 0 if before is None else _older(tx, table, before)
        if count:
            found.append(Goes(None, kind, count, 0, f"older than {days:g} days", []))
    return found


def _older(tx: Tx, table: sa.Table, before: datetime) -> int:
    """About how many rows there are before a moment: numbers and times go up together, so it is found by halving."""
    ends = tx.row(sa.select(sa.func.min(table.c.id).label("low"), sa.func.max(table.c.id).label("high")))
    if ends is None or ends["low"] is None:
        return 0
    low, high = ends["low"], ends["high"]
    first = low
    while low < high:
        middle = (low + high) // 2
        at = tx.conn.execute(sa.select(table.c.at).where(table.c.id >= middle).order_by(table.c.id).limit(1)).scalar()
        if at is not None and at < before:
            low = middle + 1
        else:
            high = middle
    return int(low - first)


def _kind(table: str) -> Any:
    return "events" if table == "events" else "logs"
