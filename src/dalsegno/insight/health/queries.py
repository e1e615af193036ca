"""Queries that take long: those that run now, and those that the server has measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.store import Tx

SLOW = 10
RUNS = 30.0
"""Seconds that one query may run before it is told of."""
MEAN = 1.0
CALLS = 10
"""A query that is slow on average is told of only if it is asked often."""


@dataclass(frozen=True, slots=True)
class SlowQuery:
    text: str
    calls: int
    mean_ms: float
    total_ms: float


_RUNNING = """
SELECT pid, coalesce(nullif(application_name, ''), 'pid ' || pid) || ', ' || usename AS who, query_start AS since,
       extract(epoch FROM clock_timestamp() - query_start)::float AS seconds,
       left(regexp_replace(query, '\\s+', ' ', 'g'), 200) AS query
FROM pg_stat_activity
WHERE state = 'active' AND pid <> pg_backend_pid() AND datname = current_database()
  AND backend_type = 'client backend' AND query_start < clock_timestamp() - make_interval(secs => :seconds)
ORDER BY query_start LIMIT :most
"""
_MEASURED = """
SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), 300) AS text, calls, mean_exec_time AS mean_ms,
       total_exec_time AS total_ms
FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = current_database() ORDER BY mean_exec_time DESC LIMIT :most
"""


def read_slow(tx: Tx) -> list[SlowQuery] | None:
    """None: pg_stat_statements is not there to tell, or not loaded."""
    if not tx.shared:
        return None
    if tx.conn.execute(sa.text("SELECT to_regclass('pg_stat_statements')")).scalar() is None:
        return None
    tx.raw.execute("SAVEPOINT measured")
    try:
        rows = tx.rows(sa.text(_MEASURED), {"most": SLOW})
    except sa.exc.DBAPIError:  # made, but not in shared_preload_libraries, or not for this user's eyes
        tx.raw.execute("ROLLBACK TO measured")
        return None
    tx.raw.execute("RELEASE measured")
    return [SlowQuery(row["text"], row["calls"], row["mean_ms"], row["total_ms"]) for row in rows]


def look(tx: Tx, seconds: float = RUNS) -> list[Finding]:
    if not tx.shared:
        return []
    rows = tx.rows(sa.text(_RUNNING), {"seconds": seconds, "most": SLOW})
    return [*map(_running, rows), *_often(read_slow(tx) or [])]


def _running(row: Any) -> Finding:
    return found(
        "query_running", "warning", f"session:{row['pid']}", row["since"], pid=row["pid"], who=row["who"],
        runs_seconds=row["seconds"], query=row["query"],
    )  # fmt: skip


def _often(measured: list[SlowQuery]) -> list[Finding]:
    return [
        found(
            "query_slow", "note", f"query:{place}", mean_seconds=each.mean_ms / 1000, calls=each.calls, query=each.text
        )
        for place, each in enumerate(measured)
        if each.mean_ms >= MEAN * 1000 and each.calls >= CALLS
    ]
