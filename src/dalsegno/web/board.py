"""The board: everything the live page shows, read in one moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dalsegno.insight.holds import HoldLine, list_holds
from dalsegno.insight.items import ItemLine, list_items
from dalsegno.insight.jobs import JobLine, list_jobs
from dalsegno.insight.workers import TransferTotals, list_processes, transfer_totals
from dalsegno.model.records import ProcessRecord, WorkerRecord
from dalsegno.model.states import JOB_ACTIVE, JOB_FINISHED, ItemStatus, JobStatus, StageStatus
from dalsegno.store.store import Tx
from dalsegno.web.api.jobs import in_full
from dalsegno.web.api.models import JobInFull
from dalsegno.web.names import keys_of, names_of

QUEUE = 8
RECENT = 5
FAILURES = 6
LOOKED_AT = 200
"""Failed items among which the last ones are looked for: they are stored in the order of the catalog."""
UNDER_WAY = frozenset({StageStatus.RUNNING, StageStatus.PAUSE_REQUESTED})
LANES = 12
"""Pools up to this size show all their workers; larger ones, those that are busy."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The workers of one name, `download-1` to `download-10`."""

    name: str
    workers: list[WorkerRecord]
    busy: int
    idle: int


@dataclass(frozen=True, slots=True)
class Board:
    now: datetime
    job: JobInFull | None
    failures: list[ItemLine]
    pools: list[Pool]
    transfer: TransferTotals
    waiting: list[JobLine]
    finished: list[JobLine]
    holds: list[HoldLine]
    """What stands still besides jobs of their own accord."""
    engines: list[ProcessRecord]
    names: dict[str, str]
    """What items are about, by key, where the catalog knows."""
    keys: dict[int, str]
    """Of the items that workers have in hand."""


def read_board(tx: Tx, job_id: int | None = None) -> Board:
    """The job named, else the one that matters most right now."""
    waiting = list_jobs(tx, status=[JobStatus.QUEUED, JobStatus.PAUSED], limit=100)
    finished = list_jobs(tx, status=JOB_FINISHED, limit=RECENT + 1)
    active = list_jobs(tx, status=JOB_ACTIVE, limit=QUEUE)
    shown = job_id if job_id is not None else _first(active, waiting, finished)
    lines = list_processes(tx)
    alive = [line for line in lines if line.alive]
    job = None if shown is None else in_full(tx, shown)
    failures = [] if shown is None else _failures(tx, shown)
    pools = _pools((worker for line in alive for worker in line.workers), job)
    keys = keys_of(tx, (worker.item_id for pool in pools for worker in pool.workers if worker.item_id is not None))
    return Board(
        now=tx.now,
        job=job,
        failures=failures,
        pools=pools,
        transfer=transfer_totals(tx),
        waiting=[line for line in (*active, *_in_turn(waiting)) if line.job.id != shown][:QUEUE],
        finished=[line for line in finished if line.job.id != shown][:RECENT],
        holds=[hold for hold in list_holds(tx) if hold.level not in ("job", "stage")],
        engines=[line.process for line in alive],
        names=names_of(tx, (*keys.values(), *(line.item.key for line in failures))),
        keys=keys,
    )


def _first(active: list[JobLine], waiting: list[JobLine], finished: list[JobLine]) -> int | None:
    turn = _in_turn(waiting)
    paused = [line for line in turn if line.job.status == JobStatus.PAUSED]
    for line in (*active, *paused, *turn, *finished):
        return line.job.id
    return None


def _in_turn(lines: list[JobLine]) -> list[JobLine]:
    return sorted(lines, key=lambda line: (line.job.priority, line.job.order_seq))


def _failures(tx: Tx, job_id: int) -> list[ItemLine]:
    """The last ones first."""
    found = list_items(tx, job_id, state=[ItemStatus.FAILED], limit=LOOKED_AT)
    return sorted(found, key=lambda line: line.item.finished_at or tx.now, reverse=True)[:FAILURES]


def _pools(workers: Iterable[WorkerRecord], job: JobInFull | None) -> list[Pool]:
    """Those of the stages under way, in their order, also while they are idle: a page must not jump."""
    under_way = [] if job is None else [stage.service for stage in job.stages if stage.status in UNDER_WAY]
    by_name: dict[tuple[int, str], list[WorkerRecord]] = {}
    for worker in workers:
        if worker.service in under_way:
            name = worker.name.rpartition("-")[0] or worker.name
            by_name.setdefault((under_way.index(worker.service), name), []).append(worker)
    pools = []
    for (_, name), members in sorted(by_name.items(), key=lambda pair: pair[0][0]):
        busy = [worker for worker in members if worker.status == "busy"]
        shown = members if len(members) <= LANES else busy
        ordered = sorted(shown, key=lambda worker: (worker.process_id, len(worker.name), worker.name))
        pools.append(Pool(name, ordered, len(busy), len(members) - len(busy)))
    return pools
