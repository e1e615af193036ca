"""What needs an operator, worst first, each with what mends it. Empty on a good day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa

from dalsegno.engine.breakers import CLOSED
from dalsegno.engine.holds import ENGINE
from dalsegno.insight.holds import HoldLine, list_holds
from dalsegno.insight.workers import ProcessLine
from dalsegno.model.states import JobStatus
from dalsegno.store.schema import breakers, jobs, limits
from dalsegno.store.store import Tx

MOST = 50
MOMENT = timedelta(seconds=30)
"""A stop of calls that is shorter is nobody's business."""
ROOT = "LIBRARY_ROOT"
NEEDS_ROOT = frozenset({"disk_full", "library_missing", "library_unwritable"})
"""Codes of pauses that another folder mends."""

Level = Literal["error", "warn", "info"]


@dataclass(frozen=True, slots=True)
class Fix:
    """One way out: what it does, and the request that does it."""

    action: str
    says: str
    method: Literal["GET", "POST", "PUT"]
    path: str
    body: dict[str, Any] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    """Settings that whoever resumes may give: a form with these fields."""


@dataclass(frozen=True, slots=True)
class Attention:
    code: str
    """Stable, for programs and translators; `data` has what the sentence says."""
    level: Level
    subject: str
    """`job:12`, `breaker:source:qq`, `process:3`: the same trouble keeps its name."""
    says: str
    since: datetime | None
    until: datetime | None = None
    fixes: tuple[Fix, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)


_WORST = {"error": 0, "warn": 1, "info": 2}


def in_order(entries: Iterable[Attention]) -> list[Attention]:
    return sorted(entries, key=lambda entry: (_WORST[entry.level], entry.code, entry.subject))


def needs_attention(tx: Tx, processes: Sequence[ProcessLine]) -> list[Attention]:
    held = list_holds(tx)
    found = [*_breakers(tx), *_limits(tx), *_processes(tx, processes)]
    paused_lanes = {_lane(tx, hold.job_id) for hold in held if hold.level == "job" and _by_engine(hold)}
    for hold in held[:MOST]:
        if hold.level == "lane" and hold.name in paused_lanes and _by_engine(hold):
            continue  # resuming the job that made the engine hold its lane releases both
        if hold.level == "job" and hold.status == JobStatus.PAUSED:
            found.append(_job(hold))
        elif hold.level != "job":
            found.append(_hold(hold))
    return in_order(found)


def _by_engine(hold: HoldLine) -> bool:
    return hold.by in ENGINE


def _lane(tx: Tx, job_id: int | None) -> str | None:
    return tx.conn.execute(sa.select(jobs.c.lane).where(jobs.c.id == job_id)).scalar()


def _job(hold: HoldLine) -> Attention:
    """A service names the code of its trouble before the reason: `disk_full: The library at …`."""
    code, colon, text = hold.reason.partition(": ")
    troubled = hold.by == "service" and bool(colon)
    asks = (ROOT,) if troubled and code in NEEDS_ROOT else ()
    level: Level = "error" if troubled else "warn" if _by_engine(hold) else "info"
    says = f"Job {hold.job_id} is paused: {text if troubled else hold.why}"
    fix = Fix("resume", "Resume with another folder" if asks else "Resume", "POST", f"/api/jobs/{hold.job_id}/resume",
              asks=asks)  # fmt: skip
    data = {"job_id": hold.job_id, "reason": hold.reason, "by": hold.by}
    name = code if troubled else "job_recovered" if _by_engine(hold) else "job_paused"
    return Attention(name, level, f"job:{hold.job_id}", says, hold.since, hold.until, (fix,), data)


def _hold(hold: HoldLine) -> Attention:
    level: Level = "warn" if _by_engine(hold) else "info"
    target = {"everything": "everything", "stage": f"job:{hold.job_id}/{hold.name}"}.get(
        hold.level, f"{hold.level}:{hold.name}"
    )
    if hold.level == "stage":
        fix = Fix("resume", "Resume", "POST", f"/api/jobs/{hold.job_id}/resume", {"stage": hold.name})
    else:
        fix = Fix("resume", "Resume", "POST", "/api/resume", {hold.level: hold.name} if hold.name else {})
    says = hold.says[0].upper() + hold.says[1:]
    data = {"level": hold.level, "name": hold.name, "job_id": hold.job_id, "reason": hold.reason, "by": hold.by}
    return Attention(f"{hold.level}_held", level, target, says, hold.since, hold.until, (fix,), data)


_OPEN = sa.select(breakers).where(breakers.c.state != CLOSED).order_by(breakers.c.name).limit(MOST)
_ZERO = (
    sa.select(limits.c.name, limits.c.updated_at, limits.c.updated_by)
    .where(sa.or_(limits.c.concurrent == 0, limits.c.rate == 0))
    .limit(MOST)
)


def _breakers(tx: Tx) -> list[Attention]:
    found = []
    for row in tx.rows(_OPEN):
        if not _lasts(row, tx.now):
            continue
        path = f"/api/breakers/{row['name']}"
        fixes = (
            Fix("probe", "Try one call now", "POST", f"{path}/probe"),
            Fix("reset", "Close it", "POST", f"{path}/reset"),
        )
        level: Level = "info" if row["tripped_by"] not in (None, "engine") else "warn" if row["resume_at"] else "error"
        data = {key: row[key] for key in ("name", "state", "kind", "reason", "error", "tripped_by")}
        says = f"Calls to {row['name']} are stopped: {row['reason']}"
        found.append(Attention("breaker_open", level, f"breaker:{row['name']}", says, row["tripped_at"],
                               row["resume_at"], fixes, data))  # fmt: skip
    return found


def _lasts(row: sa.RowMapping, now: datetime) -> bool:
    """A provider that asks for two seconds needs nobody."""
    since, until = row["tripped_at"] or now, row["resume_at"]
    return until is None or until - since > MOMENT or now - since > MOMENT


def _limits(tx: Tx) -> list[Attention]:
    return [
        Attention(
            "limit_zero", "warn", f"limit:{row['name']}", f"The limit of {row['name']} is 0: nothing begins.",
            row["updated_at"], None, (Fix("limit", "Change the limit", "PUT", f"/api/limits/{row['name']}"),),
            {"name": row["name"], "by": row["updated_by"]},
        )
        for row in tx.rows(_ZERO)
    ]  # fmt: skip


def _processes(tx: Tx, lines: Sequence[ProcessLine]) -> list[Attention]:
    found = []
    for line in lines:
        if not line.alive:
            process = line.process
            says = f"Process {process.pid} on {process.node} gives no sign; what it held is about to be taken back."
            data = {"node": process.node, "pid": process.pid, "host": process.host}
            found.append(Attention("process_stale", "error", f"process:{process.id}", says, process.heartbeat_at,
                                   data=data))  # fmt: skip
    if not any(line.alive for line in lines):
        unfinished = [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.PAUSE_REQUESTED]
        waits = tx.row(sa.select(jobs.c.id).where(jobs.c.status.in_(unfinished)).limit(1)) is not None
        says = "No engine is at work on this database: start dalsegno serve, or dalsegno agent."
        found.append(Attention("no_engine", "error" if waits else "warn", "engine", says, None))
    return found
