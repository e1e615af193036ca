"""What takes its time, and is looked at only when asked for: every page of the file, every counter."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.schema import COUNTERS, items, stages
from dalsegno.store.store import Tx

_UNFINISHED = sa.select(stages).where(stages.c.finished_at.is_(None)).order_by(stages.c.id)
_REAL = (
    sa.select(items.c.status, sa.func.count().label("count"))
    .where(items.c.stage_id == sa.bindparam("stage"))
    .group_by(items.c.status)
)


def look(tx: Tx) -> list[Finding]:
    return [*_pages(tx), *_counters(tx)]


def _pages(tx: Tx) -> list[Finding]:
    if tx.conn.dialect.name != "sqlite":
        return []
    problem = str(tx.conn.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    return [] if problem == "ok" else [found("file_damaged", "error", "file", problem=problem)]


def _counters(tx: Tx) -> list[Finding]:
    """Of stages that are not over: what is counted on the way must be what is there."""
    findings = []
    for stage in tx.rows(_UNFINISHED):
        real = {row["status"]: row["count"] for row in tx.rows(_REAL, {"stage": stage["id"]})}
        differing = [status for status in COUNTERS if stage[status] != real.get(status, 0)]
        if differing:
            said = ", ".join(f"{stage[status]} {status}" for status in differing)
            told = ", ".join(f"{real.get(status, 0)} {status}" for status in differing)
            name = f"stage:{stage['job_id']}/{stage['key']}"
            findings.append(
                found(
                    "counters_differ", "error", name, stage=stage["key"], job_id=stage["job_id"], said=said, real=told
                )
            )
    return findings
