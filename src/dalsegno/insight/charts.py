"""The last hour, minute by minute, as the engine keeps it: items by outcome, bytes, how long items took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.engine.minutes import EDGES, OUTCOMES
from dalsegno.store.schema import minutes

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

HOUR = 60


@dataclass(frozen=True, slots=True)
class Series:
    """One service; every list is as long as `Charts.minutes`."""

    service: str
    outcomes: dict[str, list[int]]
    """Items that ended in each minute, by how."""
    bytes_per_second: list[float]
    p50: list[float | None]
    """Seconds an item took; None where none ended."""
    p95: list[float | None]


@dataclass(frozen=True, slots=True)
class Charts:
    minutes: list[datetime]
    """Beginnings; the last one is still filling."""
    series: list[Series]


def read_charts(tx: Tx, length: int = HOUR) -> Charts:
    now = int(tx.now.timestamp()) // 60
    first = now - length + 1
    by_service: dict[str, dict[int, list[sa.RowMapping]]] = {}
    for row in tx.rows(sa.select(minutes).where(minutes.c.minute >= first, minutes.c.minute <= now)):
        by_service.setdefault(row["service"], {}).setdefault(row["minute"], []).append(row)
    wanted = range(first, now + 1)
    series = [
        _series(service, [found.get(minute, []) for minute in wanted], tx.now)
        for service, found in sorted(by_service.items())
    ]
    return Charts([datetime.fromtimestamp(minute * 60, UTC) for minute in wanted], series)


def _series(service: str, columns: Sequence[Sequence[sa.RowMapping]], now: datetime) -> Series:
    spans = [60.0] * (len(columns) - 1) + [max(1.0, now.timestamp() % 60)]
    took = [_added(row["durations"] for row in rows) for rows in columns]
    return Series(
        service,
        {name: [sum(row[name] for row in rows) for rows in columns] for name in OUTCOMES},
        [sum(row["bytes"] for row in rows) / span for rows, span in zip(columns, spans, strict=True)],
        [quantile(counts, 0.5) for counts in took],
        [quantile(counts, 0.95) for counts in took],
    )


def _added(histograms: Iterable[Sequence[int]]) -> list[int]:
    total = [0] * (len(EDGES) + 1)
    for counts in histograms:
        for place, count in enumerate(counts[: len(total)]):
            total[place] += count
    return total


def quantile(counts: Sequence[int], share: float) -> float | None:
    """From a histogram, straight within a bucket; None where it is empty."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    seen = 0.0
    for place, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = EDGES[place - 1] if place else 0.0
            high = EDGES[min(place, len(EDGES) - 1)]
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return EDGES[-1]


def rate_of(tx: Tx, service: str, length: int = 5) -> float | None:
    """Items of a service that ended per second in the last minutes, from the first in which one did."""
    now = int(tx.now.timestamp()) // 60
    ended = minutes.c.succeeded + minutes.c.failed + minutes.c.skipped
    query = sa.select(sa.func.sum(ended), sa.func.min(minutes.c.minute)).where(
        minutes.c.minute > now - length, minutes.c.minute <= now, minutes.c.service == service, ended > 0
    )
    total, first = tx.conn.execute(query).one()
    return None if not total else float(total) / max(1.0, tx.now.timestamp() - first * 60)
