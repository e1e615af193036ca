"""A desk where workers ask for permits: one of them asks for everyone in line, in one transaction.

A crowd that wakes up for every free place would be in its own way, and a transaction per call is what bounds a limited
service.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dalsegno.engine.limits import Denied

if TYPE_CHECKING:
    from dalsegno.engine.item import Item

MOST = 50
"""Calls that one transaction lets in."""
LOOK = 0.05
"""Seconds between two looks at a limit whose next free place no clock can tell."""


class Ask:
    """One call that wants to begin. `answer` is what came of it; a Denied where patience ended first."""

    __slots__ = ("answer", "deadline", "items")

    def __init__(self, items: Sequence[Item], patience: float) -> None:
        self.items = items
        self.deadline = time.monotonic() + patience
        self.answer: Any = None

    def gives_up(self, denied: Denied) -> bool:
        left = self.deadline - time.monotonic()
        return left <= (denied.delay or 0.0) or all(item.cancelled for item in self.items)


class Desk:
    """`serve` answers the first of those it is given and returns why the next had to be refused, or None."""

    def __init__(self, serve: Callable[[list[Ask]], Denied | None]) -> None:
        self._serve = serve
        self._line: deque[Ask] = deque()
        self._changed = threading.Condition()
        self._led = False
        self._moves = 0
        self._closed = False

    def moved(self) -> None:
        """There may be room: look again."""
        with self._changed:
            self._moves += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        self.moved()

    def ask(self, items: Sequence[Item], patience: float) -> Any:
        mine = Ask(items, patience)
        with self._changed:
            self._line.append(mine)
            self._changed.wait_for(lambda: mine.answer is not None or not self._led)
            leads = mine.answer is None
            self._led |= leads
        if leads:
            self._lead(mine)
        if isinstance(mine.answer, BaseException):
            raise mine.answer
        return mine.answer

    def _lead(self, mine: Ask) -> None:
        try:
            while mine.answer is None:
                self._turn()
        finally:
            with self._changed:
                self._led = False
                self._changed.notify_all()

    def _turn(self) -> None:
        """Ask once for the first in line; those without an answer stay in front while they have patience."""
        with self._changed:
            moves = self._moves
            asks = [self._line.popleft() for _ in range(min(MOST, len(self._line)))]
        try:
            denied = self._serve(asks)
        except BaseException as error:
            for ask in asks:
                ask.answer = error
            return
        with self._changed:
            left = [ask for ask in asks if ask.answer is None]
            if denied is not None:
                for ask in [*left, *self._line]:
                    if self._closed or ask.gives_up(denied):
                        ask.answer = denied
            self._line = deque(ask for ask in [*left, *self._line] if ask.answer is None)
            self._changed.notify_all()
            if denied is None or not self._line:
                return
            if denied.delay is None:
                if moves == self._moves:
                    self._changed.wait(LOOK)
                return
        self._sleep_until(denied.as_of + denied.delay)

    def _sleep_until(self, end: float) -> None:
        """The clock has made room then; whatever else moves does not change that."""
        with self._changed:
            while (left := end - time.monotonic()) > 0 and not self._closed:
                self._changed.wait(left)
