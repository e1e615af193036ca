"""How much of an allowed rate a backlog uses: how long each place stays empty once it is free."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from dalsegno.engine import limits
from dalsegno.engine.engine import Engine, EngineOptions
from dalsegno.engine.service import service
from dalsegno.engine.submit import submit
from dalsegno.model.limit import Limit
from dalsegno.model.workflow import Step, Workflow
from dalsegno.store.schema import permits
from dalsegno.store.store import Store

WINDOWS = 10


def measure(store: Store, rate: int, window: float, *, workers: int = 8) -> dict[str, Any]:
    """Run a limited service with more work than it may do for ten windows."""

    @service("bench", workers=workers, limit=Limit(rate=rate, window=window))
    def call(_item: object) -> None:
        return None

    granted: list[int] = []

    def keep(tx: Any) -> None:
        rows = sa.select(permits.c.tick).where(permits.c.name == "service:bench").order_by(permits.c.number)
        granted.extend(tx.conn.execute(rows).scalars())

    pruning, limits.PRUNE_EVERY = limits.PRUNE_EVERY, 1 << 60
    try:
        with Engine(store, [call], EngineOptions(prepare=None, retention=None)) as engine:
            workflow = Workflow(name="bench-limits", steps=(Step(key="call", service="bench"),))
            job = submit(store, workflow, items=[f"call-{number}" for number in range(rate * (WINDOWS + 1))])
            engine.wait(job.job_id)
        store.read(keep)
    finally:
        limits.PRUNE_EVERY = pruning
    gaps = [(later - earlier) / 1e6 for earlier, later in zip(granted, granted[rate:], strict=False)]
    return {
        "utilisation": round(window / (sum(gaps) / len(gaps)), 4),
        "granted": len(granted),
        "most_in_a_window": rate if min(gaps) >= window else rate + 1,
    }
