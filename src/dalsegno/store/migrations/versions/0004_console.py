"""The console: errors in groups, minutes for charts, commands about many items, and what its lists go by."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dalsegno.store.schema import UtcTime

revision = "0004"
down_revision = "0003"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")

BULK = ("bulk_retry", "bulk_force_retry", "bulk_cancel")
COMMANDS = (
    "pause", "resume", "cancel", "retry_item", "force_retry_item", "set_priority", "pause_stage", "resume_stage",
    *BULK,
)  # fmt: skip


def upgrade() -> None:
    op.add_column("items", sa.Column("fingerprint", sa.Text()))
    op.add_column("jobs", sa.Column("config_revision_id", Id))
    op.add_column("config_revisions", sa.Column("node", sa.Text()))
    op.add_column("config_revisions", sa.Column("saved_by", sa.Text()))
    op.add_column("config_revisions", sa.Column("secrets", Json))
    op.add_column("config_revisions", sa.Column("restores", Id))
    op.add_column("processes", sa.Column("loops", Json))
    op.add_column("processes", sa.Column("pools", Json))
    op.add_column("workers", sa.Column("since", UtcTime()))
    op.add_column("commands", sa.Column("progress", Json))
    op.add_column("commands", sa.Column("stop_requested_at", UtcTime()))
    with op.batch_alter_table("commands") as commands:
        commands.drop_constraint(op.f("ck_commands_type_known"), type_="check")
        commands.create_check_constraint(op.f("ck_commands_type_known"), _any(COMMANDS))
        commands.drop_constraint(op.f("ck_commands_has_target"), type_="check")
        commands.create_check_constraint(
            op.f("ck_commands_has_target"), f"job_id IS NOT NULL OR item_id IS NOT NULL OR {_any(BULK)}"
        )
    op.create_table(
        "error_groups",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", UtcTime(), nullable=False),
        sa.Column("last_at", UtcTime(), nullable=False),
        sa.Column("sample_item_id", Id, nullable=False),
        sa.Column("sample_error", sa.Text(), nullable=False),
        sa.Column("sample_trace", sa.Text(), nullable=True),
        sa.CheckConstraint("count > 0", name=op.f("ck_error_groups_count_positive")),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_error_groups")),
    )
    op.create_index("ix_error_groups_last_at", "error_groups", ["last_at", "fingerprint"])
    op.create_table(
        "error_hours",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("hour", Id, autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", "hour", name=op.f("pk_error_hours")),
    )
    op.create_index("ix_error_hours_hour", "error_hours", ["hour"])
    counts = ("succeeded", "failed", "skipped", "retried", "interrupted")
    op.create_table(
        "minutes",
        sa.Column("minute", Id, autoincrement=False, nullable=False),
        sa.Column("process_id", Id, autoincrement=False, nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Integer(), server_default="0", nullable=False) for name in counts),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("durations", Json, nullable=False),
        sa.PrimaryKeyConstraint("minute", "process_id", "service", name=op.f("pk_minutes")),
    )
    _partial("ix_jobs_unfinished", "jobs", ["id"], "finished_at IS NULL")
    _partial("ix_jobs_config_revision", "jobs", ["config_revision_id", "id"], "config_revision_id IS NOT NULL")
    _partial("ix_items_group", "items", ["fingerprint", "stage_id", "seq"], "error_code IS NOT NULL")
    _partial("ix_events_wide", "events", ["tx", "id"], "item_id IS NULL")
    _partial("ix_logs_trouble", "logs", ["id"], "level = 'warn' OR level = 'error'")


def _any(names: tuple[str, ...]) -> str:
    return "(" + " OR ".join(f"type = '{name}'" for name in names) + ")"


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
