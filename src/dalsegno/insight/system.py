"""The system under the work: loops and when each last came round, the database, and who holds its past in memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.workers import ProcessLine, list_processes
from dalsegno.model.records import NodeRecord
from dalsegno.store.migrate import known_revisions
from dalsegno.store.schema import nodes
from dalsegno.store.store import Store, Tx
from dalsegno.version import VERSION

LATE = 3.0
"""Heartbeats without a tick of a loop after which it counts as late."""
TABLES = 12
HOLDERS = 10
SLOW = 10


@dataclass(frozen=True, slots=True)
class Loop:
    name: str
    ticked_at: datetime | None
    failures: int
    """Tries in a row that failed."""


@dataclass(frozen=True, slots=True)
class ProcessLoops:
    id: int
    node: str
    host: str
    pid: int
    version: str
    alive: bool
    started_at: datetime
    heartbeat_at: datetime
    """Its loops are as of this moment: they are told with the heartbeat."""
    skewed: bool
    """It runs another version than this console."""
    loops: list[Loop]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    bytes: int
    rows: int | None
    """About."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A transaction, slot or prepared transaction that keeps old rows from being removed."""

    what: str
    name: str
    since: datetime | None
    age: int | None
    """Transactions since."""
    doing: str | None


@dataclass(frozen=True, slots=True)
class SlowQuery:
    text: str
    calls: int
    mean_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True)
class Database:
    kind: str
    version: str
    size: int
    wal: int | None
    """Bytes of the write-ahead log, on SQLite."""
    tables: list[Table]
    """The largest; empty where the database does not tell."""
    holders: list[Holder]
    """Oldest first; always empty on SQLite."""
    slow: list[SlowQuery] | None
    """None: pg_stat_statements is not there to tell."""


@dataclass(frozen=True, slots=True)
class Migrations:
    found: str
    known: str
    current: bool
    missing: list[str]
    """Those that are still to be applied: dalsegno migrate."""


@dataclass(frozen=True, slots=True)
class System:
    now: datetime
    version: str
    processes: list[ProcessLoops]
    nodes: list[NodeRecord]
    database: Database
    migrations: Migrations


def read_system(store: Store) -> System:
    def read(tx: Tx) -> System:
        known = [NodeRecord.model_validate(dict(row)) for row in tx.rows(sa.select(nodes).order_by(nodes.c.name))]
        loops = [_loops(line) for line in list_processes(tx)]
        database = _postgres(tx) if tx.conn.dialect.name == "postgresql" else _sqlite(tx)
        return System(tx.now, VERSION, loops, known, database, _migrations(tx))

    return store.read(read)


def _loops(line: ProcessLine) -> ProcessLoops:
    process = line.process
    loops = [
        Loop(name, None if told["at"] is None else datetime.fromisoformat(told["at"]), told["failures"])
        for name, told in (process.loops or {}).items()
    ]
    return ProcessLoops(
        process.id, process.node, process.host, process.pid, process.version, line.alive, process.started_at,
        process.heartbeat_at, process.version != VERSION, loops,
    )  # fmt: skip


def _migrations(tx: Tx) -> Migrations:
    found = tx.conn.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() or "none"
    known = known_revisions()
    return Migrations(str(found), known[-1], found == known[-1], [name for name in known if name > str(found)])


# --- SQLite -----------------------------------------------------------------------------------------


def _sqlite(tx: Tx) -> Database:
    def pragma(name: str) -> int:
        return int(tx.conn.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)

    version = str(tx.conn.exec_driver_sql("SELECT sqlite_version()").scalar())
    path = next((row[2] for row in tx.conn.exec_driver_sql("PRAGMA database_list") if row[1] == "main"), "")
    return Database("sqlite", version, pragma("page_count") * pragma("page_size"), _size(f"{path}-wal"), [], [], None)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


# --- PostgreSQL -------------------------------------------------------------------------------------

_LARGEST = """
SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes, c.reltuples AS rows
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname = current_schema()
ORDER BY 2 DESC LIMIT :most
"""
_SESSIONS = """
SELECT 'session' AS what, coalesce(nullif(application_name, ''), 'pid ' || pid) AS name, xact_start AS since,
       age(backend_xmin) AS age,
       state || coalesce(': ' || left(regexp_replace(query, '\\s+', ' ', 'g'), 200), '') AS doing
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
ORDER BY age(backend_xmin) DESC LIMIT :most
"""
_SLOTS = """
SELECT 'replication slot' AS what, slot_name AS name, NULL::timestamptz AS since,
       age(coalesce(xmin, catalog_xmin)) AS age,
       CASE WHEN active THEN 'active' ELSE 'nobody reads from it' END AS doing
FROM pg_replication_slots WHERE coalesce(xmin, catalog_xmin) IS NOT NULL LIMIT :most
"""
_PREPARED = """
SELECT 'prepared transaction' AS what, gid AS name, prepared AS since, age(transaction) AS age, NULL AS doing
FROM pg_prepared_xacts WHERE database = current_database() LIMIT :most
"""
_SLOW = """
SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), 300) AS text, calls, mean_exec_time AS mean_ms,
       total_exec_time AS total_ms
FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = current_database() ORDER BY mean_exec_time DESC LIMIT :most
"""


def _postgres(tx: Tx) -> Database:
    size = int(tx.conn.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())
    version = str(tx.conn.execute(sa.text("SHOW server_version")).scalar())
    tables = [Table(row["name"], int(row["bytes"]), max(0, round(row["rows"]))) for row in _rows(tx, _LARGEST, TABLES)]
    holders = [Holder(**row) for query in (_SESSIONS, _SLOTS, _PREPARED) for row in _rows(tx, query, HOLDERS)]
    holders.sort(key=lambda holder: -(holder.age or 0))
    tables.sort(key=lambda table: -table.bytes)
    slow = None
    if tx.conn.execute(sa.text("SELECT to_regclass('pg_stat_statements')")).scalar() is not None:
        slow = [SlowQuery(row["text"], row["calls"], row["mean_ms"], row["total_ms"]) for row in _rows(tx, _SLOW, SLOW)]
    return Database("postgresql", version, size, None, tables, holders, slow)


def _rows(tx: Tx, text: str, most: int) -> list[dict[str, Any]]:
    return [dict(row) for row in tx.rows(sa.text(text), {"most": most})]


def late(loop: Loop, process: ProcessLoops, heartbeat: timedelta) -> bool:
    """Whether a loop has not come round for longer than it should."""
    at = loop.ticked_at or process.started_at
    return process.heartbeat_at - at > heartbeat * LATE
