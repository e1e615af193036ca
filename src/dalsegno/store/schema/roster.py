"""Who is there: processes, their workers, nodes; and what they all keep to."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.store.schema.columns import Id, Json, UtcTime, counter, identity, metadata, one_of, required_time

processes = sa.Table(
    "processes",
    metadata,
    identity(),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    required_time("started_at"),
    required_time("heartbeat_at"),
    required_time("lease_until"),
    # What its loops and its pools were last seen doing, written with the heartbeat.
    sa.Column("loops", Json),
    sa.Column("pools", Json),
    sqlite_autoincrement=True,  # or SQLite gives a new process the number of a dead one, with all that was still its
)

workers = sa.Table(
    "workers",
    metadata,
    identity(),
    sa.Column("process_id", Id, sa.ForeignKey("processes.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False, server_default="idle"),
    sa.Column("job_id", Id),
    sa.Column("stage_id", Id),
    sa.Column("item_id", Id),
    sa.Column("text", sa.Text),
    sa.Column("progress", sa.Float),
    sa.Column("phase", sa.Text),
    sa.Column("bytes_done", sa.BigInteger),
    sa.Column("bytes_total", sa.BigInteger),
    sa.Column("speed", sa.Float),
    # Since when it has its item in hand.
    sa.Column("since", UtcTime),
    counter("processed"),
    counter("errors"),
    required_time("updated_at"),
    sa.UniqueConstraint("process_id", "name"),
    one_of("status", ("idle", "busy")),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("labels", Json, nullable=False),
    sa.Column("max_concurrency", Json, nullable=False),
    required_time("last_seen"),
    sa.Column("awake_state", sa.Text, nullable=False, server_default="unknown"),
    sa.Column("wake_method", sa.Text),
    sa.Column("mac", sa.Text),
    sa.Column("provider_ref", sa.Text),
    sa.Column("script", sa.Text),
    one_of("awake_state", ("unknown", "awake", "sleep")),
    sa.CheckConstraint("wake_method IS NULL OR wake_method IN ('wol', 'provider', 'script')", name="wake_method_known"),
)

system_settings = sa.Table(
    "system_settings",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", Json, nullable=False),
    sa.Column("updated_by", sa.Text),
    required_time("updated_at"),
)
