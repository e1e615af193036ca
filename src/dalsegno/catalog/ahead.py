"""Songs read a few at a time: items come in the order of their songs, so the next ones are read with the one asked for.

What was read ahead counts only for items claimed before it was read. Whatever had to happen before such an item could
start was in the database by then.
"""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from dalsegno.catalog.library import HOLDINGS, Holding, as_holding

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.store.store import Store

WIDTH = 32
"""Songs read at once, where one is asked for after the other."""
KEPT = 8 * WIDTH


class _Read(NamedTuple):
    holding: Holding
    at: float


class Ahead:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[int, _Read] = {}
        self._end = -WIDTH
        """Songs up to this one have been read."""
        self._width = 1

    def look(self, item: Item, song_id: int) -> Holding | None:
        known = self._read.pop(song_id, None)
        if known is not None and known.at >= item.since:
            return known.holding
        near = self._end < song_id <= self._end + WIDTH
        width = self._width = min(WIDTH, self._width * 2) if near else 1
        self._end = song_id + width - 1
        at = time.monotonic()
        rows = self._store.glance(HOLDINGS, {"first": song_id, "last": song_id + width - 1})
        if len(self._read) > KEPT:
            self._read = {}
        found: Holding | None = None
        for number, copies in groupby(rows, key=lambda row: row["id"]):
            holding = as_holding(list(copies))
            if number == song_id:
                found = holding
            elif holding is not None:
                self._read[number] = _Read(holding, at)
        return found
