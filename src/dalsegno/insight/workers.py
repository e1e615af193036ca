"""Who is at work: processes, their workers, and the nodes they run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from dalsegno.model.records import NodeRecord, ProcessRecord, WorkerRecord
from dalsegno.store.schema import nodes, processes, workers
from dalsegno.store.store import Tx


@dataclass(frozen=True, slots=True)
class ProcessLine:
    process: ProcessRecord
    alive: bool
    """Its lease runs. A process that died is listed until the next sweep has taken back what it held."""
    workers: list[WorkerRecord]


_WORKERS = sa.select(workers).order_by(workers.c.service, workers.c.id)
_PROCESSES = sa.select(processes).order_by(processes.c.id)


def list_processes(tx: Tx) -> list[ProcessLine]:
    now = tx.hot.database_now(tx)
    by_process: dict[int, list[WorkerRecord]] = {}
    for row in tx.rows(_WORKERS):
        by_process.setdefault(row["process_id"], []).append(WorkerRecord.model_validate(dict(row)))
    found = [ProcessRecord.model_validate(dict(row)) for row in tx.rows(_PROCESSES)]
    return [ProcessLine(process, process.lease_until > now, by_process.get(process.id, [])) for process in found]


@dataclass(frozen=True, slots=True)
class TransferTotals:
    workers: int
    """Workers that move bytes right now."""
    speed: float
    """Bytes per second, all together."""


def transfer_totals(tx: Tx) -> TransferTotals:
    return totals_of(list_processes(tx))


def totals_of(lines: Iterable[ProcessLine]) -> TransferTotals:
    """Only those with a real speed count: who resolves, waits or has stalled moves nothing."""
    alive = [worker for line in lines if line.alive for worker in line.workers]
    moving = [worker.speed for worker in alive if worker.status == "busy" and worker.speed]
    return TransferTotals(len(moving), sum(moving))


def list_nodes(tx: Tx) -> list[NodeRecord]:
    return [NodeRecord.model_validate(dict(row)) for row in tx.rows(sa.select(nodes).order_by(nodes.c.name))]


def engine_alive(tx: Tx) -> bool:
    """Whether a process with a live lease is there to apply commands."""
    now = tx.hot.database_now(tx)
    return tx.row(sa.select(processes.c.id).where(processes.c.lease_until > now).limit(1)) is not None


def seconds_left(worker: WorkerRecord) -> float | None:
    """How long its transfer still takes at the speed it has; None where that cannot be told."""
    if not worker.speed or worker.bytes_total is None or worker.bytes_done is None:
        return None
    return max(0.0, (worker.bytes_total - worker.bytes_done) / worker.speed)
