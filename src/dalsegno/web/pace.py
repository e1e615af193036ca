"""When a topic is told: at once, or with others of its kind a little later."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.insight.events import Cursor

SOFT = {"playlists": 5.0, "logs": 1.0}
"""Seconds between two tellings of what changes with every item; 2 where nothing is said."""
USUAL = 2.0
REMEMBERED = 1000


class Pace:
    def __init__(self) -> None:
        self._due: dict[str, tuple[float, Cursor]] = {}
        """Soft topics that have changed and were not told yet: when they are due, and since where in the log."""
        self._told: dict[str, float] = {}

    def ready(self, hard: Iterable[str], soft: Iterable[str], since: Cursor, now: float) -> list[str]:
        """What is to be told now, of what has changed after `since`."""
        for topic in soft:
            rest = SOFT.get(topic, USUAL)
            self._due.setdefault(topic, (self._told.get(topic, now - rest) + rest, since))
        found = sorted({*hard, *(topic for topic, (due, _) in self._due.items() if due <= now)})
        for topic in found:
            self._due.pop(topic, None)
            self._told[topic] = now
        if len(self._told) > REMEMBERED:
            self._told = {topic: at for topic, at in self._told.items() if now - at < 10}
        return found

    def complete(self, upto: Cursor) -> Cursor:
        """Up to where everything was told: who comes back from there has missed nothing that is still held back."""
        return min((since for _, since in self._due.values()), default=upto)
