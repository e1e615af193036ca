"""One open stream: what it wants, what it has not sent yet, and what becomes of it when that is too much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dalsegno.insight.events import Cursor
from dalsegno.insight.pulse import written

KEPT = 1000
"""Messages a subscriber may be behind."""
ALWAYS = frozenset({"stale", "fresh", "beat"})
"""Messages that are kept also where everything else is forgotten."""


def message(name: str, data: dict[str, Any], cursor: Cursor | None = None, *, more: str = "") -> bytes:
    """One message as it goes over the wire. JSON has no line breaks of its own."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    place = "" if cursor is None else f"id: {written(cursor)}\n"
    return f"{more}event: {name}\n{place}data: {text}\n\n".encode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class Subscriber:
    topics: frozenset[str] | None
    """None: all, except those of single items."""
    full: bool = False
    """It gets the events themselves."""
    after: Cursor | None = None
    """Events up to here it has had; None: that is not known, and it is told what comes from now on."""
    ended: bool = False
    _waiting: dict[str, bytes] = field(default_factory=dict)
    _lost: str | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, topic: str) -> bool:
        return not topic.startswith("item:") if self.topics is None else topic in self.topics

    def concerned(self, topics: Iterable[str]) -> bool:
        """Whether an event that changes these is one of its own."""
        return self.topics is None or not self.topics.isdisjoint(topics)

    def items(self) -> set[int]:
        return {int(name[5:]) for name in self.topics or () if name.startswith("item:")}

    def offer(self, key: str, text: bytes) -> None:
        """A later message with the same `key` makes this one needless."""
        if self._lost is not None and key not in ALWAYS:
            return  # it is about to say that everything may have changed
        self._waiting.pop(key, None)
        self._waiting[key] = text
        if len(self._waiting) > KEPT:
            self.lose("overflow")
        self._wake.set()

    def lose(self, reason: str) -> None:
        """Whatever was waiting is forgotten: one message says so."""
        self._waiting = {key: text for key, text in self._waiting.items() if key in ALWAYS}
        self._lost = reason
        self._wake.set()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def next(self) -> tuple[str | None, bytes]:
        """Why some were lost, if they were, and what there is to send."""
        await self._wake.wait()
        self._wake.clear()
        lost, text = self._lost, b"".join(self._waiting.values())
        self._lost = None
        self._waiting.clear()
        return lost, text
