"""How fast, and why not: limits, permits, breakers, waits, holds."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from dalsegno.model.records.base import Record


class LimitRecord(Record):
    name: str
    concurrent: int | None
    rate: int | None
    window: float
    concurrent_setting: str | None
    rate_setting: str | None
    origin: Literal["operator", "service"]
    granted: int
    tick: int
    host: str | None
    mono: int
    skew: int
    pruned_tick: int | None
    updated_by: str | None
    updated_at: datetime


class PermitRecord(Record):
    name: str
    number: int
    tick: int
    granted_at: datetime
    process_id: int
    item_id: int | None
    released: bool


class BreakerRecord(Record):
    name: str
    state: Literal["closed", "open", "half_open"]
    epoch: int
    kind: Literal["rate_limit", "quota", "ban", "outage", "manual"] | None
    reason: str | None
    error: str | None
    tripped_by: str | None
    tripped_at: datetime | None
    resume_at: datetime | None
    failures: int
    trips: int
    probe_process_id: int | None
    probe_item_id: int | None
    probe_at: datetime | None
    updated_at: datetime


class WaitRecord(Record):
    item_id: int
    name: str
    stage_id: int
    job_id: int
    seq: int
    since: datetime
    offered_at: datetime | None


class HoldRecord(Record):
    name: str
    held_at: datetime
    held_by: str
    held_reason: str
    held_until: datetime | None
