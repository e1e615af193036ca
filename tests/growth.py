"""How the work of a function grows with what it is given, whatever the machine and whoever else is on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def growth(work: Callable[[int], Any], size: int, times: int = 8) -> float:
    """By how much more processor time `times` the size takes: `times` where work is linear, its square where it is
    quadratic. A size so small that an explosion ends comes first."""
    first = _least(work, 10), _least(work, 20)
    if first[1] > 40 * first[0]:
        return first[1] / first[0]
    return _least(work, size * times) / _least(work, size)


def _least(work: Callable[[int], Any], size: int) -> float:
    spent = []
    for _ in range(5):
        begun = time.thread_time_ns()
        work(size)
        spent.append(time.thread_time_ns() - begun)
    return max(min(spent), 1000)
