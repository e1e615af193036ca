"""What people look at: errors in groups, minutes, artifacts, revisions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from dalsegno.model.records.base import Record


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
