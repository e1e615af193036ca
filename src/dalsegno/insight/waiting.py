"""Why each item or job of a list waits: the first closed gate of every one, read for all of them together.

`explain` says everything about one. Here a page shares what its jobs, stages and lanes wait for, and what is left to
ask of each is in its row or in one query for all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.explain.facts import Facts, R
from dalsegno.insight.explain.flow import gate_of_line
from dalsegno.insight.explain.gate import Gate, closed
from dalsegno.insight.explain.jobs import job_gates
from dalsegno.insight.explain.stages import stage_gates
from dalsegno.model.records import ItemRecord, JobRecord, LaneRecord, StageRecord
from dalsegno.model.states import ItemStatus, JobStatus
from dalsegno.store.schema import waits
from dalsegno.store.store import Tx

WAITING = frozenset({ItemStatus.PENDING, ItemStatus.INTERRUPTED})


def why_waiting(tx: Tx, found: Iterable[ItemRecord]) -> dict[int, Gate]:
    """By item. The sentence of a gate is brief: what to say is in its code and its data."""
    items = [item for item in found if item.status in WAITING]
    if not items:
        return {}
    facts = _Together(tx)
    in_line = _in_line(tx, [item.id for item in items])
    shared: dict[int, tuple[JobRecord, StageRecord, Gate | None]] = {}
    lines: dict[str, Gate] = {}
    reasons: dict[int, Gate] = {}
    for item in items:
        if item.stage_id not in shared:
            shared[item.stage_id] = _shared(facts, item)
        job, stage, gate = shared[item.stage_id]
        if gate is None and item.id in in_line:
            name = in_line[item.id]
            if name not in lines:
                lines[name] = _line(facts, name)
            gate = lines[name]
        reasons[item.id] = gate or _own(job, stage, item)
    return reasons


def why_queued(tx: Tx, found: Iterable[JobRecord]) -> dict[int, Gate]:
    """By job, of those that are queued."""
    queued = [job for job in found if job.status == JobStatus.QUEUED]
    if not queued:
        return {}
    facts = _Together(tx)
    gates = {job.id: job_gates(facts, job, ()) for job in queued}
    shut = {number: [gate for gate in its if gate.state == "closed"] for number, its in gates.items()}
    return {number: its[0] for number, its in shut.items() if its}


class _Together(Facts):
    """One look for all rows of a page: what several of them ask for is read once, and each lane's queue."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx)
        self._rows: dict[tuple[str, int | str], Any] = {}
        self._active: dict[str, list[int]] = {}
        self._queues: dict[str, list[tuple[int, int]]] = {}

    def _one(self, kind: type[R], table: sa.Table, key: int | str) -> R | None:
        place = (table.name, key)
        if place not in self._rows:
            self._rows[place] = super()._one(kind, table, key)
        row: R | None = self._rows[place]
        return row

    def active_jobs(self, lane: LaneRecord) -> list[int]:
        if lane.name not in self._active:
            self._active[lane.name] = super().active_jobs(lane)
        return self._active[lane.name]

    def queued_before(self, job: JobRecord) -> int:
        """No more than its lane takes at a time: that many are enough to keep it from its turn."""
        return bisect_left(self._queue(job.lane), (job.priority, job.order_seq))

    def first_priority(self, lane: str) -> int:
        return self._queue(lane)[0][0]

    def _queue(self, lane: str) -> list[tuple[int, int]]:
        if lane not in self._queues:
            self._queues[lane] = self.next_in(self.lane(lane))
        return self._queues[lane]


def _shared(facts: Facts, item: ItemRecord) -> tuple[JobRecord, StageRecord, Gate | None]:
    job, stage, all_stages = facts.job(item.job_id), facts.stage(item.stage_id), facts.stages(item.job_id)
    gates = [*job_gates(facts, job, all_stages), *stage_gates(facts, job, stage, all_stages)]
    shut = [gate for gate in gates if gate.state == "closed" and gate.code != "planned"]
    return job, stage, shut[0] if shut else None


def _in_line(tx: Tx, ids: list[int]) -> dict[int, str]:
    query = sa.select(waits.c.item_id, waits.c.name).where(waits.c.item_id.in_(ids))
    return {row[0]: row[1] for row in tx.conn.execute(query)}


def _line(facts: Facts, name: str) -> Gate:
    cause = gate_of_line(facts, name)
    shut = cause.state == "closed"
    opens = cause.opens or "by itself, any moment now"
    return closed("waits", f"It waits in line for {name}.", opens, None, cause.until, name=name,
                  cause=cause.code if shut else None, cause_data=cause.data)  # fmt: skip


def _own(job: JobRecord, stage: StageRecord, item: ItemRecord) -> Gate:
    if item.status == ItemStatus.INTERRUPTED:
        return closed("interrupted", "It was interrupted.", f"dalsegno resume {job.id}",
                      error_code=item.error_code, error=item.error_message)  # fmt: skip
    if item.due_at is not None:
        reason = "backoff" if item.attempt else "throttled"
        return closed("due", "It waits until a moment.", "by itself", None, item.due_at, reason=reason,
                      attempt=item.attempt, error_code=item.error_code, error=item.error_message)  # fmt: skip
    before = 0 if item.returned else min(stage.returned + max(0, item.seq - stage.low_seq - 1), max(0, stage.ready - 1))
    return closed("order", "It is ready; others come first.", "by itself, in its turn", before=before)
