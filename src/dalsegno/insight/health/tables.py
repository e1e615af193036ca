"""Tables of a PostgreSQL: how large they are, and how many of their rows are dead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.store import Tx

TABLES = 12
DEAD = 100_000
"""Dead rows that nobody needs to hear of."""
SHARE = 0.5
"""Dead rows for every live one, from which on a table is bloated."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    """Of the whole, where it is kept by the month."""
    bytes: int
    """With its indexes."""
    index_bytes: int
    rows: int | None
    """About."""
    dead: int
    """Rows that are to be cleared away, about."""
    vacuumed_at: datetime | None


_LARGEST = """
SELECT coalesce(p.relname, c.relname) AS name, sum(pg_total_relation_size(c.oid)) AS bytes,
       sum(pg_indexes_size(c.oid)) AS index_bytes, sum(greatest(c.reltuples, 0)) AS rows,
       sum(coalesce(s.n_dead_tup, 0)) AS dead, max(greatest(s.last_vacuum, s.last_autovacuum)) AS vacuumed_at
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relkind = 'r' AND n.nspname = current_schema()
GROUP BY 1 ORDER BY 2 DESC LIMIT :most
"""
_BLOATED = """
SELECT relname AS name, n_dead_tup AS dead, n_live_tup AS live, greatest(last_vacuum, last_autovacuum) AS vacuumed_at
FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND n_dead_tup > :dead AND n_dead_tup > :share * n_live_tup
ORDER BY n_dead_tup DESC LIMIT :most
"""


def read_tables(tx: Tx) -> list[Table]:
    """The largest; none where the database does not tell."""
    if not tx.shared:
        return []
    return [
        Table(
            row["name"], int(row["bytes"]), int(row["index_bytes"]), round(row["rows"]), int(row["dead"]),
            row["vacuumed_at"],
        )
        for row in tx.rows(sa.text(_LARGEST), {"most": TABLES})
    ]  # fmt: skip


def look(tx: Tx, dead: int = DEAD) -> list[Finding]:
    if not tx.shared:
        return []
    rows = tx.rows(sa.text(_BLOATED), {"dead": dead, "share": SHARE, "most": TABLES})
    return [
        found(
            "table_bloated", "warning", f"table:{row['name']}", row["vacuumed_at"], table=row["name"], dead=row["dead"],
            live=row["live"], vacuumed_at=row["vacuumed_at"],
        )
        for row in rows
    ]  # fmt: skip
