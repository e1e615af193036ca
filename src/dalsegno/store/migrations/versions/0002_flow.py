"""Flow: limits and permits, breakers, items that wait for them, pauses of a stage, a service or everything."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dalsegno.store.schema import UtcTime

revision = "0002"
down_revision = "0001"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")

COMMANDS = (
    "pause",
    "resume",
    "cancel",
    "retry_item",
    "force_retry_item",
    "set_priority",
    "pause_stage",
    "resume_stage",
)


def upgrade() -> None:
    op.create_table(
        "system_settings",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("updated_by", sa.Text()),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_system_settings")),
    )
    op.create_table(
        "limits",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("concurrent", sa.Integer()),
        sa.Column("rate", sa.Integer()),
        sa.Column("window", sa.Float(), server_default="60", nullable=False),
        sa.Column("concurrent_setting", sa.Text()),
        sa.Column("rate_setting", sa.Text()),
        sa.Column("origin", sa.Text(), server_default="operator", nullable=False),
        sa.Column("granted", Id, server_default="0", nullable=False),
        sa.Column("tick", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("host", sa.Text()),
        sa.Column("mono", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("skew", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pruned_tick", sa.BigInteger()),
        sa.Column("updated_by", sa.Text()),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint("(origin = 'operator' OR origin = 'service')", name=op.f("ck_limits_origin_known")),
        sa.CheckConstraint(
            "(concurrent IS NULL OR concurrent >= 0) AND (rate IS NULL OR rate >= 0)",
            name=op.f("ck_limits_not_negative"),
        ),
        sa.CheckConstraint('"window" > 0', name=op.f("ck_limits_window_positive")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_limits")),
    )
    op.create_table(
        "permits",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", Id, autoincrement=False, nullable=False),
        sa.Column("tick", sa.BigInteger(), nullable=False),
        sa.Column("granted_at", UtcTime(), nullable=False),
        sa.Column("process_id", Id, nullable=False),
        sa.Column("item_id", Id),
        sa.Column("released", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("name", "number", name=op.f("pk_permits")),
    )
    _partial("ix_permits_live", "permits", ["name"], "NOT released")
    op.create_table(
        "breakers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="closed", nullable=False),
        sa.Column("epoch", Id, server_default="0", nullable=False),
        sa.Column("kind", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("tripped_by", sa.Text()),
        sa.Column("tripped_at", UtcTime()),
        sa.Column("resume_at", UtcTime()),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("trips", sa.Integer(), server_default="0", nullable=False),
        sa.Column("probe_process_id", Id),
        sa.Column("probe_item_id", Id),
        sa.Column("probe_at", UtcTime()),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "(state = 'closed' OR state = 'open' OR state = 'half_open')", name=op.f("ck_breakers_state_known")
        ),
        sa.CheckConstraint(
            "kind IS NULL OR (kind = 'rate_limit' OR kind = 'quota' OR kind = 'ban' OR kind = 'outage' OR kind = 'manual')",
            name=op.f("ck_breakers_kind_known"),
        ),
        sa.CheckConstraint(
            "state = 'closed' OR (reason IS NOT NULL AND tripped_at IS NOT NULL)",
            name=op.f("ck_breakers_open_has_reason"),
        ),
        sa.CheckConstraint("(probe_process_id IS NULL) = (probe_at IS NULL)", name=op.f("ck_breakers_probe_has_time")),
        sa.CheckConstraint("probe_at IS NULL OR state = 'half_open'", name=op.f("ck_breakers_probe_means_half_open")),
        sa.CheckConstraint("failures >= 0 AND trips >= 0 AND epoch >= 0", name=op.f("ck_breakers_counts_not_negative")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_breakers")),
    )
    op.create_table(
        "waits",
        sa.Column("item_id", Id, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("stage_id", Id, nullable=False),
        sa.Column("job_id", Id, nullable=False),
        sa.Column("seq", Id, nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.Column("offered_at", UtcTime()),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_waits")),
    )
    _partial("ix_waits_line", "waits", ["name", "stage_id", "seq"], "offered_at IS NULL")
    _partial("ix_waits_offered", "waits", ["name", "offered_at"], "offered_at IS NOT NULL")
    op.create_table(
        "holds",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("held_at", UtcTime(), nullable=False),
        sa.Column("held_by", sa.Text(), nullable=False),
        sa.Column("held_reason", sa.Text(), nullable=False),
        sa.Column("held_until", UtcTime()),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_holds")),
    )
    op.add_column("lanes", sa.Column("held_until", UtcTime()))
    for column in ("paused_at", "pause_until"):
        op.add_column("jobs", sa.Column(column, UtcTime()))
    for column in ("pause_reason", "paused_by"):
        op.add_column("stages", sa.Column(column, sa.Text()))
    for column in ("paused_at", "pause_until"):
        op.add_column("stages", sa.Column(column, UtcTime()))
    for table in ("jobs", "stages"):
        _partial(f"ix_{table}_pause_until", table, ["pause_until"], "pause_until IS NOT NULL")
    op.add_column("workers", sa.Column("phase", sa.Text()))
    op.add_column("workers", sa.Column("bytes_done", sa.BigInteger()))
    op.add_column("workers", sa.Column("bytes_total", sa.BigInteger()))
    op.add_column("workers", sa.Column("speed", sa.Float()))
    if op.get_context().dialect.name == "sqlite":
        # A number is never used again: permits and probes are held under it.
        with op.batch_alter_table("processes", recreate="always", table_kwargs={"sqlite_autoincrement": True}):
            pass
    known = " OR ".join(f"type = '{command}'" for command in COMMANDS)
    with op.batch_alter_table("commands") as commands:
        commands.drop_constraint(op.f("ck_commands_type_known"), type_="check")
        commands.create_check_constraint(op.f("ck_commands_type_known"), f"({known})")


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
