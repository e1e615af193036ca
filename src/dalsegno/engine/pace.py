"""How long a phase takes, as it was measured."""

from __future__ import annotations

WEIGHT = 0.05
"""Of a new duration in the mean, once there are many."""


class Pace:
    """How long a phase takes: the mean of what it finished, and no less than the mean age of what it still does."""

    def __init__(self) -> None:
        self._mean = 0.0
        self._count = 0
        self._running = 0
        self._begins = 0.0

    def begin(self, now: float) -> None:
        self._running += 1
        self._begins += now

    def end(self, began: float, now: float | None) -> None:
        """Without `now` it says nothing about how long the work takes: it failed, or was left behind."""
        self._running -= 1
        self._begins = self._begins - began if self._running else 0.0
        if now is not None:
            self._count += 1
            self._mean += max(1 / self._count, WEIGHT) * (max(now - began, 1e-6) - self._mean)

    def seconds(self, now: float) -> float:
        """0 until one was measured."""
        if not self._count:
            return 0.0
        return max(self._mean, self.age(now))

    def age(self, now: float) -> float:
        return now - self._begins / self._running if self._running else 0.0
