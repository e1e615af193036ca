"""Schedules, and what became of each time at which one was due."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dalsegno.store.schema import UtcTime

revision = "0006"
down_revision = "0005"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("workflow", sa.Text(), nullable=False),
        sa.Column("request", Json, nullable=False),
        sa.Column("priority", sa.Integer(), server_default="100", nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), server_default="UTC", nullable=False),
        sa.Column("catch_up", sa.Text(), server_default="one", nullable=False),
        sa.Column("catch_up_most", sa.Integer(), server_default="10", nullable=False),
        sa.Column("overlap", sa.Text(), server_default="skip", nullable=False),
        sa.Column("paused_at", UtcTime(), nullable=True),
        sa.Column("paused_by", sa.Text(), nullable=True),
        sa.Column("pause_reason", sa.Text(), nullable=True),
        sa.Column("next_at", UtcTime(), nullable=True),
        sa.Column("last_run_id", Id, nullable=True),
        sa.Column("last_due_at", UtcTime(), nullable=True),
        sa.Column("last_job_id", Id, nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=True),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint(_any("catch_up", "skip", "one", "all"), name=op.f("ck_schedules_catch_up_known")),
        sa.CheckConstraint(_any("overlap", "skip", "queue", "allow"), name=op.f("ck_schedules_overlap_known")),
        sa.CheckConstraint(
            "catch_up_most >= 1 AND catch_up_most <= 1000", name=op.f("ck_schedules_catch_up_most_within")
        ),
        sa.CheckConstraint("(paused_at IS NULL) = (pause_reason IS NULL)", name=op.f("ck_schedules_pause_has_reason")),
        sa.CheckConstraint("paused_at IS NULL OR next_at IS NULL", name=op.f("ck_schedules_paused_is_never_due")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("name", name=op.f("uq_schedules_name")),
    )
    _partial("ix_schedules_next_at", "schedules", ["next_at", "id"], "next_at IS NOT NULL")
    op.create_table(
        "schedule_runs",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("schedule_id", Id, nullable=False),
        sa.Column("due_at", UtcTime(), nullable=False),
        sa.Column("count", sa.Integer(), server_default="1", nullable=False),
        sa.Column("last_due_at", UtcTime(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("job_id", Id, nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            _any("outcome", "started", "waiting", "skipped", "failed"), name=op.f("ck_schedule_runs_outcome_known")
        ),
        sa.CheckConstraint(
            "(outcome = 'started') = (job_id IS NOT NULL)", name=op.f("ck_schedule_runs_started_has_job")
        ),
        sa.CheckConstraint("outcome = 'started' OR reason IS NOT NULL", name=op.f("ck_schedule_runs_else_has_reason")),
        sa.CheckConstraint("count >= 1", name=op.f("ck_schedule_runs_count_positive")),
        sa.CheckConstraint(
            "(count = 1) = (last_due_at IS NULL) AND (count = 1 OR outcome = 'skipped')",
            name=op.f("ck_schedule_runs_many_were_skipped"),
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_schedule_runs_schedule_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_runs")),
        sa.UniqueConstraint("schedule_id", "due_at", name=op.f("uq_schedule_runs_schedule_id_due_at")),
    )
    _partial("ix_schedule_runs_waiting", "schedule_runs", ["schedule_id", "due_at"], "outcome = 'waiting'")
    _partial("ix_schedule_runs_job_id", "schedule_runs", ["job_id"], "job_id IS NOT NULL")


def _any(column: str, *values: str) -> str:
    return "(" + " OR ".join(f"{column} = '{value}'" for value in values) + ")"


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
