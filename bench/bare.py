"""A bare loop of the same writes: what the database alone allows, with no engine around it.

`python -m bench.bare --database URL --items N --json`. The same tables, rows, indexes and constraints; claims and
settles of 500 items as the engine makes them, each its own durable transaction, one after the other; and a bare COPY
(executemany on SQLite) of the items.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from dalsegno.engine.scheduler import admit
from dalsegno.engine.submit import submit
from dalsegno.model.workflow import Step, Workflow
from dalsegno.store import Store, open_store
from dalsegno.store.hot import NewItem, Settled

BATCH = 500


def copy(store: Store, count: int) -> float:
    """Items a second into the table, rows made beforehand, nothing else in the transaction."""
    rows = [NewItem(number, f"item-{number}") for number in range(1, count + 1)]
    before = time.perf_counter()
    store.write("copy", lambda tx: tx.hot.insert_items(tx, 1_000_000, 1_000_000, rows))
    return count / (time.perf_counter() - before)


def drain(store: Store, count: int) -> float:
    """Items a second through claim and settle, no handler, no threads."""
    workflow = Workflow(name="bare", steps=(Step(key="work", service="bare"),))
    submit(store, workflow, items=[f"item-{number}" for number in range(count)])
    admit(store)
    before = time.perf_counter()
    while claimed := store.write("claim", lambda tx: tx.hot.claim(tx, "bare", 1, BATCH)):
        now = store.clock.now()
        rows = [Settled(row.id, row.lease, row.stage_id, row.job_id, "succeeded", now) for row in claimed]
        store.write("settle", lambda tx, rows=rows: tx.hot.settle(tx, rows))
    return count / (time.perf_counter() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    store = open_store(options.database)
    try:
        figures = {
            "drain_per_s": round(drain(store, options.items)),
            "copy_per_s": round(copy(store, options.items)),
        }
    finally:
        store.close()
    sys.stdout.write(json.dumps(figures) + "\n" if options.json else f"{figures}\n")


if __name__ == "__main__":
    main()
