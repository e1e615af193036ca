"""The crowd: how many workers may be at work before they only stand in each other's way.

Python runs one thread at a time. Workers that wait for the network leave it to others; workers that hardly wait pass it
to and fro, and twenty thousand changes of hands a second cost more than the work. That shows in the process's
context switches, whatever the work is, and fewer workers then do more.
"""

from __future__ import annotations

import math
import resource
import time

LOOK = 0.1
"""Seconds between two looks."""
STORM = 4_000
"""Changes of hands a second that are too many, while a processor is busy all the time."""
CALM = 700
BUSY = 0.8
"""Of one processor."""
IDLE = 0.5
"""Then the workers wait for others, not for each other, and all come back at once."""
MANY = 64


class Crowd:
    def __init__(self) -> None:
        self.limit = math.inf
        """Workers at once, in each pool."""
        self._at = 0.0
        self._switches = 0
        self._busy = 0.0

    def look(self, working: int) -> bool:
        """`working` are at it now, in the largest pool. As often as you like; True: more may work than before."""
        now = time.monotonic()
        if (lapse := now - self._at) < LOOK:
            return False
        before = self.limit
        used = resource.getrusage(resource.RUSAGE_SELF)
        busy = used.ru_utime + used.ru_stime
        self.judge(working, (used.ru_nvcsw - self._switches) / lapse, (busy - self._busy) / lapse)
        self._at, self._switches, self._busy = now, used.ru_nvcsw, busy
        return self.limit > before

    def judge(self, working: int, switches: float, busy: float) -> None:
        if switches > STORM and busy > BUSY:
            self.limit = max(1, min(self.limit, working) // 2)
        elif self.limit < math.inf and (busy < IDLE or switches < CALM):
            more = self.limit * 2 if busy < IDLE else self.limit + 1
            self.limit = more if more < MANY else math.inf
