"""What a job waits for that its bars do not show: breakers that stop a source or a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dalsegno.cli.flow import waiting

if TYPE_CHECKING:
    from datetime import datetime

    from dalsegno.cli.desk import Desk
    from dalsegno.store.store import Store

LOOK_EVERY = 2.0


class Stops:
    """Each is said once, and again when it has stopped calls anew."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store
        self._said: set[tuple[str, datetime | None]] = set()
        self._next = 0.0

    def look(self, now: float) -> None:
        from dalsegno.engine.breakers import OPEN
        from dalsegno.insight.flow import list_breakers

        if now < self._next:
            return
        self._next = now + LOOK_EVERY
        for line in self._store.read(list_breakers):
            breaker, who = line.breaker, waiting(line.line, words=True)
            stop = breaker.name, breaker.tripped_at
            if breaker.state != OPEN or not who or stop in self._said:
                continue
            self._said.add(stop)
            why = f": {breaker.reason.rstrip('.')}" if breaker.reason else ""
            self._desk.say(f"Breaker {breaker.name} is open ({who}){why}. It opens {line.opens}")
