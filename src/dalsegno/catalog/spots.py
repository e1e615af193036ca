"""Spot checks: whether what is written down as stored is in the store.

In a folder every file is looked for: that is one call to the system. Asking S3 costs a round trip for each, so a few
are asked for in every stage. Where one of them is gone, or the job says `options.verify`, all are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dalsegno.objects.errors import StoreUnavailable

if TYPE_CHECKING:
    from dalsegno.catalog.library import Copy
    from dalsegno.engine.item import Item
    from dalsegno.objects.model import ObjectStore

FIRST = 8
"""So many are asked for at the beginning of a stage,"""
EVERY = 64
"""and then one in so many."""
STAGES = 8


class SpotChecks:
    def __init__(self, permit: Callable[[Item, str], AbstractContextManager[None, None]]) -> None:
        self._permit = permit
        self._lock = threading.Lock()
        self._seen: Counter[int] = Counter()
        self._doubted: set[int] = set()
        """Stages in which something was not where it should be."""

    def has(self, item: Item, target: ObjectStore, there: Copy) -> bool:
        """With its full length; as far as is looked. Raises StoreError."""
        if target.kind == "file":
            return target.size(there.path) == there.size
        stage, sure = item.stage.id, bool(item.stage.options.get("verify"))
        if not sure and not self._is_due(stage):
            return True
        try:
            with self._permit(item, f"store:{target.kind}"):
                found = target.size(there.path) == there.size
        except StoreUnavailable:
            if sure:
                raise
            return True  # nothing is to be stored: the database's word will do
        if not found:
            self._doubted.add(stage)
        return found

    def _is_due(self, stage: int) -> bool:
        if stage in self._doubted:
            return True
        with self._lock:
            while len(self._seen) >= STAGES and stage not in self._seen:
                self._seen.pop(next(iter(self._seen)))
            self._seen[stage] += 1
            count = self._seen[stage]
        return count <= FIRST or count % EVERY == 0
