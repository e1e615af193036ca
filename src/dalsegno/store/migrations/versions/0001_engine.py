"""The engine: workflows, lanes, jobs, stages, items, leases, and what is said about them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dalsegno.store.schema import UtcTime

revision = "0001"
down_revision = None

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("job_id", Id, nullable=False),
        sa.Column("stage_id", Id, nullable=False),
        sa.Column("item_id", Id, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=True),
        sa.Column("checksum", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint("(kind = 'input' OR kind = 'output' OR kind = 'log')", name=op.f("ck_artifacts_kind_known")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_artifacts_size_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
    )
    op.create_index("ix_artifacts_item_id", "artifacts", ["item_id"], unique=False)
    op.create_index("ix_artifacts_job_id", "artifacts", ["job_id"], unique=False)
    op.create_table(
        "commands",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("job_id", Id, nullable=True),
        sa.Column("item_id", Id, nullable=True),
        sa.Column("payload", Json, nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("applied_at", UtcTime(), nullable=True),
        sa.CheckConstraint(
            "(status = 'pending' OR status = 'applied' OR status = 'rejected')",
            name=op.f("ck_commands_status_known"),
        ),
        sa.CheckConstraint("(status = 'pending') = (applied_at IS NULL)", name=op.f("ck_commands_applied_has_time")),
        sa.CheckConstraint(
            "(type = 'pause' OR type = 'resume' OR type = 'cancel' OR type = 'retry_item' OR type = 'force_retry_item' OR type = 'set_priority')",
            name=op.f("ck_commands_type_known"),
        ),
        sa.CheckConstraint("job_id IS NOT NULL OR item_id IS NOT NULL", name=op.f("ck_commands_has_target")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commands")),
    )
    op.create_index("ix_commands_job_id", "commands", ["job_id"], unique=False)
    op.create_index(
        "ix_commands_pending",
        "commands",
        ["id"],
        unique=False,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "config_revisions",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("file_path", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("applied_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_config_revisions")),
    )
    op.create_table(
        "events",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("tx", Id, server_default="0", nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), server_default="info", nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("job_id", Id, nullable=True),
        sa.Column("stage_id", Id, nullable=True),
        sa.Column("item_id", Id, nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("data", Json, nullable=True),
        sa.CheckConstraint(
            "(level = 'debug' OR level = 'info' OR level = 'warn' OR level = 'error')",
            name=op.f("ck_events_level_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_item_id", "events", ["item_id", "id"], unique=False)
    op.create_index(
        "ix_events_job_id",
        "events",
        ["job_id", "id"],
        unique=False,
        sqlite_where=sa.text("item_id IS NULL"),
        postgresql_where=sa.text("item_id IS NULL"),
    )
    op.create_table(
        "items",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("stage_id", Id, nullable=False),
        sa.Column("job_id", Id, nullable=False),
        sa.Column("seq", Id, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("lease", Id, server_default="0", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("interruptions", sa.Integer(), server_default="0", nullable=False),
        sa.Column("returned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("forced", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("due_at", UtcTime(), nullable=True),
        sa.Column("params", Json, nullable=True),
        sa.Column("result", Json, nullable=True),
        sa.Column("parent_id", Id, nullable=True),
        sa.Column("input_hash", sa.Text(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("progress_text", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.CheckConstraint(
            "(status = 'pending' OR status = 'claimed' OR status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'skipped' OR status = 'interrupted' OR status = 'canceled')",
            name=op.f("ck_items_status_known"),
        ),
        sa.CheckConstraint(
            "(status = 'succeeded' OR status = 'failed' OR status = 'skipped' OR status = 'canceled') = (finished_at IS NOT NULL)",
            name=op.f("ck_items_finished_has_time"),
        ),
        sa.CheckConstraint(
            "NOT returned OR (status = 'pending' AND due_at IS NULL)", name=op.f("ck_items_returned_is_ready")
        ),
        sa.CheckConstraint("due_at IS NULL OR status = 'pending'", name=op.f("ck_items_due_is_pending")),
        sa.CheckConstraint(
            "error_code IS NOT NULL OR (status <> 'failed' AND status <> 'interrupted')",
            name=op.f("ck_items_trouble_has_code"),
        ),
        sa.CheckConstraint(
            "lease > 0 OR (status <> 'claimed' AND status <> 'running')",
            name=op.f("ck_items_leased_has_number"),
        ),
        sa.CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name=op.f("ck_items_running_has_start")),
        sa.CheckConstraint("attempt >= 0 AND interruptions >= 0", name=op.f("ck_items_counts_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_items")),
        sa.UniqueConstraint("stage_id", "key", name=op.f("uq_items_stage_id_key")),
        sa.UniqueConstraint("stage_id", "seq", name=op.f("uq_items_stage_id_seq")),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_index(
        "ix_items_due",
        "items",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_items_returned",
        "items",
        ["stage_id", "seq"],
        unique=False,
        sqlite_where=sa.text("returned"),
        postgresql_where=sa.text("returned"),
    )
    op.create_index(
        "ix_items_trouble",
        "items",
        ["stage_id", "seq"],
        unique=False,
        sqlite_where=sa.text("error_code IS NOT NULL"),
        postgresql_where=sa.text("error_code IS NOT NULL"),
    )
    op.create_table(
        "lanes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("max_active", sa.Integer(), nullable=True),
        sa.Column("recovery", sa.Text(), server_default="continue", nullable=False),
        sa.Column("held_at", UtcTime(), nullable=True),
        sa.Column("held_by", sa.Text(), nullable=True),
        sa.Column("held_reason", sa.Text(), nullable=True),
        sa.CheckConstraint("(recovery = 'continue' OR recovery = 'pause')", name=op.f("ck_lanes_recovery_known")),
        sa.CheckConstraint("(held_at IS NULL) = (held_reason IS NULL)", name=op.f("ck_lanes_hold_has_reason")),
        sa.CheckConstraint("max_active IS NULL OR max_active >= 1", name=op.f("ck_lanes_max_active_positive")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_lanes")),
    )
    op.create_table(
        "leases",
        sa.Column("item_id", Id, autoincrement=False, nullable=False),
        sa.Column("number", Id, nullable=False),
        sa.Column("process_id", Id, nullable=False),
        sa.Column("stage_id", Id, nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("claimed_at", UtcTime(), nullable=False),
        sa.Column("begun_at", UtcTime(), nullable=True),
        sa.CheckConstraint("number > 0", name=op.f("ck_leases_number_positive")),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_leases")),
    )
    op.create_index("ix_leases_process", "leases", ["process_id"], unique=False)
    op.create_table(
        "logs",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("logger", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("job_id", Id, nullable=True),
        sa.Column("stage_id", Id, nullable=True),
        sa.Column("item_id", Id, nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(level = 'debug' OR level = 'info' OR level = 'warn' OR level = 'error')",
            name=op.f("ck_logs_level_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logs")),
    )
    op.create_index("ix_logs_item_id", "logs", ["item_id", "id"], unique=False)
    op.create_index("ix_logs_job_id", "logs", ["job_id", "id"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("labels", Json, nullable=False),
        sa.Column("max_concurrency", Json, nullable=False),
        sa.Column("last_seen", UtcTime(), nullable=False),
        sa.Column("awake_state", sa.Text(), server_default="unknown", nullable=False),
        sa.Column("wake_method", sa.Text(), nullable=True),
        sa.Column("mac", sa.Text(), nullable=True),
        sa.Column("provider_ref", sa.Text(), nullable=True),
        sa.Column("script", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(awake_state = 'unknown' OR awake_state = 'awake' OR awake_state = 'sleep')",
            name=op.f("ck_nodes_awake_state_known"),
        ),
        sa.CheckConstraint(
            "wake_method IS NULL OR wake_method IN ('wol', 'provider', 'script')",
            name=op.f("ck_nodes_wake_method_known"),
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nodes")),
    )
    op.create_table(
        "processes",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("heartbeat_at", UtcTime(), nullable=False),
        sa.Column("lease_until", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_processes")),
    )
    op.create_table(
        "workflows",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("definition", Json, nullable=False),
        sa.Column("is_active", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("ck_workflows_version_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflows")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_workflows_name_version")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("workflow_id", Id, nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="queued", nullable=False),
        sa.Column("priority", sa.Integer(), server_default="100", nullable=False),
        sa.Column("order_seq", Id, nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("scope", Json, nullable=True),
        sa.Column("options", Json, nullable=True),
        sa.Column("snapshot", Json, nullable=True),
        sa.Column("overrides", Json, nullable=True),
        sa.Column("dedupe_key", sa.Text(), nullable=True),
        sa.Column("scheduled_at", UtcTime(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("current_stage", sa.Text(), nullable=True),
        sa.Column("pause_reason", sa.Text(), nullable=True),
        sa.Column("paused_by", sa.Text(), nullable=True),
        sa.Column("cancel_requested_at", UtcTime(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "(status = 'completed' OR status = 'completed_with_errors' OR status = 'failed' OR status = 'canceled') = (finished_at IS NOT NULL)",
            name=op.f("ck_jobs_finished_has_time"),
        ),
        sa.CheckConstraint(
            "(status = 'queued' OR status = 'running' OR status = 'pause_requested' OR status = 'paused' OR status = 'completed' OR status = 'completed_with_errors' OR status = 'failed' OR status = 'canceled')",
            name=op.f("ck_jobs_status_known"),
        ),
        sa.CheckConstraint(
            "pause_reason IS NOT NULL OR (status <> 'pause_requested' AND status <> 'paused')",
            name=op.f("ck_jobs_pause_has_reason"),
        ),
        sa.CheckConstraint(
            "progress IS NULL OR (progress >= 0 AND progress <= 1)",
            name=op.f("ck_jobs_progress_is_a_fraction"),
        ),
        sa.ForeignKeyConstraint(["lane"], ["lanes.name"], name=op.f("fk_jobs_lane")),
        sa.ForeignKeyConstraint(["workflow_id"], ["workflows.id"], name=op.f("fk_jobs_workflow_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(
        "ix_jobs_active",
        "jobs",
        ["lane", "id"],
        unique=False,
        sqlite_where=sa.text("status IN ('running', 'pause_requested')"),
        postgresql_where=sa.text("status IN ('running', 'pause_requested')"),
    )
    op.create_index(
        "ix_jobs_waiting",
        "jobs",
        ["lane", "priority", "order_seq"],
        unique=False,
        sqlite_where=sa.text("status = 'queued'"),
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "uq_jobs_dedupe",
        "jobs",
        ["dedupe_key"],
        unique=True,
        sqlite_where=sa.text("dedupe_key IS NOT NULL AND status IN ('queued', 'running', 'pause_requested', 'paused')"),
        postgresql_where=sa.text(
            "dedupe_key IS NOT NULL AND status IN ('queued', 'running', 'pause_requested', 'paused')"
        ),
    )
    op.create_table(
        "workers",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("process_id", Id, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="idle", nullable=False),
        sa.Column("job_id", Id, nullable=True),
        sa.Column("stage_id", Id, nullable=True),
        sa.Column("item_id", Id, nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("processed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("errors", sa.Integer(), server_default="0", nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint("(status = 'idle' OR status = 'busy')", name=op.f("ck_workers_status_known")),
        sa.ForeignKeyConstraint(
            ["process_id"], ["processes.id"], name=op.f("fk_workers_process_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("process_id", "name", name=op.f("uq_workers_process_id_name")),
    )
    op.create_table(
        "stages",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("job_id", Id, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("depends_on", Json, nullable=False),
        sa.Column("follow", sa.Text(), server_default="all", nullable=False),
        sa.Column("followed_by", Json, nullable=False),
        sa.Column("on_failure", sa.Text(), server_default="continue", nullable=False),
        sa.Column("params", Json, nullable=True),
        sa.Column("max_attempts", sa.Integer(), server_default="3", nullable=False),
        sa.Column("max_interruptions", sa.Integer(), server_default="20", nullable=False),
        sa.Column("timeout", sa.Float(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("order_seq", Id, nullable=False),
        sa.Column("open", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("claimable", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("given", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("planned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("planner_id", Id, nullable=True),
        sa.Column("ready", sa.Integer(), server_default="0", nullable=False),
        sa.Column("returned", sa.Integer(), server_default="0", nullable=False),
        sa.Column("low_seq", Id, server_default="0", nullable=False),
        sa.Column("high_seq", Id, server_default="0", nullable=False),
        sa.Column("total", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pending", sa.Integer(), server_default="0", nullable=False),
        sa.Column("claimed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("running", sa.Integer(), server_default="0", nullable=False),
        sa.Column("succeeded", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("skipped", sa.Integer(), server_default="0", nullable=False),
        sa.Column("interrupted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("canceled", sa.Integer(), server_default="0", nullable=False),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.CheckConstraint("(follow = 'all' OR follow = 'each')", name=op.f("ck_stages_follow_known")),
        sa.CheckConstraint("(on_failure = 'continue' OR on_failure = 'stop')", name=op.f("ck_stages_on_failure_known")),
        sa.CheckConstraint(
            "(status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'canceled') = (finished_at IS NOT NULL)",
            name=op.f("ck_stages_finished_has_time"),
        ),
        sa.CheckConstraint(
            "(status = 'pending' OR status = 'running' OR status = 'pause_requested' OR status = 'paused' OR status = 'completed' OR status = 'failed' OR status = 'skipped' OR status = 'canceled')",
            name=op.f("ck_stages_status_known"),
        ),
        sa.CheckConstraint("NOT open OR status = 'running'", name=op.f("ck_stages_open_means_running")),
        sa.CheckConstraint("claimable = (open AND ready > 0)", name=op.f("ck_stages_claimable_means_open_and_ready")),
        sa.CheckConstraint("low_seq >= 0 AND low_seq <= high_seq", name=op.f("ck_stages_marks_in_order")),
        sa.CheckConstraint(
            "pending >= 0 AND claimed >= 0 AND running >= 0 AND succeeded >= 0 AND failed >= 0 AND skipped >= 0 AND interrupted >= 0 AND canceled >= 0",
            name=op.f("ck_stages_counters_not_negative"),
        ),
        sa.CheckConstraint(
            "ready >= returned AND returned >= 0 AND ready <= pending",
            name=op.f("ck_stages_ready_is_pending"),
        ),
        sa.CheckConstraint(
            "total = pending + claimed + running + succeeded + failed + skipped + interrupted + canceled",
            name=op.f("ck_stages_counters_add_up"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_stages_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stages")),
        sa.UniqueConstraint("job_id", "key", name=op.f("uq_stages_job_id_key")),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_index(
        "ix_stages_claim",
        "stages",
        ["service", "priority", "order_seq", "id"],
        unique=False,
        sqlite_where=sa.text("claimable"),
        postgresql_where=sa.text("claimable"),
    )
    op.create_index(
        "ix_stages_live",
        "stages",
        ["id"],
        unique=False,
        sqlite_where=sa.text("status IN ('running', 'pause_requested')"),
        postgresql_where=sa.text("status IN ('running', 'pause_requested')"),
    )

    op.execute("INSERT INTO lanes (name) VALUES ('default')")
    op.execute("INSERT INTO lanes (name, max_active, recovery) VALUES ('catalog', 1, 'pause')")
    if op.get_context().dialect.name == "postgresql":
        # Ids are handed out before the commit; who tails needs to know which transaction wrote a row.
        op.execute("ALTER TABLE events ALTER COLUMN tx SET DEFAULT pg_current_xact_id()::text::bigint")
        op.execute("ALTER TABLE events DROP CONSTRAINT pk_events, ADD CONSTRAINT pk_events PRIMARY KEY (tx, id)")
        # A stage that is newer than the statistics would be taken for empty, and any index for as good as another.
        op.execute("ALTER TABLE items ALTER COLUMN stage_id SET STATISTICS 0")
