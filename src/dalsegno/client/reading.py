"""Where a reader of `export/ready` is: the same for both clients."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from dalsegno.client import calls
from dalsegno.client.calls import Call
from dalsegno.client.models import Content, ReadyPage


class Reading:
    def __init__(self, since: datetime | None, cursor: str | None, size: int | None, every: bool) -> None:
        self._since, self._size, self._every = since, size, every
        self._waiting: deque[Content] = deque()
        self._over = False
        self._place = self.cursor = cursor or ""
        """Keep it once you are done with the last content: whoever goes on from here misses nothing, and sees no
        version twice. At the end it is where the next reading begins."""
        calls.ready(self.cursor, since, size, every)  # says what is wrong with them now, not at the first content

    @property
    def hungry(self) -> bool:
        """Whether the next page is needed before there is a next content."""
        return not self._waiting and not self._over

    def call(self) -> Call[ReadyPage]:
        return calls.ready(self._place, self._since, self._size, self._every)

    def take(self, page: ReadyPage) -> None:
        self._waiting.extend(page.content)
        self._over = not (page.has_more and page.content)
        self._place = page.next_cursor
        if not page.content:
            self.cursor = page.next_cursor

    def next(self) -> Content | None:
        if not self._waiting:
            return None
        content = self._waiting.popleft()
        self.cursor = content.cursor
        return content
