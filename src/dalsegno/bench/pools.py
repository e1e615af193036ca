"""How many items per second three ways of sharing workers between a slow and a fast phase let through.

Sleeping stands for the work, so the figures are those of the pools and not of a network. Each way runs for the same
time and is measured in its steady state: the slope of the items finished over time, the first waves left out.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dalsegno.engine.elastic import TIMES_WORKERS, Elastic, split
from dalsegno.engine.engine import Engine, EngineOptions
from dalsegno.engine.item import Item
from dalsegno.engine.phases import PhasedPool
from dalsegno.engine.service import Phase, Service, phased
from dalsegno.engine.submit import submit
from dalsegno.model.workflow import Step, Workflow
from dalsegno.store.store import Store

WAVES = 8
"""Rounds of resolve and transfer that a run is measured over."""
SHORTEST = 5.0
"""Seconds it is measured over at least."""
WARM_UP = 1.5
"""Rounds before that: the first tells the elastic pool what it deals with, the second is the first full one."""


@dataclass(frozen=True, slots=True)
class Fixed(Elastic):
    """The split of spec 002 and nothing else: what the other pool leaves idle stays idle."""

    @property
    def transfers(self) -> int:
        return split(self.workers, 2)[1]

    def resolvers(self, transferring: int, queued: int, resolve: float, transfer: float) -> int:  # noqa: ARG002
        return split(self.workers, 2)[0]


@dataclass(slots=True)
class Run:
    """One way of running the same two phases."""

    resolve_s: float
    transfer_s: float
    workers: int
    items: int
    seconds: float

    def per_second(self, store: Store, name: str) -> float:
        finished: list[float] = []
        enough = threading.Event()

        def find(item: Item) -> str:
            time.sleep(self.resolve_s)
            return item.key

        def fetch(_item: Item, _found: str) -> None:
            time.sleep(self.transfer_s)
            finished.append(time.perf_counter())
            if len(finished) >= self.items:
                enough.set()

        service = phased(f"bench-{name}", [Phase("resolve", find), Phase("download", fetch)], workers=self.workers)
        if name == "mixed":  # the same phases, one after the other in every worker's hands
            service = Service(service.name, service.handler, self.workers)
        workflow = Workflow(name=service.name, steps=(Step(key="work", service=service.name),))
        submit(store, workflow, items=[f"item-{number}" for number in range(self.items)])
        most = {service.name: self.workers} if name == "elastic_equal" else {}
        options = EngineOptions(keep_logs=False, drain_seconds=0, phase_workers_max=most, prepare=None, retention=None)
        engine = Engine(store, [service], options)
        pool = engine.pools[service.name]
        if name == "fixed" and isinstance(pool, PhasedPool):
            pool.places.rule = Fixed(self.workers, self.workers, pool.places.rule.stock)
        with engine:
            began = time.perf_counter()
            enough.wait(self.seconds)
            ended = time.perf_counter()
        return steady([at - began for at in finished if at <= ended], self.resolve_s + self.transfer_s)


def steady(finished: list[float], round_s: float) -> float:
    """Items per second by least squares: finishing comes in waves, and two end points would be off by up to one.

    Too few items to have a steady state: all of them, over all of the time.
    """
    finished = sorted(finished)
    warm = [(at, number) for number, at in enumerate(finished) if at > WARM_UP * round_s]
    if not warm or warm[-1][0] - warm[0][0] < 2 * round_s:
        return len(finished) / finished[-1] if finished else 0.0
    return statistics.linear_regression([at for at, _ in warm], [number for _, number in warm]).slope


def measure(
    store: Store,
    resolve_s: float,
    transfer_s: float,
    *,
    workers: int = 10,
    items: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Items per second of each way, and the limit that no way can pass."""
    rule = Elastic(workers, TIMES_WORKERS * workers, workers)
    limit = rule.per_second(resolve_s, transfer_s)
    round_s = resolve_s + transfer_s
    seconds = WARM_UP * round_s + max(SHORTEST, WAVES * round_s)
    count = items or int(limit * (seconds + round_s)) + rule.places
    figures: dict[str, Any] = {}
    for name in ("mixed", "fixed", "elastic", "elastic_equal"):
        say(f"{name} for up to {seconds:.0f} s …")
        run = Run(resolve_s, transfer_s, workers, count, seconds if items is None else 3600.0)
        figures[f"{name}_per_s"] = round(run.per_second(store, name), 3)
    return {
        **figures,
        "limit_per_s": round(limit, 3),
        "resolve_s": resolve_s,
        "transfer_s": transfer_s,
        "workers": workers,
        "resolvers_max": rule.most,
        "items": count,
    }
