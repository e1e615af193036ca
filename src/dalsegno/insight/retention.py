"""What retention would take away now, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno.engine.forgetting import next_jobs, old_months, shorter
from dalsegno.engine.marks import mark_of
from dalsegno.engine.pruning import Candidate, Place, candidates, failed_bound, sure_now
from dalsegno.model.retention import Policy, Rule, cutoff
from dalsegno.store.months import rows_of
from dalsegno.store.schema import events, items, lanes, logs, stages
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
        goes += store.read(lambda tx, lane=lane: _of_lane(tx, policy, lane))  # type: ignore[misc]
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


def _of_lane(tx: Tx, policy: Policy, lane: str) -> list[Goes]:
    """Events and logs of a lane that keeps its own shorter, without those that go whoever's they are."""
    found = []
    for kind, table in TABLES.items():
        days = shorter(policy, lane, _kind(kind))
        before = None if days is None else cutoff(sure_now(tx), days)
        if before is None:
            continue
        over = next_jobs(lane, before, mark_of(tx, lane, kind) or {}).limit(MOST).subquery()
        own = sa.select(over.c.id)
        which: list[sa.ColumnElement[bool]] = [table.c.job_id.in_(own)]
        if kind == "events":  # each part by an index of its own
            theirs = sa.select(items.c.id).where(
                items.c.stage_id.in_(sa.select(stages.c.id).where(stages.c.job_id.in_(own)))
            )
            which = [sa.and_(events.c.item_id.is_(None), events.c.job_id.in_(own)), events.c.item_id.in_(theirs)]
        count = sum(_count(tx, table, each, *_stays(tx, policy, table)) for each in which)
        if count:
            finished = tx.conn.execute(sa.select(sa.func.count()).select_from(over)).scalar_one()
            because = f"of jobs that finished more than {days:g} days ago"
            found.append(Goes(lane, kind, count, 0, because, [], finished == MOST))
    return found


def _stays(tx: Tx, policy: Policy, table: sa.Table) -> list[sa.ColumnElement[bool]]:
    """What does not go otherwise; of SQLite without the last row, whose number would be given again."""
    if not tx.shared:
        before = cutoff(sure_now(tx), policy.longest(_kind(table.name)))
        rest = [] if before is None else [table.c.at >= before]
        return [*rest, table.c.id < sa.select(sa.func.max(table.c.id)).scalar_subquery()]
    ends = [month.until for month in old_months(policy)(tx) if month.table == table.name and month.until is not None]
    return [table.c.at >= max(ends)] if ends else []


def _count(tx: Tx, table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
    return int(tx.conn.execute(sa.select(sa.func.count()).select_from(table).where(*where)).scalar_one())


def _months(tx: Tx, policy: Policy) -> list[Goes]:
    found = []
    for month in old_months(policy)(tx):
        because = f"all of it is older than {policy.longest(_kind(month.table)):g} days"
        found.append(Goes(None, month.table, rows_of(tx, month), 0, because, [month.label]))
    return found


def _rows(tx: Tx, policy: Policy) -> list[Goes]:
    found = []
    for kind, table in TABLES.items():
        days = policy.longest(_kind(kind))
        before = cutoff(sure_now(tx), days)
        newest = sa.select(sa.func.max(table.c.id)).scalar_subquery()  # the last row stays
        count = 0 if before is None else _count(tx, table, table.c.at < before, table.c.id < newest)
        if count:
            found.append(Goes(None, kind, count, 0, f"older than {days:g} days", []))
    return found


def _kind(table: str) -> Any:
    return "events" if table == "events" else "logs"
