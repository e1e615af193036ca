"""What of a PostgreSQL database is ours. Others may keep tables in it, too: a backup takes none of theirs along, and a
restore clears none of them away."""

from __future__ import annotations

import re
from typing import LiteralString

import psycopg
from psycopg import sql

VERSION = "alembic_version"
"""The table with the revision of the schema."""
TABLES = frozenset((
    "archives", "artifacts", "artists", "breakers", "bulk_items", "bulk_jobs", "commands", "config_revisions",
    "content_clock", "contents", "episodes", "error_groups", "error_hours", "events", "file_assets", "file_locations",
    "holds", "items", "jobs", "lanes", "leases", "limits", "logs", "minutes", "nodes", "object_storage_backends",
    "parse_requests", "permits", "playlist_pools", "playlist_songs", "playlists", "pool_playlists", "processes",
    "prunings", "request_contents", "request_counts", "retention", "schedule_runs", "schedules", "seasons",
    "song_artists", "song_candidates", "songs", "stages", "system_settings", "uploads", "variants", "waits", "workers",
    "workflows",
))  # fmt: skip
"""All that a migration ever made, by name: rooms above the store add theirs to its schema, and not everyone who makes a
backup has imported them."""
FUNCTIONS = ("request_counted", "request_state")
"""What our triggers call. None takes an argument."""
MONTH = re.compile(r"(events|logs)_(\d{4}_\d{2}|before_\d{4}_\d{2}|default)")

_OWN = """
WITH RECURSIVE own AS (
    SELECT c.oid, c.relname, c.relname AS whole, c.relkind FROM pg_class c
    WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'p') AND c.relname = ANY(%s)
    UNION ALL
    SELECT c.oid, c.relname, own.whole, c.relkind
    FROM own JOIN pg_inherits i ON i.inhparent = own.oid JOIN pg_class c ON c.oid = i.inhrelid
)
SELECT oid, relname, whole, relkind = 'r' FROM own ORDER BY relname
"""
_OTHERS = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = %(home)s::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  AND c.oid <> ALL(%(own)s::oid[])
  AND NOT EXISTS (
      SELECT 1 FROM pg_depend d
      WHERE c.relkind = 'S' AND d.classid = 'pg_class'::regclass AND d.objid = c.oid
        AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND d.refobjid = ANY(%(own)s::oid[])
  )
ORDER BY c.relname
"""
_LEANING = """
SELECT format('the foreign key %%I of %%s', r.conname, r.conrelid::regclass) AS said
FROM pg_constraint r
WHERE r.contype = 'f' AND r.confrelid = ANY(%(own)s::oid[]) AND r.conrelid <> ALL(%(own)s::oid[])
UNION
SELECT format('the view %%s', w.ev_class::regclass)
FROM pg_depend d JOIN pg_rewrite w ON w.oid = d.objid
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
  AND d.refobjid = ANY(%(own)s::oid[]) AND w.ev_class <> ALL(%(own)s::oid[])
ORDER BY said
"""


def is_ours(name: str) -> bool:
    """A table, by its name alone."""
    return name == VERSION or name in TABLES or MONTH.fullmatch(name) is not None


def home_of(connection: psycopg.Connection) -> str | None:
    """The schema that our tables are in, or would be made in. None: the one that the URL names is not there."""
    row = connection.execute("SELECT current_schema()").fetchone()
    return None if row is None or row[0] is None else str(row[0])


def parts_of(connection: psycopg.Connection, home: str) -> dict[str, str]:
    """Our tables that have rows of their own, each with the table that it is a part of (itself, mostly)."""
    return {name: whole for _, name, whole, has_rows in _own(connection, home) if has_rows}


def tables_in(connection: psycopg.Connection, home: str) -> set[str]:
    """Our tables, also those that are only made of parts."""
    return {name for _, name, _, _ in _own(connection, home)}


def others_in(connection: psycopg.Connection, home: str) -> list[str]:
    """Tables, views and sequences of other programs in the same schema."""
    return _named(connection, home, _OTHERS)


def leaning_on(connection: psycopg.Connection, home: str) -> list[str]:
    """What other programs have that would not outlive our tables."""
    return _named(connection, home, _LEANING)


def _own(connection: psycopg.Connection, home: str) -> list[tuple[int, str, str, bool]]:
    return connection.execute(_OWN, (_quoted(connection, home), [VERSION, *TABLES])).fetchall()


def _named(connection: psycopg.Connection, home: str, query: LiteralString) -> list[str]:
    what = {"home": _quoted(connection, home), "own": [oid for oid, *_ in _own(connection, home)]}
    return [row[0] for row in connection.execute(query, what)]


def _quoted(connection: psycopg.Connection, home: str) -> str:
    return sql.Identifier(home).as_string(connection)
