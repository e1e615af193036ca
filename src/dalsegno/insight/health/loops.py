"""Processes and their loops: when each last came round, and which of them do not any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, Severity, found
from dalsegno.insight.workers import ProcessLine, list_processes
from dalsegno.model.states import JobStatus
from dalsegno.store.schema import jobs
from dalsegno.store.store import Tx
from dalsegno.version import VERSION

PATIENT = frozenset({"planner", "pruner"})
"""Loops whose rounds may take their time: a service lists a million items, a month of events is put away."""
VITAL = frozenset({"claimer", "settler", "scheduler", "commander"})
"""Without one of these a process does no work."""
FAILURES = 5
"""In a row, after which a loop's trouble is more than a hiccup."""


@dataclass(frozen=True, slots=True)
class Loop:
    name: str
    ticked_at: datetime | None
    failures: int
    """Tries in a row that failed."""
    error: str
    """What the last of them said."""
    ago: float | None
    """Seconds before the process's heartbeat that it came round."""
    every: float | None
    """Seconds between two rounds, when nothing calls it earlier."""
    late: bool
    """It has not come round for longer than a lease lasts."""


@dataclass(frozen=True, slots=True)
class ProcessLoops:
    id: int
    node: str
    host: str
    pid: int
    version: str
    alive: bool
    started_at: datetime
    heartbeat_at: datetime
    """Its loops are as of this moment: they are told with the heartbeat."""
    skewed: bool
    """It runs another version than this console."""
    clock_skew: float | None
    """Seconds by which its clock is ahead of the database's."""
    loops: list[Loop]

    @property
    def stuck(self) -> list[str]:
        """The loops that it cannot work without, and that do not come round."""
        return [loop.name for loop in self.loops if loop.late and loop.name in VITAL]


def read_loops(tx: Tx) -> list[ProcessLoops]:
    return [_process(line) for line in list_processes(tx)]


def _process(line: ProcessLine) -> ProcessLoops:
    process = line.process
    told: Mapping[str, Mapping[str, Any]] = process.loops or {}
    lease = process.lease_until - process.heartbeat_at
    return ProcessLoops(
        process.id, process.node, process.host, process.pid, process.version, line.alive, process.started_at,
        process.heartbeat_at, process.version != VERSION, told.get("heart", {}).get("skew"),
        [_loop(name, each, process.heartbeat_at, lease) for name, each in told.items()],
    )  # fmt: skip


def _loop(name: str, told: Mapping[str, Any], heartbeat_at: datetime, lease: timedelta) -> Loop:
    at = None if told["at"] is None else datetime.fromisoformat(told["at"])
    ago, every = told.get("ago"), told.get("every")
    if ago is None and at is not None:  # an older version tells only the moment, by its own clock
        ago = max(0.0, (heartbeat_at - at).total_seconds())
    late = ago is not None and ago > (every or 0.0) + lease.total_seconds()
    return Loop(name, at, told["failures"], told.get("error") or "", ago, every, late)


def look(tx: Tx) -> list[Finding]:
    processes = read_loops(tx)
    findings = [each for process in processes for each in _findings(process, tx.hot.database_now(tx))]
    alive = [process for process in processes if process.alive]
    if not alive:
        findings.append(found("no_engine", "error" if _somebody_waits(tx) else "warning", "engine"))
    elif not findings:
        findings.append(_fine(alive))
    return findings


def _findings(process: ProcessLoops, now: datetime) -> Iterable[Finding]:
    name = f"{process.node}/{process.pid}"
    about = {"pid": process.pid, "node": process.node}
    if not process.alive:
        silent = (now - process.heartbeat_at).total_seconds()
        yield found("process_lost", "error", f"process:{name}", process.heartbeat_at, **about, silent_seconds=silent)
        return
    if process.skewed:
        yield found(
            "version_differs", "warning", f"process:{name}", process.started_at, **about, version=process.version,
            here=VERSION,
        )  # fmt: skip
    for loop in process.loops:
        if loop.late and loop.ago is not None:
            severity: Severity = "warning" if loop.name in PATIENT else "error"
            late = loop.ago + max(0.0, (now - process.heartbeat_at).total_seconds())
            yield found(
                "loop_late", severity, f"loop:{name}/{loop.name}", process.heartbeat_at - timedelta(seconds=loop.ago),
                **about, loop=loop.name, late_seconds=late, every_seconds=loop.every,
            )  # fmt: skip
        elif loop.failures:
            severity = "error" if loop.failures >= FAILURES else "warning"
            yield found(
                "loop_failing", severity, f"loop:{name}/{loop.name}", loop.ticked_at, **about, loop=loop.name,
                failures=loop.failures, error=loop.error,
            )  # fmt: skip


def _fine(alive: list[ProcessLoops]) -> Finding:
    return found(
        "engine_fine", "ok", "engine", processes=len(alive), loops=sum(len(process.loops) for process in alive)
    )


def _somebody_waits(tx: Tx) -> bool:
    unfinished = [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.PAUSE_REQUESTED]
    return tx.row(sa.select(jobs.c.id).where(jobs.c.status.in_(unfinished)).limit(1)) is not None
