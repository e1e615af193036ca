"""Whether a claim costs the same at a thousand and at a million pending items."""

from __future__ import annotations

import statistics
import time
from typing import Any

import sqlalchemy as sa

from dalsegno.engine.scheduler import admit
from dalsegno.engine.submit import submit
from dalsegno.model.workflow import Step, Workflow
from dalsegno.store.hot import Settled
from dalsegno.store.store import Store, Tx

ROUNDS = 60
BATCH = 100
CHUNK = 250_000


def measure(store: Store, pending: int, *, blocked: int = 0, active_jobs: int = 0) -> dict[str, Any]:
    """Median milliseconds to claim 100 items, with few pending and with many.

    `blocked` items wait behind a stage that never ends; `active_jobs` one-item jobs of another service run beside it.
    """
    if blocked:
        behind = Workflow(
            name="bench-blocked",
            steps=(
                Step(key="first", service="bench-never"),
                Step(key="second", service="bench-claim-small", depends_on=("first",)),
            ),
        )
        submit(store, behind, items={"first": ["one"], "second": _keys(blocked)})
    for number in range(active_jobs):
        beside = Workflow(name="bench-beside", steps=(Step(key="only", service="bench-beside"),))
        submit(store, beside, items=[f"beside-{number}"])
    small, large = min(1000, pending), pending
    submit(store, _workflow("bench-claim-small"), items=_keys(max(small, ROUNDS * BATCH)))
    submit(store, _workflow("bench-claim-large"), items=_keys(max(large, ROUNDS * BATCH)))
    while admit(store):
        pass
    times: dict[str, list[float]] = {"bench-claim-small": [], "bench-claim-large": []}
    for _ in range(ROUNDS):  # interleaved, so that both meet the same noise
        for service, spent in times.items():
            before = time.perf_counter()
            claimed = store.write("claim", lambda tx, service=service: tx.hot.claim(tx, service, 1, BATCH))  # type: ignore[misc]
            spent.append(time.perf_counter() - before)
            store.write("settle", lambda tx, claimed=claimed: _finish(tx, claimed))  # type: ignore[misc]
    return {
        "claim_ms": {
            str(small): round(1000 * statistics.median(times["bench-claim-small"]), 3),
            str(large): round(1000 * statistics.median(times["bench-claim-large"]), 3),
        },
        "blocked": blocked,
        "active_jobs": active_jobs,
    }


def _workflow(service: str) -> Workflow:
    return Workflow(name=service, steps=(Step(key="work", service=service),))


def _keys(count: int) -> list[str]:
    return [f"item-{number}" for number in range(count)]


def _finish(tx: Tx, claimed: list[Any]) -> None:
    tx.hot.settle(tx, [Settled(row.id, row.lease, row.stage_id, row.job_id, "succeeded", tx.now) for row in claimed])


def analyze(store: Store) -> None:
    """Statistics as autovacuum would have them by then."""
    store.write("analyze", lambda tx: tx.conn.execute(sa.text("ANALYZE")))
