"""Whether the database has the schema that this code knows."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.revisions import known_revisions
from dalsegno.store.store import Tx


@dataclass(frozen=True, slots=True)
class Migrations:
    found: str
    known: str
    current: bool
    missing: list[str]
    """Those that are still to be applied: dalsegno migrate."""


def read_migrations(tx: Tx) -> Migrations:
    there = tx.conn.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() or "none"
    known = known_revisions()
    return Migrations(str(there), known[-1], there == known[-1], [name for name in known if name > str(there)])


def look(tx: Tx) -> list[Finding]:
    return judged(read_migrations(tx))


def judged(told: Migrations) -> list[Finding]:
    if told.current:
        return []
    ahead = told.found not in known_revisions() and told.found != "none"
    code = "schema_ahead" if ahead else "schema_behind"
    return [found(code, "error", "schema", found=told.found, known=told.known)]
