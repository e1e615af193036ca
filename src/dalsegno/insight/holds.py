"""What stands still, at any level: everything, a service, a lane, a job, a stage. With who, why and until when."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from dalsegno.model.records import JobRecord, StageRecord
from dalsegno.model.states import STAGE_FINISHED, JobStatus
from dalsegno.store.schema import UtcTime, holds, jobs, lanes, stages, workers, workflows
from dalsegno.store.store import Tx


@dataclass(frozen=True, slots=True)
class HoldLine:
    level: Literal["everything", "service", "lane", "job", "stage"]
    name: str | None
    """Of the service, the lane or the stage."""
    job_id: int | None
    status: str
    """`held`, or the status of the job or stage: `pause_requested` while it drains."""
    reason: str
    by: str
    since: datetime | None
    until: datetime | None

    @property
    def what(self) -> str:
        match self.level:
            case "everything":
                return "everything"
            case "job":
                return f"job {self.job_id}"
            case "stage":
                return f'stage "{self.name}" of job {self.job_id}'
            case _:
                return f'{self.level} "{self.name}"'

    @property
    def target(self) -> str:
        """How the command line names it."""
        name = shlex.quote(self.name or "")
        match self.level:
            case "everything":
                return "--all"
            case "job":
                return str(self.job_id)
            case "stage":
                return f"{self.job_id} --stage {name}"
            case _:
                return f"--{self.level} {name}"

    @property
    def says(self) -> str:
        return f"{self.what} is {'held' if self.status == 'held' else 'paused'}: {self.why}"

    @property
    def why(self) -> str:
        until = "" if self.until is None else f" until {self.until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"{self.reason} (by {self.by}){until}"


_PAUSED = (JobStatus.PAUSE_REQUESTED, JobStatus.PAUSED)
_PAUSED_JOBS = (
    sa.select(jobs, jobs.c.id.label("job"))
    # Short indexes have these and those, however many jobs wait.
    .where(jobs.c.pause_reason.is_not(None), jobs.c.status.in_(_PAUSED))
    .order_by(jobs.c.id)
)
_PAUSED_STAGES = (
    sa.select(stages, stages.c.job_id.label("job"))
    .where(stages.c.pause_reason.is_not(None), stages.c.finished_at.is_(None))
    .order_by(stages.c.id)
)


def list_holds(tx: Tx) -> list[HoldLine]:
    """Widest first."""
    return [*_held(tx), *_pauses(tx, "job", _PAUSED_JOBS), *_pauses(tx, "stage", _PAUSED_STAGES)]


def hold_on_everything(tx: Tx) -> HoldLine | None:
    return next((line for line in _held(tx) if line.level == "everything"), None)


def holds_of_job(tx: Tx, job: JobRecord, own: Sequence[StageRecord]) -> list[HoldLine]:
    """Those that the work of this job meets; `own` are its stages."""
    left = [stage for stage in own if stage.status not in STAGE_FINISHED]
    met = {("everything", None), ("lane", job.lane), *(("service", stage.service) for stage in left)}
    paused = job.pause_reason is not None and job.status in _PAUSED
    return [
        *(line for line in _held(tx) if (line.level, line.name) in met),
        *([_pause("job", None, job.id, job)] if paused else ()),
        *(_pause("stage", stage.key, job.id, stage) for stage in left if stage.pause_reason is not None),
    ]


def known_lanes(tx: Tx) -> list[str]:
    return list(tx.conn.execute(sa.select(lanes.c.name).order_by(lanes.c.name)).scalars())


def known_services(tx: Tx) -> set[str]:
    """Those that a stored workflow needs or a process offers."""
    offered = set(tx.conn.execute(sa.select(workers.c.service).distinct()).scalars())
    stored = tx.conn.execute(sa.select(workflows.c.definition)).scalars()
    return offered | {step["service"] for definition in stored for step in definition["steps"]}


_NOW = sa.bindparam("now", type_=UtcTime)
_WHY = ("held_reason", "held_by", "held_at", "held_until")
_HELD = sa.union_all(
    sa.select(sa.literal_column("0").label("place"), holds.c.name, *(holds.c[why] for why in _WHY))
    .where(sa.or_(holds.c.held_until.is_(None), holds.c.held_until > _NOW)),
    sa.select(sa.literal_column("1"), sa.literal_column("'lane:'") + lanes.c.name, *(lanes.c[why] for why in _WHY))
    .where(lanes.c.held_at.is_not(None), sa.or_(lanes.c.held_until.is_(None), lanes.c.held_until > _NOW)),
).order_by("place", "name")  # fmt: skip


def _held(tx: Tx) -> list[HoldLine]:
    found = []
    for row in tx.rows(_HELD, {"now": tx.now}):
        kind, _, name = row["name"].partition(":")
        level: Any = "everything" if kind == "all" else kind
        found.append(HoldLine(level, name or None, None, "held", *(row[why] for why in _WHY)))
    return found


def _pause(level: Literal["job", "stage"], name: str | None, job_id: int, paused: JobRecord | StageRecord) -> HoldLine:
    assert paused.pause_reason is not None
    return HoldLine(
        level, name, job_id, paused.status,
        paused.pause_reason, paused.paused_by or "", paused.paused_at, paused.pause_until,
    )  # fmt: skip


def _pauses(tx: Tx, level: Literal["job", "stage"], query: sa.Select[Any]) -> list[HoldLine]:
    return [
        HoldLine(
            level, row.get("key"), row["job"], row["status"],
            row["pause_reason"], row["paused_by"], row["paused_at"], row["pause_until"],
        )
        for row in tx.rows(query)
    ]  # fmt: skip
