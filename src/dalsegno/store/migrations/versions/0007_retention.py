"""Retention: how far it has come, months for events and logs, and how PostgreSQL looks after each table.

On PostgreSQL the tables of events and logs become the first of their months, as they are: no row is moved. They are
read once, to see that nothing in them lies in the future.
"""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dalsegno.clock import SystemClock
from dalsegno.store.schema import UtcTime

revision = "0007"
down_revision = "0006"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")

AHEAD = 3
KEYS = {"events": "tx, id", "logs": "id"}
INDEXES = {
    "events": ("ix_events_item_id", "ix_events_job_id", "ix_events_wide"),
    "logs": ("ix_logs_job_id", "ix_logs_item_id", "ix_logs_trouble"),
}
APPENDED = (
    "autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_insert_threshold = 100000, "
    "autovacuum_analyze_scale_factor = 0.2"
)
"""Nothing in a month changes: it is looked at when it has grown by half."""
CHURN = "autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = {0}, autovacuum_vacuum_cost_delay = 0"
"""Every row is changed or deleted soon: what counts is how many are dead, not which part of the table they are."""
STORAGE = {
    "leases": CHURN.format(2000),
    "waits": CHURN.format(2000),
    "permits": CHURN.format(2000),
    "stages": CHURN.format(1000),
    "processes": f"fillfactor = 50, {CHURN.format(200)}",
    "workers": f"fillfactor = 50, {CHURN.format(1000)}",
    "limits": f"fillfactor = 50, {CHURN.format(500)}",
    "breakers": f"fillfactor = 50, {CHURN.format(500)}",
    "jobs": "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000",
    "items": "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000, "
    "autovacuum_vacuum_insert_scale_factor = 0.5",
}


def upgrade() -> None:
    op.create_table(
        "retention",
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("mark", Json, nullable=True),
        sa.Column("removed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("removed_at", UtcTime(), nullable=True),
        sa.Column("looked_at", UtcTime(), nullable=False),
        sa.CheckConstraint("removed >= 0", name=op.f("ck_retention_removed_not_negative")),
        sa.PrimaryKeyConstraint("lane", "kind", name=op.f("pk_retention")),
    )
    op.create_table(
        "prunings",
        sa.Column("job_id", Id, autoincrement=False, nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_prunings")),
    )
    op.create_table(
        "archives",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("first_at", UtcTime(), nullable=True),
        sa.Column("until_at", UtcTime(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("store", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("last", Json, nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("archived_at", UtcTime(), nullable=False),
        sa.Column("dropped_at", UtcTime(), nullable=True),
        sa.Column("restored_at", UtcTime(), nullable=True),
        sa.CheckConstraint("(kind = 'events' OR kind = 'logs')", name=op.f("ck_archives_kind_known")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_archives_sha256_is_hex")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_archives")),
    )
    _partial("ix_jobs_finished", "jobs", ["lane", "finished_at", "id"], "finished_at IS NOT NULL")
    troubled = "finished_at IS NOT NULL AND status <> 'completed'"
    _partial("ix_jobs_troubled", "jobs", ["lane", "finished_at", "id"], troubled)
    if op.get_bind().dialect.name == "postgresql":
        for table in KEYS:
            _by_the_month(table)
        for table, how in STORAGE.items():
            op.execute(f"ALTER TABLE {table} SET ({how})")


def _by_the_month(table: str) -> None:
    newest = op.get_bind().execute(sa.text(f"SELECT max(at) FROM {table}")).scalar()
    now = SystemClock().now()
    begins = _next(max(newest or now, now))
    old = f"{table}_before_{begins:%Y_%m}"
    op.execute(f"ALTER TABLE {table} RENAME TO {old}")
    for index in INDEXES[table]:
        op.execute(f"ALTER INDEX {index} RENAME TO {index.replace(table, old)}")
    op.execute(f"ALTER TABLE {old} RENAME CONSTRAINT pk_{table} TO pk_{old}")
    op.execute(f"ALTER TABLE {old} SET ({APPENDED})")
    op.execute(f"CREATE TABLE {table} (LIKE {old} INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY RANGE (at)")
    op.execute(f"ALTER SEQUENCE {table}_id_seq OWNED BY {table}.id")
    _indexes(table)
    op.execute(f"ALTER TABLE {table} ATTACH PARTITION {old} FOR VALUES FROM (MINVALUE) TO ('{begins.isoformat()}')")
    for _ in range(AHEAD):
        until, name = _next(begins), f"{table}_{begins:%Y_%m}"
        _month(table, name, f"FOR VALUES FROM ('{begins.isoformat()}') TO ('{until.isoformat()}')")
        begins = until
    _month(table, f"{table}_default", "DEFAULT")


def _indexes(table: str) -> None:
    """Of the whole: what the first month has already is taken over when it is attached."""
    if table == "events":
        op.create_index("ix_events_item_id", "events", ["item_id", "id"])
        _partial("ix_events_job_id", "events", ["job_id", "id"], "item_id IS NULL")
        _partial("ix_events_wide", "events", ["tx", "id"], "item_id IS NULL")
    else:
        op.create_index("ix_logs_job_id", "logs", ["job_id", "id"])
        op.create_index("ix_logs_item_id", "logs", ["item_id", "id"])
        _partial("ix_logs_trouble", "logs", ["id"], "level = 'warn' OR level = 'error'")


def _month(table: str, name: str, bounds: str) -> None:
    key = f"CONSTRAINT pk_{name} PRIMARY KEY ({KEYS[table]})"
    op.execute(f"CREATE TABLE {name} PARTITION OF {table} ({key}) {bounds} WITH ({APPENDED})")


def _next(moment: datetime) -> datetime:
    """The beginning of the month after a moment's, in UTC."""
    first = moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
