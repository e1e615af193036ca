"""The exporter: keeps every playlist's M3U file up to date, a little behind the downloads."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.catalog.export import export_playlist
from dalsegno.catalog.schema import playlist_songs, playlists, songs

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.catalog")

EVERY = 10.0
"""Seconds between two rounds: songs arrive faster than anybody reads playlists."""
SHARE = 20
"""A round that takes long is followed by a rest this many times as long."""


class Exporter:
    """A thread of its own, started by the first nudge. What it misses by a crash, the next start finds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._songs: set[int] = set()
        self._playlists: set[int] = set()
        self._failing: set[int] = set()
        """Playlists whose trouble is told already."""
        self._root: Path | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def nudge(self, song_id: int, root: Path) -> None:
        """This song's playlists may have changed."""
        self._add(self._songs, song_id, root)

    def nudge_playlist(self, playlist_id: int, root: Path) -> None:
        self._add(self._playlists, playlist_id, root)

    def wake(self, root: Path) -> None:
        """Something may have been missed."""
        with self._lock:
            self._root = self._root or root
            self._start()

    def close(self) -> None:
        """Write what is left, and rest until the next nudge."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
            self._stop = threading.Event()
        if thread is not None:
            thread.join(timeout=30)

    def _add(self, pile: set[int], number: int, root: Path) -> None:
        with self._lock:
            pile.add(number)
            self._root = root
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            target = self._run
            self._thread = threading.Thread(target=target, args=(self._stop,), name="dalsegno-export", daemon=True)
            self._thread.start()

    def _run(self, stop: threading.Event) -> None:
        stale: set[int] | None = None
        rest = EVERY
        while True:
            closed = stop.wait(rest)
            began = time.monotonic()
            try:
                if stale is None:
                    stale = set(self._store.read(_stale))
                    with self._lock:
                        self._playlists |= stale
                self._round()
            except Exception:  # the database or the disk may be away: the songs' own items say so
                logger.exception("playlists could not be exported")
            rest = max(EVERY, SHARE * (time.monotonic() - began))
            if closed:
                return

    def _round(self) -> None:
        with self._lock:
            moved, lists, root = self._songs, self._playlists, self._root
            self._songs, self._playlists = set(), set()
        if root is None or not (moved or lists):
            return
        try:
            ids = lists | set(self._store.read(lambda tx: _playlists_of(tx, moved)))
        except Exception:
            self._again(moved, lists)
            raise
        failed: dict[int, Exception] = {}
        for number in sorted(ids):
            try:
                export_playlist(self._store, number, root)
            except Exception as error:  # the others are none the worse for it
                failed[number] = error
        self._again(set(), set(failed))
        if new := failed.keys() - self._failing:
            text = "%d playlists could not be exported, and are tried again; playlist %d: %s"
            logger.warning(text, len(failed), min(new), failed[min(new)])
        self._failing = (self._failing - ids) | failed.keys()

    def _again(self, moved: set[int], lists: set[int]) -> None:
        with self._lock:
            self._songs |= moved
            self._playlists |= lists


def _playlists_of(tx: Tx, song_ids: set[int]) -> list[int]:
    ordered = sorted(song_ids)
    found: set[int] = set()
    for start in range(0, len(ordered), 500):
        some = ordered[start : start + 500]
        found.update(
            tx.conn.execute(
                sa.select(playlist_songs.c.playlist_id)
                .where(playlist_songs.c.song_id.in_(some), playlist_songs.c.removed_at.is_(None))
                .distinct()
            ).scalars()
        )
    return sorted(found)


def _stale(tx: Tx) -> list[int]:
    """Playlists that changed since their file was written."""
    written = sa.func.coalesce(playlists.c.exported_at, playlists.c.created_at)
    newer = (
        sa.select(playlist_songs.c.song_id)
        .join(songs, songs.c.id == playlist_songs.c.song_id)
        .where(playlist_songs.c.playlist_id == playlists.c.id, songs.c.downloaded_at > written)
    )
    query = sa.select(playlists.c.id).where(
        sa.or_(playlists.c.synced_at > playlists.c.exported_at, newer.exists()),
    )
    return list(tx.conn.execute(query).scalars())
