"""One item, opened: how it came to be where it is, attempt by attempt, with what was logged in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dalsegno.insight.items import ItemDetail, item_detail
from dalsegno.insight.logs import list_logs
from dalsegno.model.records import EventRecord, LogRecord
from dalsegno.store.store import Tx

LINES = 500
"""Log lines of one item that are shown: the last ones."""

ENDS = {
    "item_succeeded": "succeeded",
    "item_skipped": "skipped",
    "item_failed": "failed",
    "item_interrupted": "interrupted",
    "item_canceled": "canceled",
    "item_returned": "pending",
    "item_requeued": "pending",
}
BEGINS = {"item_claimed": "claimed", "item_started": "running"}
AGAIN = {"item_retried": "pending", "item_force_retried": "pending", "item_reset": "pending"}
STATES = {**BEGINS, **ENDS, **AGAIN}
"""What an item is after each of its events."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of its timeline."""

    at: datetime
    state: str
    event: str
    by: str
    says: str | None
    data: Any | None
    seconds: float | None
    """How long it stayed so; None: it still does."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """From one claim to its end."""

    number: int
    worker: str | None
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    ended: str | None
    """What the item was afterwards; None: it is under way."""
    says: str | None
    """Its error, or why it was given back."""
    phases: list[str]
    logs: list[LogRecord]


@dataclass(frozen=True, slots=True)
class Drawer:
    detail: ItemDetail
    timeline: list[Moment]
    attempts: list[Attempt]
    logs: list[LogRecord]
    """Of no attempt in particular: mostly those of before the first that is still known."""


def open_drawer(tx: Tx, item_id: int) -> Drawer:
    detail = item_detail(tx, item_id)
    lines = list_logs(tx, item_id=item_id, limit=LINES)
    attempts, rest = _attempts(detail, lines)
    return Drawer(detail, _timeline(detail.events), attempts, rest)


def _timeline(events: Sequence[EventRecord]) -> list[Moment]:
    moves = [event for event in events if event.type in STATES]
    ends: list[EventRecord | None] = [*moves[1:], None][: len(moves)]  # of what never began nothing is known
    return [
        Moment(
            event.at, STATES[event.type], event.type, event.source, _says(event), event.data,
            None if after is None else max(0.0, (after.at - event.at).total_seconds()),
        )
        for event, after in zip(moves, ends, strict=True)
    ]  # fmt: skip


def _says(event: EventRecord) -> str | None:
    data = event.data if isinstance(event.data, dict) else {}
    told = event.message or data.get("reason") or data.get("released") or data.get("throttled")
    return None if told is None else str(told)


def _attempts(detail: ItemDetail, lines: Sequence[LogRecord]) -> tuple[list[Attempt], list[LogRecord]]:
    spans: list[list[EventRecord]] = []
    for event in detail.events:
        if event.type == "item_claimed":
            spans.append([event])
        elif spans and spans[-1][-1].type not in ENDS:
            spans[-1].append(event)
    begins = [span[0].at for span in spans]
    logs: list[list[LogRecord]] = [[] for _ in spans]
    rest: list[LogRecord] = []
    for line in lines:
        place = sum(begin <= line.at for begin in begins) - 1
        (logs[place] if place >= 0 else rest).append(line)
    found = [_attempt(number, span, logs[number - 1], detail) for number, span in enumerate(spans, 1)]
    return found, rest


def _attempt(number: int, span: list[EventRecord], lines: list[LogRecord], detail: ItemDetail) -> Attempt:
    started = next((event for event in span if event.type == "item_started"), None)
    end = span[-1] if span[-1].type in ENDS else None
    worker = next((line.worker for line in lines if line.worker), None)
    if worker is None and end is None and detail.lease is not None:
        worker = detail.lease.worker
    return Attempt(
        number,
        worker,
        span[0].at,
        None if started is None else started.at,
        None if end is None else end.at,
        None if end is None else ENDS[end.type],
        None if end is None else _says(end),
        [str(event.data.get("phase")) for event in span if event.type == "item_phase" and isinstance(event.data, dict)],
        lines,
    )
