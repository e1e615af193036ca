"""The statements that run for every item, and the values they exchange. One implementation per database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from dalsegno.model.states import ItemStatus

if TYPE_CHECKING:
    from dalsegno.store.store import Tx


class Raced(Exception):
    """Another transaction got there first: roll back and run this one again."""


class Claimed(NamedTuple):
    """An item as its new lease holder sees it. `params` is still JSON text: most services never look."""

    id: int
    stage_id: int
    job_id: int
    seq: int
    key: str
    lease: int
    attempt: int
    interruptions: int
    forced: bool
    parent_id: int | None
    params: str | None


class Settled(NamedTuple):
    """One item leaving its lease: where it goes and what is known about why."""

    id: int
    lease: int
    stage_id: int
    job_id: int
    status: str
    started_at: datetime | None = None
    result: str | None = None
    attempt: int = 0
    interruptions: int = 0
    due_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    data: str | None = None
    waits_for: str | None = None
    fingerprint: str | None = None
    """The group of its error."""
    trace: str | None = None
    """Where the error came from; kept with its group, not with the item."""

    @property
    def returned(self) -> bool:
        """Back in line at once: neither until a moment nor until a limit or breaker has room."""
        return self.status == "pending" and self.due_at is None and self.waits_for is None

    @property
    def plain(self) -> bool:
        """A success at the first delivery: nothing to reset, nothing more to say, a shorter statement."""
        return self.status == "succeeded" and self.lease == 1 and self.data is None


class Settlement(NamedTuple):
    accepted: set[int]
    """The items whose lease was the live one; the others changed nothing."""
    quiet_jobs: set[int]


class NewItem(NamedTuple):
    seq: int
    key: str
    params: str | None = None
    parent_id: int | None = None
    input_hash: str | None = None


class Event(NamedTuple):
    type: str
    source: str
    job_id: int | None = None
    stage_id: int | None = None
    item_id: int | None = None
    level: str = "info"
    message: str | None = None
    data: Any = None


class Delta:
    """What a batch changes on one stage. Kept as counts so that a thousand items are one UPDATE."""

    __slots__ = ("counts", "ready", "returned", "total")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(ItemStatus, 0)
        self.ready = 0
        self.returned = 0
        self.total = 0

    def by_name(self) -> dict[str, int]:
        return {status.value: count for status, count in self.counts.items()}

    def move(self, source: str, target: str, count: int = 1) -> None:
        self.counts[ItemStatus(source)] -= count
        self.counts[ItemStatus(target)] += count


class Hot(ABC):
    @abstractmethod
    def claim(
        self,
        tx: Tx,
        service: str,
        process_id: int,
        want: int,
        held_lanes: Collection[str] = (),
        known: Sequence[int] = (),
    ) -> list[Claimed]:
        """Lease up to `want` items of `service`, in the global order: priority, job, item.

        `known`: stages, in that order, that came first a moment ago. No others are looked for.
        """

    @abstractmethod
    def begin(self, tx: Tx, begun: Sequence[tuple[int, int, datetime, str | None]]) -> set[int]:
        """claimed → running for `(item, lease, at, worker)`; returns the items that still had that lease."""

    @abstractmethod
    def settle(self, tx: Tx, rows: Sequence[Settled]) -> Settlement:
        """End leases. Rows whose lease is not the live one are left out of the answer and change nothing."""

    @abstractmethod
    def adjust(self, tx: Tx, deltas: dict[int, Delta]) -> set[int]:
        """Apply deltas to stages in order of id, which is the lock order.

        Returns the jobs of stages that have nothing in hand any more, and so may have to move on.
        """

    @abstractmethod
    def insert_items(self, tx: Tx, job_id: int, stage_id: int, rows: Iterable[NewItem]) -> int:
        """Insert new items whose keys are known to be new; returns how many."""

    @abstractmethod
    def insert_missing(self, tx: Tx, job_id: int, stage_id: int, rows: Sequence[NewItem]) -> list[tuple[int, str]]:
        """Insert items whose keys the stage does not have yet; returns `(id, key)` of those."""

    @abstractmethod
    def insert_events(self, tx: Tx, events: Sequence[Event]) -> None:
        """Append events, in order."""

    @abstractmethod
    def renew(self, tx: Tx, process_id: int, seconds: float) -> bool:
        """Extend every lease of a process by extending the process itself; False if it was declared dead."""

    @abstractmethod
    def new_job_id(self, tx: Tx) -> int:
        """An id for the next job, which is also its place in the global order."""

    @abstractmethod
    def tell_inside(self, tx: Tx) -> None:
        """Pass on what the transaction announces, from within it: for transactions whose commit we do not see."""

    @abstractmethod
    def database_now(self, tx: Tx) -> datetime:
        """The time leases are measured against."""

    def common_now(self, tx: Tx) -> datetime:
        """The time by which something is due or old: that of all machines, where several share the database."""
        return tx.now

    @abstractmethod
    def safe_tx(self, tx: Tx) -> int:
        """Events with a smaller `tx` can no longer be joined by earlier ones."""
