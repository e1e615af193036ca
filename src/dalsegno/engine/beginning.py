"""Who has begun, written down: by one worker for all who wait for it in line."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from dalsegno.engine.item import Item

if TYPE_CHECKING:
    from dalsegno.store.store import Store


class Beginning:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.lock = threading.Lock()
        self._line: deque[Item] = deque()
        """Items whose workers wait until it is written that they have begun."""

    def begin(self, call: Sequence[Item], soon: Callable[[], list[Item]] = list) -> bool:
        """Write down that these have begun, before their handler runs. False: all of them had lost their lease.

        After a crash there are thousands, each with a commit to wait for: one worker writes for all who wait in line,
        and for what will run `soon`.
        """
        self._line.extend(call)
        with self.lock:
            if not all(item.begun for item in call):
                others = [self._line.popleft() for _ in range(len(self._line))]
                self._write(dict.fromkeys([*call, *others, *soon()]))
        return not all(item.lost for item in call)

    def note(self, some: list[Item]) -> None:
        with self.lock:  # a worker that enters a phase and the loop may want to begin the same item
            self._write(some)

    def _write(self, some: Iterable[Item]) -> None:
        """Of those that still wait, nobody knows yet which worker will take them."""
        now = self._store.clock.now()
        fresh = [item for item in some if not item.begun]
        rows = [(item.id, item.claimed.lease, item.started_at or now, item.worker or None) for item in fresh]
        accepted = self._store.write("begin", lambda tx: tx.hot.begin(tx, rows)) if rows else set()
        for item in fresh:
            item.begun = True
            if item.id not in accepted and not item.settled:
                item.lost = item.cancelled = True
