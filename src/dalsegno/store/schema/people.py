"""What is kept for people: errors alike, minutes, artifacts, revisions of the settings."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.store.schema.columns import Id, Json, UtcTime, counter, identity, metadata, one_of, required_time

# Errors alike: the same service and code, and the same message once numbers, names and places are taken out.
error_groups = sa.Table(
    "error_groups",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("template", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    required_time("first_at"),
    required_time("last_at"),
    sa.Column("sample_item_id", Id, nullable=False),
    sa.Column("sample_error", sa.Text, nullable=False),
    sa.Column("sample_trace", sa.Text),
    sa.Index("ix_error_groups_last_at", "last_at", "fingerprint"),
    sa.CheckConstraint("count > 0", name="count_positive"),
)

error_hours = sa.Table(
    "error_hours",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    # Hours since 1970, UTC.
    sa.Column("hour", Id, primary_key=True, autoincrement=False),
    counter("count"),
    sa.Index("ix_error_hours_hour", "hour"),
)

# What a process settled in a minute, by service: for charts. Rows older than a day go.
minutes = sa.Table(
    "minutes",
    metadata,
    # Minutes since 1970, UTC.
    sa.Column("minute", Id, primary_key=True, autoincrement=False),
    sa.Column("process_id", Id, primary_key=True, autoincrement=False),
    sa.Column("service", sa.Text, primary_key=True),
    counter("succeeded"),
    counter("failed"),
    counter("skipped"),
    counter("retried"),
    counter("interrupted"),
    sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"),
    # Items by how long they took, a histogram.
    sa.Column("durations", Json, nullable=False),
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    identity(),
    sa.Column("job_id", Id, nullable=False),
    sa.Column("stage_id", Id, nullable=False),
    sa.Column("item_id", Id, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("bucket", sa.Text),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("content_type", sa.Text),
    sa.Column("checksum", sa.Text, nullable=False),
    required_time("created_at"),
    one_of("kind", ("input", "output", "log")),
    sa.CheckConstraint("size_bytes >= 0", name="size_not_negative"),
    sa.Index("ix_artifacts_job_id", "job_id"),
    sa.Index("ix_artifacts_item_id", "item_id"),
)

config_revisions = sa.Table(
    "config_revisions",
    metadata,
    identity(),
    sa.Column("file_path", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("note", sa.Text),
    required_time("created_at"),
    sa.Column("applied_at", UtcTime),
    # Machines that share a database have a file each.
    sa.Column("node", sa.Text),
    sa.Column("saved_by", sa.Text),
    # By key, a digest of the secret under a key that is not in here, or the revision that set it. Never the value.
    sa.Column("secrets", Json),
    sa.Column("restores", Id),
)
