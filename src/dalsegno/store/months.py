"""Events and logs on PostgreSQL are kept in a table a month, so that a month goes at the price of one file.

Each has a primary key of its own: one over all of them would have to hold the time as well. What no month is there for
(a clock that is years ahead) goes into the default one, where nobody looks for room.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import sqlalchemy as sa

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

KEYS = {"events": "tx, id", "logs": "id"}
"""The tables that are kept by the month, with the key of a month."""
AHEAD = 3
"""Months that are there before their time: an engine that stands still for so long finds its table all the same."""
PATIENCE_MS = 250
"""How long a change of months waits for its lock: whoever comes next stands in line behind it."""
FEW = 10_000
"""Rows that are moved while everyone who reads or writes waits: a tenth of a second."""
APPENDED = (
    "autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_insert_threshold = 100000, "
    "autovacuum_analyze_scale_factor = 0.2"
)
"""Nothing in a month changes: it is looked at when it has grown by half, and frozen on the way."""

_MONTHS = """
SELECT c.relname AS name, p.relname AS "table",
       pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT' AS "default",
       (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''([^'']+)''\\)'))[1]::timestamptz AS first,
       (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''([^'']+)''\\)'))[1]::timestamptz AS until,
       greatest(c.reltuples, 0)::bigint AS rows, pg_total_relation_size(c.oid) AS bytes
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
JOIN pg_namespace n ON n.oid = p.relnamespace
WHERE p.relname = ANY(:tables) AND n.nspname = current_schema()
ORDER BY p.relname, until NULLS LAST
"""
_MOVED = """
WITH gone AS (DELETE FROM "{default}" WHERE at >= %(first)s AND at < %(until)s RETURNING *)
INSERT INTO "{name}" SELECT * FROM gone
"""


class Busy(Exception):
    """Somebody has been reading for longer than a change of months waits. Another time."""


@dataclass(frozen=True, slots=True)
class Month:
    name: str
    table: str
    default: bool
    first: datetime | None
    """None: from the beginning of time."""
    until: datetime | None
    """Where the next one begins."""
    rows: int
    """About."""
    bytes: int

    @property
    def label(self) -> str:
        """What people call it: `2026-11`, or `before-2026-12` for all that was there when months began."""
        assert self.until is not None
        return f"{self.first:%Y-%m}" if self.first else f"before-{self.until:%Y-%m}"

    def meets(self, first: datetime | None, until: datetime) -> bool:
        """Whether it has any of that time: two months may not."""
        begun = first is None or (self.until is not None and first < self.until)
        return self.until is not None and begun and (self.first is None or self.first < until)


def months(tx: Tx, table: str | None = None) -> list[Month]:
    """Oldest first, the default one last."""
    rows = tx.rows(sa.text(_MONTHS), {"tables": [table] if table else sorted(KEYS)})
    return [Month(**{**row, "first": _utc(row["first"]), "until": _utc(row["until"])}) for row in rows]


def ensure_ahead(tx: Tx, ahead: int = AHEAD) -> list[str]:
    """Make the months that are missing from this one on; returns their names."""
    made = []
    for table in sorted(KEYS):
        have = months(tx, table)
        if not have:  # one table, as before there were months
            continue
        first = month_of(tx.now)
        for _ in range(ahead + 1):
            until = next_month(first)
            if not any(month.meets(first, until) for month in have):
                made += _made(tx, table, have, first)
            first = until
    return made


def _made(tx: Tx, table: str, have: list[Month], first: datetime) -> list[str]:
    """What was written before its month was there moves into it; where that is much, both stay as they are."""
    default = next((month for month in have if month.default), None)
    strays = 0 if default is None else _strays(tx, default, first)
    if strays > FEW:
        return []
    if default is None or not strays:
        return [add_month(tx, table, first)]
    lock_month(tx, default)
    name, until = f"{table}_{first:%Y_%m}", next_month(first)
    make_table(tx, table, name)
    tx.raw.execute(_MOVED.format(default=default.name, name=name), {"first": first, "until": until})
    attach(tx, table, name, first, until)
    return [name]


def _strays(tx: Tx, default: Month, first: datetime) -> int:
    """Rows of a month that are in the default one; of many, only that there are too many."""
    at: sa.ColumnClause[Any] = sa.column("at")
    some = sa.select(at).select_from(sa.table(default.name, at)).where(at >= first, at < next_month(first))
    count = sa.select(sa.func.count()).select_from(some.limit(FEW + 1).subquery())
    return int(tx.conn.execute(count).scalar_one())


def add_month(tx: Tx, table: str, first: datetime, until: datetime | None = None, name: str | None = None) -> str:
    """Made beside and attached: a table that is made as a part of another would lock out everyone meanwhile."""
    until = until or next_month(first)
    name = name or f"{table}_{first:%Y_%m}"
    make_table(tx, table, name)
    attach(tx, table, name, first, until)
    return name


def make_table(tx: Tx, table: str, name: str) -> None:
    """A table like the others that nobody looks at yet."""
    like = f'CREATE TABLE "{name}" (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS'
    execute(tx, f'{like}, CONSTRAINT "pk_{name}" PRIMARY KEY ({KEYS[table]})) WITH ({APPENDED})')


def attach(tx: Tx, table: str, name: str, first: datetime | None, until: datetime) -> None:
    begins = "MINVALUE" if first is None else f"'{first.isoformat()}'"
    wait_briefly(tx)
    execute(
        tx, f"ALTER TABLE {table} ATTACH PARTITION \"{name}\" FOR VALUES FROM ({begins}) TO ('{until.isoformat()}')"
    )


def lock_month(tx: Tx, month: Month) -> None:
    """From here on nobody reads or adds to any month. The whole first, as everyone else does."""
    wait_briefly(tx)
    execute(tx, f"LOCK TABLE {month.table} IN ACCESS EXCLUSIVE MODE")


def drop_month(tx: Tx, month: Month) -> None:
    """After `lock_month`."""
    execute(tx, f'DROP TABLE "{month.name}"')


def rows_of(tx: Tx, month: Month) -> int:
    """Counted where they are few; of more, about."""
    some = sa.select(sa.literal(1)).select_from(sa.table(month.name)).limit(FEW + 1).subquery()
    counted = int(tx.conn.execute(sa.select(sa.func.count()).select_from(some)).scalar_one())
    return counted if counted <= FEW else max(counted, month.rows)


def last_of(tx: Tx, month: Month) -> list[Any]:
    """The key of its last row, which changes when anything is added to it; empty where there is none."""
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in KEYS[month.table].split(", ")]
    query = sa.select(*columns).select_from(sa.table(month.name)).order_by(*(column.desc() for column in columns))
    row = tx.row(query.limit(1))
    return [] if row is None else list(row.values())


def month_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(first: datetime) -> datetime:
    return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)


def wait_briefly(tx: Tx) -> None:
    """For every lock from here on: `Busy` when it takes longer."""
    execute(tx, f"SET LOCAL lock_timeout = {PATIENCE_MS}")


def execute(tx: Tx, statement: str) -> None:
    try:
        tx.raw.execute(statement)
    except psycopg.errors.LockNotAvailable:
        raise Busy from None


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
