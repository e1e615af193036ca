"""PostgreSQL: pooled connections, retried transactions, debounced NOTIFY."""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg import sql

from dalsegno import faults
from dalsegno.clock import Clock, SystemClock
from dalsegno.errors import DalSegnoError, DatabaseFull, DatabaseReadOnly, DatabaseUnavailable
from dalsegno.store.asked import for_postgres
from dalsegno.store.hot import Raced
from dalsegno.store.hot_postgres import PostgresHot
from dalsegno.store.line import ADMITTED, HABITS, Line, NotAdmitted, is_pooled, words_of
from dalsegno.store.postgres_sql import ONLY_BY_INDEX
from dalsegno.store.store import Store, Tx

T = TypeVar("T")

logger = logging.getLogger("dalsegno.store")

_CHANCE = Random()
TRIES = 8
POOL, OVERFLOW = 6, 14
OWN_FAULT = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
"""Errors of one transaction, not of the server."""
DEBOUNCE = 0.05
"""Seconds between two NOTIFYs: a NOTIFY per commit would serialise all commits of the server."""


class PostgresStore(Store):
    poll_seconds = 1.0
    shared = True

    def __init__(
        self, url: sa.URL, clock: Clock | None = None, *, channel: str = "dalsegno_", listen_url: sa.URL | None = None
    ) -> None:
        super().__init__(clock)
        self.url = url.render_as_string(hide_password=True)
        self._channel = channel + "wake"
        self.hot = PostgresHot(self._channel, given_time=not isinstance(self.clock, SystemClock))
        self._listen_url, self._listens_apart = listen_url or url, listen_url is not None
        self._outbox: set[str] = set()
        self._outbox_ready = threading.Condition()
        self._closed = False
        self._token = uuid.uuid4().hex[:12]
        self._sender: threading.Thread | None = None
        self._engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="AUTOCOMMIT",  # BEGIN and COMMIT are ours: hot transactions say more in them
            pool_size=POOL,
            max_overflow=OVERFLOW,
            pool_timeout=ADMITTED,
            connect_args=_habits(url),
        )
        sa.event.listen(
            self._engine, "do_connect", lambda _dialect, _record, words, named: Line.connect(*words, **named)
        )

    def write(self, name: str, work: Callable[[Tx], T]) -> T:
        for attempt in range(1, TRIES + 1):
            try:
                with self._connected(ONLY_BY_INDEX, name=name) as (conn, _):
                    result, topics = self._transact(conn, name, work, attempt)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, Raced) as error:
                if attempt == TRIES:
                    raise DatabaseUnavailable(problem=str(error).strip()) from error
                time.sleep(_CHANCE.uniform(0, 0.01 * 2**attempt))
            else:
                break
        self._worked(name)
        if topics:
            self.announce(topics)
            self._tell_others(topics)
        return result

    def read(self, work: Callable[[Tx], T]) -> T:
        with self._connected("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as (conn, _):
            raw: Any = conn.connection.driver_connection
            try:
                result = work(Tx(conn, self.hot, self.clock.now()))
            finally:
                with contextlib.suppress(psycopg.Error):
                    raw.execute("ROLLBACK")
        self._worked(wrote=False)
        return result

    def glance(self, statement: sa.Select[Any], params: dict[str, Any]) -> list[dict[str, Any]]:
        """One round trip instead of three."""
        asked = for_postgres(statement)
        with self._connected(asked.text, asked.given | params) as (_, answer):
            rows = answer.fetchall()
        self._worked(wrote=False)
        return asked.read(rows)

    def close(self) -> None:
        with self._outbox_ready:
            self._closed = True
            self._outbox_ready.notify_all()
        if self._sender is not None:
            self._sender.join(timeout=2)
        self._engine.dispose()

    def hold_engine(self) -> Callable[[], None]:
        return lambda: None

    def _transact(self, conn: sa.Connection, name: str, work: Callable[[Tx], T], attempt: int) -> tuple[T, set[str]]:
        raw: Any = conn.connection.driver_connection
        try:
            tx = Tx(conn, self.hot, self.clock.now(), attempt)
            try:
                result = work(tx)
            except sa.exc.DBAPIError as error:
                raise (error.orig or error) from error
            faults.point(f"{name}.commit.before")
            raw.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                raw.execute("ROLLBACK")
            raise
        faults.point(f"{name}.commit.after")
        return result, tx.announced

    def _checkout(self, first: str, params: dict[str, Any] | None = None) -> tuple[sa.Connection, psycopg.Cursor[Any]]:
        """A connection, and what it answered to `first`. One that died in the pool is no error of the caller's."""
        for _ in range(POOL + OVERFLOW + 1):
            conn = self._engine.connect()
            raw: Any = conn.connection.driver_connection
            try:
                raw.patience = ADMITTED
                answer = raw.execute(first, params)
            except psycopg.OperationalError as error:
                fresh = "used" not in conn.info
                conn.invalidate()
                conn.close()
                if fresh or isinstance(error, NotAdmitted):
                    raise
            except BaseException:
                conn.close()
                raise
            else:
                raw.patience = None
                conn.info["used"] = True
                return conn, answer
        raise DatabaseUnavailable(problem="it ends every connection at once")

    @contextlib.contextmanager
    def _connected(
        self, first: str, params: dict[str, Any] | None = None, *, name: str = ""
    ) -> Iterator[tuple[sa.Connection, psycopg.Cursor[Any]]]:
        try:
            conn, answer = self._checkout(first, params)
            with conn:
                raw: Any = conn.connection.driver_connection  # asked again later, a connection found dead would raise
                try:
                    yield conn, answer
                except BaseException:
                    if raw.closed or raw.broken:
                        conn.invalidate()
                    raise
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, psycopg.Error) as error:
            original = getattr(error, "orig", None) or error
            known = _translate(original)
            if known is not None:
                if not isinstance(original, OWN_FAULT) and (name or isinstance(known, DatabaseUnavailable)):
                    self.outages.failed(known, name)
                raise known from error
            raise original from error

    # --- LISTEN / NOTIFY --------------------------------------------------------------------

    def _tell_others(self, topics: set[str]) -> None:
        with self._outbox_ready:
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_forever, name="notify-sender", daemon=True)
                self._sender.start()
            self._outbox |= topics
            self._outbox_ready.notify()

    def _send_forever(self) -> None:
        while True:
            with self._outbox_ready:
                self._outbox_ready.wait_for(lambda: self._outbox or self._closed)
                topics, self._outbox = self._outbox, set()
                closed = self._closed
            if topics:
                # Lost on a broken connection: that is what polling is for.
                with contextlib.suppress(DalSegnoError, psycopg.Error), self._connected("SELECT 1") as (conn, _):
                    raw: Any = conn.connection.driver_connection
                    message = " ".join([self._token, *sorted(topics)])[:7000]
                    raw.execute("SELECT pg_notify(%s, %s)", (self._channel, message))
                    if self._closed:  # on a slow machine it comes too late for the pool, which is closed
                        conn.invalidate()
            if closed:
                return
            time.sleep(DEBOUNCE)

    def watch(self, stop: threading.Event) -> None:
        where = words_of(self._listen_url)
        habits = {**_habits(self._listen_url), "application_name": "dalsegno listen"}
        while not stop.is_set():
            try:
                with psycopg.connect(where, autocommit=True, **habits) as conn:
                    if not self._listens_apart and is_pooled(conn):
                        break
                    conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    self.announce({"jobs", "commands", "closed", "work"})  # whatever was said while nobody listened
                    self._listen(conn, stop)
            except psycopg.Error:
                stop.wait(_CHANCE.uniform(0.5, 1.5))
        if not stop.is_set():
            logger.info("DATABASE_URL leads to a pooler, where nobody hears NOTIFY: new work is found by looking for it"
                        " every %g s. LISTEN_DATABASE_URL is for the direct way.", self.poll_seconds)  # fmt: skip
            stop.wait()

    def _listen(self, conn: psycopg.Connection[Any], stop: threading.Event) -> None:
        while not stop.is_set():
            ready, _, _ = select.select([conn.fileno()], [], [], 0.5)
            if not ready:
                continue
            topics: set[str] = set()
            for notify in conn.notifies(timeout=0):
                sender, *told = notify.payload.split()
                if sender != self._token:  # what we said ourselves was heard here at once
                    topics.update(told)
            if topics:
                self.announce(topics)


def _habits(url: sa.URL) -> dict[str, Any]:
    """Ours, but for what the URL says."""
    return {name: value for name, value in HABITS.items() if name not in url.query}


def _translate(error: BaseException) -> DalSegnoError | None:
    match error:
        case psycopg.errors.DiskFull():
            return DatabaseFull(problem=str(error).strip())
        case psycopg.errors.ReadOnlySqlTransaction():
            return DatabaseReadOnly(problem=str(error).strip())
        case psycopg.errors.SerializationFailure() | psycopg.errors.DeadlockDetected():
            return None
        case psycopg.OperationalError() | psycopg.InterfaceError() | sa.exc.TimeoutError():
            return DatabaseUnavailable(
                problem=str(error).strip().splitlines()[0] if str(error).strip() else "no answer"
            )
        case _:
            return None
