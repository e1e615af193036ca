"""How fast, why stopped, what waits."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.store.schema.columns import Id, UtcTime, any_of, counter, flag, metadata, one_of, required_time

limits = sa.Table(
    "limits",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("concurrent", sa.Integer),
    sa.Column("rate", sa.Integer),
    sa.Column("window", sa.Float, nullable=False, server_default="60"),
    sa.Column("concurrent_setting", sa.Text),
    sa.Column("rate_setting", sa.Text),
    sa.Column("origin", sa.Text, nullable=False, server_default="operator"),
    # Permits are numbered, so the one that must have left the window is one row away, whatever the rate.
    sa.Column("granted", Id, nullable=False, server_default="0"),
    # The limit's own time in microseconds, which never moves back and follows no step of any clock: when the last
    # permit was granted, what its host's monotonic clock said then, and by how much it differs from the database's.
    sa.Column("tick", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("host", sa.Text),
    sa.Column("mono", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("skew", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("pruned_tick", sa.BigInteger),
    sa.Column("updated_by", sa.Text),
    required_time("updated_at"),
    one_of("origin", ("operator", "service")),
    sa.CheckConstraint("(concurrent IS NULL OR concurrent >= 0) AND (rate IS NULL OR rate >= 0)", name="not_negative"),
    sa.CheckConstraint('"window" > 0', name="window_positive"),
)

permits = sa.Table(
    "permits",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", Id, primary_key=True, autoincrement=False),
    sa.Column("tick", sa.BigInteger, nullable=False),
    required_time("granted_at"),
    sa.Column("process_id", Id, nullable=False),
    sa.Column("item_id", Id),
    flag("released"),
    sa.Index("ix_permits_live", "name", sqlite_where=sa.text("NOT released"), postgresql_where=sa.text("NOT released")),
)

breakers = sa.Table(
    "breakers",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False, server_default="closed"),
    # Moves on with every trip and every close: what began in an earlier epoch has no say in this one.
    sa.Column("epoch", Id, nullable=False, server_default="0"),
    sa.Column("kind", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("tripped_by", sa.Text),
    sa.Column("tripped_at", UtcTime),
    sa.Column("resume_at", UtcTime),
    counter("failures"),
    counter("trips"),
    sa.Column("probe_process_id", Id),
    sa.Column("probe_item_id", Id),
    sa.Column("probe_at", UtcTime),
    required_time("updated_at"),
    one_of("state", ("closed", "open", "half_open")),
    sa.CheckConstraint(
        "kind IS NULL OR " + any_of("kind", ("rate_limit", "quota", "ban", "outage", "manual")), name="kind_known"
    ),
    sa.CheckConstraint("state = 'closed' OR (reason IS NOT NULL AND tripped_at IS NOT NULL)", name="open_has_reason"),
    sa.CheckConstraint("(probe_process_id IS NULL) = (probe_at IS NULL)", name="probe_has_time"),
    sa.CheckConstraint("probe_at IS NULL OR state = 'half_open'", name="probe_means_half_open"),
    sa.CheckConstraint("failures >= 0 AND trips >= 0 AND epoch >= 0", name="counts_not_negative"),
)

# Pending items that are neither ready nor due: they met a limit or a breaker and wait for their turn.
waits = sa.Table(
    "waits",
    metadata,
    sa.Column("item_id", Id, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("stage_id", Id, nullable=False),
    sa.Column("job_id", Id, nullable=False),
    sa.Column("seq", Id, nullable=False),
    required_time("since"),
    sa.Column("offered_at", UtcTime),
    sa.Index(
        "ix_waits_line", "name", "stage_id", "seq",
        sqlite_where=sa.text("offered_at IS NULL"), postgresql_where=sa.text("offered_at IS NULL"),
    ),
    sa.Index(
        "ix_waits_offered", "name", "offered_at",
        sqlite_where=sa.text("offered_at IS NOT NULL"), postgresql_where=sa.text("offered_at IS NOT NULL"),
    ),
)  # fmt: skip

# Pauses of a service (`service:NAME`) or of everything (`all`). A lane's is in its own row.
holds = sa.Table(
    "holds",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    required_time("held_at"),
    sa.Column("held_by", sa.Text, nullable=False),
    sa.Column("held_reason", sa.Text, nullable=False),
    sa.Column("held_until", UtcTime),
)
