"""A connection to PostgreSQL that does not wait for ever, neither for a pooler nor for a server that is gone."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo

RV = TypeVar("RV")

ADMITTED = 10.0
"""Seconds in which the first statement of a transaction is answered. PgBouncer lets clients wait two minutes for a
connection, and says nothing meanwhile."""
HABITS: dict[str, Any] = {
    # No prepared statements: PgBouncer in transaction mode has none, and a batch is planned once anyway.
    "prepare_threshold": None,
    "application_name": "dalsegno",
    "connect_timeout": 10,
    # Who has vanished without a word is found within half a minute, not after the two hours of the system's default.
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class NotAdmitted(psycopg.OperationalError):
    """Connected, but nobody answers."""


class Line(psycopg.Connection[Any]):
    patience: float | None = None
    """Seconds that what is said next may take."""

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        return super().wait(gen if self.patience is None else _within(gen, self.patience), *args, **kwargs)


def words_of(url: sa.URL) -> str:
    """Where libpq connects to, said so that it knows: in a URL it reads a space or a `+` otherwise than SQLAlchemy."""
    spoken = url.set(drivername="postgresql+psycopg")
    _, given = spoken.get_dialect()().create_connect_args(spoken)
    return make_conninfo(**given)


def is_pooled(conn: psycopg.Connection[Any]) -> bool:
    """Whether somebody stands between us and the server who may give us another backend for every transaction.

    PgBouncer and its like make up the number that a client is given for its backend.
    """
    row = conn.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] != conn.info.backend_pid


def _within(gen: PQGen[RV], seconds: float) -> PQGen[RV]:
    end = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > end:
                raise NotAdmitted(f"no connection to the server came free within {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
