"""What is to be done: workflows, lanes, jobs, stages, items, and who has an item in hand."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.model.states import ItemStatus, JobStatus, StageStatus
from dalsegno.store.schema.columns import (
    Id,
    Json,
    UtcTime,
    counter,
    finished_has_time,
    flag,
    identity,
    metadata,
    one_of,
    pauses_that_end,
    required_time,
)

workflows = sa.Table(
    "workflows",
    metadata,
    identity(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("definition", Json, nullable=False),
    flag("is_active", default=True),
    required_time("created_at"),
    required_time("updated_at"),
    sa.UniqueConstraint("name", "version"),
    sa.CheckConstraint("version >= 1", name="version_positive"),
)

lanes = sa.Table(
    "lanes",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("max_active", sa.Integer),
    sa.Column("recovery", sa.Text, nullable=False, server_default="continue"),
    sa.Column("held_at", UtcTime),
    sa.Column("held_by", sa.Text),
    sa.Column("held_reason", sa.Text),
    sa.Column("held_until", UtcTime),
    one_of("recovery", ("continue", "pause")),
    sa.CheckConstraint("max_active IS NULL OR max_active >= 1", name="max_active_positive"),
    sa.CheckConstraint("(held_at IS NULL) = (held_reason IS NULL)", name="hold_has_reason"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    identity(),
    sa.Column("workflow_id", Id, sa.ForeignKey("workflows.id"), nullable=False),
    sa.Column("lane", sa.Text, sa.ForeignKey("lanes.name"), nullable=False),
    sa.Column("status", sa.Text, nullable=False, server_default="queued"),
    sa.Column("priority", sa.Integer, nullable=False, server_default="100"),
    sa.Column("order_seq", Id, nullable=False),
    sa.Column("requested_by", sa.Text),
    sa.Column("scope", Json),
    sa.Column("options", Json),
    sa.Column("snapshot", Json),
    # The revision of the settings file that the snapshot was taken from, where it is known.
    sa.Column("config_revision_id", Id),
    sa.Column("overrides", Json),
    sa.Column("dedupe_key", sa.Text),
    sa.Column("scheduled_at", UtcTime),
    sa.Column("progress", sa.Float),
    sa.Column("current_stage", sa.Text),
    sa.Column("pause_reason", sa.Text),
    sa.Column("paused_by", sa.Text),
    sa.Column("paused_at", UtcTime),
    sa.Column("pause_until", UtcTime),
    sa.Column("cancel_requested_at", UtcTime),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    required_time("created_at"),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    required_time("updated_at"),
    one_of("status", JobStatus),
    sa.CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress_is_a_fraction"),
    finished_has_time(("completed", "completed_with_errors", "failed", "canceled")),
    sa.CheckConstraint(
        "pause_reason IS NOT NULL OR (status <> 'pause_requested' AND status <> 'paused')", name="pause_has_reason"
    ),
    sa.Index(
        "ix_jobs_waiting",
        "lane",
        "priority",
        "order_seq",
        sqlite_where=sa.text("status = 'queued'"),
        postgresql_where=sa.text("status = 'queued'"),
    ),
    sa.Index(
        "ix_jobs_active",
        "lane",
        "id",
        sqlite_where=sa.text("status IN ('running', 'pause_requested')"),
        postgresql_where=sa.text("status IN ('running', 'pause_requested')"),
    ),
    sa.Index(
        "uq_jobs_dedupe",
        "dedupe_key",
        unique=True,
        sqlite_where=sa.text("dedupe_key IS NOT NULL AND status IN ('queued', 'running', 'pause_requested', 'paused')"),
        postgresql_where=sa.text(
            "dedupe_key IS NOT NULL AND status IN ('queued', 'running', 'pause_requested', 'paused')"
        ),
    ),
    pauses_that_end("jobs"),
    # The scheduler asks at every tick: what is being canceled, and what has its time before it. Mostly nothing.
    sa.Index(
        "ix_jobs_canceling",
        "id",
        sqlite_where=sa.text("cancel_requested_at IS NOT NULL"),
        postgresql_where=sa.text("cancel_requested_at IS NOT NULL"),
    ),
    sa.Index(
        "ix_jobs_scheduled",
        "scheduled_at",
        sqlite_where=sa.text("scheduled_at IS NOT NULL"),
        postgresql_where=sa.text("scheduled_at IS NOT NULL"),
    ),
    # Paused, or about to be.
    sa.Index(
        "ix_jobs_paused",
        "id",
        sqlite_where=sa.text("pause_reason IS NOT NULL"),
        postgresql_where=sa.text("pause_reason IS NOT NULL"),
    ),
    # What is not over yet, for lists: few, however long the history.
    sa.Index(
        "ix_jobs_unfinished",
        "id",
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    ),
    sa.Index(
        "ix_jobs_config_revision",
        "config_revision_id",
        "id",
        sqlite_where=sa.text("config_revision_id IS NOT NULL"),
        postgresql_where=sa.text("config_revision_id IS NOT NULL"),
    ),
    # For retention: in the order in which they finished; and those in which something may be left to retry.
    sa.Index(
        "ix_jobs_finished",
        "lane",
        "finished_at",
        "id",
        sqlite_where=sa.text("finished_at IS NOT NULL"),
        postgresql_where=sa.text("finished_at IS NOT NULL"),
    ),
    sa.Index(
        "ix_jobs_troubled",
        "lane",
        "finished_at",
        "id",
        sqlite_where=sa.text("finished_at IS NOT NULL AND status <> 'completed'"),
        postgresql_where=sa.text("finished_at IS NOT NULL AND status <> 'completed'"),
    ),
)

COUNTERS = tuple(ItemStatus)
"""A stage keeps one counter per item status, under the status's own name."""

STAGE_LEFT = "status IN ('pending', 'running', 'pause_requested', 'paused', 'failed')"
"""Only there items may wait or be at work: what failed was stopped, and left what it did not get to."""
STAGE_TROUBLE = "failed > 0 OR interrupted > 0"

stages = sa.Table(
    "stages",
    metadata,
    identity(),
    sa.Column("job_id", Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False, server_default="pending"),
    sa.Column("depends_on", Json, nullable=False),
    sa.Column("follow", sa.Text, nullable=False, server_default="all"),
    sa.Column("followed_by", Json, nullable=False),
    sa.Column("on_failure", sa.Text, nullable=False, server_default="continue"),
    sa.Column("params", Json),
    sa.Column("max_attempts", sa.Integer, nullable=False, server_default="3"),
    sa.Column("max_interruptions", sa.Integer, nullable=False, server_default="20"),
    sa.Column("timeout", sa.Float),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("order_seq", Id, nullable=False),
    flag("open"),
    flag("claimable"),
    flag("given"),
    flag("planned"),
    sa.Column("planner_id", Id),
    counter("ready"),
    counter("returned"),
    sa.Column("low_seq", Id, nullable=False, server_default="0"),
    sa.Column("high_seq", Id, nullable=False, server_default="0"),
    counter("total"),
    *(counter(status) for status in COUNTERS),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    sa.Column("last_error", sa.Text),
    # A pause of this stage alone; a pause of its job shows in `status` only.
    sa.Column("pause_reason", sa.Text),
    sa.Column("paused_by", sa.Text),
    sa.Column("paused_at", UtcTime),
    sa.Column("pause_until", UtcTime),
    sa.UniqueConstraint("job_id", "key"),
    one_of("status", StageStatus),
    one_of("follow", ("all", "each")),
    one_of("on_failure", ("continue", "stop")),
    sa.CheckConstraint(f"total = {' + '.join(COUNTERS)}", name="counters_add_up"),
    sa.CheckConstraint(" AND ".join(f"{status} >= 0" for status in COUNTERS), name="counters_not_negative"),
    sa.CheckConstraint("ready >= returned AND returned >= 0 AND ready <= pending", name="ready_is_pending"),
    sa.CheckConstraint("low_seq >= 0 AND low_seq <= high_seq", name="marks_in_order"),
    sa.CheckConstraint("claimable = (open AND ready > 0)", name="claimable_means_open_and_ready"),
    sa.CheckConstraint("NOT open OR status = 'running'", name="open_means_running"),
    finished_has_time(("completed", "failed", "skipped", "canceled")),
    # The claim's index. `claimable` changes only at the edges, so counting down `ready` stays an in-place update.
    sa.Index(
        "ix_stages_claim",
        "service",
        "priority",
        "order_seq",
        "id",
        sqlite_where=sa.text("claimable"),
        postgresql_where=sa.text("claimable"),
    ),
    sa.Index(
        "ix_stages_live",
        "id",
        sqlite_where=sa.text("status IN ('running', 'pause_requested')"),
        postgresql_where=sa.text("status IN ('running', 'pause_requested')"),
    ),
    pauses_that_end("stages"),
    # For people: what is paused by itself, and what a service has before it, however many jobs wait for others.
    sa.Index(
        "ix_stages_paused",
        "id",
        sqlite_where=sa.text("pause_reason IS NOT NULL"),
        postgresql_where=sa.text("pause_reason IS NOT NULL"),
    ),
    sa.Index(
        "ix_stages_unfinished",
        "service",
        "id",
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    ),
    # And which stages may have items in some state, however many are done.
    sa.Index("ix_stages_left", "id", sqlite_where=sa.text(STAGE_LEFT), postgresql_where=sa.text(STAGE_LEFT)),
    sa.Index("ix_stages_trouble", "id", sqlite_where=sa.text(STAGE_TROUBLE), postgresql_where=sa.text(STAGE_TROUBLE)),
    sa.Index("ix_stages_service", "service", "id"),
    postgresql_with={"fillfactor": "50"},
)

items = sa.Table(
    "items",
    metadata,
    identity(),
    # No foreign keys on the hot tables: PostgreSQL would run a trigger and lock the stage's row for every item.
    sa.Column("stage_id", Id, nullable=False),
    sa.Column("job_id", Id, nullable=False),
    sa.Column("seq", Id, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False, server_default="pending"),
    sa.Column("lease", Id, nullable=False, server_default="0"),
    counter("attempt"),
    counter("interruptions"),
    flag("returned"),
    flag("forced"),
    sa.Column("due_at", UtcTime),
    sa.Column("params", Json),
    sa.Column("result", Json),
    sa.Column("parent_id", Id),
    sa.Column("input_hash", sa.Text),
    sa.Column("phase", sa.Text),
    sa.Column("progress", sa.Float),
    sa.Column("progress_text", sa.Text),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    # The group of errors alike that its error belongs to.
    sa.Column("fingerprint", sa.Text),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    sa.UniqueConstraint("stage_id", "key"),
    sa.UniqueConstraint("stage_id", "seq"),
    one_of("status", ItemStatus),
    sa.CheckConstraint("lease > 0 OR (status <> 'claimed' AND status <> 'running')", name="leased_has_number"),
    sa.CheckConstraint("due_at IS NULL OR status = 'pending'", name="due_is_pending"),
    sa.CheckConstraint("NOT returned OR (status = 'pending' AND due_at IS NULL)", name="returned_is_ready"),
    sa.CheckConstraint(
        "error_code IS NOT NULL OR (status <> 'failed' AND status <> 'interrupted')", name="trouble_has_code"
    ),
    sa.CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name="running_has_start"),
    finished_has_time(("succeeded", "failed", "skipped", "canceled")),
    sa.CheckConstraint("attempt >= 0 AND interruptions >= 0", name="counts_not_negative"),
    sa.Index(
        "ix_items_returned", "stage_id", "seq", sqlite_where=sa.text("returned"), postgresql_where=sa.text("returned")
    ),
    sa.Index(
        "ix_items_due",
        "due_at",
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    ),
    # Whatever once went wrong, for lists and resume; the good path never enters it. Without `status` in it, or
    # every change of state would be a new entry in all indexes.
    sa.Index(
        "ix_items_trouble",
        "stage_id",
        "seq",
        sqlite_where=sa.text("error_code IS NOT NULL"),
        postgresql_where=sa.text("error_code IS NOT NULL"),
    ),
    # What is wrong with a thing, across jobs: a key names the thing (`song:17`).
    sa.Index(
        "ix_items_trouble_key",
        "key",
        sqlite_where=sa.text("error_code IS NOT NULL"),
        postgresql_where=sa.text("error_code IS NOT NULL"),
    ),
    sa.Index(
        "ix_items_group",
        "fingerprint",
        "stage_id",
        "seq",
        sqlite_where=sa.text("error_code IS NOT NULL"),
        postgresql_where=sa.text("error_code IS NOT NULL"),
    ),
    # Room for all three versions of a row, pending, claimed and done: where a held transaction keeps them, the third
    # would have to go to another page, and into every index.
    postgresql_with={"fillfactor": "30"},
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("item_id", Id, primary_key=True, autoincrement=False),
    sa.Column("number", Id, nullable=False),
    sa.Column("process_id", Id, nullable=False),
    sa.Column("stage_id", Id, nullable=False),
    sa.Column("worker", sa.Text),
    required_time("claimed_at"),
    sa.Column("begun_at", UtcTime),
    sa.Index("ix_leases_process", "process_id"),
    sa.CheckConstraint("number > 0", name="number_positive"),
)
