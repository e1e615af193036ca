"""What is stored, as people and programs read it: one model per table, field for column."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, computed_field

from dalsegno.model.states import CommandStatus, ItemStatus, JobStatus, Level, StageStatus


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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


class ProcessRecord(Record):
    id: int
    node: str
    host: str
    pid: int
    version: str
    started_at: datetime
    heartbeat_at: datetime
    lease_until: datetime
    loops: Any | None
    pools: Any | None


class WorkerRecord(Record):
    id: int
    process_id: int
    name: str
    service: str
    status: Literal["idle", "busy"]
    job_id: int | None
    stage_id: int | None
    item_id: int | None
    text: str | None
    progress: float | None
    phase: str | None
    bytes_done: int | None
    bytes_total: int | None
    speed: float | None
    since: datetime | None = None
    """Since when it has its item in hand."""
    processed: int
    errors: int
    updated_at: datetime

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds_left(self) -> float | None:
        """How long its transfer still takes at the speed it has; null where that cannot be told."""
        if not self.speed or self.bytes_total is None or self.bytes_done is None:
            return None
        return max(0.0, (self.bytes_total - self.bytes_done) / self.speed)


class NodeRecord(Record):
    name: str
    labels: dict[str, Any]
    max_concurrency: dict[str, int]
    last_seen: datetime
    awake_state: Literal["unknown", "awake", "sleep"]
    wake_method: Literal["wol", "provider", "script"] | None
    mac: str | None
    provider_ref: str | None
    script: str | None


class SystemSettingRecord(Record):
    key: str
    value: Any
    updated_by: str | None
    updated_at: datetime


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


class CommandRecord(Record):
    id: int
    type: Literal[
        "pause", "resume", "cancel", "retry_item", "force_retry_item", "set_priority", "pause_stage", "resume_stage",
        "bulk_retry", "bulk_force_retry", "bulk_cancel", "bulk_skip", "bulk_priority",
    ]  # fmt: skip
    job_id: int | None
    item_id: int | None
    payload: Any | None
    requested_by: str | None
    status: CommandStatus
    error_code: str | None
    error_message: str | None
    created_at: datetime
    applied_at: datetime | None
    progress: Any | None
    stop_requested_at: datetime | None


class EventRecord(Record):
    id: int
    tx: int
    at: datetime
    type: str
    level: Level
    source: str
    job_id: int | None
    stage_id: int | None
    item_id: int | None
    message: str | None
    data: Any | None


class LogRecord(Record):
    id: int
    at: datetime
    level: Level
    logger: str
    message: str
    traceback: str | None
    job_id: int | None
    stage_id: int | None
    item_id: int | None
    worker: str | None


class ScheduleRecord(Record):
    id: int
    name: str
    workflow: str
    request: dict[str, Any]
    priority: int
    cron: str
    time_zone: str
    catch_up: Literal["skip", "one", "all"]
    catch_up_most: int
    overlap: Literal["skip", "queue", "allow"]
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    next_at: datetime | None
    last_run_id: int | None
    last_due_at: datetime | None
    last_job_id: int | None
    created_by: str | None
    created_at: datetime
    updated_by: str | None
    updated_at: datetime


class ScheduleRunRecord(Record):
    id: int
    schedule_id: int
    due_at: datetime
    count: int
    last_due_at: datetime | None
    outcome: Literal["started", "waiting", "skipped", "failed"]
    reason: str | None
    message: str | None
    job_id: int | None
    requested_by: str | None
    at: datetime


class ErrorGroupRecord(Record):
    fingerprint: str
    service: str
    code: str
    template: str
    count: int
    first_at: datetime
    last_at: datetime
    sample_item_id: int
    sample_error: str
    sample_trace: str | None


class ErrorHourRecord(Record):
    fingerprint: str
    hour: int
    count: int


class MinuteRecord(Record):
    minute: int
    process_id: int
    service: str
    succeeded: int
    failed: int
    skipped: int
    retried: int
    interrupted: int
    bytes: int
    durations: Any


class ArtifactRecord(Record):
    id: int
    job_id: int
    stage_id: int
    item_id: int
    kind: Literal["input", "output", "log"]
    bucket: str | None
    key: str
    size_bytes: int
    content_type: str | None
    checksum: str
    created_at: datetime


class ConfigRevisionRecord(Record):
    id: int
    file_path: str
    content: str
    content_hash: str
    note: str | None
    created_at: datetime
    applied_at: datetime | None
    node: str | None
    saved_by: str | None
    secrets: Any | None
    restores: int | None


class RetentionRecord(Record):
    lane: str
    kind: str
    mark: Any | None
    removed: int
    removed_at: datetime | None
    looked_at: datetime


class BulkItemRecord(Record):
    command_id: int
    stage_id: int
    seq: int


class BulkJobRecord(Record):
    command_id: int
    job_id: int


class PruningRecord(Record):
    job_id: int
    since: datetime


class ArchiveRecord(Record):
    name: str
    kind: Literal["events", "logs"]
    label: str
    first_at: datetime | None
    until_at: datetime
    rows: int
    size_bytes: int
    sha256: str
    store: str
    key: str
    last: Any
    revision: str
    archived_at: datetime
    dropped_at: datetime | None
    restored_at: datetime | None


RECORDS: dict[str, type[Record]] = {
    "workflows": WorkflowRecord,
    "lanes": LaneRecord,
    "jobs": JobRecord,
    "stages": StageRecord,
    "items": ItemRecord,
    "leases": LeaseRecord,
    "processes": ProcessRecord,
    "workers": WorkerRecord,
    "nodes": NodeRecord,
    "system_settings": SystemSettingRecord,
    "limits": LimitRecord,
    "permits": PermitRecord,
    "breakers": BreakerRecord,
    "waits": WaitRecord,
    "holds": HoldRecord,
    "commands": CommandRecord,
    "events": EventRecord,
    "logs": LogRecord,
    "schedules": ScheduleRecord,
    "schedule_runs": ScheduleRunRecord,
    "retention": RetentionRecord,
    "bulk_items": BulkItemRecord,
    "bulk_jobs": BulkJobRecord,
    "prunings": PruningRecord,
    "archives": ArchiveRecord,
    "artifacts": ArtifactRecord,
    "error_groups": ErrorGroupRecord,
    "error_hours": ErrorHourRecord,
    "minutes": MinuteRecord,
    "config_revisions": ConfigRevisionRecord,
}
"""The record of each table, by the table's name."""
