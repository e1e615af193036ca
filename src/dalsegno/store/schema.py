"""The tables, once, for both databases. CHECK constraints make illegal rows impossible.

Three shapes here carry the engine's speed (docs/decisions/0001):

- Items of a stage are numbered densely (`seq`). A stage remembers up to where it has handed them out (`low_seq`),
  so a claim is one range of one index and never looks at what is done. Items that come back are `returned`.
- What a claim must know lives on the stage: `open`, `ready`, `claimable`, and the job's order. Pausing a job of a
  million items changes a handful of rows.
- A live lease is a row in `leases`. The columns of `items` that change on the good path are in no index, so
  PostgreSQL updates them in place (HOT).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from dalsegno.model.states import CommandStatus, ItemStatus, JobStatus, Level, StageStatus


class UtcTime(sa.types.TypeDecorator[datetime]):
    """timestamptz on PostgreSQL; on SQLite text of fixed width, which sorts and reads as a time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return dialect.type_descriptor(sa.Text() if dialect.name == "sqlite" else self.impl_instance)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        return to_text(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, _dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return from_text(value) if isinstance(value, str) else value.astimezone(UTC)


@lru_cache(64)
def to_text(moment: datetime) -> str:
    """Four times as fast as strftime, and it runs for every item; the rows of a transaction mostly share a time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

GOES_WITH_ITEM = {"goes_with": "item"}
"""`info` of a table of any room whose rows are about one item (`item_id`): retention takes them with it."""


def _id() -> sa.Column[int]:
    return sa.Column("id", Id, primary_key=True, autoincrement=True)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def _flag(name: str, default: bool = False) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true() if default else sa.false())


def _required_time(name: str) -> sa.Column[datetime]:
    return sa.Column(name, UtcTime, nullable=False)


def _any(column: str, values: Iterable[str]) -> str:
    """A chain of comparisons: SQLite builds a small table for every evaluation of an IN list (3 µs a row)."""
    return "(" + " OR ".join(f"{column} = '{value}'" for value in values) + ")"


def _one_of(column: str, values: Iterable[str]) -> sa.CheckConstraint:
    return sa.CheckConstraint(_any(column, values), name=f"{column}_known")


def _finished_has_time(finished: Iterable[str]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{_any('status', finished)} = (finished_at IS NOT NULL)", name="finished_has_time")


def _pauses_that_end(table: str) -> sa.Index:
    """The scheduler asks at every tick which pause ends next."""
    where = sa.text("pause_until IS NOT NULL")
    return sa.Index(f"ix_{table}_pause_until", "pause_until", sqlite_where=where, postgresql_where=where)


workflows = sa.Table(
    "workflows",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("definition", Json, nullable=False),
    _flag("is_active", default=True),
    _required_time("created_at"),
    _required_time("updated_at"),
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
    _one_of("recovery", ("continue", "pause")),
    sa.CheckConstraint("max_active IS NULL OR max_active >= 1", name="max_active_positive"),
    sa.CheckConstraint("(held_at IS NULL) = (held_reason IS NULL)", name="hold_has_reason"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    _id(),
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
    _required_time("created_at"),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    _required_time("updated_at"),
    _one_of("status", JobStatus),
    sa.CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress_is_a_fraction"),
    _finished_has_time(("completed", "completed_with_errors", "failed", "canceled")),
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
    _pauses_that_end("jobs"),
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
    _id(),
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
    _flag("open"),
    _flag("claimable"),
    _flag("given"),
    _flag("planned"),
    sa.Column("planner_id", Id),
    _count("ready"),
    _count("returned"),
    sa.Column("low_seq", Id, nullable=False, server_default="0"),
    sa.Column("high_seq", Id, nullable=False, server_default="0"),
    _count("total"),
    *(_count(status) for status in COUNTERS),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    sa.Column("last_error", sa.Text),
    # A pause of this stage alone; a pause of its job shows in `status` only.
    sa.Column("pause_reason", sa.Text),
    sa.Column("paused_by", sa.Text),
    sa.Column("paused_at", UtcTime),
    sa.Column("pause_until", UtcTime),
    sa.UniqueConstraint("job_id", "key"),
    _one_of("status", StageStatus),
    _one_of("follow", ("all", "each")),
    _one_of("on_failure", ("continue", "stop")),
    sa.CheckConstraint(f"total = {' + '.join(COUNTERS)}", name="counters_add_up"),
    sa.CheckConstraint(" AND ".join(f"{status} >= 0" for status in COUNTERS), name="counters_not_negative"),
    sa.CheckConstraint("ready >= returned AND returned >= 0 AND ready <= pending", name="ready_is_pending"),
    sa.CheckConstraint("low_seq >= 0 AND low_seq <= high_seq", name="marks_in_order"),
    sa.CheckConstraint("claimable = (open AND ready > 0)", name="claimable_means_open_and_ready"),
    sa.CheckConstraint("NOT open OR status = 'running'", name="open_means_running"),
    _finished_has_time(("completed", "failed", "skipped", "canceled")),
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
    _pauses_that_end("stages"),
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
    _id(),
    # No foreign keys on the hot tables: PostgreSQL would run a trigger and lock the stage's row for every item.
    sa.Column("stage_id", Id, nullable=False),
    sa.Column("job_id", Id, nullable=False),
    sa.Column("seq", Id, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False, server_default="pending"),
    sa.Column("lease", Id, nullable=False, server_default="0"),
    _count("attempt"),
    _count("interruptions"),
    _flag("returned"),
    _flag("forced"),
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
    _one_of("status", ItemStatus),
    sa.CheckConstraint("lease > 0 OR (status <> 'claimed' AND status <> 'running')", name="leased_has_number"),
    sa.CheckConstraint("due_at IS NULL OR status = 'pending'", name="due_is_pending"),
    sa.CheckConstraint("NOT returned OR (status = 'pending' AND due_at IS NULL)", name="returned_is_ready"),
    sa.CheckConstraint(
        "error_code IS NOT NULL OR (status <> 'failed' AND status <> 'interrupted')", name="trouble_has_code"
    ),
    sa.CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name="running_has_start"),
    _finished_has_time(("succeeded", "failed", "skipped", "canceled")),
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
    _required_time("claimed_at"),
    sa.Column("begun_at", UtcTime),
    sa.Index("ix_leases_process", "process_id"),
    sa.CheckConstraint("number > 0", name="number_positive"),
)

processes = sa.Table(
    "processes",
    metadata,
    _id(),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    _required_time("started_at"),
    _required_time("heartbeat_at"),
    _required_time("lease_until"),
    # What its loops and its pools were last seen doing, written with the heartbeat.
    sa.Column("loops", Json),
    sa.Column("pools", Json),
    sqlite_autoincrement=True,  # or SQLite gives a new process the number of a dead one, with all that was still its
)

workers = sa.Table(
    "workers",
    metadata,
    _id(),
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
    _count("processed"),
    _count("errors"),
    _required_time("updated_at"),
    sa.UniqueConstraint("process_id", "name"),
    _one_of("status", ("idle", "busy")),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("labels", Json, nullable=False),
    sa.Column("max_concurrency", Json, nullable=False),
    _required_time("last_seen"),
    sa.Column("awake_state", sa.Text, nullable=False, server_default="unknown"),
    sa.Column("wake_method", sa.Text),
    sa.Column("mac", sa.Text),
    sa.Column("provider_ref", sa.Text),
    sa.Column("script", sa.Text),
    _one_of("awake_state", ("unknown", "awake", "sleep")),
    sa.CheckConstraint("wake_method IS NULL OR wake_method IN ('wol', 'provider', 'script')", name="wake_method_known"),
)

system_settings = sa.Table(
    "system_settings",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", Json, nullable=False),
    sa.Column("updated_by", sa.Text),
    _required_time("updated_at"),
)

# --- flow: how fast, why stopped, what waits ------------------------------------------------------

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
    _required_time("updated_at"),
    _one_of("origin", ("operator", "service")),
    sa.CheckConstraint("(concurrent IS NULL OR concurrent >= 0) AND (rate IS NULL OR rate >= 0)", name="not_negative"),
    sa.CheckConstraint('"window" > 0', name="window_positive"),
)

permits = sa.Table(
    "permits",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", Id, primary_key=True, autoincrement=False),
    sa.Column("tick", sa.BigInteger, nullable=False),
    _required_time("granted_at"),
    sa.Column("process_id", Id, nullable=False),
    sa.Column("item_id", Id),
    _flag("released"),
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
    _count("failures"),
    _count("trips"),
    sa.Column("probe_process_id", Id),
    sa.Column("probe_item_id", Id),
    sa.Column("probe_at", UtcTime),
    _required_time("updated_at"),
    _one_of("state", ("closed", "open", "half_open")),
    sa.CheckConstraint(
        "kind IS NULL OR " + _any("kind", ("rate_limit", "quota", "ban", "outage", "manual")), name="kind_known"
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
    _required_time("since"),
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
    _required_time("held_at"),
    sa.Column("held_by", sa.Text, nullable=False),
    sa.Column("held_reason", sa.Text, nullable=False),
    sa.Column("held_until", UtcTime),
)

BULK = ("bulk_retry", "bulk_force_retry", "bulk_cancel", "bulk_skip", "bulk_priority")
"""Commands about every item that a query finds, applied bit by bit; their `progress` says how far."""
COMMANDS = (
    "pause", "resume", "cancel", "retry_item", "force_retry_item", "set_priority", "pause_stage", "resume_stage",
    *BULK,
)  # fmt: skip

commands = sa.Table(
    "commands",
    metadata,
    _id(),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("job_id", Id),
    sa.Column("item_id", Id),
    sa.Column("payload", Json),
    sa.Column("requested_by", sa.Text),
    sa.Column("status", sa.Text, nullable=False, server_default="pending"),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    _required_time("created_at"),
    sa.Column("applied_at", UtcTime),
    sa.Column("progress", Json),
    sa.Column("stop_requested_at", UtcTime),
    _one_of("type", COMMANDS),
    _one_of("status", CommandStatus),
    sa.CheckConstraint("(status = 'pending') = (applied_at IS NULL)", name="applied_has_time"),
    sa.CheckConstraint(f"job_id IS NOT NULL OR item_id IS NOT NULL OR {_any('type', BULK)}", name="has_target"),
    sa.Index(
        "ix_commands_pending",
        "id",
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    ),
    sa.Index("ix_commands_job_id", "job_id"),
)

# What a command about many items has changed, for good: whatever happens to an item later, `bulk:12` finds it. By stage
# and number, which is the order of lists of items.
bulk_items = sa.Table(
    "bulk_items",
    metadata,
    sa.Column("command_id", Id, primary_key=True, autoincrement=False),
    sa.Column("stage_id", Id, primary_key=True, autoincrement=False),
    sa.Column("seq", Id, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

# The jobs that those items are of, or whose priority it changed.
bulk_jobs = sa.Table(
    "bulk_jobs",
    metadata,
    sa.Column("command_id", Id, primary_key=True, autoincrement=False),
    sa.Column("job_id", Id, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

events = sa.Table(
    "events",
    metadata,
    _id(),
    # On PostgreSQL ids are not commit order: who tails reads by (tx, id), and stops at the oldest running writer. On
    # SQLite `tx` is 0 and the id says it all. PostgreSQL has a table a month (store/months.py), each with (tx, id) as
    # its primary key.
    sa.Column("tx", Id, nullable=False, server_default="0"),
    _required_time("at"),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("level", sa.Text, nullable=False, server_default="info"),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("job_id", Id),
    sa.Column("stage_id", Id),
    sa.Column("item_id", Id),
    sa.Column("message", sa.Text),
    sa.Column("data", Json),
    _one_of("level", Level),
    sa.Index("ix_events_item_id", "item_id", "id"),
    # Three of four events are an item's: they are found by item, or between a job's first and last event.
    sa.Index(
        "ix_events_job_id",
        "job_id",
        "id",
        sqlite_where=sa.text("item_id IS NULL"),
        postgresql_where=sa.text("item_id IS NULL"),
    ),
    # What is about no single item, across jobs, in the order in which it happened.
    sa.Index(
        "ix_events_wide",
        "tx",
        "id",
        sqlite_where=sa.text("item_id IS NULL"),
        postgresql_where=sa.text("item_id IS NULL"),
    ),
)

logs = sa.Table(
    "logs",
    metadata,
    _id(),
    _required_time("at"),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("logger", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("traceback", sa.Text),
    sa.Column("job_id", Id),
    sa.Column("stage_id", Id),
    sa.Column("item_id", Id),
    sa.Column("worker", sa.Text),
    _one_of("level", Level),
    sa.Index("ix_logs_job_id", "job_id", "id"),
    sa.Index("ix_logs_item_id", "item_id", "id"),
    sa.Index(
        "ix_logs_trouble",
        "id",
        sqlite_where=sa.text("level = 'warn' OR level = 'error'"),
        postgresql_where=sa.text("level = 'warn' OR level = 'error'"),
    ),
)

# --- schedules: what is started by the clock --------------------------------------------------------

CATCH_UPS = ("skip", "one", "all")
OVERLAPS = ("skip", "queue", "allow")
RUN_OUTCOMES = ("started", "waiting", "skipped", "failed")

schedules = sa.Table(
    "schedules",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("workflow", sa.Text, nullable=False),
    # What else is asked for: scope, options, params, items, as far as they were given.
    sa.Column("request", Json, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False, server_default="100"),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("time_zone", sa.Text, nullable=False, server_default="UTC"),
    sa.Column("catch_up", sa.Text, nullable=False, server_default="one"),
    sa.Column("catch_up_most", sa.Integer, nullable=False, server_default="10"),
    sa.Column("overlap", sa.Text, nullable=False, server_default="skip"),
    sa.Column("paused_at", UtcTime),
    sa.Column("paused_by", sa.Text),
    sa.Column("pause_reason", sa.Text),
    # The first due time that nothing has been decided about. None: it is paused, or never due again.
    sa.Column("next_at", UtcTime),
    sa.Column("last_run_id", Id),
    sa.Column("last_due_at", UtcTime),
    sa.Column("last_job_id", Id),
    sa.Column("created_by", sa.Text),
    _required_time("created_at"),
    sa.Column("updated_by", sa.Text),
    _required_time("updated_at"),
    _one_of("catch_up", CATCH_UPS),
    _one_of("overlap", OVERLAPS),
    sa.CheckConstraint("catch_up_most >= 1 AND catch_up_most <= 1000", name="catch_up_most_within"),
    sa.CheckConstraint("(paused_at IS NULL) = (pause_reason IS NULL)", name="pause_has_reason"),
    sa.CheckConstraint("paused_at IS NULL OR next_at IS NULL", name="paused_is_never_due"),
    sa.Index(
        "ix_schedules_next_at",
        "next_at",
        "id",
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    ),
)

# What became of a due time. Of many that were skipped together there is one row, from the first to the last.
schedule_runs = sa.Table(
    "schedule_runs",
    metadata,
    _id(),
    sa.Column("schedule_id", Id, sa.ForeignKey("schedules.id", ondelete="CASCADE"), nullable=False),
    sa.Column("due_at", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False, server_default="1"),
    sa.Column("last_due_at", UtcTime),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("message", sa.Text),
    # No foreign key: a run is remembered longer than its job may be.
    sa.Column("job_id", Id),
    # Who asked for it, where it was not the clock.
    sa.Column("requested_by", sa.Text),
    _required_time("at"),
    # Two engines can never start one twice.
    sa.UniqueConstraint("schedule_id", "due_at"),
    _one_of("outcome", RUN_OUTCOMES),
    sa.CheckConstraint("(outcome = 'started') = (job_id IS NOT NULL)", name="started_has_job"),
    sa.CheckConstraint("outcome = 'started' OR reason IS NOT NULL", name="else_has_reason"),
    sa.CheckConstraint("count >= 1", name="count_positive"),
    sa.CheckConstraint(
        "(count = 1) = (last_due_at IS NULL) AND (count = 1 OR outcome = 'skipped')", name="many_were_skipped"
    ),
    sa.Index(
        "ix_schedule_runs_waiting",
        "schedule_id",
        "due_at",
        sqlite_where=sa.text("outcome = 'waiting'"),
        postgresql_where=sa.text("outcome = 'waiting'"),
    ),
    sa.Index(
        "ix_schedule_runs_job_id",
        "job_id",
        sqlite_where=sa.text("job_id IS NOT NULL"),
        postgresql_where=sa.text("job_id IS NOT NULL"),
    ),
)

# --- retention: what has gone, and what is put away -------------------------------------------------

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
    _required_time("looked_at"),
    sa.CheckConstraint("removed >= 0", name="removed_not_negative"),
)

# Jobs that are being taken away and are too large for one step.
prunings = sa.Table(
    "prunings",
    metadata,
    sa.Column("job_id", Id, primary_key=True, autoincrement=False),
    _required_time("since"),
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
    _required_time("archived_at"),
    sa.Column("dropped_at", UtcTime),
    sa.Column("restored_at", UtcTime),
    _one_of("kind", ("events", "logs")),
    sa.CheckConstraint("length(sha256) = 64", name="sha256_is_hex"),
)

# --- what is kept for people ----------------------------------------------------------------------

# Errors alike: the same service and code, and the same message once numbers, names and places are taken out.
error_groups = sa.Table(
    "error_groups",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("template", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    _required_time("first_at"),
    _required_time("last_at"),
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
    _count("count"),
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
    _count("succeeded"),
    _count("failed"),
    _count("skipped"),
    _count("retried"),
    _count("interrupted"),
    sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"),
    # Items by how long they took, a histogram.
    sa.Column("durations", Json, nullable=False),
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    _id(),
    sa.Column("job_id", Id, nullable=False),
    sa.Column("stage_id", Id, nullable=False),
    sa.Column("item_id", Id, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("bucket", sa.Text),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("content_type", sa.Text),
    sa.Column("checksum", sa.Text, nullable=False),
    _required_time("created_at"),
    _one_of("kind", ("input", "output", "log")),
    sa.CheckConstraint("size_bytes >= 0", name="size_not_negative"),
    sa.Index("ix_artifacts_job_id", "job_id"),
    sa.Index("ix_artifacts_item_id", "item_id"),
)

config_revisions = sa.Table(
    "config_revisions",
    metadata,
    _id(),
    sa.Column("file_path", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("note", sa.Text),
    _required_time("created_at"),
    sa.Column("applied_at", UtcTime),
    # Machines that share a database have a file each.
    sa.Column("node", sa.Text),
    sa.Column("saved_by", sa.Text),
    # By key, a digest of the secret under a key that is not in here, or the revision that set it. Never the value.
    sa.Column("secrets", Json),
    sa.Column("restores", Id),
)
