"""Everything there is to look at."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from dalsegno.catalog.abandoned import library_roots
from dalsegno.catalog.agreement import check_files
from dalsegno.doctor import disks, parts, secrets, uploads
from dalsegno.doctor.examination import LIMIT, Subject
from dalsegno.errors import DalSegnoError
from dalsegno.insight.agreement import Agreement, Deadline, check_records
from dalsegno.insight.health import clocks, deep, file, holders, keeping, loops, queries, schema, server, tables, work
from dalsegno.insight.health.finding import Finding, found
from dalsegno.settings import Settings
from dalsegno.store.patience import at_most
from dalsegno.store.store import Store, Tx

NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
READS: dict[str, Callable[[Tx], list[Finding]]] = {
    "loops": loops.look,
    "work": work.look,
    "schema": schema.look,
    "transactions": holders.look,
    "queries": queries.look,
    "tables": tables.look,
    "server": server.look,
    "file": file.look,
    "keeping": keeping.look,
}
"""Questions that the database answers in no time."""


def subjects(
    store: Store,
    settings: Settings,
    env_file: Path | None,
    problem: str | None = None,
    *,
    thorough: bool = False,
    limit: float = LIMIT,
) -> list[Subject]:
    """`problem`: why the settings file is not in force. `thorough`: also what takes its time."""

    def ask(look: Callable[[Tx], list[Finding]]) -> Callable[[], list[Finding]]:
        return partial(_read, store, look, limit)

    asked = [Subject(name, ask(look)) for name, look in READS.items()]
    asked += [
        Subject("database", ask(_answers)),
        Subject("outage", partial(_outage, store)),
        Subject("clocks", ask(lambda tx: clocks.look(tx, store.clock))),
        *without_database(settings, env_file, problem, known=lambda: _roots(store)),
        Subject("parts", partial(_left, lambda: parts.look(store, settings.library_root)), dear=True),
        Subject("uploads", lambda: uploads.look(store, settings), dear=True),
    ]
    if thorough:
        asked.append(Subject("pages", ask(deep.look), dear=True))
        asked.append(Subject("agreement", partial(_agreement, store, limit), dear=True))
        for place in disks.places(settings):
            if place.what == "object store":
                asked.append(Subject("copies", partial(parts.look_at_copies, place.path, store.clock), dear=True))
    return asked


def without_database(
    settings: Settings, env_file: Path | None, problem: str | None = None,
    known: Callable[[], list[Path]] = list,
) -> list[Subject]:  # fmt: skip
    return [
        Subject("disks", lambda: disks.look(disks.places(settings, known())), dear=True),
        Subject("settings", lambda: secrets.look(env_file, problem)),
    ]


def _read(store: Store, look: Callable[[Tx], list[Finding]], limit: float) -> list[Finding]:
    """The database itself ends a question that takes too long."""

    def read(tx: Tx) -> list[Finding]:
        with at_most(tx, limit):
            return look(tx)

    return store.read(read)


def _roots(store: Store) -> list[Path]:
    """Without a database, those that the settings name are looked at."""
    try:
        return store.read(library_roots)
    except DalSegnoError:
        return []


def _outage(store: Store) -> list[Finding]:
    """As this process has met it."""
    met = store.outage
    if met is None:
        return []
    return [found("database_unwritable", "error", "outage", met.since, problem=met.says)]


def _agreement(store: Store, limit: float) -> list[Finding]:
    report, deadline = Agreement(), Deadline(limit)
    check_records(store, report, deadline)
    check_files(store, report, deadline)
    cut = [] if report.complete else [found("look_cut", "note", "agreement", subject="agreement", limit_seconds=limit)]
    return [*deep.disagreements(report), *cut]


def _left(look: Callable[[], list[Finding]]) -> list[Finding]:
    return look() or [found("files_fine", "ok", "files")]


def _answers(tx: Tx) -> list[Finding]:
    kind = tx.conn.dialect.name
    told = file.read_file(tx)
    if told is not None:
        version, size = tx.conn.exec_driver_sql("SELECT sqlite_version()").scalar(), told.size
    else:
        version = tx.conn.execute(sa.text("SHOW server_version")).scalar()
        size = int(tx.conn.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())
    return [found("database_fine", "ok", "database", kind=NAMES[kind], version=str(version), size_bytes=size)]
