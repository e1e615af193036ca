"""One lifecycle for every loop: tick, wait for a wake or the interval, survive a database that is away."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from random import Random

from dalsegno.errors import DalSegnoError
from dalsegno.store.outage import OUTAGES

logger = logging.getLogger("dalsegno.engine")

_CHANCE = Random()
LONGEST_WAIT = 5.0


class Looper(ABC):
    """A thread that calls `tick` until it is stopped."""

    name: str
    interval: float
    """Seconds between ticks when nobody calls `wake`."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures = 0
        self.error = ""
        """What the last of them said."""
        self.ticked_at: float | None = None
        """When it last came round, in seconds since 1970."""
        self.rests = 0.0
        """Seconds that it waits at most between two rounds, as it last said."""
        self._began: float | None = None

    @abstractmethod
    def tick(self) -> float | None:
        """Do what is due; return the seconds to wait if other than the interval (0: go on at once)."""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"dalsegno-{self.name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout: float | None = None) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def ago(self) -> float | None:
        """Seconds since it last came round, whatever the clocks did meanwhile."""
        return None if self._began is None else time.monotonic() - self._began

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self.rests = wait = self._tick_safely()
            if wait > 0:
                self._wake.wait(wait)

    def _tick_safely(self) -> float:
        self.ticked_at, self._began = time.time(), time.monotonic()
        try:
            wait = self.tick()
        except DalSegnoError as error:
            # Said once, not once per try; of an outage the store tells for all loops.
            if self.failures == 0 and not isinstance(error, OUTAGES):
                logger.warning("%s waits: %s", self.name, error)
            return self._back_off(error)
        except Exception as error:
            logger.exception("%s failed; it tries again", self.name)
            return self._back_off(error)
        if self.failures:
            logger.debug("%s goes on after %d failed tries", self.name, self.failures)
            self.failures, self.error = 0, ""
        return self.interval if wait is None else wait

    def _back_off(self, error: Exception) -> float:
        self.failures += 1
        self.error = f"{type(error).__name__}: {error}"[:300]
        longest: float = min(LONGEST_WAIT, 0.05 * 2 ** min(self.failures, 10))
        return _CHANCE.uniform(0.5, 1.0) * longest  # or all loops of all processes would come back at one moment
