"""How far a job is, from the counters of its stages alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from dalsegno.insight.holds import HoldLine
from dalsegno.insight.jobs import JobDetail, job_detail
from dalsegno.model.records import StageRecord
from dalsegno.model.states import STAGE_FINISHED, JobStatus, StageStatus
from dalsegno.store.store import Tx

Cause = Literal["canceling", "paused", "scheduled", "held", "turn", "error"]


@dataclass(frozen=True, slots=True)
class StageProgress:
    key: str
    service: str
    status: str
    done: int
    """Ended, whichever way."""
    expected: int | None
    """How many there will be, None while unknown. A stage that follows `each` expects what it follows has."""
    failed: int
    fraction: float
    rate: float | None
    """Items a second since the stage started."""
    seconds_left: float | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class JobProgress:
    job_id: int
    status: JobStatus
    reason: str | None
    """Why it does not run, where that is known."""
    fraction: float
    stages: list[StageProgress]
    cause: Cause | None = None
    """What kind of reason it is, for programs and translators."""


def job_progress(tx: Tx, job_id: int) -> JobProgress:
    return progress_of(job_detail(tx, job_id), tx.now)


def progress_of(detail: JobDetail, now: datetime) -> JobProgress:
    expected: dict[str, int | None] = {}
    lines = []
    for stage in detail.stages:  # in topological order: what a stage follows comes before it
        expected[stage.key] = _expected(stage, detail.stages, expected)
        lines.append(_stage(stage, expected[stage.key], now))
    whole = sum(line.fraction for line in lines) / len(lines)
    cause, reason = _reason(detail, now)
    return JobProgress(detail.job.id, detail.job.status, reason, whole, lines, cause)


def done_of(stage: StageRecord) -> int:
    return stage.succeeded + stage.failed + stage.skipped + stage.canceled


def _expected(stage: StageRecord, stages: list[StageRecord], known: dict[str, int | None]) -> int | None:
    if stage.status in STAGE_FINISHED or (stage.follow == "all" and stage.planned):
        return stage.total
    if stage.follow == "all":
        return None
    (followed,) = (other for other in stages if other.key in stage.depends_on)
    before = known[followed.key]
    return None if before is None else max(stage.total, before - followed.failed - followed.canceled)


def _stage(stage: StageRecord, expected: int | None, now: datetime) -> StageProgress:
    done = done_of(stage)
    finished = stage.status in STAGE_FINISHED
    fraction = 1.0 if finished else done / expected if expected else 0.0
    rate = left = None
    if stage.started_at is not None and done:
        spent = ((stage.finished_at or now) - stage.started_at).total_seconds()
        rate = done / spent if spent > 0 else None
    if rate and expected is not None and stage.status == StageStatus.RUNNING:
        left = (expected - done) / rate
    return StageProgress(
        stage.key, stage.service, stage.status, done, expected, stage.failed, min(1.0, fraction), rate, left,
        stage.last_error,
    )  # fmt: skip


def _reason(detail: JobDetail, now: datetime) -> tuple[Cause | None, str | None]:
    job, lane = detail.job, detail.lane
    if job.cancel_requested_at is not None:
        return "canceling", "canceling"
    if job.status in (JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED):
        return "paused", next(hold.why for hold in detail.holds if hold.level == "job")
    if job.status == JobStatus.QUEUED and job.scheduled_at is not None and job.scheduled_at > now:
        return "scheduled", f"scheduled for {job.scheduled_at:%Y-%m-%d %H:%M:%S} UTC"
    if met := held(detail):
        return "held", "; ".join(f"{hold.says} (to go on: dalsegno resume {hold.target})" for hold in met)
    if job.status == JobStatus.QUEUED and lane.max_active is not None:
        return "turn", f'waiting for its turn: lane "{lane.name}" takes {lane.max_active} at a time'
    return ("error" if job.error_message else None), job.error_message


def held(detail: JobDetail) -> list[HoldLine]:
    """What is queued waits for its lane or for everything; what runs may also wait for a service or a stage."""
    queued = detail.job.status == JobStatus.QUEUED
    return [hold for hold in detail.holds if not queued or hold.level in ("everything", "lane")]
