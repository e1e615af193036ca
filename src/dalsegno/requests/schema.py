"""The tables of parse requests and of what they found, beside the engine's.

A request is a job of the workflow `parse`. What can be read from the job and its stages is not kept again, but for one
word: `state`, which triggers set whenever the job's status changes, together with how many requests are in each state
(`request_counts`). So a page of one state is a range of an index, and a count is a few rows, however many requests
there are (docs/decisions/0005).
"""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.store.schema import Id, Json, UtcTime, counter, identity, metadata


def _to(table: str, name: str, *, primary: bool = False) -> sa.Column[int]:
    key = sa.ForeignKey(f"{table}.id", ondelete="CASCADE")
    return sa.Column(name, Id, key, nullable=False, primary_key=primary, autoincrement=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default="")


STATES = ("PENDING", "RUNNING", "DONE", "FAILED")
_ACTIVE = sa.text("state = 'PENDING' OR state = 'RUNNING'")

parse_requests = sa.Table(
    "parse_requests",
    metadata,
    _to("jobs", "job_id", primary=True),
    sa.Column("hash", sa.Text, nullable=False),
    # As it was understood: trimmed, without what was blank.
    sa.Column("body", Json, nullable=False),
    sa.Column("created_by", sa.Text),
    # How often it was asked for while it was there already.
    counter("hits"),
    # How often one of its items was begun again.
    counter("retry_count"),
    sa.Column("state", sa.Text, nullable=False, server_default="PENDING"),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.CheckConstraint("(" + " OR ".join(f"state = '{each}'" for each in STATES) + ")", name="state_known"),
    sa.CheckConstraint("length(hash) = 64", name="hash_is_hex"),
    sa.CheckConstraint("hits >= 0 AND retry_count >= 0", name="counts_not_negative"),
    sa.Index("ix_parse_requests_state", "state", "job_id"),
    sa.Index("ix_parse_requests_hash", "hash", "job_id"),
    sa.Index("ix_parse_requests_active_of", "created_by", sqlite_where=_ACTIVE, postgresql_where=_ACTIVE),
)

# Kept by triggers. On PostgreSQL a transaction counts in the row of its connection, so that nobody waits for anybody.
request_counts = sa.Table(
    "request_counts",
    metadata,
    sa.Column("slot", Id, primary_key=True, autoincrement=False),
    counter("pending"),
    counter("running"),
    counter("done"),
    counter("failed"),
)

contents = sa.Table(
    "contents",
    metadata,
    identity(),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("remote_id", sa.Text, nullable=False),
    _text("type"),
    _text("title"),
    _text("title_orig"),
    _text("other_title"),
    sa.Column("year", sa.Integer),
    sa.Column("kinopoisk_id", sa.Text),
    sa.Column("imdb_id", sa.Text),
    sa.Column("shikimori_id", sa.Text),
    # Whether `export/ready` shows it.
    sa.Column("ready", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("created_at", UtcTime, nullable=False),
    # Given out by `content_clock`: unique, in the order of commits, and moved only when there is something new to see.
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.UniqueConstraint("source", "remote_id"),
    sa.Index("ix_contents_updated_at", "updated_at", "id"),
    sa.Index("ix_contents_ready", "updated_at", "id", sqlite_where=sa.text("ready"), postgresql_where=sa.text("ready")),
)

seasons = sa.Table(
    "seasons",
    metadata,
    identity(),
    _to("contents", "content_id"),
    sa.Column("number", sa.Integer, nullable=False),
    _text("title"),
    _text("link"),
    sa.UniqueConstraint("content_id", "number"),
)

episodes = sa.Table(
    "episodes",
    metadata,
    identity(),
    _to("seasons", "season_id"),
    sa.Column("number", sa.Integer, nullable=False),
    _text("title"),
    _text("link"),
    sa.UniqueConstraint("season_id", "number"),
)

variants = sa.Table(
    "variants",
    metadata,
    identity(),
    _to("episodes", "episode_id"),
    _text("translation_id"),
    _text("translation_title"),
    _text("translation_type"),
    _text("quality"),
    # The page it is played on, and what a decoder made of it.
    _text("link"),
    sa.Column("mp4_link", sa.Text),
    sa.Column("decoded_at", UtcTime),
    sa.Column("expires_at", UtcTime),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    # Since when its translation is offered without it; then nobody is shown it.
    sa.Column("missing_at", UtcTime),
    sa.UniqueConstraint("episode_id", "translation_id"),
    sa.CheckConstraint("(mp4_link IS NULL) = (decoded_at IS NULL)", name="decoded_has_link"),
)

# A content's seasons with their episodes and variants.
tree = seasons.join(episodes, episodes.c.season_id == seasons.c.id).join(
    variants, variants.c.episode_id == episodes.c.id
)

request_contents = sa.Table(
    "request_contents",
    metadata,
    _to("jobs", "job_id", primary=True),
    _to("contents", "content_id", primary=True),
    sa.Column("position", sa.Integer, nullable=False, server_default="0"),
    sa.Index("ix_request_contents_content_id", "content_id"),
)

# One row. Whoever changes contents takes it first and holds it until the commit, so its times are in commit order.
content_clock = sa.Table(
    "content_clock",
    metadata,
    sa.Column("id", Id, primary_key=True, autoincrement=False),
    sa.Column("last", UtcTime, nullable=False),
    # How many contents are ready.
    counter("ready"),
)

__all__ = [
    "STATES", "content_clock", "contents", "episodes", "metadata", "parse_requests", "request_contents",
    "request_counts", "seasons", "tree", "variants",
]  # fmt: skip
