"""Who holds a transaction open. PostgreSQL cannot clear away rows that an old one might still want to see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, Severity, found
from dalsegno.store.store import Tx

HOLDERS = 10
LONG = 60.0
"""Seconds after which an open transaction is worth a word."""
TOO_LONG = 300.0
SLOT_AGE = 1_000_000
"""Transactions that a replication slot may be behind."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A session, slot or prepared transaction that keeps old rows from being removed, or may."""

    what: Literal["session", "replication slot", "prepared transaction"]
    name: str
    since: datetime | None
    age: int | None
    """Transactions since; None: it keeps no rows right now."""
    doing: str | None
    pid: int | None
    user: str | None
    client: str | None
    seconds: float | None
    state: str | None
    query: str | None


_SESSIONS = """
SELECT 'session' AS what, coalesce(nullif(application_name, ''), 'pid ' || pid) AS name, xact_start AS since,
       greatest(age(backend_xmin), age(backend_xid)) AS age, pid, usename::text AS "user", client_addr::text AS client,
       extract(epoch FROM clock_timestamp() - xact_start)::float AS seconds, state,
       left(regexp_replace(query, '\\s+', ' ', 'g'), 200) AS query
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)
  AND (datname = current_database() OR datname IS NULL) AND backend_type IN ('client backend', 'walsender')
ORDER BY xact_start NULLS LAST LIMIT :most
"""
_SLOTS = """
SELECT 'replication slot' AS what, slot_name::text AS name, NULL::timestamptz AS since,
       age(coalesce(xmin, catalog_xmin)) AS age, active_pid AS pid, NULL AS "user", NULL AS client,
       NULL::float AS seconds, CASE WHEN active THEN 'active' ELSE 'nobody reads from it' END AS state, NULL AS query
FROM pg_replication_slots WHERE coalesce(xmin, catalog_xmin) IS NOT NULL LIMIT :most
"""
_PREPARED = """
SELECT 'prepared transaction' AS what, gid AS name, prepared AS since, age(transaction) AS age, NULL::int AS pid,
       owner::text AS "user", NULL AS client, extract(epoch FROM clock_timestamp() - prepared)::float AS seconds,
       NULL AS state, NULL AS query
FROM pg_prepared_xacts WHERE database = current_database() LIMIT :most
"""


def read_holders(tx: Tx) -> list[Holder]:
    """Oldest first; nobody on SQLite."""
    if not tx.shared:
        return []
    rows = [dict(row) for text in (_SESSIONS, _SLOTS, _PREPARED) for row in tx.rows(sa.text(text), {"most": HOLDERS})]
    holders = [Holder(doing=_doing(row), **row) for row in rows]
    return sorted(holders, key=lambda each: (-(each.seconds or 0.0), -(each.age or 0)))


def _doing(row: dict[str, Any]) -> str | None:
    return ": ".join(part for part in (row["state"], row["query"]) if part) or None


def look(tx: Tx) -> list[Finding]:
    return list(judged(read_holders(tx), LONG, TOO_LONG))


def judged(holders: Iterable[Holder], long: float, too_long: float) -> Iterable[Finding]:
    for each in holders:
        if each.what == "replication slot":
            if each.state != "active" or (each.age or 0) > SLOT_AGE:
                yield found("slot_holds", "warning", f"slot:{each.name}", name=each.name, age=each.age)
            continue
        held = each.seconds or 0.0
        if held < long:
            continue
        severity: Severity = "error" if held >= too_long else "warning"
        if each.what == "prepared transaction":
            yield found(
                "prepared_held", severity, f"prepared:{each.name}", each.since, name=each.name, held_seconds=held
            )
        else:
            yield found(
                "transaction_held", severity, f"session:{each.pid}", each.since, pid=each.pid, who=who(each),
                held_seconds=held, age=each.age or 0, state=each.state or "?", query=each.query or "?",
                user=each.user, application=each.name, client=each.client,
            )  # fmt: skip


def who(holder: Holder) -> str:
    """`psql, studio@10.0.0.7`."""
    place = f"@{holder.client}" if holder.client else ""
    return f"{holder.name}, {holder.user}{place}"
