"""What was asked for and what happened: commands, events, logs."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.model.states import CommandStatus, Level
from dalsegno.store.schema.columns import Id, Json, UtcTime, any_of, identity, metadata, one_of, required_time

BULK = ("bulk_retry", "bulk_force_retry", "bulk_cancel", "bulk_skip", "bulk_priority")
"""Commands about every item that a query finds, applied bit by bit; their `progress` says how far."""
COMMANDS = (
    "pause", "resume", "cancel", "retry_item", "force_retry_item", "set_priority", "pause_stage", "resume_stage",
    *BULK,
)  # fmt: skip

commands = sa.Table(
    "commands",
    metadata,
    identity(),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("job_id", Id),
    sa.Column("item_id", Id),
    sa.Column("payload", Json),
    sa.Column("requested_by", sa.Text),
    sa.Column("status", sa.Text, nullable=False, server_default="pending"),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    required_time("created_at"),
    sa.Column("applied_at", UtcTime),
    sa.Column("progress", Json),
    sa.Column("stop_requested_at", UtcTime),
    one_of("type", COMMANDS),
    one_of("status", CommandStatus),
    sa.CheckConstraint("(status = 'pending') = (applied_at IS NULL)", name="applied_has_time"),
    sa.CheckConstraint(f"job_id IS NOT NULL OR item_id IS NOT NULL OR {any_of('type', BULK)}", name="has_target"),
    sa.Index(
        "ix_commands_pending",
        "id",
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    ),
    sa.Index("ix_commands_job_id", "job_id"),
)

# What a command about many items has changed, for good: whatever happens to an item later, `bulk:12` finds it. By stage
# and number, which is the order of lists of items.
bulk_items = sa.Table(
    "bulk_items",
    metadata,
    sa.Column("command_id", Id, primary_key=True, autoincrement=False),
    sa.Column("stage_id", Id, primary_key=True, autoincrement=False),
    sa.Column("seq", Id, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

# The jobs that those items are of, or whose priority it changed.
bulk_jobs = sa.Table(
    "bulk_jobs",
    metadata,
    sa.Column("command_id", Id, primary_key=True, autoincrement=False),
    sa.Column("job_id", Id, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

events = sa.Table(
    "events",
    metadata,
    identity(),
    # On PostgreSQL ids are not commit order: who tails reads by (tx, id), and stops at the oldest running writer. On
    # SQLite `tx` is 0 and the id says it all. PostgreSQL has a table a month (store/months.py), each with (tx, id) as
    # its primary key.
    sa.Column("tx", Id, nullable=False, server_default="0"),
    required_time("at"),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("level", sa.Text, nullable=False, server_default="info"),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("job_id", Id),
    sa.Column("stage_id", Id),
    sa.Column("item_id", Id),
    sa.Column("message", sa.Text),
    sa.Column("data", Json),
    one_of("level", Level),
    sa.Index("ix_events_item_id", "item_id", "id"),
    # Three of four events are an item's: they are found by item, or between a job's first and last event.
    sa.Index(
        "ix_events_job_id",
        "job_id",
        "id",
        sqlite_where=sa.text("item_id IS NULL"),
        postgresql_where=sa.text("item_id IS NULL"),
    ),
    # What is about no single item, across jobs, in the order in which it happened.
    sa.Index(
        "ix_events_wide",
        "tx",
        "id",
        sqlite_where=sa.text("item_id IS NULL"),
        postgresql_where=sa.text("item_id IS NULL"),
    ),
)

logs = sa.Table(
    "logs",
    metadata,
    identity(),
    required_time("at"),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("logger", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("traceback", sa.Text),
    sa.Column("job_id", Id),
    sa.Column("stage_id", Id),
    sa.Column("item_id", Id),
    sa.Column("worker", sa.Text),
    one_of("level", Level),
    sa.Index("ix_logs_job_id", "job_id", "id"),
    sa.Index("ix_logs_item_id", "item_id", "id"),
    sa.Index(
        "ix_logs_trouble",
        "id",
        sqlite_where=sa.text("level = 'warn' OR level = 'error'"),
        postgresql_where=sa.text("level = 'warn' OR level = 'error'"),
    ),
)
