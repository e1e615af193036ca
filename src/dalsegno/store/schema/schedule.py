"""What is started by the clock."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.store.schema.columns import Id, Json, UtcTime, identity, metadata, one_of, required_time

CATCH_UPS = ("skip", "one", "all")
OVERLAPS = ("skip", "queue", "allow")
RUN_OUTCOMES = ("started", "waiting", "skipped", "failed")

schedules = sa.Table(
    "schedules",
    metadata,
    identity(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("workflow", sa.Text, nullable=False),
    # What else is asked for: scope, options, params, items, as far as they were given.
    sa.Column("request", Json, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False, server_default="100"),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("time_zone", sa.Text, nullable=False, server_default="UTC"),
    sa.Column("catch_up", sa.Text, nullable=False, server_default="one"),
    sa.Column("catch_up_most", sa.Integer, nullable=False, server_default="10"),
    sa.Column("overlap", sa.Text, nullable=False, server_default="skip"),
    sa.Column("paused_at", UtcTime),
    sa.Column("paused_by", sa.Text),
    sa.Column("pause_reason", sa.Text),
    # The first due time that nothing has been decided about. None: it is paused, or never due again.
    sa.Column("next_at", UtcTime),
    sa.Column("last_run_id", Id),
    sa.Column("last_due_at", UtcTime),
    sa.Column("last_job_id", Id),
    sa.Column("created_by", sa.Text),
    required_time("created_at"),
    sa.Column("updated_by", sa.Text),
    required_time("updated_at"),
    one_of("catch_up", CATCH_UPS),
    one_of("overlap", OVERLAPS),
    sa.CheckConstraint("catch_up_most >= 1 AND catch_up_most <= 1000", name="catch_up_most_within"),
    sa.CheckConstraint("(paused_at IS NULL) = (pause_reason IS NULL)", name="pause_has_reason"),
    sa.CheckConstraint("paused_at IS NULL OR next_at IS NULL", name="paused_is_never_due"),
    sa.Index(
        "ix_schedules_next_at",
        "next_at",
        "id",
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    ),
)

# What became of a due time. Of many that were skipped together there is one row, from the first to the last.
schedule_runs = sa.Table(
    "schedule_runs",
    metadata,
    identity(),
    sa.Column("schedule_id", Id, sa.ForeignKey("schedules.id", ondelete="CASCADE"), nullable=False),
    sa.Column("due_at", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False, server_default="1"),
    sa.Column("last_due_at", UtcTime),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("message", sa.Text),
    # No foreign key: a run is remembered longer than its job may be.
    sa.Column("job_id", Id),
    # Who asked for it, where it was not the clock.
    sa.Column("requested_by", sa.Text),
    required_time("at"),
    # Two engines can never start one twice.
    sa.UniqueConstraint("schedule_id", "due_at"),
    one_of("outcome", RUN_OUTCOMES),
    sa.CheckConstraint("(outcome = 'started') = (job_id IS NOT NULL)", name="started_has_job"),
    sa.CheckConstraint("outcome = 'started' OR reason IS NOT NULL", name="else_has_reason"),
    sa.CheckConstraint("count >= 1", name="count_positive"),
    sa.CheckConstraint(
        "(count = 1) = (last_due_at IS NULL) AND (count = 1 OR outcome = 'skipped')", name="many_were_skipped"
    ),
    sa.Index(
        "ix_schedule_runs_waiting",
        "schedule_id",
        "due_at",
        sqlite_where=sa.text("outcome = 'waiting'"),
        postgresql_where=sa.text("outcome = 'waiting'"),
    ),
    sa.Index(
        "ix_schedule_runs_job_id",
        "job_id",
        sqlite_where=sa.text("job_id IS NOT NULL"),
        postgresql_where=sa.text("job_id IS NOT NULL"),
    ),
)
