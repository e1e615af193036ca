"""SQLite's file shrinks again, and its log stays short beside readers that never pause."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.store import tidying
from dalsegno.store.schema import logs
from dalsegno.store.sqlite import SqliteStore
from dalsegno.store.store import Tx
from dalsegno.store.tidying import IN_VAIN, LOOK_EVERY, Wal, give_back

TEXT = "x" * 4000


def write_lines(store: Store, lines: int) -> None:
    row = {"at": store.clock.now(), "level": "info", "logger": "x", "message": TEXT}
    store.write("test", lambda tx: tx.conn.execute(sa.insert(logs), [row] * lines))


@pytest.fixture
def lite(sqlite_url: str, stores: Callable[..., Store]) -> SqliteStore:
    found = stores(sqlite_url)
    assert isinstance(found, SqliteStore)
    return found


def pages(store: Store) -> int:
    return store.read(lambda tx: int(tx.raw.execute("PRAGMA page_count").fetchone()[0]))


def test_free_pages_are_given_back_in_small_steps(lite: SqliteStore) -> None:
    write_lines(lite, 2000)
    full = pages(lite)
    lite.write("test", lambda tx: tx.conn.execute(sa.delete(logs)))
    steps = [lite.write("test", lambda tx: give_back(tx, 300)) for _ in range(20)]
    assert steps[0] == 300
    assert steps[-1] == 0
    assert max(steps) <= 300
    small = pages(lite)
    assert small <= min(full - sum(steps), tidying.SLACK_PAGES * 2)
    write_lines(lite, 10)  # what is kept back is written again, and the file does not grow
    assert pages(lite) == small


def test_a_file_that_cannot_shrink_is_left_alone(lite: SqliteStore) -> None:
    lite.write("test", lambda tx: tx.conn.execute(sa.delete(logs)))
    assert lite.write("test", lambda tx: give_back(tx, 300)) == 0


def test_the_log_stays_short_beside_readers_that_never_pause(
    lite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "LOG_BYTES", 500_000)
    monkeypatch.setattr(tidying, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(tidying, "PATIENCE_MS", 30_000)  # however slow the machine, a reader ends before that
    wal = Path(f"{lite.path}-wal")
    began = threading.Semaphore(0)
    stop = threading.Event()

    def read_on() -> None:
        """Ends when another one has begun: there is never a moment without a reader."""
        while not stop.is_set():

            def look(tx: Tx) -> None:
                tx.raw.execute("SELECT count(*) FROM jobs").fetchone()
                began.release()
                began.acquire(timeout=0.05)

            lite.read(look)

    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    longest = 0
    try:
        for _ in range(40):
            write_lines(lite, 100)
            longest = max(longest, wal.stat().st_size)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert longest < 2_000_000, "SQLite by itself leaves it at four megabytes, and at more beside readers"


def test_a_reader_that_stays_is_waited_for_now_and_then_only(
    lite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the while the writer writes nothing."""
    now = 0.0
    monkeypatch.setattr(tidying, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(tidying, "PATIENCE_MS", 1)
    wal = Wal(lite.path)
    asked: list[str] = []
    with (
        closing(sqlite3.connect(lite.path, isolation_level=None)) as reader,
        closing(sqlite3.connect(lite.path, isolation_level=None)) as writer,
    ):
        writer.set_trace_callback(lambda text: asked.append(text) if "checkpoint" in text else None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchone()
        write_lines(lite, 400)
        lite.close()  # or its own writer would look at the log too
        monkeypatch.setattr(tidying, "LOG_BYTES", 1_000_000)
        while now < 2.5 * IN_VAIN:
            now += LOOK_EVERY
            assert not wal.keep_short(writer)
        assert len(asked) == 3
        reader.execute("COMMIT")
        now += IN_VAIN
        assert wal.keep_short(writer)
        assert Path(f"{lite.path}-wal").stat().st_size == 0
