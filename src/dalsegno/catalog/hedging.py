"""When the next source may be asked early: how slow is usual, and how many early requests that leaves."""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

SAMPLES_MIN = 20
"""Durations known of a source before it can be called slow."""
SAMPLES_KEPT = 200
HEDGES = 0.05
"""Requests that may be made early, as a share of those made anyway."""
HEDGES_SAVED = 5.0
SOONEST = 0.5
"""Seconds every source is given: where milliseconds are usual, a few more are no reason to trouble another."""
HELPERS = 32
"""Threads at most; while all are busy, calls are made in the caller's and nobody is asked early."""


class Latencies:
    """How long each source took lately, and how many early requests that still allows. Shared by all resolvers."""

    def __init__(self, kept: int = SAMPLES_KEPT, share: float = HEDGES) -> None:
        self._kept = kept
        self._share = share
        self._allowance = 1.0
        self._lately: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._lately.setdefault(name, deque(maxlen=self._kept)).append(seconds)

    def p95(self, name: str) -> float | None:
        """What one call in twenty takes longer than; None: too little is known."""
        with self._lock:
            lately = sorted(self._lately.get(name, ()))
        if len(lately) < SAMPLES_MIN:
            return None
        # Of n + 1, not n: the next call is one more, and 20 known ones must not make it slow with a chance of 2 in 21.
        return lately[min(math.ceil(0.95 * (len(lately) + 1)), len(lately)) - 1]

    def asked(self) -> None:
        """A request was made that had to be made anyway."""
        with self._lock:
            self._allowance = min(self._allowance + self._share, HEDGES_SAVED)

    def hedge(self, start: Callable[[], bool]) -> bool:
        """Make an early request, if there is one left and it can start."""
        with self._lock:
            if self._allowance < 1.0 or not start():
                return False
            self._allowance -= 1.0
            return True


class Pace:
    """Time and threads, in one place so that tests can do without both."""

    def __init__(self, helpers: int = HELPERS) -> None:
        self._free = threading.BoundedSemaphore(helpers)

    def now(self) -> float:
        return time.monotonic()

    def start(self, call: Callable[[], None]) -> bool:
        """In a thread that sees what the caller's context holds, and that no end of the process waits for."""
        if not self._free.acquire(blocking=False):
            return False
        context = contextvars.copy_context()

        def run() -> None:
            try:
                context.run(call)
            finally:
                self._free.release()

        try:
            threading.Thread(target=run, name="dalsegno-resolve", daemon=True).start()
        except RuntimeError:
            self._free.release()
            return False
        return True

    def wait(self, inbox: SimpleQueue[None], seconds: float) -> None:
        try:
            inbox.get(timeout=seconds)
        except Empty:
            return
