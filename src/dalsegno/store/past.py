"""The way to a PostgreSQL database that does not lead through a pooler.

pg_dump and psql change settings of their session (`search_path` among them) outside of a transaction. A pooler in
transaction mode gives that session to somebody else afterwards, who then finds no table at all.
"""

from __future__ import annotations

import secrets
from typing import Any

import psycopg
import sqlalchemy as sa

from dalsegno.errors import DatabaseUnavailable, PoolerBetween
from dalsegno.store.backup_postgres import connected
from dalsegno.store.line import ADMITTED, is_pooled


def past_pooler(url: sa.URL, listen: sa.URL | None) -> sa.URL:
    """`url` where it leads to the server itself, else LISTEN_DATABASE_URL. Refused where neither does."""
    if url.get_backend_name() != "postgresql":
        return url
    with connected(url) as connection:
        return past_pooler_of(connection, url, listen)


def past_pooler_of(connection: psycopg.Connection[Any], url: sa.URL, listen: sa.URL | None) -> sa.URL:
    """The same over a connection to `url` that is there, in its transaction."""
    if not is_pooled(connection):
        return url
    problem = _unfit(connection, listen)
    if listen is None or problem:
        raise PoolerBetween(database=url.render_as_string(hide_password=True), problem=problem)
    return listen


def _unfit(connection: psycopg.Connection[Any], listen: sa.URL | None) -> str:
    """Why LISTEN_DATABASE_URL is not the way; empty: it is."""
    if listen is None or listen.get_backend_name() != "postgresql":
        return "LISTEN_DATABASE_URL is not set"
    try:
        with connected(listen) as direct:
            if (direct.info.host, direct.info.port) == (connection.info.host, connection.info.port):
                return "LISTEN_DATABASE_URL leads through it, too"
            direct.patience = ADMITTED  # another pooler may have no connection left but the one that we hold
            if not _meet(connection, direct):
                return "LISTEN_DATABASE_URL leads to another database, or to another schema of it"
            return "LISTEN_DATABASE_URL leads through a pooler, too" if is_pooled(direct) else ""
    except DatabaseUnavailable as error:
        return f"LISTEN_DATABASE_URL does not answer ({error.details['problem']})"


def _meet(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> bool:
    """Whether both are in the same database: one cannot take what the other holds there. Names would prove nothing."""
    key = secrets.randbits(62)
    home = "SELECT current_schema()"
    one.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
    taken = other.execute("SELECT pg_try_advisory_xact_lock(%s)", (key,)).fetchone()
    return taken == (False,) and one.execute(home).fetchone() == other.execute(home).fetchone()
