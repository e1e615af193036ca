"""The slowest transactions of this process: a file keeps no statistics of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LEAST = 0.1
"""Seconds below which nothing is remembered."""
NAMES = 50


@dataclass(slots=True)
class Slow:
    name: str
    """A write's own name; of a read, the function that asked."""
    times: int
    seconds: float
    """All of them together."""


class Slowest:
    """What took long, by name. What is quick costs a look at the clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Slow] = {}

    def note(self, what: str | Callable[..., Any], began: float) -> None:
        seconds = time.perf_counter() - began
        if seconds < LEAST:
            return
        name = what if isinstance(what, str) else name_of(what)
        with self._lock:
            known = self._known.get(name)
            if known is None:
                if len(self._known) >= NAMES:
                    del self._known[min(self._known.values(), key=lambda each: each.seconds).name]
                known = self._known[name] = Slow(name, 0, 0.0)
            known.times += 1
            known.seconds += seconds

    def worst(self, most: int) -> list[Slow]:
        """By what one of them takes."""
        with self._lock:
            some = [Slow(each.name, each.times, each.seconds) for each in self._known.values()]
        return sorted(some, key=lambda each: -each.seconds / each.times)[:most]


def name_of(work: Callable[..., Any]) -> str:
    """`web.api.jobs.jobs`: where a function was made."""
    place = f"{getattr(work, '__module__', '')}.{getattr(work, '__qualname__', type(work).__name__)}"
    return place.removeprefix("dalsegno.").partition(".<locals>")[0]
