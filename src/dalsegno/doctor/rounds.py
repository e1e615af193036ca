"""Looks for the console: nobody waits for one, everybody gets the last and how old it is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dalsegno.doctor.examination import BACK, LIMIT, Looked, examine
from dalsegno.doctor.subjects import subjects
from dalsegno.insight.health.finding import Finding, Severity, in_order, worst_of

if TYPE_CHECKING:
    from dalsegno.config.current import Current
    from dalsegno.store.store import Store

logger = logging.getLogger("dalsegno.doctor")

OFTEN = 5.0
"""Seconds for which a look at the database is good to whoever asks about it."""
UNASKED = 30.0
"""The same where nobody does: a dashboard is open, and should be told of what goes wrong."""
SELDOM = 60.0
"""The same for disks and stores."""
SHARE = 25.0
"""How many times as long as it took a look is good for, at least; but not for ever."""
MOST = 6.0
PATIENCE = 2.0
"""Seconds that the first who asks waits for the first look."""


@dataclass(frozen=True, slots=True)
class Health:
    worst: Severity
    findings: list[Finding]
    """Worst first."""
    looked_at: datetime | None
    """When the database was last looked at. None: it is being looked at for the first time."""
    files_looked_at: datetime | None
    """The same for disks, files and stores."""
    looks: list[Looked]
    """What each subject took."""


@dataclass(slots=True)
class _Half:
    """What is looked at often, or seldom."""

    every: float
    findings: Sequence[Finding] = ()
    looked: Sequence[Looked] = ()
    at: datetime | None = None
    good_until: float = 0.0
    looking: threading.Event | None = None


class Rounds:
    def __init__(self, store: Store, current: Current) -> None:
        self._store = store
        self._current = current
        self._lock = threading.Lock()
        self._near, self._far = _Half(OFTEN), _Half(SELDOM)
        self._closed = False

    def close(self) -> None:
        """No more looks; the one that is under way is waited for, since it reads from a store that is closed next."""
        with self._lock:
            self._closed = True
            looking = [half.looking for half in (self._near, self._far)]
        for each in looking:
            if each is not None:
                each.wait(LIMIT + 2 * BACK)

    def health(self, patience: float = PATIENCE, *, asked: bool = True) -> Health:
        rest = 0.0 if asked else UNASKED - OFTEN
        waits = [self._start(half, rest, dear=half is self._far) for half in (self._near, self._far)]
        if self._near.at is None and waits[0] is not None:
            waits[0].wait(patience)
        near, far = self._near, self._far
        findings = in_order([*near.findings, *far.findings])
        return Health(worst_of(findings), findings, near.at, far.at, [*near.looked, *far.looked])

    def known(self) -> Sequence[Finding]:
        """What was found so far, without waiting; a new look begins where it is time for one."""
        return self.health(0.0, asked=False).findings

    def mark(self) -> tuple[tuple[str, str, str], ...]:
        """Changes when what is wrong does."""
        return tuple((each.code, each.subject, each.severity) for each in self.known())

    def _start(self, half: _Half, rest: float, *, dear: bool) -> threading.Event | None:
        with self._lock:
            good_until = half.good_until + rest if half.at else half.good_until
            if not self._closed and half.looking is None and time.monotonic() >= good_until:
                half.looking = threading.Event()
                args = (half, half.looking, dear)
                threading.Thread(target=self._look, args=args, name="dalsegno-rounds", daemon=True).start()
            return half.looking

    def _look(self, half: _Half, done: threading.Event, dear: bool) -> None:
        began = time.monotonic()
        try:
            settings = self._current.settings
            asked = subjects(self._store, settings, self._current.file, self._current.problem)
            findings, looked = examine([each for each in asked if each.dear == dear])
            half.findings, half.looked, half.at = findings, looked, self._store.clock.now()
        except Exception:
            logger.debug("a look at the system failed", exc_info=True)
        finally:
            with self._lock:
                took = time.monotonic() - began
                half.good_until = time.monotonic() + max(half.every, min(SHARE * took, MOST * half.every))
                half.looking = None
            done.set()
