"""Whether a claim costs the same at a thousand and at a million pending items."""

from __future__ import annotations

import statistics
import time
from typing import Any

from dalsegno.engine.scheduler import admit
from dalsegno.engine.submit import submit
from dalsegno.model.workflow import Step, Workflow
from dalsegno.store.hot import Settled
from dalsegno.store.store import Store, Tx

ROUNDS = 60
BATCH = 100
SMALL = 1000


def measure(store: Store, pending: int, *, blocked: int = 0, active_jobs: int = 0) -> dict[str, Any]:
    """Median milliseconds to claim 100 items, with few pending and with many.

    `blocked` items of the same service wait behind a stage that never ends; `active_jobs` one-item jobs of another
    service are open beside it.
    """
    if blocked:
        behind = Workflow(
            name="bench-blocked",
            steps=(
                Step(key="first", service="bench-never"),
                Step(key="second", service="bench-claim-large", depends_on=("first",)),
            ),
        )
        submit(store, behind, items={"first": ["one"], "second": _keys(blocked)})
    for number in range(active_jobs):
        beside = Workflow(name="bench-beside", steps=(Step(key="only", service="bench-beside"),))
        submit(store, beside, items=[f"beside-{number}"])
    smalls = [f"bench-claim-small-{number}" for number in range(ROUNDS * BATCH // SMALL)]
    for service in smalls:
        submit(store, _workflow(service), items=_keys(SMALL))
    submit(store, _workflow("bench-claim-large"), items=_keys(max(pending, ROUNDS * BATCH)))
    while admit(store):
        pass
    few: list[float] = []
    many: list[float] = []
    for turn in range(ROUNDS):  # interleaved, so that both meet the same noise
        few.append(_claim(store, smalls[turn * BATCH // SMALL]))
        many.append(_claim(store, "bench-claim-large"))
    return {
        "claim_ms": {
            str(SMALL): round(1000 * statistics.median(few), 3),
            str(pending): round(1000 * statistics.median(many), 3),
        },
        "blocked": blocked,
        "active_jobs": active_jobs,
    }


def _claim(store: Store, service: str) -> float:
    """Seconds for one claim; what it took is finished afterwards, off the clock."""
    before = time.perf_counter()
    claimed = store.write("claim", lambda tx: tx.hot.claim(tx, service, 1, BATCH))
    spent = time.perf_counter() - before
    assert len(claimed) == BATCH
    store.write("settle", lambda tx: _finish(tx, claimed))
    return spent


def _workflow(service: str) -> Workflow:
    return Workflow(name=service, steps=(Step(key="work", service=service),))


def _keys(count: int) -> list[str]:
    return [f"item-{number}" for number in range(count)]


def _finish(tx: Tx, claimed: list[Any]) -> None:
    tx.hot.settle(tx, [Settled(row.id, row.lease, row.stage_id, row.job_id, "succeeded", tx.now) for row in claimed])
