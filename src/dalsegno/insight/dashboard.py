"""The dashboard, read in one moment: what needs somebody, what runs and how fast, who works, what went wrong lately.

What the catalog knows (songs, files, room on the disk) is in `catalog.overview`: the engine does not know what a song
is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

import sqlalchemy as sa

from dalsegno.insight.attention import Attention, needs_attention
from dalsegno.insight.charts import Charts, rate_of, read_charts
from dalsegno.insight.items import ItemLine
from dalsegno.insight.jobs import JobDetail, JobLine, job_detail, list_jobs, list_waiting
from dalsegno.insight.pools import Pool, Verdict, pools_of, verdicts
from dalsegno.insight.progress import JobProgress, progress_of
from dalsegno.insight.walk import by_index
from dalsegno.insight.workers import ProcessLine, TransferTotals, list_processes, totals_of
from dalsegno.model.records import ItemRecord
from dalsegno.model.states import JOB_ACTIVE, JOB_FINISHED, ItemStatus, JobStatus, StageStatus
from dalsegno.store.schema import error_groups, items, jobs, stages
from dalsegno.store.store import Tx

QUEUE = 8
RECENT = 5
FAILURES = 6
CAP = 1000
LATELY = timedelta(minutes=5)
"""What `rate_of` looks at."""
Part = Literal["attention", "job", "jobs", "pools", "counters", "exceptions"]
PARTS: frozenset[Part] = frozenset({"attention", "job", "jobs", "pools", "counters", "exceptions"})
"""What may be read alone. Processes are few and always there."""
UNDER_WAY = frozenset({StageStatus.RUNNING, StageStatus.PAUSE_REQUESTED})


@dataclass(frozen=True, slots=True)
class Eta:
    seconds: float
    rate: float
    """Items a second."""
    basis: Literal["last_5_minutes", "since_start"]
    stage: str
    """The stage that it is about: later ones may add to it."""
    left: int


@dataclass(frozen=True, slots=True)
class Draining:
    """A soft pause: what has begun may finish."""

    left: int
    of: int


@dataclass(frozen=True, slots=True)
class ActiveJob:
    detail: JobDetail
    progress: JobProgress
    eta: Eta | None
    draining: Draining | None


@dataclass(frozen=True, slots=True)
class Counters:
    queued_jobs: int
    """At most 1,000."""
    queued_jobs_more: bool
    pending: int
    """Items that wait, of all unfinished jobs."""
    running: int
    failed: int
    """Items of the job shown and of the unfinished ones that failed and were not retried."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    now: datetime
    attention: list[Attention]
    job: ActiveJob | None
    """The one that matters most right now: running, else paused, else next, else last."""
    active: list[JobLine]
    """All that run, but for the one shown."""
    waiting: list[JobLine]
    finished: list[JobLine]
    pools: list[Pool]
    verdicts: list[Verdict]
    transfer: TransferTotals
    counters: Counters
    exceptions: list[ItemLine]
    """Items that failed last, newest first."""
    processes: list[ProcessLine]


def read_dashboard(tx: Tx, job_id: int | None = None, parts: Collection[Part] = PARTS) -> Dashboard:
    """Around the job named, else the one that matters most. What no part needs is not read, and empty."""
    processes = list_processes(tx)
    lists = _Lists(tx)
    around = not {"job", "pools", "counters"}.isdisjoint(parts)
    shown = job_id
    if job_id is None and (around or "jobs" in parts):
        shown = (None if "jobs" in parts else tx.conn.execute(_NEWEST).scalar()) or lists.first
    job = active_job(tx, shown, processes) if around and shown is not None else None
    services = [] if job is None else [stage.service for stage in job.detail.stages if stage.status in UNDER_WAY]
    active, waiting, finished = (lists.active, lists.waiting, lists.finished) if "jobs" in parts else ([], [], [])
    return Dashboard(
        now=tx.now,
        attention=needs_attention(tx, processes) if "attention" in parts else [],
        job=job,
        active=[line for line in active if line.job.id != shown],
        waiting=[line for line in waiting if line.job.id != shown][:QUEUE],
        finished=[line for line in finished if line.job.id != shown][:RECENT],
        pools=pools_of(processes, services) if "pools" in parts else [],
        verdicts=verdicts(processes) if "pools" in parts else [],
        transfer=totals_of(processes) if "pools" in parts else TransferTotals(0, 0.0),
        counters=_counters(tx, job) if "counters" in parts else Counters(0, False, 0, 0, 0),
        exceptions=_exceptions(tx) if "exceptions" in parts else [],
        processes=processes,
    )


_NEWEST = (
    sa.select(jobs.c.id)
    .where(jobs.c.status.in_(JOB_ACTIVE), jobs.c.finished_at.is_(None))
    .order_by(jobs.c.id.desc())
    .limit(1)
)
"""Of those that run: what `_Lists.first` says then, without reading the lists."""


class _Lists:
    """Jobs that run, wait and have ended; each read when it is first needed."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    @cached_property
    def active(self) -> list[JobLine]:
        return list_jobs(self._tx, status=JOB_ACTIVE, limit=QUEUE)

    @cached_property
    def waiting(self) -> list[JobLine]:
        return list_waiting(self._tx, QUEUE + 1)

    @cached_property
    def finished(self) -> list[JobLine]:
        return list_jobs(self._tx, status=JOB_FINISHED, limit=RECENT + 1)

    @property
    def first(self) -> int | None:
        """The job that matters most."""
        lines = self.active or sorted(self.waiting, key=_is_queued) or self.finished
        return lines[0].job.id if lines else None


def charts(tx: Tx) -> Charts:
    return read_charts(tx)


# --- the job ------------------------------------------------------------------------------------


def active_job(tx: Tx, job_id: int, processes: list[ProcessLine]) -> ActiveJob:
    detail = job_detail(tx, job_id)
    progress = progress_of(detail, tx.now)
    return ActiveJob(detail, progress, _eta(tx, detail, progress), _draining(detail, processes))


def _eta(tx: Tx, detail: JobDetail, progress: JobProgress) -> Eta | None:
    """Of the stage under way that takes longest. Its rate is that of the last minutes, where nobody else shares them:
    not another stage now, and not one that was at work before this one began."""
    found = []
    for stage, line in zip(detail.stages, progress.stages, strict=True):
        if stage.status != StageStatus.RUNNING or line.expected is None:
            continue
        left = max(0, line.expected - line.done)
        young = stage.started_at is None or tx.now - stage.started_at < LATELY
        lately = rate_of(tx, stage.service) if not young and _alone(tx, stage.id, stage.service) else None
        rate = lately or line.rate
        if rate and left:
            basis: Literal["last_5_minutes", "since_start"] = "last_5_minutes" if lately else "since_start"
            found.append(Eta(left / rate, rate, basis, stage.key, left))
    return max(found, key=lambda eta: eta.seconds, default=None)


def _alone(tx: Tx, stage_id: int, service: str) -> bool:
    live = sa.select(stages.c.id).where(
        sa.text("status IN ('running', 'pause_requested')"), stages.c.service == service, stages.c.id != stage_id
    )
    return tx.row(live.limit(1)) is None


def _draining(detail: JobDetail, processes: list[ProcessLine]) -> Draining | None:
    if detail.job.status != JobStatus.PAUSE_REQUESTED:
        return None
    draining = [stage for stage in detail.stages if stage.status == StageStatus.PAUSE_REQUESTED]
    left = sum(stage.running for stage in draining)  # what is only claimed goes back in line
    services = {stage.service for stage in draining}
    workers = sum(worker.service in services for line in processes if line.alive for worker in line.workers)
    return Draining(left, max(left, workers))


def _is_queued(line: JobLine) -> bool:
    return line.job.status == JobStatus.QUEUED


# --- numbers --------------------------------------------------------------------------------------


_SOME_QUEUED = sa.select(jobs.c.id).where(sa.text("jobs.status = 'queued'")).limit(CAP + 1).subquery()
_COUNTERS = sa.select(
    sa.select(sa.func.count()).select_from(_SOME_QUEUED).scalar_subquery(),
    sa.func.sum(stages.c.pending + stages.c.claimed),
    sa.func.sum(stages.c.running),
    sa.func.sum(stages.c.failed),
).where(sa.text("stages.status IN ('running', 'pause_requested')"))


def _counters(tx: Tx, job: ActiveJob | None) -> Counters:
    queued, pending, running, failed = (int(number or 0) for number in tx.conn.execute(_COUNTERS).one())
    if job is not None:
        failed += sum(stage.failed for stage in job.detail.stages if stage.status not in UNDER_WAY)
    return Counters(min(queued, CAP), queued > CAP, pending, running, failed)


# --- what went wrong ------------------------------------------------------------------------------


_GROUPS = sa.select(error_groups.c.fingerprint).order_by(error_groups.c.last_at.desc()).limit(FAILURES)
_OF_GROUP = (
    sa.select(items.c.finished_at, items.c.id)
    .where(
        items.c.fingerprint == sa.bindparam("fingerprint"),
        items.c.error_code.is_not(None),
        items.c.status == ItemStatus.FAILED,
    )
    .order_by(items.c.stage_id.desc(), items.c.seq.desc())
    .limit(FAILURES)
)
_WHOLE = (
    sa.select(items, stages.c.key.label("_stage"), stages.c.service.label("_service"))
    .join(stages, stages.c.id == items.c.stage_id)
    .where(items.c.id.in_(sa.bindparam("ids", expanding=True)))
)


def _exceptions(tx: Tx) -> list[ItemLine]:
    """By the groups met last, each by its own small index. An item that was retried since has recovered, or will."""
    by_index(tx)
    found: list[tuple[datetime, int]] = []
    for fingerprint in list(tx.conn.execute(_GROUPS).scalars()):
        some = tx.conn.execute(_OF_GROUP, {"fingerprint": fingerprint})
        found += [(finished_at or tx.now, item_id) for finished_at, item_id in some]
    last = [item_id for _, item_id in sorted(found, reverse=True)[:FAILURES]]
    lines = {
        row["id"]: ItemLine(
            row["_stage"],
            ItemRecord.model_validate({key: row[key] for key in row if key[0] != "_"}),
            row["_service"],
        )
        for row in tx.rows(_WHOLE, {"ids": last})
    }
    return [lines[item_id] for item_id in last]
