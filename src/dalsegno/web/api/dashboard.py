"""The dashboard as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from dalsegno.catalog.overview import CatalogNumbers, Storage, overview
from dalsegno.catalog.space import spoken
from dalsegno.catalog.subjects import keys_of
from dalsegno.errors import NotFound
from dalsegno.insight.attention import Attention, Fix, in_order
from dalsegno.insight.charts import Charts, read_charts
from dalsegno.insight.dashboard import Counters, Draining, Eta, read_dashboard
from dalsegno.insight.dashboard import Dashboard as Read
from dalsegno.insight.health.alarms import alarms
from dalsegno.insight.pools import Phase, Verdict
from dalsegno.insight.workers import TransferTotals
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import Item, Job, JobInFull, Worker
from dalsegno.web.room import Here, Room

router = APIRouter(tags=["dashboard"])


class ActiveJob(JobInFull):
    eta: Eta | None
    draining: Draining | None
    """While a soft pause waits for what has begun: how many of how many workers."""


class WorkerPool(BaseModel):
    name: str
    service: str
    busy: int
    idle: int
    speed: float
    """Bytes a second, all together."""
    phase: Phase | None
    """What lies ready before it, and how long one takes; null where its service has one phase."""
    workers: list[Worker]
    """All of them, or in a large pool those that are busy."""


class Process(BaseModel):
    id: int
    node: str
    pid: int
    version: str
    alive: bool
    heartbeat_at: datetime
    workers: int
    busy: int


class Dashboard(BaseModel):
    now: datetime
    attention: list[Attention]
    """What needs an operator, worst first, each with what mends it."""
    job: ActiveJob | None
    """The one that matters most: running, else paused, else next, else last."""
    active: list[Job]
    waiting: list[Job]
    finished: list[Job]
    pools: list[WorkerPool]
    verdicts: list[Verdict]
    transfer: TransferTotals
    counters: Counters
    catalog: CatalogNumbers
    storage: Storage
    exceptions: list[Item]
    """Items that failed last."""
    processes: list[Process]
    charts: Charts


@router.get("/dashboard", responses=refusals(NotFound))
def dashboard(
    here: Here,
    job: Annotated[int | None, Query(ge=1, lt=2**63, description="Show this job, not the one at work.")] = None,
) -> Dashboard:
    """Everything at a glance, read in one moment."""

    def read(tx: Tx) -> tuple[Read, Charts, dict[str, str]]:
        found = read_dashboard(tx, job)
        keys = [line.item.key for line in found.exceptions]
        held = (worker.item_id for pool in found.pools for worker in pool.workers if worker.item_id is not None)
        return found, read_charts(tx), names_of(tx, [*keys, *keys_of(tx, held).values()])

    found, charts, names = here.store.read(read)
    numbers, storage = overview(here.store, here.settings)
    nodes = {line.process.id: line.process.node for line in found.processes}
    return Dashboard(
        now=found.now,
        attention=in_order([*found.attention, *attention_of(here, storage)]),
        job=None if found.job is None else _active(found),
        active=[Job.of(line) for line in found.active],
        waiting=[Job.of(line) for line in found.waiting],
        finished=[Job.of(line) for line in found.finished],
        pools=[
            WorkerPool(
                name=pool.name, service=pool.service, busy=pool.busy, idle=pool.idle, speed=pool.speed,
                phase=pool.phase,
                workers=[Worker(node=nodes[each.process_id], alive=True, **dict(each)) for each in pool.workers],
            )
            for pool in found.pools
        ],
        verdicts=found.verdicts,
        transfer=found.transfer,
        counters=found.counters,
        catalog=numbers,
        storage=storage,
        exceptions=[Item.of(line, names) for line in found.exceptions],
        processes=[
            Process(
                id=line.process.id, node=line.process.node, pid=line.process.pid, version=line.process.version,
                alive=line.alive, heartbeat_at=line.process.heartbeat_at, workers=len(line.workers),
                busy=sum(worker.status == "busy" for worker in line.workers),
            )
            for line in found.processes
        ],
        charts=charts,
    )  # fmt: skip


def _active(found: Read) -> ActiveJob:
    assert found.job is not None
    told = JobInFull.told(found.job.detail, found.job.progress)
    return ActiveJob(**dict(told), eta=found.job.eta, draining=found.job.draining)


def attention_of(here: Room, storage: Storage) -> list[Attention]:
    """What the engine cannot know: the disk, the settings file, and what is wrong with the system under it."""
    found = []
    if problem := here.config.problem:
        fix = Fix("config", "Open the settings", "PUT", "/api/config/env")
        found.append(Attention("config_invalid", "error", "config", str(problem), None, fixes=(fix,)))
    if storage.soon_full and storage.free is not None:
        days = "" if storage.days_to_full is None else f", enough for {storage.days_to_full:.1f} days at this growth"
        says = f"The library at {storage.root} has {spoken(storage.free)} free{days}; {spoken(storage.keep)} must stay."
        data = {"root": storage.root, "free": storage.free, "keep": storage.keep, "days": storage.days_to_full}
        found.append(Attention("disk_soon_full", "warn", "storage", says, None, data=data))
    return [*found, *alarms(here.rounds.known())]
