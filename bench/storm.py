"""What chaos, pressure and soak share: engines in processes of their own, a feeder, a meter and the books."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from bench.worker import LINE, SERVICE
from dalsegno import Step, Store, Workflow, open_store, submit
from dalsegno.errors import DalSegnoError
from dalsegno.model.states import JOB_UNFINISHED, TRANSITIONS
from dalsegno.store.schema import COUNTERS, events, items, jobs, leases, stages

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = Workflow(name="storm", steps=(Step(key="work", service=SERVICE, max_interruptions=1000),))
JOB = 50_000
"""Items of one job."""
T = TypeVar("T")

_NAMES = (f"{number:09}" for number in itertools.count(1))


class Crew:
    """Engines, started again where they were killed, as whoever looks after processes would."""

    def __init__(self, url: str, folder: Path, count: int = 1, *, keep: float | None = None) -> None:
        self.url, self.folder = url, folder
        self._words = [] if keep is None else ["--keep", str(keep)]
        self.journal = folder / "journal"
        self.journal.touch()
        self.members: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self.hire()

    def hire(self) -> None:
        words = [sys.executable, "-m", "bench.worker", self.url, str(self.journal), *self._words]
        with (self.folder / "engine.log").open("ab") as log:
            self.members.append(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=log))
        assert self.members[-1].stdout is not None
        if self.members[-1].stdout.readline() != b"ready\n":
            raise SystemExit(f"an engine did not start:\n{self.said()}")

    def kill(self) -> None:
        """kill -9 for all, and the same number anew."""
        gone, self.members = self.members, []
        for process in gone:
            process.kill()
        for process in gone:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        for _ in gone:
            self.hire()

    def stop(self) -> None:
        for process in self.members:
            process.send_signal(signal.SIGTERM)
        for process in self.members:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.members = []

    def said(self) -> str:
        return (self.folder / "engine.log").read_text(errors="replace")

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass
class Feeder:
    """Sees to it that there is always something to do; with a `rate`, so many items a second and no more."""

    store: Store
    rate: float | None = None
    given: int = 0
    least: int = 2 * JOB
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def give(self, count: int, size: int = JOB) -> None:
        """At least so many items, in whole jobs."""
        for _ in range(-(-count // size)):
            names = list(itertools.islice(_NAMES, size))
            keep_trying(partial(submit, self.store, WORKFLOW, items=names, dedupe=f"storm-{names[0]}"))
            self.given += size

    def start(self) -> None:
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _feed(self) -> None:
        if self.rate is not None:
            began, before = time.monotonic(), self.given
            while not self._over.wait(0.1):
                due = self.rate * (time.monotonic() - began) - (self.given - before)
                if due >= self.rate / 2:
                    with contextlib.suppress(DalSegnoError):
                        self.give(1, int(due))
            return
        left = sa.select(sa.func.coalesce(sa.func.sum(stages.c.ready), 0)).where(sa.text("stages.claimable"))
        while not self._over.wait(0.25):
            with contextlib.suppress(DalSegnoError):
                waiting = self.store.read(lambda tx: tx.conn.execute(left).scalar_one())
                queued = self.store.read(lambda tx: tx.conn.execute(_UNBEGUN).scalar_one())
                if waiting + queued * JOB < self.least:
                    self.give(JOB)


_UNBEGUN = sa.text("SELECT count(*) FROM jobs WHERE status = 'queued'")


class Meter:
    """How many items are done, looked at twice a second."""

    EVERY = 0.5

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self.seen: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self.EVERY):
            with contextlib.suppress(DalSegnoError, psycopg.Error):
                found = self._look()
                self.seen.append((time.monotonic(), found))

    @property
    def done(self) -> int:
        return self.seen[-1][1] if self.seen else 0

    def rates(self, start: float, end: float, width: float = 1.0) -> list[tuple[float, float]]:
        """Items a second over each `width` seconds, with the moment at which that ended."""
        found = []
        inside = [each for each in self.seen if start <= each[0] <= end]
        first = 0
        for number, (at, count) in enumerate(inside):
            while at - inside[first][0] > width + self.EVERY / 2:
                first += 1
            if number > first and at - inside[first][0] >= width - self.EVERY / 2:
                found.append((at, (count - inside[first][1]) / (at - inside[first][0])))
        return found

    def rate(self, start: float, end: float) -> float:
        """Of the whole stretch: what was done in it."""
        inside = [each for each in self.seen if start <= each[0] <= end]
        if len(inside) < 2:
            return 0.0
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])

    def usual(self, start: float, end: float) -> float:
        """The median second."""
        found = [rate for _, rate in self.rates(start, end)]
        return median(found) if found else 0.0


def keep_trying(work: Callable[[], T], seconds: float = 120) -> T:
    until = time.monotonic() + seconds
    while True:
        try:
            return work()
        except DalSegnoError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def await_drained(store: Store, seconds: float = 900) -> None:
    """Until every job has ended."""
    until = time.monotonic() + seconds
    query = sa.select(sa.func.count()).where(jobs.c.status.in_(sorted(JOB_UNFINISHED))).select_from(jobs)
    while left := keep_trying(lambda: store.read(lambda tx: tx.conn.execute(query).scalar())):
        if time.monotonic() > until:
            raise SystemExit(f"{left} jobs have not ended after {seconds:g} s")
        time.sleep(0.2)


# --- the books --------------------------------------------------------------------------------------

_STATUS = {
    "item_claimed": "claimed", "item_started": "running", "item_succeeded": "succeeded", "item_failed": "failed",
    "item_interrupted": "interrupted", "item_returned": "pending", "item_requeued": "pending",
}  # fmt: skip


def audit(store: Store, given: int, journal: Path) -> dict[str, Any]:
    """Whether anything was lost, done twice or told wrongly. Every problem is a line; none is what we want."""
    problems: list[str] = []

    def look(tx: Any) -> dict[str, Any]:
        by_status = dict(tx.conn.execute(sa.select(items.c.status, sa.func.count()).group_by(items.c.status)).all())
        if by_status != {"succeeded": given}:
            problems.append(f"{given} items were submitted, found {by_status}")
        counted = tx.row(sa.select(*(sa.func.sum(stages.c[name]).label(name) for name in COUNTERS)))
        said = {name: int(value) for name, value in counted.items() if value}
        if said != {name: count for name, count in by_status.items() if count}:
            problems.append(f"the stages count {said}")
        if left := tx.conn.execute(sa.select(sa.func.count()).select_from(leases)).scalar():
            problems.append(f"{left} leases are left")
        legal = {(move.source, move.target) for move in TRANSITIONS["item"]}
        for (before, after), count in _steps(tx).items():
            if (before, after) not in legal:
                problems.append(f"{count} steps from {before} to {after}")
        return dict(tx.conn.execute(sa.select(events.c.type, sa.func.count()).group_by(events.c.type)).all())

    told = store.read(look)
    if told.get("item_succeeded") != given:
        problems.append(f"{told.get('item_succeeded')} successes are told of {given} items")
    runs, again, late = _journal(store, journal)
    if late:
        problems.append(f"{late} runs began after their item had finished")
    if len(runs) != given:
        problems.append(f"{len(runs)} items ran, {given} were submitted")
    return {"items": given, "ran_again": again, "problems": problems}


def audit_ran(store: Store, given: int, journal: Path) -> dict[str, Any]:
    """Where what is done is forgotten, the journal is what is left: every item ran once, and nothing is left over."""
    problems: list[str] = []
    left = store.read(lambda tx: tx.conn.execute(_LEFT).scalar())
    if left:
        problems.append(f"{left} items are there that have not succeeded")
    ran, again = _ran(journal)
    if ran != given:
        problems.append(f"{ran} items ran, {given} were submitted")
    if again:
        problems.append(f"{again} runs were not the first of their item")
    return {"items": given, "problems": problems}


def _ran(journal: Path) -> tuple[int, int]:
    """How many items, and how many runs beyond their first. Tens of millions: a byte for each item."""
    seen, again = bytearray(), 0
    with journal.open("rb") as file:
        while chunk := file.read(LINE.size << 16):
            for number in array("q", chunk[: len(chunk) // LINE.size * LINE.size])[::2]:
                if number >= len(seen):
                    seen.extend(bytes(number - len(seen) + 1_000_000))
                again += seen[number]
                seen[number] = 1
    return sum(seen), again


_LEFT = sa.select(sa.func.count()).where(items.c.status != "succeeded").select_from(items)


def _steps(tx: Any) -> dict[tuple[str, str], int]:
    """From which status to which, by the events of every item, and how often."""
    status = sa.case(_STATUS, value=events.c.type)
    order = {"partition_by": events.c.item_id, "order_by": events.c.id}
    before = sa.func.coalesce(sa.func.lag(status).over(**order), "pending")
    steps = sa.select(before.label("b"), status.label("a")).where(events.c.type.in_(list(_STATUS))).subquery()
    found = tx.conn.execute(sa.select(steps.c.b, steps.c.a, sa.func.count()).group_by(steps.c.b, steps.c.a))
    return {(row[0], row[1]): row[2] for row in found}


def _journal(store: Store, journal: Path) -> tuple[dict[int, int], int, int]:
    """The last run of each item, how many ran more than once, how many runs began after the end of their item."""
    lines = array("q", journal.read_bytes()[: journal.stat().st_size // 16 * 16])
    runs: dict[int, int] = {}
    again: set[int] = set()
    for place in range(0, len(lines), 2):
        number, at = lines[place], lines[place + 1]
        if number in runs:
            again.add(number)
        runs[number] = max(at, runs.get(number, 0))
    late = 0
    ends = sa.select(items.c.id, items.c.finished_at).where(items.c.id.in_(sa.bindparam("some", expanding=True)))
    some = sorted(again)
    for start in range(0, len(some), 5000):
        part = some[start : start + 5000]
        for row in store.read(lambda tx, part=part: tx.rows(ends, {"some": part})):  # type: ignore[misc]
            late += runs[row["id"]] > row["finished_at"].timestamp() * 1e9
    return runs, len(again), late


@contextlib.contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()
