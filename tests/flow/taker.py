"""Somebody who takes permits and gives them back, as fast as the limits let it, and keeps a log of its own.

Run as a program it is one process among several; `Taker` is the same for threads. Clocks can be set while it runs: the
difference to the true time is the first eight bytes of a file that all takers share.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dalsegno import Store, open_store
from dalsegno.clock import SystemClock
from dalsegno.engine.limits import Denied, Pulse, give_back, take
from dalsegno.store import hot_postgres
from dalsegno.store.store import Tx

true_time = threading.local()


class SetClock(SystemClock):
    """A wall clock that somebody keeps setting. The monotonic one cannot be set."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def off(self) -> timedelta:
        return timedelta(seconds=struct.unpack("d", self._file.read_bytes())[0])

    def now(self) -> datetime:
        return datetime.now(UTC) + self.off()

    def monotonic(self) -> float:
        true_time.value = time.monotonic()
        return true_time.value


def set_by(file: Path, seconds: float) -> None:
    spare = file.with_suffix(".new")
    spare.write_bytes(struct.pack("d", seconds))
    spare.replace(file)


def set_the_server_too(clock: SetClock) -> None:
    """The server's clock, as this process sees it."""
    asked = hot_postgres.PostgresHot.database_now

    def database_now(self: hot_postgres.PostgresHot, tx: Tx) -> datetime:
        return asked(self, tx) + clock.off()

    hot_postgres.PostgresHot.database_now = database_now  # type: ignore[method-assign]


class Taker:
    def __init__(self, store: Store, process_id: int, names: list[str], log: Path, seed: int, pulse: Pulse) -> None:
        self._store = store
        self._process_id = process_id
        self._names = names
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._random = random.Random(seed)
        self._pulse = pulse

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.once()

    def once(self) -> None:
        def work(tx: Tx) -> tuple[object, float]:
            return take(tx, self._pulse, self._names, self._process_id), true_time.value

        taken, true = self._store.write("permit", work)
        if isinstance(taken, Denied):
            time.sleep(min(0.05, taken.delay) if taken.delay is not None else 0.002)
            return
        begun = time.monotonic()
        for permit in taken:  # type: ignore[attr-defined]
            self._say(f"took {permit.name} {permit.number} {begun} {true} {os.getpid()}")
        if self._random.random() < 0.5:
            time.sleep(self._random.random() * 0.01)
        ended = time.monotonic()
        for permit in taken:  # type: ignore[attr-defined]
            self._say(f"gave {permit.name} {permit.number} {ended}")
        self._store.write("return", lambda tx: give_back(tx, taken))  # type: ignore[arg-type]

    def _say(self, line: str) -> None:
        os.write(self._log, f"{line}\n".encode())


def main(url: str, process_id: str, names: str, log: str, offset: str, seconds: str, seed: str) -> None:
    clock = SetClock(Path(offset))
    set_the_server_too(clock)
    store = open_store(url, clock=clock)
    Taker(store, int(process_id), names.split(","), Path(log), int(seed), Pulse(clock)).run(float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
