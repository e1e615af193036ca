"""What this process settled, minute by minute: items by how they ended and how long they took, and bytes moved.

Kept in memory and written with the roster, once a second at most: it costs an item well under a microsecond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dalsegno.engine.meters import METERS
from dalsegno.model.states import ItemStatus
from dalsegno.store.schema import minutes

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.model.outcome import Outcome
    from dalsegno.store.hot import Settled
    from dalsegno.store.store import Tx

EDGES = tuple(round(0.004 * 2 ** (place / 2), 6) for place in range(43))
"""Seconds at which the buckets of a histogram end: from 4 ms to two hours and a half; the last bucket has no end."""
KEPT = 25 * 60
"""Minutes after which a row is removed."""
OUTCOMES = ("succeeded", "failed", "skipped", "retried", "interrupted")
_COLUMN = {
    ItemStatus.SUCCEEDED: "succeeded",
    ItemStatus.FAILED: "failed",
    ItemStatus.SKIPPED: "skipped",
    ItemStatus.INTERRUPTED: "interrupted",
}


class Minute:
    __slots__ = ("bytes", "counts", "durations")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.bytes = 0
        self.durations = [0] * (len(EDGES) + 1)


class Minutes:
    """Of one process. Only the settler's thread touches it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], Minute] = {}
        self._changed: set[tuple[int, str]] = set()
        self._written_as = 0
        self._pruned = 0

    def settled(
        self, group: Sequence[tuple[Item, Outcome]], rows: Sequence[Settled], accepted: Collection[int], now: datetime
    ) -> None:
        number = int(now.timestamp()) // 60
        for (item, _), row in zip(group, rows, strict=True):
            if row.id not in accepted or (row.status == ItemStatus.PENDING and row.error_code is None):
                continue  # given back, not tried
            minute = self._minute(number, item.stage.service)
            minute.counts[_COLUMN.get(row.status, "retried")] += 1  # type: ignore[call-overload]
            if row.started_at is not None and row.status != ItemStatus.INTERRUPTED:
                minute.durations[bisect_left(EDGES, (now - row.started_at).total_seconds())] += 1
            if item.transfer is not None and (moved := item.transfer.news()):
                minute.bytes += moved
                METERS.move(item.stage.service, moved)

    def moving(self, items: Iterable[Item], now: datetime) -> None:
        """What is still on its way counts in the minute in which it moves."""
        number = int(now.timestamp()) // 60
        for item in items:
            if item.transfer is not None and item.transfers and (moved := item.transfer.news()):
                self._minute(number, item.stage.service).bytes += moved
                METERS.move(item.stage.service, moved)

    def _minute(self, number: int, service: str) -> Minute:
        key = (number, service)
        self._changed.add(key)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = Minute()
        return found

    # --- writing --------------------------------------------------------------------------------

    def to_write(self, process_id: int) -> list[dict[str, Any]]:
        """The rows that changed; `written` once they are durable."""
        if process_id != self._written_as:  # it starts over under a new number, and so do its rows
            self._kept = {key: value for key, value in self._kept.items() if key in self._changed}
            self._written_as = process_id
        return [
            {"minute": number, "process_id": process_id, "service": service, **kept.counts, "bytes": kept.bytes,
             "durations": _trimmed(kept.durations)}
            for (number, service), kept in sorted((key, self._kept[key]) for key in self._changed)
        ]  # fmt: skip

    def written(self) -> None:
        newest = max((number for number, _ in self._kept), default=0)
        self._kept = {key: value for key, value in self._kept.items() if key[0] >= newest - 1}
        self._changed.clear()

    def store(self, tx: Tx, rows: list[dict[str, Any]]) -> None:
        tx.conn.execute(_UPSERT[tx.conn.dialect.name], rows)
        newest = max(row["minute"] for row in rows)
        if newest != self._pruned:
            tx.conn.execute(sa.delete(minutes).where(minutes.c.minute < newest - KEPT))
            self._pruned = newest


def _trimmed(durations: list[int]) -> list[int]:
    """Without the empty buckets at its end."""
    end = len(durations)
    while end and not durations[end - 1]:
        end -= 1
    return durations[:end]


def _upsert(dialect: Any) -> Any:
    statement = dialect.insert(minutes)
    values = {name: statement.excluded[name] for name in (*OUTCOMES, "bytes", "durations")}
    return statement.on_conflict_do_update(index_elements=["minute", "process_id", "service"], set_=values)


_UPSERT = {"sqlite": _upsert(sqlite), "postgresql": _upsert(postgresql)}
