"""Turns: what has the same content is worked on one after the other, so that the second finds what the first made."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Turns:
    """Within one process."""

    def __init__(self) -> None:
        self._taken: set[Hashable] = set()
        self._free = threading.Condition()

    @contextmanager
    def alone_with(self, what: Hashable) -> Iterator[bool]:
        """Yields whether somebody else had to be waited for."""
        waited = False
        with self._free:
            while what in self._taken:
                waited = True
                self._free.wait()
            self._taken.add(what)
        try:
            yield waited
        finally:
            with self._free:
                self._taken.discard(what)
                self._free.notify_all()
