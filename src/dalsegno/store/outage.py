"""Whether the database does what it is asked: an outage has a reason, a beginning and an end."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime

from dalsegno.clock import Clock
from dalsegno.errors import DalSegnoError, DatabaseFull, DatabaseReadOnly, DatabaseUnavailable

logger = logging.getLogger("dalsegno.store")

OUTAGES = (DatabaseUnavailable, DatabaseFull, DatabaseReadOnly)
LINGERS = 10.0
"""Seconds for which a full disk counts as full although something small was written to it in between."""


@dataclass(frozen=True, slots=True)
class Outage:
    code: str
    """Of the error: `database_unavailable`, `database_full`, `database_read_only`."""
    says: str
    since: datetime


class Outages:
    """What became of the last transactions. It is said once when it begins, and once when it is over."""

    def __init__(self, clock: Clock) -> None:
        self.now: Outage | None = None
        self.ended: float | None = None
        """When the last one was over, on the monotonic clock."""
        self._clock = clock
        self._lock = threading.Lock()
        self._began = self._seen = 0.0
        self._failing: set[str] = set()
        self.was_there = False
        """A database that has not been opened yet is nobody's to wait for: whoever opens it is told so."""

    def failed(self, error: BaseException, name: str = "") -> None:
        """A transaction of this name did not get through. Errors that are no outage say nothing."""
        if not isinstance(error, OUTAGES):
            return
        with self._lock:
            self._seen = time.monotonic()
            self._failing.add(name)
            if self.now is not None and self.now.code == error.code:
                return
            if self.now is None:
                self._began = self._seen
            self.now = Outage(error.code, _first_line(error), self._clock.now())
        if self.was_there:
            logger.warning("everything waits: %s", self.now.says)

    def worked(self, name: str = "", *, wrote: bool = True) -> bool:
        """A transaction got through; True: that was the end of an outage.

        A read says nothing about whether a database can be written, nor does one small write about a full disk.
        """
        with self._lock:
            if self.now is None:
                return False
            self._failing.discard(name)
            if self.now.code != DatabaseUnavailable.code:
                lately = time.monotonic() - self._seen < LINGERS
                if not wrote or (lately and self._failing):
                    return False
            self.now, self.ended = None, time.monotonic()
            self._failing.clear()
            took = self.ended - self._began
        logger.warning("the database is back after %.1f s; everything goes on", took)
        return True


def _first_line(error: DalSegnoError) -> str:
    return str(error).partition("\n")[0]
