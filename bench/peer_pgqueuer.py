"""PgQueuer on PostgreSQL: enqueue N no-op jobs in bulk, then drain them with one process.

Its tables stay logged, which is its default. Settings tried, 20,000 jobs, medians of 4 runs, noisy machine:
a pool of 2, 3, 5 and 10 connections drained 12,400, 13,400, 13,800 and 14,000 jobs/s; a cap of 1,000
concurrent tasks 13,500 (pool of 5). Enqueueing in one statement was no faster than in chunks.
"""

import argparse
import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.models import Job
from pgqueuer.domain.types import QueueExecutionMode

BATCH = 100
ENQUEUE_CHUNK = 5_000
POOL_SIZE = 10


class FinishLine:
    """Stamps the moment the N-th completion is committed.

    Measured here, and not when run() returns, so that PgQueuer's shutdown is not held against it.
    """

    def __init__(self, queries: Queries, items: int) -> None:
        self.missing = items
        self.crossed_at = 0.0
        self.log_jobs = queries.log_jobs
        queries.log_jobs = self.count_logged  # type: ignore[method-assign,assignment]

    async def count_logged(self, finished: list[Any]) -> None:
        await self.log_jobs(finished)
        self.missing -= len(finished)
        if self.missing == 0:
            self.crossed_at = time.perf_counter()


async def enqueue(queries: Queries, items: int) -> float:
    started = time.perf_counter()
    for first in range(0, items, ENQUEUE_CHUNK):
        size = min(ENQUEUE_CHUNK, items - first)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    return time.perf_counter() - started


async def drain(queries: Queries, items: int) -> float:
    manager = QueueManager(queries)

    @manager.entrypoint("noop")
    async def noop(job: Job) -> None:
        pass

    finish = FinishLine(queries, items)
    started = time.perf_counter()
    # max_concurrent_tasks stays unset: a cap adds a counting subquery to every dequeue.
    await manager.run(
        batch_size=BATCH,
        mode=QueueExecutionMode.drain,
        dequeue_timeout=timedelta(seconds=0.1),
    )
    if finish.missing:
        raise SystemExit(f"PgQueuer stopped with {finish.missing} of {items} jobs not finished")
    return finish.crossed_at - started


async def measure(dsn: str, items: int) -> dict[str, float]:
    async with asyncpg.create_pool(dsn, min_size=POOL_SIZE, max_size=POOL_SIZE) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        enqueue_seconds = await enqueue(queries, items)
        drain_seconds = await drain(queries, items)
        await refuse_wrong_result(pool, items)
    return {
        "enqueue_per_s": round(items / enqueue_seconds, 1),
        "drain_per_s": round(items / drain_seconds, 1),
    }


async def refuse_wrong_result(pool: asyncpg.Pool, items: int) -> None:
    left = await pool.fetchval("SELECT count(*) FROM pgqueuer")
    done = await pool.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
    if (left, done) != (0, items):
        raise SystemExit(f"PgQueuer left {left} jobs and logged {done} of {items} as successful")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True, help="an empty database")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # uvloop comes with PgQueuer, and its own `pgq run` uses it: about a tenth faster.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measure(options.dsn, options.items))
    if options.json:
        print(json.dumps(figures))
    else:
        print("  ".join(f"{name} {value:,.0f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
