"""Huey on SQLite: enqueue N no-op tasks, then drain them with the worker threads of one process.

Huey deletes a task when a worker takes it and writes nothing when it ends, so a crash loses what was
running: one durable write per task where an at-least-once engine needs two.
"""

import argparse
import json
import sqlite3
import threading
import time

from huey import SqliteHuey

# Median of 8 runs of 20,000 tasks: 4,080/s with 1 thread, 3,050 with 2, 3,190 with 10; 3 runs with 4: 2,720.
# One lock guards Huey's one connection, so more threads only queue for it.
WORKERS = 1


def measure(filename: str, items: int, workers: int) -> dict[str, float]:
    # results=False spares Huey the result handles that nobody here reads.
    huey = SqliteHuey(filename=filename, fsync=True, results=False)
    refuse_unsafe_settings(huey.storage.conn)

    @huey.task()
    def noop() -> None:
        pass

    # Huey has no bulk insert that saves commits: task.map() too enqueues one by one.
    started = time.perf_counter()
    for _ in range(items):
        noop()
    enqueued = time.perf_counter()

    finish = FinishLine(items)
    huey.post_execute()(finish.passed)
    consumer = huey.create_consumer(workers=workers, periodic=False)
    drain_started = time.perf_counter()
    consumer.start()
    finish.crossed.wait()
    consumer.stop(graceful=True)
    return {
        "enqueue_per_s": round(items / (enqueued - started), 1),
        "drain_per_s": round(items / (finish.crossed_at - drain_started), 1),
    }


class FinishLine:
    """Stamps the moment the N-th task has ended; Huey calls it after its last write for a task."""

    def __init__(self, items: int) -> None:
        self.missing = items
        self.crossed_at = 0.0
        self.crossed = threading.Event()
        self.lock = threading.Lock()

    def passed(self, task: object, value: object, error: Exception | None) -> None:
        with self.lock:
            self.missing -= 1
            if self.missing == 0:
                self.crossed_at = time.perf_counter()
                self.crossed.set()


def refuse_unsafe_settings(connection: sqlite3.Connection) -> None:
    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    if (journal, synchronous) != ("wal", 2):
        raise SystemExit(f"SQLite runs with journal_mode={journal} synchronous={synchronous}, not wal and 2 (FULL)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", required=True, help="where to create the SQLite database")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.file, options.items, options.workers)
    if options.json:
        print(json.dumps(figures))
    else:
        print("  ".join(f"{name} {value:,.0f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
