"""Numbers for a monitoring system: what waits, runs and is stopped, over the whole database.

Read from counters that the engine keeps and from tables that stay small, so a look costs the same with a million items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa

from dalsegno.insight.flow import used_of
from dalsegno.insight.pulse import position
from dalsegno.model.states import JOB_FINISHED, JobStatus
from dalsegno.store.schema import COUNTERS, breakers, jobs, limits, permits, processes, stages, workers
from dalsegno.store.store import Tx

UNFINISHED = tuple(status for status in JobStatus if status not in JOB_FINISHED)
MOST_LIMITS = 200
"""Limits that are told one by one: there may be one for every tenant."""

# Conditions of partial indexes, written as the indexes have them: SQLite compares texts.
_OPEN_JOBS = sa.text("jobs.finished_at IS NULL")
_HELD = sa.text("NOT permits.released")


class LimitGauge(NamedTuple):
    name: str
    concurrent: int | None
    in_use: int
    rate: int | None
    used: int | None
    granted: int


class BreakerGauge(NamedTuple):
    name: str
    state: str
    changes: int


class Gauges(NamedTuple):
    items: Mapping[tuple[str, str], int]
    """By service and state, of jobs that have not ended."""
    ready: Mapping[str, int]
    """Those of them that could be claimed now."""
    jobs: Mapping[str, int]
    """By status, of those that have not ended."""
    workers: Mapping[tuple[str, str], int]
    """By service and status, of processes that live."""
    processes: int
    limits: list[LimitGauge]
    breakers: list[BreakerGauge]
    event_id: int


def read_gauges(tx: Tx) -> Gauges:
    now = tx.hot.database_now(tx)
    sums = [sa.func.sum(stages.c[status]) for status in COUNTERS]
    ready = sa.func.sum(sa.case((stages.c.open, stages.c.ready), else_=0))
    depth = (
        sa.select(stages.c.service, ready, *sums)
        .where(
            stages.c.job_id.in_(sa.select(jobs.c.id).where(_OPEN_JOBS))
        )  # a join would read all stages there ever were
        .group_by(stages.c.service)
    )
    rows = tx.conn.execute(depth).all()
    by_status = sa.select(jobs.c.status, sa.func.count()).where(_OPEN_JOBS).group_by(jobs.c.status)
    alive = processes.c.lease_until > now
    busy = (
        sa.select(workers.c.service, workers.c.status, sa.func.count())
        .join(processes, processes.c.id == workers.c.process_id)
        .where(alive)
        .group_by(workers.c.service, workers.c.status)
    )
    return Gauges(
        items={
            (row[0], str(status)): int(count) for row in rows for status, count in zip(COUNTERS, row[2:], strict=True)
        },
        ready={row[0]: int(row[1]) for row in rows},
        jobs={str(status): 0 for status in UNFINISHED} | {row[0]: row[1] for row in tx.conn.execute(by_status)},
        workers={(row[0], row[1]): row[2] for row in tx.conn.execute(busy)},
        processes=int(tx.conn.execute(sa.select(sa.func.count()).select_from(processes).where(alive)).scalar_one()),
        limits=_limits(tx),
        breakers=[
            BreakerGauge(row["name"], row["state"], row["epoch"])
            for row in tx.rows(sa.select(breakers).order_by(breakers.c.name).limit(MOST_LIMITS))
        ],
        event_id=position(tx).id,
    )


def _limits(tx: Tx) -> list[LimitGauge]:
    now = tx.hot.database_now(tx)
    limited = sa.or_(limits.c.concurrent.is_not(None), limits.c.rate.is_not(None))
    held = sa.select(permits.c.name, sa.func.count()).where(_HELD).group_by(permits.c.name)
    in_use = {row[0]: row[1] for row in tx.conn.execute(held)}
    return [
        LimitGauge(
            row["name"], row["concurrent"], in_use.get(row["name"], 0), row["rate"], used_of(tx, row, now, None),
            row["granted"],
        )
        for row in tx.rows(sa.select(limits).where(limited).order_by(limits.c.name).limit(MOST_LIMITS))
    ]  # fmt: skip
