"""The system under the work: loops and when each last came round, the database, and who holds its past in memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from dalsegno.insight.health.file import read_file
from dalsegno.insight.health.holders import Holder, read_holders
from dalsegno.insight.health.loops import ProcessLoops, read_loops
from dalsegno.insight.health.queries import SLOW, SlowQuery, read_slow
from dalsegno.insight.health.schema import Migrations, read_migrations
from dalsegno.insight.health.tables import Table, read_tables
from dalsegno.model.records import NodeRecord
from dalsegno.store.patience import TimeUp, at_most
from dalsegno.store.schema import nodes
from dalsegno.store.slowest import Slow
from dalsegno.store.store import Store, Tx
from dalsegno.version import VERSION

MOMENT = 0.3
"""Seconds that measuring tables may take: whoever changes one holds it up."""


@dataclass(frozen=True, slots=True)
class Database:
    kind: str
    version: str
    size: int
    wal: int | None
    """Bytes of the write-ahead log, on SQLite."""
    free: int | None
    """Bytes inside the file that hold nothing, on SQLite."""
    tables: list[Table]
    """The largest; empty where the database does not tell, or somebody holds a lock on one of them."""
    holders: list[Holder]
    """Oldest first; always empty on SQLite."""
    slow: list[SlowQuery] | None
    """None: pg_stat_statements is not there to tell. On SQLite the slow transactions of this process."""


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
        return System(tx.now, VERSION, read_loops(tx), known, read_database(tx, store), read_migrations(tx))

    return store.read(read)


def read_database(tx: Tx, store: Store) -> Database:
    file = read_file(tx)
    if file is not None:
        version = str(tx.conn.exec_driver_sql("SELECT sqlite_version()").scalar())
        slow = [_measured(each) for each in store.slowest.worst(SLOW)]
        return Database("sqlite", version, file.size, file.wal, file.free, [], [], slow)
    size = int(tx.conn.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())
    version = str(tx.conn.execute(sa.text("SHOW server_version")).scalar())
    tables: list[Table] = []
    with suppress(TimeUp), at_most(tx, MOMENT):
        tables = read_tables(tx)
    return Database("postgresql", version, size, None, None, tables, read_holders(tx), read_slow(tx))


def _measured(slow: Slow) -> SlowQuery:
    return SlowQuery(slow.name, slow.times, 1000 * slow.seconds / slow.times, 1000 * slow.seconds)
