"""What the crash tests of streaming kill: one engine, until it is told or made to stop.

    python streaming_program.py DATABASE_URL JOURNAL FOLDER

What an item makes is a function of what it follows and of a number in FOLDER, which the test may raise. So the same
item gives the same result in every life, and another one only where somebody wanted it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dalsegno import (
    Engine,
    EngineOptions,
    Fail,
    Item,
    Retry,
    Service,
    Skip,
    Step,
    Workflow,
    open_store,
    service,
)
from tests.crash.program import Journal

WORK = float(os.environ.get("CRASH_WORK", "0.02"))
FOLLOWS = {"a": None, "b": "a", "c": "b", "d": "a"}
"""A chain of three, and two steps that follow the same one."""


def workflow() -> Workflow:
    return Workflow(
        name="streams",
        steps=tuple(
            Step(
                key=key,
                service=key,
                depends_on=(after,) if after else (),
                follow="each" if after else "all",
                max_interruptions=1000,
            )
            for key, after in FOLLOWS.items()
        ),
    )


def fails_for_good(step: str, key: str) -> bool:
    """Until it is mended."""
    return (step, int(key[1:]) % 6) in (("a", 4), ("b", 5))


class Wishes:
    """What the test wants of an item: a number for its result, and whether what was broken is mended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def version(self, step: str, key: str) -> int:
        return self._count(f"{step}.{key}")

    def is_mended(self, step: str, key: str) -> bool:
        return self._count(f"{step}.{key}.mended") > 0

    def change(self, step: str, key: str) -> None:
        self._add(f"{step}.{key}")

    def mend(self, step: str, key: str) -> None:
        self._add(f"{step}.{key}.mended")

    def _count(self, name: str) -> int:
        file = self._folder / name
        return file.stat().st_size if file.exists() else 0

    def _add(self, name: str) -> None:
        with (self._folder / name).open("a") as file:
            file.write("+")


def services(journal: Journal, wishes: Wishes) -> list[Service]:
    never = threading.Event()

    def run(item: Item) -> Any:
        step, number = item.stage.key, int(item.key[1:])
        journal.write("begin", item)
        found = item.input
        if FOLLOWS[step] and found is None:
            journal.write("missing", item)
        never.wait(WORK * 3 if number % 4 == 3 else WORK)
        if fails_for_good(step, item.key) and not wishes.is_mended(step, item.key):
            return Fail("broken")
        if number % 6 == 3 and step in "bd" and item.attempt < 2:
            return Retry("twice", delay=0.01)
        result = {"key": item.key, "version": wishes.version(step, item.key), "of": found}
        journal.write("end", item)
        return Skip("there already", result) if number % 6 == 2 else result

    return [service(step, workers=2)(run) for step in FOLLOWS]


def main(url: str, journal_path: str, folder: str) -> int:
    journal = Journal(journal_path)
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    store = open_store(url)
    options = EngineOptions(node=f"node-{os.getpid()}")
    with Engine(store, services(journal, Wishes(Path(folder))), options):
        journal.write("started")
        terminated.wait()
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
