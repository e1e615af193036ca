"""What a restore clears away on PostgreSQL: our tables. Others may have theirs in the same database."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
import sqlalchemy as sa
from psycopg import sql

from dalsegno.errors import RestoreRefused
from dalsegno.moves.contents import Contents
from dalsegno.store import ours


def clearing_of(connection: psycopg.Connection, url: sa.URL, contents: Contents) -> bytes:
    """The statements that drop whatever of ours is there, older or newer than the archive, and nothing else."""
    assert contents.home is not None
    here = ours.home_of(connection)
    if here is not None and here != contents.home:
        problem = f"its URL leads to the schema {here}, and the backup is of {contents.home}. "
        raise refused(url, f"{problem}Name that one in the URL: ?options=-csearch_path%3D{contents.home}")
    there = set[str]() if here is None else _ours(connection, url, here, contents)
    tables = sql.SQL(", ").join(sql.Identifier(contents.home, name) for name in sorted(there | contents.tables))
    functions = [sql.SQL("{}()").format(sql.Identifier(contents.home, name)) for name in ours.FUNCTIONS]
    lines = [
        sql.SQL("SET client_min_messages = warning;"),
        sql.SQL("DROP TABLE IF EXISTS {};").format(tables),  # without CASCADE: what would go with them is not ours
        sql.SQL("DROP FUNCTION IF EXISTS {};").format(sql.SQL(", ").join(functions)),
    ]
    if here is None and not contents.others:  # with those, all of the archive is put in, and it makes its schema
        lines.append(sql.SQL("CREATE SCHEMA {};").format(sql.Identifier(contents.home)))
    return (sql.SQL("\n").join(lines).as_string(connection) + "\n").encode()


def _ours(connection: psycopg.Connection, url: sa.URL, here: str, contents: Contents) -> set[str]:
    """The tables that go. Refused where that would touch what belongs to others."""
    there = ours.tables_in(connection, here)
    if there and ours.VERSION not in there:
        raise refused(url, f"another program has tables there that are called like ours: {_some(there)}.")
    theirs = contents.others & set(ours.others_in(connection, here))
    if theirs:
        problem = f"the backup holds tables of other programs that are there, too: {_some(theirs)}. "
        raise refused(url, f"{problem}Restore it to an empty database, and a backup of that one to here.")
    leaning = ours.leaning_on(connection, here)
    if leaning:
        problem = f"it has {_some(leaning)} of another program, which would not outlive our tables. "
        raise refused(url, f"{problem}Drop that, restore, and make it again.")
    return there


def refused(url: sa.URL, problem: str) -> RestoreRefused:
    return RestoreRefused(database=url.render_as_string(hide_password=True), problem=problem)


def _some(names: Iterable[str]) -> str:
    first, *more = sorted(names)
    return f"{first} and {len(more)} more" if more else first
