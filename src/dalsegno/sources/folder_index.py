"""Songs of a tree by title, for searches.

In a temporary file of SQLite's: a large tree does not fit in memory, and takes too long to read for every question.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable

FRESH_SEC = 600.0
"""How long what was gathered is believed."""
FOUND_MAX = 20
Songs = Iterable[tuple[str, str, bytes]]
"""Titles as they are compared, the roots' labels, and paths under them."""


class Index:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._since = 0.0

    def find(self, title: str, gather: Callable[[], Songs]) -> list[tuple[str, bytes]]:
        """Labels and paths; gathers every song first where that has not been done lately."""
        with self._lock:
            if self._database is None or time.monotonic() - self._since > FRESH_SEC:
                self._close()
                self._database = _built(gather())
                self._since = time.monotonic()
            rows = self._database.execute("SELECT label, path FROM song WHERE title = ? LIMIT ?", (title, FOUND_MAX))
            return [(str(label), bytes(path)) for label, path in rows]

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _built(songs: Songs) -> sqlite3.Connection:
    database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
    try:
        database.execute("CREATE TABLE song (title TEXT, label TEXT, path BLOB)")
        database.execute("BEGIN")
        database.executemany("INSERT INTO song VALUES (?, ?, ?)", songs)
        database.execute("CREATE INDEX by_title ON song (title)")
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database
