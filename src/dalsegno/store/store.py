"""One Store for both databases: transactions in, values out, announcements after the commit.

A write is a function that gets a `Tx`. It may run more than once (deadlock, lost connection), so it must do nothing
but talk to the database.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dalsegno.clock import Clock, SystemClock
from dalsegno.store.outage import Outage, Outages
from dalsegno.store.slowest import Slowest

if TYPE_CHECKING:
    from dalsegno.store.hot import Hot

T = TypeVar("T")

logger = logging.getLogger("dalsegno.store")


class Tx:
    """One transaction."""

    __slots__ = ("announced", "attempt", "conn", "hot", "now", "raw")

    def __init__(self, conn: sa.Connection, hot: Hot, now: datetime, attempt: int = 1) -> None:
        self.conn = conn
        self.raw: Any = conn.connection.driver_connection
        self.hot = hot
        self.now = now
        self.attempt = attempt
        self.announced: set[str] = set()

    @property
    def shared(self) -> bool:
        """Whether the database is one that several engines may work on at once: a PostgreSQL server."""
        return self.conn.dialect.name == "postgresql"

    def announce(self, topic: str) -> None:
        """After the commit, tell whoever waits for `jobs`, `lane:NAME`, `work:SERVICE`, `commands` or `closed`."""
        self.announced.add(topic)

    def insert_new(self, table: sa.Table, values: dict[str, Any]) -> Any:
        """Insert a row and return its primary key, or None where a unique key was taken."""
        dialect = postgresql if self.shared else sqlite
        (key,) = table.primary_key.columns
        statement = dialect.insert(table).values(values).on_conflict_do_nothing().returning(key)
        return self.conn.execute(statement).scalar()

    def rows(self, statement: sa.Executable, params: Any = None) -> list[sa.RowMapping]:
        return list(self.conn.execute(statement, params).mappings())

    def row(self, statement: sa.Executable, params: Any = None) -> sa.RowMapping | None:
        return self.conn.execute(statement, params).mappings().first()


class Store(ABC):
    """Where everything is kept."""

    url: str
    hot: Hot
    poll_seconds: float
    """How long a loop may wait before it looks for itself."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.outages = Outages(self.clock)
        self.slowest = Slowest()
        self._listeners: list[Callable[[set[str]], None]] = []
        self._listeners_lock = threading.Lock()

    @abstractmethod
    def write(self, name: str, work: Callable[[Tx], T]) -> T:
        """Run `work` in one transaction and return its result once it is durable."""

    @abstractmethod
    def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on one consistent snapshot. It cannot write, and never waits for a writer."""

    def glance(self, statement: sa.Select[Any], params: dict[str, Any]) -> list[dict[str, Any]]:
        """One small question outside any transaction: for what is asked thousands of times a second."""
        return self.read(lambda tx: [dict(row) for row in tx.rows(statement, params)])

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def hold_engine(self) -> Callable[[], None]:
        """The right to run an engine on this database; returns how to give it back."""

    @abstractmethod
    def watch(self, stop: threading.Event) -> None:
        """Block until `stop`, turning what other processes commit into announcements here."""

    @property
    @abstractmethod
    def shared(self) -> bool:
        """Whether several engines may work on it at once."""

    # --- outages ------------------------------------------------------------------------------

    @property
    def outage(self) -> Outage | None:
        """What keeps the database from doing what it is asked, as this process has met it."""
        return self.outages.now

    def _worked(self, name: str = "", *, wrote: bool = True) -> None:
        """A transaction got through. Whoever waits for the end of an outage is told of it."""
        self.outages.was_there = True
        if self.outages.now is not None and self.outages.worked(name, wrote=wrote):
            self.announce({"back"})

    # --- announcements ----------------------------------------------------------------------

    def listen(self, callback: Callable[[set[str]], None]) -> Callable[[], None]:
        """Call back with the topics of every commit; returns how to stop."""
        with self._listeners_lock:
            self._listeners.append(callback)

        def stop() -> None:
            with self._listeners_lock:
                if callback in self._listeners:
                    self._listeners.remove(callback)

        return stop

    def announce(self, topics: set[str]) -> None:
        with self._listeners_lock:
            listeners = list(self._listeners)
        for callback in listeners:
            try:
                callback(topics)
            except Exception:  # a listener's fault must not end the thread that commits for everyone
                logger.exception("a listener failed")
