"""A bulk retry beside an engine at full speed, and one that is killed in the middle.

    python bench/bulk.py --database sqlite:////tmp/bulk.db --items 200000
    python bench/bulk.py --database postgresql://… --items 200000 --kill

Without `--kill`: an engine drains no-op items all the while. In turns it is left alone and has failed items to retry
beside it; what it drains a second in both is compared within the run. With `--kill`: an engine process is
ended with SIGKILL in the middle of one retry of them all, another goes on, and the log says how often each item was
touched.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dalsegno import Engine, EngineOptions, Item, Service, Step, Store, Workflow, open_store, submit
from dalsegno.engine.bulk import stop_bulk
from dalsegno.engine.commander import request
from dalsegno.engine.scheduler import admit
from dalsegno.errors import CommandRefused
from dalsegno.insight.bulk import matching, preview
from dalsegno.insight.finding import ITEMS
from dalsegno.insight.operations import Operation, get_operation
from dalsegno.insight.query import parse
from dalsegno.store.schema import bulk_items, events, items, jobs, stages
from dalsegno.store.store import Tx

BROKEN = Workflow(name="bench-broken", steps=(Step(key="shelf", service="bench-shelf"),))
BUSY = Workflow(name="bench-busy", steps=(Step(key="work", service="bench-noop"),))
ROUNDS = 4


def broken(store: Store, count: int) -> int:
    """A job that is over, of which every item failed; nobody here offers its service."""
    job_id = submit(store, BROKEN, items=[f"k{number:06}" for number in range(count)]).job_id
    while admit(store):
        pass

    def fail(tx: Tx) -> None:
        failed = {"status": "failed", "error_code": "timeout", "error_message": "no answer", "finished_at": tx.now}
        tx.conn.execute(sa.update(items).where(items.c.job_id == job_id).values(**failed, fingerprint="00000000000a"))
        counts = {"pending": 0, "ready": 0, "failed": count, "low_seq": stages.c.high_seq, "open": False}
        over = {"claimable": False, "status": "completed", "finished_at": tx.now}
        tx.conn.execute(sa.update(stages).where(stages.c.job_id == job_id).values(**counts, **over))
        ended = {"status": "completed_with_errors", "finished_at": tx.now}
        tx.conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(**ended))

    store.write("make", fail)
    return job_id


def ask(store: Store, query: str) -> int:
    return store.write("request", lambda tx: request(tx, "bulk_retry", payload={"query": query}))


def followed(store: Store, number: int) -> Operation:
    return store.read(lambda tx: get_operation(tx, number))


# --- beside an engine at full speed -------------------------------------------------------------


def beside(store: Store, count: int, seconds: float, busy: int) -> dict[str, Any]:
    broken(store, count)
    seen = store.read(lambda tx: preview(tx, "bulk_retry", parse("error:timeout", ITEMS), seconds=30.0))
    job_id = submit(store, BUSY, items=[f"b{number:07}" for number in range(busy)], priority=1).job_id
    alone, together, bulk = [], [], []
    options = EngineOptions(keep_logs=False, find=matching)
    with Engine(store, [Service("bench-noop", _nothing, 10)], options):
        _moving(store, job_id)
        for _ in range(ROUNDS):
            alone.append(_rate(store, job_id, seconds))
            number = ask(store, "state:failed")
            together.append(_rate(store, job_id, seconds))
            bulk.append(followed(store, number).done / seconds)
            _stop(store, number)
    pairs = [round(b / a, 3) for a, b in zip(alone, together, strict=True)]
    return {
        "items": seen.found,
        "alone_per_s": [round(each) for each in alone],
        "beside_per_s": [round(each) for each in together],
        "bulk_per_s": [round(each) for each in bulk],
        "ratios": pairs,
        "ratio": round(statistics.median(together) / statistics.median(alone), 3),
    }


def _stop(store: Store, number: int) -> None:
    with suppress(CommandRefused):  # it is through
        store.write("stop", lambda tx: stop_bulk(tx, number))
    while not followed(store, number).over:
        time.sleep(0.02)


def _nothing(item: Item) -> None:
    return None


def _drained(store: Store, job_id: int) -> int:
    query = sa.select(stages.c.succeeded, stages.c.pending).where(stages.c.job_id == job_id)
    row = store.read(lambda tx: tx.row(query))
    assert row is not None
    assert row["pending"], "the busy job is through: give it more items (--busy)"
    return int(row["succeeded"])


def _moving(store: Store, job_id: int) -> None:
    while _drained(store, job_id) < 1000:
        time.sleep(0.05)


def _rate(store: Store, job_id: int, seconds: float) -> float:
    began, before = time.monotonic(), _drained(store, job_id)
    time.sleep(seconds)
    return (_drained(store, job_id) - before) / (time.monotonic() - began)


# --- killed in the middle -------------------------------------------------------------------------


def killed(store: Store, url: str, count: int, kills: int = 3) -> dict[str, Any]:
    """How often each item was touched, by its own events, after an engine was killed again and again on the way."""
    broken(store, count)
    number = ask(store, "state:failed")
    at = []
    for turn in range(1, kills + 1):
        with _process(url) as child:
            while followed(store, number).done < count * turn // (kills + 1):
                assert child.poll() is None, "the engine ended by itself"
                time.sleep(0.002)
            child.send_signal(signal.SIGKILL)
            child.wait()
        at.append(followed(store, number).done)
        assert not followed(store, number).over, "it was over before it could be killed"
    with _process(url) as child:
        while not followed(store, number).over:
            assert child.poll() is None, "the engine ended by itself"
            time.sleep(0.05)
        child.terminate()
        child.wait()
    return {"items": count, "killed_at": at, **touched(store, number)}


def touched(store: Store, number: int) -> dict[str, Any]:
    times = sa.select(sa.func.count().label("times")).where(events.c.type == "item_retried").group_by(events.c.item_id)
    often = times.subquery()
    query = sa.select(often.c.times, sa.func.count()).group_by(often.c.times)
    done = followed(store, number)
    written = sa.select(sa.func.count()).select_from(bulk_items).where(bulk_items.c.command_id == number)

    def read(tx: Tx) -> dict[str, Any]:
        return {
            "done": done.done,
            "state": done.state,
            "items_by_times_touched": {int(times): int(many) for times, many in tx.conn.execute(query)},
            "found_by_query": int(tx.conn.execute(written).scalar_one()),
        }

    return store.read(read)


@contextmanager
def _process(url: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, str(Path(__file__).resolve()), "--database", url, "--engine"])
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def engine(url: str) -> None:
    """A process that does nothing but what operators ask for."""
    store = open_store(url)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Engine(store, [Service("bench-noop", _nothing, 1)], EngineOptions(keep_logs=False, find=matching)):
        while True:
            time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--busy", type=int, default=1_000_000, help="items of the other job")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.engine:
        engine(asked.database)
        return
    store = open_store(asked.database)
    try:
        if asked.kill:
            found = killed(store, asked.database, asked.items)
        else:
            found = beside(store, asked.items, asked.seconds, asked.busy)
    finally:
        store.close()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
