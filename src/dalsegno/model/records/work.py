"""What is to be done: workflows, lanes, jobs, stages, items, leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from dalsegno.model.records.base import Record
from dalsegno.model.states import ItemStatus, JobStatus, StageStatus


class WorkflowRecord(Record):
    id: int
    name: str
    version: int
    definition: dict[str, Any]
    is_active: bool
    created_at: datetime
    updated_at: datetime


class LaneRecord(Record):
    name: str
    max_active: int | None
    recovery: Literal["continue", "pause"]
    held_at: datetime | None
    held_by: str | None
    held_reason: str | None
    held_until: datetime | None


class JobRecord(Record):
    id: int
    workflow_id: int
    lane: str
    status: JobStatus
    priority: int
    order_seq: int
    requested_by: str | None
    scope: Any | None
    options: Any | None
    snapshot: Any | None
    config_revision_id: int | None
    overrides: Any | None
    dedupe_key: str | None
    scheduled_at: datetime | None
    progress: float | None
    current_stage: str | None
    pause_reason: str | None
    paused_by: str | None
    paused_at: datetime | None
    pause_until: datetime | None
    cancel_requested_at: datetime | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


class StageRecord(Record):
    id: int
    job_id: int
    seq: int
    key: str
    service: str
    status: StageStatus
    depends_on: list[str]
    follow: Literal["all", "each"]
    followed_by: list[str]
    on_failure: Literal["continue", "stop"]
    params: Any | None
    max_attempts: int
    max_interruptions: int
    timeout: float | None
    priority: int
    order_seq: int
    open: bool
    claimable: bool
    given: bool
    planned: bool
    planner_id: int | None
    ready: int
    returned: int
    low_seq: int
    high_seq: int
    total: int
    pending: int
    claimed: int
    running: int
    succeeded: int
    failed: int
    skipped: int
    interrupted: int
    canceled: int
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    pause_reason: str | None
    paused_by: str | None
    paused_at: datetime | None
    pause_until: datetime | None


class ItemRecord(Record):
    id: int
    stage_id: int
    job_id: int
    seq: int
    key: str
    status: ItemStatus
    lease: int
    attempt: int
    interruptions: int
    returned: bool
    forced: bool
    due_at: datetime | None
    params: Any | None
    result: Any | None
    parent_id: int | None
    input_hash: str | None
    phase: str | None
    progress: float | None
    progress_text: str | None
    error_code: str | None
    error_message: str | None
    fingerprint: str | None
    started_at: datetime | None
    finished_at: datetime | None


class LeaseRecord(Record):
    item_id: int
    number: int
    process_id: int
    stage_id: int
    worker: str | None
    claimed_at: datetime
    begun_at: datetime | None
