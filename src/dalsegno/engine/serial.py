"""One worker for a service of phases: they follow one another in its hands (spec 002's single-worker path)."""

from __future__ import annotations

from typing import Any

from dalsegno.engine.executor import AsyncLoop, Pool
from dalsegno.engine.item import Item
from dalsegno.engine.service import Phase
from dalsegno.model.outcome import Outcome, Release


class SerialPool(Pool):
    def _call(self, item: Item) -> Any:
        value: Any = None
        for number, phase in enumerate(self.service.phases):
            if number and item.cancelled:
                return Release(f"stopped before {phase.name}")
            item.enter(phase.name, transfers=phase.transfers)
            value = call_phase(self._loop, phase, item, *((value,) if number else ()))
            if isinstance(value, Outcome):
                return value
        return value


def call_phase(loop: AsyncLoop, phase: Phase, item: Item, *value: Any) -> Any:
    return loop.run(phase.run, [item], item, *value) if phase.is_async else phase.run(item, *value)
