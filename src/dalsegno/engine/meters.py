"""Meters: what this process's engines did, counted where it happens, for whoever asks (`/metrics`) or listens (spans).

Plain numbers without a dependency. Claims and settles are timed per batch, outcomes counted per item.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from dalsegno.model.outcome import Done, Fail, Interrupted, Outcome, PauseJob, Release, Retry, Skip, Throttled, Wait
from dalsegno.model.states import ItemStatus

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.store.hot import Settled

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds at which the buckets of a histogram end."""
RESULTS: dict[type[Outcome], str] = {
    Done: "succeeded",
    Skip: "skipped",
    Fail: "failed",
    Retry: "retried",
    Throttled: "throttled",
    Wait: "waiting",
    Release: "released",
    PauseJob: "interrupted",
    Interrupted: "interrupted",
}
Ended = tuple["Item", Outcome]
Told = Callable[[Sequence[Ended], "Sequence[Settled]", Collection[int], datetime], None]


class Histogram:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(EDGES) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(EDGES, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[int]:
        """How many took at most as long as each edge; the last number is how many there were."""
        found, count = [], 0
        for bucket in self.buckets:
            count += bucket
            found.append(count)
        return found


class Meters:
    """Of one process. A number may be read while it is counted up; none is ever counted down."""

    def __init__(self) -> None:
        self.claims = Histogram()
        self.settles = Histogram()
        self.claimed: dict[str, int] = {}
        """Items, by service."""
        self.moved: dict[str, int] = {}
        """Bytes, by service."""
        self.listener: Told | None = None
        """Told of every settle, after it is durable, by the thread that settles: it must be quick."""
        self._ended: dict[tuple[str, type[Outcome], str], int] = {}

    def claim(self, service: str, count: int, seconds: float) -> None:
        self.claims.add(seconds)
        self.claimed[service] = self.claimed.get(service, 0) + count

    def move(self, service: str, count: int) -> None:
        self.moved[service] = self.moved.get(service, 0) + count

    def settle(
        self, group: Sequence[Ended], rows: Sequence[Settled], accepted: Collection[int], now: datetime, seconds: float
    ) -> None:
        self.settles.add(seconds)
        ended = self._ended
        for (item, outcome), row in zip(group, rows, strict=True):
            if row.id in accepted:
                key = (item.stage.service, type(outcome), row.status)
                ended[key] = ended.get(key, 0) + 1
        if self.listener is not None:
            self.listener(group, rows, accepted, now)

    def outcomes(self) -> dict[tuple[str, str], int]:
        """Items by service and result."""
        found: dict[tuple[str, str], int] = {}
        for (service, kind, status), count in list(self._ended.items()):
            key = (service, result_of(kind, status))
            found[key] = found.get(key, 0) + count
        return found


def result_of(kind: type[Outcome], status: str) -> str:
    """What an attempt came to, in one word: a retry too many has failed."""
    return "failed" if status == ItemStatus.FAILED else RESULTS[kind]


METERS = Meters()
