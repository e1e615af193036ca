"""One engine process of the storms: all it does with an item is to write down that it did.

    python -m bench.worker DATABASE_URL JOURNAL [--workers 10] [--keep MINUTES]

A line of the journal is sixteen bytes: the item's number and the moment in nanoseconds. It ends with SIGTERM.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

from dalsegno import Engine, EngineOptions, Item, open_store, service
from dalsegno.engine.meters import METERS
from dalsegno.model.retention import Policy, Rule

LINE = struct.Struct("<qq")
SERVICE = "storm"
TELL = 1.0
"""Seconds between two notes of how many claims there were and what they took, in JOURNAL.claims."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("journal")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--keep", type=float, help="minutes for which what is done is kept; unless said, as always")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    journal = os.open(options.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())

    @service(SERVICE, workers=options.workers)
    def work(item: Item) -> None:
        os.write(journal, LINE.pack(item.id, time.time_ns()))

    claims = Path(f"{options.journal}.claims")
    store = open_store(options.url)
    with Engine(store, [work], _options(options.keep)):
        print("ready", flush=True)
        while not over.wait(TELL):
            half = claims.with_suffix(".half")  # or a reader may come in the middle of a number
            half.write_text(f"{sum(METERS.claims.buckets)} {METERS.claims.total}")
            half.replace(claims)
    store.close()


def _options(keep: float | None) -> EngineOptions:
    made = EngineOptions(node=f"storm-{os.getpid()}", drain_seconds=20)
    if keep is None:
        return made
    days = keep / 1440
    policy = Policy(Rule(jobs=days, events=days, logs=days), {})
    return replace(made, retention=lambda _lanes: policy)


if __name__ == "__main__":
    main()
