"""The PostgreSQL server itself: connections, autovacuum, age, what it hides, and what stands between it and us."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.store import Tx

SCARCE = 0.85
"""The share of connections that may be taken."""
OLD = 1_000_000_000
"""Transactions: halfway to where the server stops."""

_STATE = """
SELECT current_setting('autovacuum') AS autovacuum, current_setting('max_connections')::int AS most,
       (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()) AS age,
       count(*) FILTER (WHERE backend_type = 'client backend') AS used,
       count(*) FILTER (WHERE datname = current_database() AND query = '<insufficient privilege>') AS hidden,
       current_user::text AS "user", pg_backend_pid() AS pid
FROM pg_stat_activity
"""


def look(tx: Tx, scarce: float = SCARCE) -> list[Finding]:
    return list(_findings(tx, scarce)) if tx.shared else []


def _findings(tx: Tx, scarce: float) -> Iterable[Finding]:
    row = tx.row(sa.text(_STATE))
    assert row is not None
    if row["autovacuum"] != "on":
        yield found("autovacuum_off", "error", "autovacuum")
    if row["age"] > OLD:
        yield found("wraparound_near", "error", "wraparound", age=row["age"])
    if row["used"] > scarce * row["most"]:
        yield found("connections_scarce", "warning", "connections", used=row["used"], most=row["most"])
    if row["hidden"]:
        yield found("sessions_hidden", "note", "sessions", count=row["hidden"], user=row["user"])
    if tx.raw.info.backend_pid != row["pid"]:  # a pooler makes up the number that it tells its clients
        yield found("pooler_between", "note", "pooler")
