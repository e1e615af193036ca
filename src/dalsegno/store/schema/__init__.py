"""The tables, once, for both databases. CHECK constraints make illegal rows impossible.

Three shapes here carry the engine's speed (docs/decisions/0001):

- Items of a stage are numbered densely (`seq`). A stage remembers up to where it has handed them out (`low_seq`),
  so a claim is one range of one index and never looks at what is done. Items that come back are `returned`.
- What a claim must know lives on the stage: `open`, `ready`, `claimable`, and the job's order. Pausing a job of a
  million items changes a handful of rows.
- A live lease is a row in `leases`. The columns of `items` that change on the good path are in no index, so
  PostgreSQL updates them in place (HOT).
"""

from dalsegno.store.schema.columns import (
    GOES_WITH_ITEM,
    Id,
    Json,
    UtcTime,
    counter,
    from_text,
    identity,
    metadata,
    to_text,
)
from dalsegno.store.schema.flow import breakers, holds, limits, permits, waits
from dalsegno.store.schema.keeping import archives, prunings, retention
from dalsegno.store.schema.people import artifacts, config_revisions, error_groups, error_hours, minutes
from dalsegno.store.schema.record import BULK, COMMANDS, bulk_items, bulk_jobs, commands, events, logs
from dalsegno.store.schema.roster import nodes, processes, system_settings, workers
from dalsegno.store.schema.schedule import CATCH_UPS, OVERLAPS, RUN_OUTCOMES, schedule_runs, schedules
from dalsegno.store.schema.work import (
    COUNTERS,
    STAGE_LEFT,
    STAGE_TROUBLE,
    items,
    jobs,
    lanes,
    leases,
    stages,
    workflows,
)

__all__ = [
    "BULK",
    "CATCH_UPS",
    "COMMANDS",
    "COUNTERS",
    "GOES_WITH_ITEM",
    "OVERLAPS",
    "RUN_OUTCOMES",
    "STAGE_LEFT",
    "STAGE_TROUBLE",
    "Id",
    "Json",
    "UtcTime",
    "archives",
    "artifacts",
    "breakers",
    "bulk_items",
    "bulk_jobs",
    "commands",
    "config_revisions",
    "counter",
    "error_groups",
    "error_hours",
    "events",
    "from_text",
    "holds",
    "identity",
    "items",
    "jobs",
    "lanes",
    "leases",
    "limits",
    "logs",
    "metadata",
    "minutes",
    "nodes",
    "permits",
    "processes",
    "prunings",
    "retention",
    "schedule_runs",
    "schedules",
    "stages",
    "system_settings",
    "to_text",
    "waits",
    "workers",
    "workflows",
]
