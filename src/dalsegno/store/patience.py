"""Reads that end after so many seconds, whether they are done or not. Their transaction goes on."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy as sa

from dalsegno.store.store import Tx

OFTEN = 4_000
"""Steps of SQLite's machine between two looks at the clock: a fraction of a millisecond."""
_BEGIN = "SAVEPOINT patience; SET LOCAL statement_timeout = {}"
_DONE = "SET LOCAL statement_timeout = 0; RELEASE patience"
_CUT = "ROLLBACK TO patience; RELEASE patience"


class TimeUp(Exception):
    """The database was still looking."""


@contextmanager
def at_most(tx: Tx, seconds: float) -> Iterator[None]:
    """What is read within has so long, then it ends with `TimeUp`."""
    within = _postgres if tx.conn.dialect.name == "postgresql" else _sqlite
    try:
        with within(tx, max(seconds, 0.001)):
            yield
    except sa.exc.DBAPIError as error:
        if not _was_cut(error.orig):
            raise
        raise TimeUp from None


@contextmanager
def _sqlite(tx: Tx, seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    tx.raw.set_progress_handler(lambda: time.monotonic() > end, OFTEN)
    try:
        yield
    finally:
        tx.raw.set_progress_handler(None, 0)


@contextmanager
def _postgres(tx: Tx, seconds: float) -> Iterator[None]:
    """Each question has so long. A canceled one ends the transaction, but for the savepoint."""
    tx.raw.execute(_BEGIN.format(max(1, int(seconds * 1000))))
    try:
        yield
    except sa.exc.DBAPIError as error:
        if _was_cut(error.orig):
            tx.raw.execute(_CUT)
        raise
    tx.raw.execute(_DONE)


def _was_cut(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
    return isinstance(error, psycopg.errors.QueryCanceled)
