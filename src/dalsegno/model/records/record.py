"""What was asked for and what happened: commands, bulk operations, events, logs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from dalsegno.model.records.base import Record
from dalsegno.model.states import CommandStatus, Level


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


class BulkItemRecord(Record):
    command_id: int
    stage_id: int
    seq: int


class BulkJobRecord(Record):
    command_id: int
    job_id: int


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
