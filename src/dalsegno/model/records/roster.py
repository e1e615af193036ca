"""Who does it: processes, workers, nodes, and what is set for all of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import computed_field

from dalsegno.model.records.base import Record


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
