"""Who works where: the places, names and measured times of a service made of phases. Its pool's lock is held."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from dalsegno.clock import Clock
from dalsegno.engine.elastic import Elastic
from dalsegno.engine.item import Item
from dalsegno.engine.pace import Pace

SHOWN = 10.0
"""Seconds for which an extra worker's name is still shown when its work is over."""


class Turn:
    """One phase of one item, in one place, under one worker's name."""

    __slots__ = ("began", "item", "name", "number", "phase", "started", "suspect", "unwanted", "value")

    def __init__(self, phase: int, number: int, name: str, item: Item, value: Any, began: float) -> None:
        self.phase = phase
        self.number = number
        self.name = name
        self.item = item
        self.value = value
        self.began: float | None = began
        self.suspect = False
        """It holds the lock of those that run alone."""
        self.started = False
        """Its item is in `running`."""
        self.unwanted = False
        """Its job was paused or canceled, or the process stops: what it finds is not handed on."""


class Places:
    def __init__(self, clock: Clock, rule: Elastic, families: Sequence[str], split: Sequence[int]) -> None:
        self.rule = rule
        self.families = families
        self.busy = [0 for _ in families]
        self.paces = [Pace() for _ in families]
        self.turns: dict[str, Turn] = {}
        self._clock = clock
        self._split = split
        self._last = len(families) - 1
        self._numbers = [list(range(1, rule.places + 1)) for _ in families]
        self._shown: dict[str, float] = {}

    def resolving(self) -> int:
        return sum(self.busy) - self.busy[self._last]

    def seconds(self) -> tuple[float, float]:
        """Of resolving and of transferring; 0 where it is not measured yet."""
        now = self._clock.monotonic()
        earlier = [pace.seconds(now) for pace in self.paces[:-1]]
        return sum(earlier) if all(earlier) else 0.0, self.paces[-1].seconds(now)

    def resolvers(self, queued: int) -> int:
        """How many more may resolve now."""
        return self.rule.resolvers(self.busy[-1], queued, *self.seconds()) - self.resolving()

    def may_go_on(self, phase: int, heirs: int) -> bool:
        """Whether a later phase may begin; transfers keep places for `heirs`."""
        if sum(self.busy) >= self.rule.places:
            return False
        if phase == self._last:
            return self.busy[phase] < self.rule.transfers - heirs
        return self.resolving() < self.rule.most

    def take(self, phase: int, item: Item, value: Any) -> Turn:
        number = heapq.heappop(self._numbers[phase])
        now = self._clock.monotonic()
        turn = Turn(phase, number, f"{self.families[phase]}-{number}", item, value, now)
        self.busy[phase] += 1
        self.paces[phase].begin(now)
        self.turns[turn.name] = turn
        return turn

    def measure(self, turn: Turn, *, counts: bool) -> None:
        """It has ended; whether its time says how long the work takes."""
        if turn.began is not None:
            self.paces[turn.phase].end(turn.began, self._clock.monotonic() if counts else None)
            turn.began = None

    def vacate(self, turn: Turn) -> None:
        self.busy[turn.phase] -= 1
        heapq.heappush(self._numbers[turn.phase], turn.number)
        del self.turns[turn.name]
        if turn.number > self._split[turn.phase]:
            self._shown[turn.name] = self._clock.monotonic()

    def names(self) -> list[str]:
        """The pools as they were split, and whoever worked beyond that a moment ago."""
        now = self._clock.monotonic()
        self._shown = {name: at for name, at in self._shown.items() if now - at < SHOWN}
        pools = zip(self.families, self._split, strict=True)
        names = [f"{family}-{number}" for family, size in pools for number in range(1, size + 1)]
        return list(dict.fromkeys([*names, *self.turns, *self._shown]))
