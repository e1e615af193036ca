"""Suspects: songs of which something failed and nothing succeeded since. Few, so they may be looked at more closely."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dalsegno.catalog import standing

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.store.store import Store

STAGES = 8


class Suspects:
    """Asked for once a stage: an item that fails while its stage runs answers for itself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._keys: dict[int, frozenset[str]] = {}

    def __contains__(self, item: Item) -> bool:
        return item.key in self._of(item.stage.id, item.stage.service)

    def _of(self, stage_id: int, service: str) -> frozenset[str]:
        known = self._keys.get(stage_id)
        if known is not None:
            return known
        with self._lock:
            if stage_id not in self._keys:
                while len(self._keys) >= STAGES:
                    self._keys.pop(next(iter(self._keys)))
                query = standing.unanswered_keys(service)
                self._keys[stage_id] = frozenset(self._store.read(lambda tx: tx.conn.execute(query).scalars().all()))
            return self._keys[stage_id]
