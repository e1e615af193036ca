"""SQLite as an engine: one writer that groups commits, read-only connections for everyone else.

Functions handed to `write` queue up for the writer thread. It runs all that wait in one transaction, a savepoint each,
commits once, and answers. After each commit it leaves a breath in which other processes get in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from dalsegno import faults
from dalsegno.clock import Clock
from dalsegno.errors import (
    DalSegnoError,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    EngineAlreadyRunning,
)
from dalsegno.store.asked import for_sqlite
from dalsegno.store.hot_sqlite import SqliteHot
from dalsegno.store.store import Store, Tx
from dalsegno.store.tidying import Wal

T = TypeVar("T")

BREATH = 0.001
"""Seconds left free between two group commits."""
KNOCK = 0.0004
"""Seconds between two tries for the write lock: shorter than a breath, so that a try always falls into one.
SQLite's own busy handler waits up to 100 ms between tries and starves beside a busy engine."""
PATIENCE = 60.0
GROUP = 64
"""Most functions in one commit: bounds how long the first of them waits."""
POLL = 0.01
READERS = 16
"""Connections for readers, kept open: opening one costs more than most reads."""

_Job = tuple[str, Callable[[Tx], Any], "Future[Any]"]


def address(path: Path) -> sa.URL:
    """Its database, whatever is in the name: in the text of a URL `?` and `%41` mean something else."""
    return sa.URL.create("sqlite", database=str(path))


class SqliteStore(Store):
    poll_seconds = 1.0
    shared = False

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.path = path
        self.url = f"sqlite:///{path}"
        self.hot = SqliteHot(self.clock)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._writer_lock = threading.Lock()
        self._closed = False
        self._watching = False
        self._wal = Wal(path)
        self._write_engine = self._engine(read_only=False, pool=1)
        self._read_engine = self._engine(read_only=True, pool=READERS)
        self._glancing: list[sqlite3.Connection] = []

    # --- reading and writing ----------------------------------------------------------------

    def write(self, name: str, work: Callable[[Tx], T]) -> T:
        if threading.current_thread() is self._writer:
            raise RuntimeError("a write may not wait for another write")
        answer: Future[T] = Future()
        with self._writer_lock:
            if self._closed:
                raise DatabaseUnavailable(problem="it was closed")
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_forever, name="sqlite-writer", daemon=True)
                self._writer.start()
            self._jobs.put((name, work, answer))
        return answer.result()

    def read(self, work: Callable[[Tx], T]) -> T:
        with self._translated(), self._read_engine.connect() as conn:
            tx = Tx(conn, self.hot, self.clock.now())
            tx.raw.execute("BEGIN")  # past SQLAlchemy, which takes longer over these two than over a small query
            began = time.perf_counter()
            try:
                return work(tx)
            finally:
                self.slowest.note(work, began)
                tx.raw.execute("ROLLBACK")

    def glance(self, statement: sa.Select[Any], params: dict[str, Any]) -> list[dict[str, Any]]:
        """Past SQLAlchemy, in a fifth of its time."""
        asked = for_sqlite(statement)
        with self._translated():
            try:
                conn = self._glancing.pop()
            except IndexError:
                conn = self._raw_reader()
            told = asked.given | params
            rows = conn.execute(asked.text, [told[name] for name in asked.places]).fetchall()
            self._glancing.append(conn)
        return asked.read(rows)

    def _raw_reader(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        conn.execute("PRAGMA query_only=ON")
        return conn

    def close(self) -> None:
        with self._writer_lock:
            writer, self._closed = self._writer, True
            if writer is not None:
                self._jobs.put(None)
        if writer is not None:
            writer.join()
        self._read_engine.dispose()
        self._write_engine.dispose()
        while self._glancing:
            self._glancing.pop().close()

    # --- the writer thread ------------------------------------------------------------------

    def _write_forever(self) -> None:
        conn: sa.Connection | None = None
        version = None
        try:
            while True:
                try:
                    group = self._next_group(POLL if self._watching else None)
                except queue.Empty:
                    version = self._look_outside(conn, version)
                    continue
                if group is None:
                    return
                try:
                    conn = conn or self._write_engine.connect()
                    topics = self._commit(conn, group)
                except BaseException as error:
                    known = translate(error, self.path) or error
                    for name, _, answer in group:
                        self.outages.failed(known, name)
                        if not answer.done():
                            answer.set_exception(known)
                    if conn is not None:
                        with contextlib.suppress(Exception):
                            conn.invalidate()
                            conn.close()
                        conn = None
                    continue
                if topics:
                    self.announce(topics)
                self._wal.keep_short(conn.connection.driver_connection)  # type: ignore[arg-type]
                if self._jobs.empty():
                    continue
                time.sleep(BREATH)
        finally:
            if conn is not None:
                conn.close()

    def _next_group(self, timeout: float | None) -> list[_Job] | None:
        first = self._jobs.get(timeout=timeout) if timeout else self._jobs.get()
        if first is None:
            return None
        group = [first]
        while len(group) < GROUP:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            group.append(job)
        return group

    def _commit(self, conn: sa.Connection, group: list[_Job]) -> set[str]:
        _begin_immediate(conn)
        raw = conn.connection.driver_connection
        assert raw is not None
        done: list[tuple[Future[Any], Any]] = []
        topics: set[str] = set()
        now = self.clock.now()
        for name, work, answer in group:
            tx = Tx(conn, self.hot, now)
            raw.execute("SAVEPOINT one")
            began = time.perf_counter()
            try:
                result = work(tx)
                self.slowest.note(name, began)
            except BaseException as error:
                if not raw.in_transaction:  # a full disk can end the whole transaction
                    raise
                raw.execute("ROLLBACK TO one")
                raw.execute("RELEASE one")
                known = translate(error, self.path) or error
                self.outages.failed(known, name)
                answer.set_exception(known)
                continue
            raw.execute("RELEASE one")
            faults.point(f"{name}.commit.before")
            done.append((answer, result))
            topics |= tx.announced
        raw.execute("COMMIT")
        for name, _, answer in group:
            faults.point(f"{name}.commit.after")
            if not answer.done():
                self._worked(name)
        for answer, result in done:
            answer.set_result(result)
        return topics

    def _look_outside(self, conn: sa.Connection | None, version: Any) -> Any:
        """Another process's commit changes data_version as this connection sees it; our own do not."""
        if conn is None:
            return None
        with contextlib.suppress(Exception):
            raw: Any = conn.connection.driver_connection
            found = raw.execute("PRAGMA data_version").fetchone()[0]
            if version is not None and found != version:
                self.announce({"jobs", "commands", "closed"})
            return found
        return version

    # --- engines, locks, connections --------------------------------------------------------

    def hold_engine(self) -> Callable[[], None]:
        lock = self.path.with_name(self.path.name + ".engine")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(descriptor, 32).decode().strip() or "unknown"
            os.close(descriptor)
            raise EngineAlreadyRunning(pid=pid, path=self.path) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return lambda: os.close(descriptor)

    def watch(self, stop: threading.Event) -> None:
        self._watching = True
        # The writer only polls while it has a connection and is between groups: one empty write gets it there.
        with contextlib.suppress(DalSegnoError):
            self.write("watch", lambda _tx: None)
        stop.wait()
        self._watching = False

    def _engine(self, *, read_only: bool, pool: int) -> sa.Engine:
        engine = sa.create_engine(
            address(self.path),
            isolation_level="AUTOCOMMIT",
            poolclass=sa.pool.QueuePool,
            pool_size=pool,
            max_overflow=0,
            connect_args={"check_same_thread": False, "timeout": 5.0},
        )

        @sa.event.listens_for(engine, "connect")
        def _prepare(connection: sqlite3.Connection, _record: object) -> None:
            pragmas = ["temp_store=MEMORY"]
            if read_only:
                pragmas += ["query_only=ON", "cache_size=-8000"]
            else:
                pragmas += ["cache_size=-16000", "synchronous=FULL", "foreign_keys=ON"]
                pragmas.append(f"journal_size_limit={64 << 20}")
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}")

        return engine

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            known = translate(error, self.path)
            if known is None:
                raise
            raise known from error


def _begin_immediate(conn: sa.Connection) -> None:
    raw = conn.connection.driver_connection
    assert raw is not None
    give_up = time.monotonic() + PATIENCE
    raw.execute("PRAGMA busy_timeout=0")
    while True:
        try:
            raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(KNOCK)
        else:
            return


def translate(error: BaseException, path: Path) -> DalSegnoError | None:
    original = getattr(error, "orig", error)
    if not isinstance(original, sqlite3.Error):
        return None
    text = str(original)
    if isinstance(original, sqlite3.IntegrityError):
        return None
    if "disk is full" in text or "disk I/O error" in text:
        return DatabaseFull(problem=f"{path}: {text}")
    if "readonly" in text or "read-only" in text:
        return DatabaseReadOnly(problem=f"{path}: {text}")
    if "malformed" in text or "not a database" in text:
        return DatabaseCorrupt(path=path, problem=text)
    if "unable to open" in text or "locked" in text:
        return DatabaseUnavailable(problem=f"{path}: {text}")
    return None
