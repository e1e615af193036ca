"""Who is at work: processes, their workers, and the nodes they run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from dalsegno.model.records import NodeRecord, ProcessRecord, WorkerRecord
from dalsegno.store.schema import UtcTime, nodes, processes, workers
from dalsegno.store.store import Tx


@dataclass(frozen=True, slots=True)
class ProcessLine:
    process: ProcessRecord
    alive: bool
    """Its lease runs. A process that died is listed until the next sweep has taken back what it held."""
    workers: list[WorkerRecord]


_WORKERS = sa.select(workers).order_by(workers.c.service, workers.c.id)
_NOW = sa.func.clock_timestamp(type_=UtcTime).label("_now")
_PROCESSES = {False: sa.select(processes).order_by(processes.c.id),
              True: sa.select(processes, _NOW).order_by(processes.c.id)}  # fmt: skip
"""By whether the database has a clock of its own: leases run by that one."""


def list_processes(tx: Tx) -> list[ProcessLine]:
    by_process: dict[int, list[WorkerRecord]] = {}
    for row in tx.rows(_WORKERS):
        by_process.setdefault(row["process_id"], []).append(WorkerRecord.model_validate(dict(row)))
    lines = []
    for row in tx.rows(_PROCESSES[tx.shared]):
        values = dict(row)
        alive = values["lease_until"] > values.pop("_now", tx.now)
        lines.append(ProcessLine(ProcessRecord.model_validate(values), alive, by_process.get(values["id"], [])))
    return lines


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
