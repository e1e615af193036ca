"""One read for all who ask in the same moment: ten open dashboards are told of a change at once, and fetch the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dalsegno.web.live import Live

T = TypeVar("T")

LONGEST = 1.0
"""Seconds that an answer is given again at most."""
KEPT = 32


@dataclass(slots=True)
class _Moment:
    reading: threading.Lock = field(default_factory=threading.Lock)
    told: int = -1
    at: float = 0.0
    value: Any = None


class Moments:
    """Keeps what was read until the stream tells of the next change, and never for long."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._kept: dict[Hashable, _Moment] = {}
        self._lock = threading.Lock()

    def share(self, key: Hashable, read: Callable[[], T]) -> T:
        """For what a page fetches because it was told to. What it shows first, and after an action, is read anew."""
        told = self._live.told
        if told is None:
            return read()  # nobody looks at the log, so nobody would know that it has changed
        with self._lock:
            moment = self._kept.pop(key, None) or _Moment()
            self._kept[key] = moment
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        with moment.reading:  # whoever comes second waits for the first, and has the same
            if moment.told != told or time.monotonic() - moment.at > LONGEST:
                moment.value, moment.told, moment.at = read(), told, time.monotonic()
            found: T = moment.value
            return found
