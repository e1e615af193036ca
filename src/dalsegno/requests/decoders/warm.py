"""Warm processes: started when there is work, kept for more, one question at a time each.

A decoder's first question is its slow one (a browser has to start, a host has to be met), so a process that has just
dealt with a host is given the next link of that host; one that died is started again when it is next needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dalsegno.model.signal import ProviderError
from dalsegno.sources.child import Child


@dataclass(slots=True)
class _Seat:
    child: Child
    host: str = ""


class Warm:
    def __init__(self, start: Callable[[], Child], most: int) -> None:
        """At most so many processes, whatever the number of hosts."""
        self._start = start
        self._most = most
        self._idle: list[_Seat] = []
        self._all: list[Child] = []
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def take(self, host: str) -> Iterator[Child]:
        """A process of one's own for the length of the block; waits while all are busy."""
        seat = self._seat(host)
        try:
            yield seat.child
        finally:
            with self._changed:
                self._idle.append(seat)
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            every, self._all = self._all, []
            self._changed.notify_all()
        for child in every:
            child.close()

    def _seat(self, host: str) -> _Seat:
        with self._changed:
            while True:
                if self._closed:
                    raise ProviderError(message="The decoders of this process are closed.")
                known = next((seat for seat in self._idle if seat.host == host), None)
                if known is not None:
                    self._idle.remove(known)
                    return known
                if len(self._all) < self._most:
                    child = self._start()
                    self._all.append(child)
                    return _Seat(child, host)
                if self._idle:
                    seat = self._idle.pop(0)  # of whom nobody has asked anything for the longest time
                    seat.host = host
                    return seat
                self._changed.wait()
