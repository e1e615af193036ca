"""What is stored, as people and programs read it: one model per table, field for column.

Modules as in `store/schema/`.
"""

from __future__ import annotations

from dalsegno.model.records.base import Record
from dalsegno.model.records.flow import BreakerRecord, HoldRecord, LimitRecord, PermitRecord, WaitRecord
from dalsegno.model.records.keeping import ArchiveRecord, PruningRecord, RetentionRecord
from dalsegno.model.records.people import (
    ArtifactRecord,
    ConfigRevisionRecord,
    ErrorGroupRecord,
    ErrorHourRecord,
    MinuteRecord,
)
from dalsegno.model.records.record import BulkItemRecord, BulkJobRecord, CommandRecord, EventRecord, LogRecord
from dalsegno.model.records.roster import NodeRecord, ProcessRecord, SystemSettingRecord, WorkerRecord
from dalsegno.model.records.schedule import ScheduleRecord, ScheduleRunRecord
from dalsegno.model.records.work import ItemRecord, JobRecord, LaneRecord, LeaseRecord, StageRecord, WorkflowRecord

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

__all__ = [
    "RECORDS",
    "ArchiveRecord",
    "ArtifactRecord",
    "BreakerRecord",
    "BulkItemRecord",
    "BulkJobRecord",
    "CommandRecord",
    "ConfigRevisionRecord",
    "ErrorGroupRecord",
    "ErrorHourRecord",
    "EventRecord",
    "HoldRecord",
    "ItemRecord",
    "JobRecord",
    "LaneRecord",
    "LeaseRecord",
    "LimitRecord",
    "LogRecord",
    "MinuteRecord",
    "NodeRecord",
    "PermitRecord",
    "ProcessRecord",
    "PruningRecord",
    "Record",
    "RetentionRecord",
    "ScheduleRecord",
    "ScheduleRunRecord",
    "StageRecord",
    "SystemSettingRecord",
    "WaitRecord",
    "WorkerRecord",
    "WorkflowRecord",
]
