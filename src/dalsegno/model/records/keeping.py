"""What goes, and where to: retention, prunings, archives."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from dalsegno.model.records.base import Record


class RetentionRecord(Record):
    lane: str
    kind: str
    mark: Any | None
    removed: int
    removed_at: datetime | None
    looked_at: datetime


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
