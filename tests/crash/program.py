"""What the crash tests kill: one engine on one database, and a journal of everything its services ever did.

    python program.py DATABASE_URL JOURNAL JOB

It submits JOB unless it is there, runs until the job ends, and exits with 0; with 3 if a SIGTERM's drain ran out
of time, with 5 if the engine was refused. A second SIGTERM ends it on the spot.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dalsegno import (
    Engine,
    EngineOptions,
    Item,
    PauseJob,
    Plan,
    Retry,
    Service,
    Step,
    Store,
    Workflow,
    open_store,
    service,
    submit,
)
from dalsegno.engine.commander import request
from dalsegno.errors import EngineAlreadyRunning
from dalsegno.model.states import JOB_FINISHED
from dalsegno.store.schema import jobs

COUNT = int(os.environ.get("CRASH_ITEMS", "40"))
WORK = float(os.environ.get("CRASH_WORK", "0.004"))
"""Seconds an item takes; every eighth takes long enough to be written down as begun on the way."""
LONG = 0.12
DRAIN = float(os.environ.get("CRASH_DRAIN", "30"))
LEASE = float(os.environ.get("CRASH_LEASE", "60"))
POISON = os.environ.get("CRASH_POISON")
"""The key of an item that takes its process with it, every time."""
EXIT_LATE = 3
EXIT_REFUSED = 5


class Journal:
    """One line, one write, on disk before anything else happens."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, what: str, item: Item | None = None) -> None:
        place = f"{item.job_id}/{item.stage.key}/{item.key} {item.attempt}" if item else "- -"
        os.write(self._file, f"{what} {place} {os.getpid()}\n".encode())
        os.fsync(self._file)


def workflow() -> Workflow:
    """A fan-out, a stage that follows it item by item, one that waits for all, and a last one."""
    return Workflow(
        name="crash",
        steps=(
            Step(key="gather", service="gather", max_interruptions=3 if POISON else 1000),
            Step(key="polish", service="polish", depends_on=("gather",), follow="each", max_interruptions=1000),
            Step(key="bind", service="bind", depends_on=("polish",), max_interruptions=1000),
            Step(
                key="ship",
                service="ship",
                depends_on=("bind", "gather"),
                max_interruptions=3 if POISON else 1000,
            ),
        ),
    )


def services(journal: Journal, marker: Path) -> list[Service]:
    done = threading.Event()  # never set: waiting for it is what work looks like here

    def run(item: Item) -> Any:
        journal.write("begin", item)
        number = int(item.key.rpartition("-")[2])
        if item.key == POISON:
            os.kill(os.getpid(), signal.SIGKILL)
        long = number % 8 == 7
        if long:
            item.phase("long")
            item.progress(0.5, "half")
            item.log.info("half way")
        done.wait(max(WORK, LONG) if long else WORK)
        if item.stage.key == "polish" and number % 10 == 3 and item.attempt == 0:
            return Retry("the first attempt always fails", delay=0.02)
        if item.stage.key == "gather" and number == 5 and not marker.exists():
            marker.touch()
            return PauseJob("asks for an operator")
        journal.write("end", item)
        return {"key": item.key}

    gather, polish = service("gather", workers=3)(run), service("polish", workers=3)(run)
    bind, ship = service("bind", workers=2)(run), service("ship")(run)

    @gather.plan
    def _(_plan: Plan) -> list[str]:
        return [f"part-{number}" for number in range(COUNT)]

    @bind.plan
    def _(plan: Plan) -> list[str]:
        return [f"volume-{number}" for number, _ in enumerate(plan.upstream()) if number % 5 == 0]

    @ship.plan
    def _(_plan: Plan) -> list[str]:
        return ["box-0", "box-1"]

    return [gather, polish, bind, ship]


def find_or_submit(store: Store, name: str) -> int:
    found = store.read(lambda tx: tx.conn.execute(sa.select(jobs.c.id).where(jobs.c.dedupe_key == name)).scalar())
    if found is not None:
        return int(found)
    job_id = submit(store, workflow(), dedupe=name).job_id
    store.write("request", lambda tx: request(tx, "set_priority", job_id=job_id, payload={"priority": 50}))
    return job_id


def main(url: str, journal_path: str, name: str) -> int:
    journal = Journal(journal_path)
    terminated = threading.Event()

    def on_terminate(*_: object) -> None:
        if terminated.is_set():
            os._exit(128 + signal.SIGTERM)
        terminated.set()

    signal.signal(signal.SIGTERM, on_terminate)
    store = open_store(url)
    job_id = find_or_submit(store, name)
    options = EngineOptions(node=f"node-{os.getpid()}", lease_seconds=LEASE, drain_seconds=DRAIN)
    engine = Engine(store, services(journal, Path(f"{journal_path}.{name}.asked")), options)
    try:
        engine.start()
    except EngineAlreadyRunning as refusal:
        sys.stderr.write(f"{refusal}\n")
        store.close()
        return EXIT_REFUSED
    journal.write("started")
    asked = False
    while not terminated.is_set():
        status = store.read(
            lambda tx: tx.conn.execute(sa.select(jobs.c.status).where(jobs.c.id == job_id)).scalar_one()
        )
        if status in JOB_FINISHED:
            break
        if status == "paused" and not asked:
            asked = True
            store.write("request", lambda tx: request(tx, "resume", job_id=job_id))
        terminated.wait(0.02)
    if terminated.is_set():
        journal.write("draining")
    # The handler of a second SIGTERM runs in this thread: the drain goes to another, so that it gets its turn.
    clean: list[bool] = []
    stopper = threading.Thread(target=lambda: clean.append(engine.stop()), name="stopper")
    stopper.start()
    while stopper.is_alive():
        stopper.join(0.05)
    store.close()
    return 0 if clean == [True] else EXIT_LATE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
