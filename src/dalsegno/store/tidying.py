"""SQLite's file and its log stay as small as what is in them: free pages are given back, and the log begins anew."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

SLACK = 10
"""Percent of the file that may stay free: it is about to be written again."""
SLACK_PAGES = 500
LOG_BYTES = 32 << 20
"""From here on the write-ahead log is begun anew as soon as no reader needs it; SQLite by itself only does so when it
happens to find none at all."""
LOOK_EVERY = 0.25
PATIENCE_MS = 200
"""For readers that are still under way. Whoever begins to read meanwhile needs the log no more."""
IN_VAIN = 10.0
"""Seconds until the next try where that was not enough: a reader that stays, as a backup does, must not hold up the
writer for more than a fiftieth of the time."""


def give_back(tx: Tx, pages: int) -> int:
    """Free pages go back to the disk, at most so many; returns how many did."""
    free = _pragma(tx, "freelist_count")
    spare = free - max(SLACK_PAGES, _pragma(tx, "page_count") * SLACK // 100)
    if spare <= 0 or _pragma(tx, "auto_vacuum") != 2:
        return 0
    for _ in range(min(spare, pages)):
        tx.raw.execute("PRAGMA incremental_vacuum(1)")  # sqlite3 leaves off after the first page, whatever is said
    return free - _pragma(tx, "freelist_count")


def _pragma(tx: Tx, name: str) -> int:
    return int(tx.raw.execute(f"PRAGMA {name}").fetchone()[0])


class Wal:
    """Keeps the write-ahead log short beside readers that never pause. Asked by the writer between two commits."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-wal")
        self._due = 0.0

    def keep_short(self, raw: sqlite3.Connection) -> bool:
        """Whether it was begun anew."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + LOOK_EVERY
        with contextlib.suppress(OSError, sqlite3.OperationalError):
            if self._path.stat().st_size < LOG_BYTES:
                return False
            raw.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
            busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                self._due = now + IN_VAIN
            return not busy
        return False
