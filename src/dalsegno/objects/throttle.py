"""How fast all uploads of a process may go together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GLANCE = 0.25
"""Seconds between two looks at whether a waiting upload was cancelled."""


class Throttle:
    """A bandwidth cap that threads share: first come, first served.

    Each `take` books the next stretch of time on the line, so nobody can overtake and no one spins. Bytes may go out
    `burst` seconds before their stretch ends: in any t seconds no more than (t + burst) × rate are let through.
    """

    def __init__(
        self,
        rate: float,
        *,
        burst: float = 0.25,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Condition, float], object] = lambda condition, seconds: condition.wait(seconds),
    ) -> None:
        """`rate` is in bytes per second; 0 is no limit. `now` and `wait` are a test's to replace."""
        self._changed = threading.Condition()
        self._rate, self._burst, self._now, self._wait = float(rate), burst, now, wait
        self._free_at = now()
        self._epoch = 0

    @property
    def rate(self) -> float:
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        """Those who wait book again at the new rate."""
        with self._changed:
            self._rate, self._free_at, self._epoch = float(rate), self._now(), self._epoch + 1
            self._changed.notify_all()

    def take(self, count: int, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Wait until `count` bytes may be sent; False when cancelled meanwhile."""
        with self._changed:
            epoch, start = self._book(count)
            while not cancelled():
                if epoch != self._epoch:
                    epoch, start = self._book(count)
                left = start - self._now()
                if left <= 0:
                    return True
                self._wait(self._changed, min(left, GLANCE))
            return False

    def wake(self) -> None:
        """Let all who wait look at once whether they were cancelled."""
        with self._changed:
            self._changed.notify_all()

    def _book(self, count: int) -> tuple[int, float]:
        now = self._now()
        if self._rate <= 0:
            return self._epoch, now
        self._free_at = max(self._free_at, now) + count / self._rate
        return self._epoch, self._free_at - self._burst
