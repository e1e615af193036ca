"""What has gone, and what is put away."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.store.schema.columns import Id, Json, UtcTime, metadata, one_of, required_time

retention = sa.Table(
    "retention",
    metadata,
    # Empty: what is no lane's in particular.
    sa.Column("lane", sa.Text, primary_key=True),
    # `jobs`, `failed`, `events` or `logs`.
    sa.Column("kind", sa.Text, primary_key=True),
    # Up to where it has looked.
    sa.Column("mark", Json),
    sa.Column("removed", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("removed_at", UtcTime),
    required_time("looked_at"),
    sa.CheckConstraint("removed >= 0", name="removed_not_negative"),
)

# Jobs that are being taken away and are too large for one step.
prunings = sa.Table(
    "prunings",
    metadata,
    sa.Column("job_id", Id, primary_key=True, autoincrement=False),
    required_time("since"),
)

# Months of events or logs that were put away in an object store.
archives = sa.Table(
    "archives",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("first_at", UtcTime),
    sa.Column("until_at", UtcTime, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("store", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    # The key of its last row: what was added afterwards shows.
    sa.Column("last", Json, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),
    required_time("archived_at"),
    sa.Column("dropped_at", UtcTime),
    sa.Column("restored_at", UtcTime),
    one_of("kind", ("events", "logs")),
    sa.CheckConstraint("length(sha256) = 64", name="sha256_is_hex"),
)
