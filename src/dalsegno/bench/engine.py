"""How fast no-op items go in, through and out of one process, and how soon a waiting engine picks one up."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

from dalsegno.engine.engine import Engine, EngineOptions
from dalsegno.engine.item import Item
from dalsegno.engine.service import Service
from dalsegno.engine.submit import submit
from dalsegno.engine.waiting import wait_for_job
from dalsegno.model.workflow import Step, Workflow
from dalsegno.store.store import Store

WORKFLOW = Workflow(name="bench-engine", steps=(Step(key="work", service="bench-noop"),))
PICKUPS = 200


def measure(store: Store, count: int, *, workers: int = 10) -> dict[str, Any]:
    """Enqueue `count` items, drain them, then time single pickups on the idle engine."""
    started: dict[str, float] = {}
    arrived = threading.Event()

    def handler(item: Item) -> None:
        if item.key.startswith("pickup"):
            started[item.key] = time.perf_counter()
            arrived.set()

    service = Service("bench-noop", handler, workers)
    keys = [f"item-{number}" for number in range(count)]
    before = time.perf_counter()
    job = submit(store, WORKFLOW, items=keys)
    enqueue = time.perf_counter() - before
    before = time.perf_counter()
    with Engine(store, [service], EngineOptions(keep_logs=False, prepare=None, retention=None)) as engine:
        engine.wait(job.job_id)
        drain = time.perf_counter() - before
        pickups = sorted(_pickup(store, number, started, arrived) for number in range(PICKUPS))
    return {
        "enqueue_per_s": round(count / enqueue),
        "drain_per_s": round(count / drain),
        "pickup_ms": {
            "p50": round(1000 * statistics.median(pickups), 2),
            "p99": round(1000 * pickups[int(0.99 * (len(pickups) - 1))], 2),
        },
    }


def _pickup(store: Store, number: int, started: dict[str, float], arrived: threading.Event) -> float:
    """Seconds from the call of submit to the first line of the handler, on an engine with nothing to do."""
    key = f"pickup-{number}"
    arrived.clear()
    before = time.perf_counter()
    job = submit(store, WORKFLOW, items=[key])
    arrived.wait()
    wait_for_job(store, job.job_id)
    return started[key] - before
