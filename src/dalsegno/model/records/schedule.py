"""What starts by the clock: schedules and their runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from dalsegno.model.records.base import Record


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
