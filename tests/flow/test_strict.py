"""Permits granted never exceed a limit, not by one: under races, kills and clocks that are set, on both databases."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from dalsegno import Limit, Store
from dalsegno.engine.limits import Pulse, set_limit
from dalsegno.engine.rescuer import rescue_all
from dalsegno.store.schema import permits, processes
from tests.flow.taker import SetClock, Taker, set_by
from tests.helpers import every, register

SECONDS = 6.0
NAMES = ["service:metadata", "source:qq"]
LIMITS = {"service:metadata": Limit(concurrent=3), "source:qq": Limit(rate=25, window=0.5)}


class Call(NamedTuple):
    name: str
    number: int
    begun: float
    true: float
    ended: float


def calls_in(log: Path, killed: dict[int, float]) -> list[Call]:
    """What the takers say they did. A call of a killed process ended with it."""
    took: dict[tuple[str, int], tuple[float, float, int]] = {}
    gave: dict[tuple[str, int], float] = {}
    for line in log.read_text().splitlines():
        verb, name, number, moment, *rest = line.split()
        if verb == "took":
            key = (name, int(number))
            assert key not in took, f"permit {key} was granted twice"
            took[key] = (float(moment), float(rest[0]), int(rest[1]))
        else:
            gave[name, int(number)] = float(moment)
    return [
        Call(name, number, begun, true, gave.get((name, number), killed.get(pid, begun)))
        for (name, number), (begun, true, pid) in took.items()
    ]


def most_at_once(calls: list[Call]) -> int:
    edges = sorted([(call.begun, 1) for call in calls] + [(call.ended, -1) for call in calls])
    live = most = 0
    for _, step in edges:
        live += step
        most = max(most, live)
    return most


def assert_strict(calls: list[Call]) -> None:
    for name, limit in LIMITS.items():
        mine = sorted(call for call in calls if call.name == name)
        assert len(mine) > 50, f"{name}: only {len(mine)} calls, which proves nothing"
        if limit.concurrent is not None:
            assert most_at_once(mine) <= limit.concurrent  # type: ignore[operator]
        if limit.rate is not None:
            at = {call.number: call.true for call in mine}
            assert isinstance(limit.rate, int)
            gaps = [at[number + limit.rate] - at[number] for number in at if number + limit.rate in at]
            assert len(gaps) > 50
            # By the one clock that nobody can set; less the rounding to microseconds.
            assert min(gaps) >= limit.window - 2e-6, f"{limit.rate + 1} permits within {min(gaps):.6f} s"


def prepare(store: Store) -> None:
    store.write("test", lambda tx: [set_limit(tx, name, limit, "test") for name, limit in LIMITS.items()])


@pytest.fixture
def offset(tmp_path: Path) -> Path:
    file = tmp_path / "offset"
    set_by(file, 0.0)
    return file


def keep_setting(file: Path, stop: threading.Event, seed: int) -> None:
    """Somebody sets the clock, back and forth, by milliseconds and by hours."""
    rng = random.Random(seed)
    while not stop.wait(rng.random() * 0.3):
        set_by(file, rng.choice([0.01, 0.4, 2.0, 60.0, 3600.0, 86_400.0]) * rng.uniform(-1, 1))


@pytest.fixture
def unsteady(offset: Path) -> Iterator[Path]:
    stop = threading.Event()
    thread = threading.Thread(target=keep_setting, args=(offset, stop, 7))
    thread.start()
    yield offset
    stop.set()
    thread.join()


def run_threads(store: Store, clock: SetClock, log: Path, count: int = 6) -> list[Call]:
    process_id = register(store, 3600.0)
    pulse = Pulse(clock)
    takers = [Taker(store, process_id, NAMES, log, seed, pulse) for seed in range(count)]
    threads = [threading.Thread(target=taker.run, args=(SECONDS,)) for taker in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return calls_in(log, {})


def test_threads_on_sqlite(sqlite_url: str, stores: Callable[..., Store], offset: Path, tmp_path: Path) -> None:
    clock = SetClock(offset)
    store = stores(sqlite_url, clock=clock)
    prepare(store)
    calls = run_threads(store, clock, tmp_path / "log")
    assert_strict(calls)
    assert not every(store, sa.select(permits).where(permits.c.released.is_(False)))


def test_threads_on_sqlite_while_the_clock_is_set(
    sqlite_url: str, stores: Callable[..., Store], unsteady: Path, tmp_path: Path
) -> None:
    clock = SetClock(unsteady)
    store = stores(sqlite_url, clock=clock)
    prepare(store)
    assert_strict(run_threads(store, clock, tmp_path / "log"))


class Crowd:
    """Processes that take permits from one PostgreSQL, and are killed."""

    def __init__(self, store: Store, url: str, offset: Path, log: Path) -> None:
        self._store, self._url, self._offset, self._log = store, url, offset, log
        self.killed: dict[int, float] = {}
        self._seed = 0
        self._running: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(self, seconds: float) -> None:
        self._seed += 1
        row = register(self._store, 3600.0)
        command = [sys.executable, "-m", "tests.flow.taker", self._url, str(row), ",".join(NAMES), str(self._log),
                   str(self._offset), str(seconds), str(self._seed)]  # fmt: skip
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
        self._running.append((process, row))

    def kill_one(self) -> None:
        """kill -9; then the database is told, as the rescuer does for a dead process."""
        process, row = self._running.pop(0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.killed[process.pid] = time.monotonic()
        self._store.write("test", lambda tx: tx.conn.execute(sa.delete(processes).where(processes.c.id == row)))
        rescue_all(self._store, 0)

    def join(self) -> None:
        for process, _ in self._running:
            assert process.wait(timeout=60) == 0

    def end(self) -> None:
        for process, _ in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def crowds(stores: Callable[..., Store], tmp_path: Path) -> Iterator[Callable[[str, Path], Crowd]]:
    made: list[Crowd] = []

    def make(url: str, offset: Path) -> Crowd:
        store = stores(url)
        prepare(store)
        made.append(Crowd(store, url, offset, tmp_path / "log"))
        return made[-1]

    yield make
    for crowd in made:
        crowd.end()


def test_processes_on_postgresql(postgres_url: str, crowds: Callable[..., Crowd], offset: Path, tmp_path: Path) -> None:
    crowd = crowds(postgres_url, offset)
    for _ in range(4):
        crowd.start(SECONDS)
    crowd.join()
    assert_strict(calls_in(tmp_path / "log", {}))


def test_processes_on_postgresql_that_are_killed_while_clocks_are_set(
    postgres_url: str, crowds: Callable[..., Crowd], unsteady: Path, tmp_path: Path
) -> None:
    crowd = crowds(postgres_url, unsteady)
    for _ in range(4):
        crowd.start(60.0)
    log = tmp_path / "log"
    for number in range(6):
        size = log.stat().st_size if log.exists() else 0
        deadline = time.monotonic() + 30
        while not log.exists() or log.stat().st_size < size + 4000:
            assert time.monotonic() < deadline, "nobody gets a permit any more"
            time.sleep(0.01)
        crowd.kill_one()
        if number < 3:
            crowd.start(SECONDS)
    while crowd._running:
        crowd.kill_one()
    assert_strict(calls_in(log, crowd.killed))
