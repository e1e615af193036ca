"""Fill a database with a catalog of any size and the engine's rows beside it, to measure reads on.

    python scripts/make_catalog.py sqlite:///big.db --songs 200000 --playlists 5000

Rows are made by the database itself, from a row of numbers: 200,000 songs take seconds. A tenth of the playlists has
songs that failed, a few have songs at work, a fifth is not downloaded yet, one in fifty was never synced.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dalsegno import open_store
from dalsegno.catalog.schema import (
    file_assets,
    file_locations,
    object_storage_backends,
    playlist_pools,
    playlist_songs,
    playlists,
    pool_playlists,
    songs,
)
from dalsegno.catalog.templates import TEMPLATES
from dalsegno.store.schema import COUNTERS, items, jobs, leases, processes, stages, workflows
from dalsegno.store.store import Store, Tx

POOLS = 20
PENDING, RUNNING, FAILED, SUCCEEDED = "pending", "running", "failed", "succeeded"


def fill(store: Store, *, song_count: int, playlist_count: int) -> None:
    """One transaction, on an empty database."""
    store.write("make", lambda tx: Filler(tx, song_count, playlist_count).fill())


class Filler:
    def __init__(self, tx: Tx, song_count: int, playlist_count: int) -> None:
        self.tx = tx
        self.song_count = song_count
        self.playlist_count = playlist_count
        self.now = tx.now
        self.early = self.now - timedelta(days=2)
        self.late = self.now - timedelta(days=1)

    def fill(self) -> None:
        library, remote = self._backends()
        self._songs(library, remote)
        self._playlists()
        self._engine()

    # --- the catalog ------------------------------------------------------------------------

    def _band(self, number: Any) -> Any:
        """Where a song's first playlist stands among all, in thousandths: it decides what becomes of the song."""
        return (number % self.playlist_count) * 1000 // self.playlist_count

    def _turn(self, number: Any) -> Any:
        """The how-manieth song of its first playlist it is."""
        return number // self.playlist_count

    def _failed(self, number: Any) -> Any:
        return sa.and_(self._band(number) < 100, self._turn(number) % 10 == 0)

    def _running(self, number: Any) -> Any:
        return sa.and_(self._band(number) >= 100, self._band(number) < 120, self._turn(number) % 20 == 1)

    def _wanted(self, number: Any) -> Any:
        return sa.and_(self._band(number) >= 100, self._band(number) < 300, self._turn(number) % 2 == 1)

    def _songs(self, library: int, remote: int) -> None:
        number = numbers(self.song_count)
        text = sa.cast(number, sa.Text)
        has_file = sa.not_(sa.or_(self._failed(number), self._wanted(number)))
        zeros = sa.literal("0" * 64).concat(text)
        digest = sa.func.substr(zeros, sa.func.length(zeros) - 63, 64)
        self._insert(
            file_assets,
            sa.select(number.label("id"), digest.label("sha256"), sa.literal(4_000_000).label("size_bytes"),
                      sa.literal("mp3").label("format"), self._at(self.early).label("created_at")).where(has_file),
        )  # fmt: skip
        for backend, folder in ((library, ""), (remote, "music/")):
            self._insert(
                file_locations,
                sa.select(sa.literal(backend).label("backend_id"), number.label("asset_id"),
                          sa.literal(folder).concat(text).concat(".mp3").label("path"),
                          sa.literal(4_000_000).label("size_bytes"), self._at(self.early).label("created_at"),
                          self._at(self.early).label("verified_at")).where(has_file),
            )  # fmt: skip
        self._insert(
            songs,
            sa.select(
                number.label("id"), sa.literal("demo").label("platform"), text.label("remote_id"),
                sa.literal("A song of some length, number ").concat(text).label("title"),
                sa.literal("Artist ").concat(sa.cast(number % 997, sa.Text)).label("artist"),
                sa.literal("Album ").concat(sa.cast(number % 9973, sa.Text)).label("album"),
                sa.literal(215.0).label("duration"),
                sa.case((has_file, number)).label("asset_id"),
                sa.case((has_file, self._at(self.early))).label("downloaded_at"),
                self._at(self.early).label("created_at"), self._at(self.early).label("updated_at"),
            ),
        )  # fmt: skip

    def _playlists(self) -> None:
        number = numbers(self.playlist_count)
        text = sa.cast(number, sa.Text)
        seen = (self._at(self.early).label("created_at"), self._at(self.early).label("updated_at"))
        self._insert(
            playlists,
            sa.select(
                number.label("id"), sa.literal("demo").label("platform"), text.label("remote_id"),
                sa.literal("playlist").label("kind"),
                sa.literal("Playlist ").concat(sa.cast(number * 7919 % self.playlist_count, sa.Text)).label("name"),
                sa.case((number % 50 != 49, self._at(self.late))).label("synced_at"),
                sa.literal(12).label("songs_added"), sa.literal(3).label("songs_removed"), *seen,
            ),
        )  # fmt: skip
        pool = numbers(POOLS)
        name = sa.literal("Pool ").concat(sa.cast(pool, sa.Text))
        self._insert(
            playlist_pools,
            sa.select(pool.label("id"), sa.literal("demo").label("platform"), name.label("remote_id"),
                      sa.literal("square").label("kind"), name.label("name"),
                      self._at(self.late).label("collected_at"), *seen),
        )  # fmt: skip
        self._insert(
            pool_playlists,
            sa.select((number % POOLS + 1).label("pool_id"), number.label("playlist_id"), number.label("position")),
        )
        # Every song is in one playlist, a quarter of them in the next one too; far apart on disk, as songs are that
        # many playlists share.
        self._member(numbers(self.song_count), 0)
        self._member(numbers(self.song_count // 4), 1)

    def _member(self, number: Any, shift: int) -> None:
        """Written playlist by playlist, as a sync does."""
        playlist = ((number + shift) % self.playlist_count + 1).label("playlist_id")
        self._insert(
            playlist_songs,
            sa.select(
                playlist, number.label("song_id"), (self._turn(number) * 2 + shift).label("position"),
                self._at(self.early).label("added_at"),
            ).order_by(playlist, number),
        )  # fmt: skip

    def _backends(self) -> tuple[int, int]:
        rows = [{"id": 1, "kind": "library", "url": "file:///library", "created_at": self.early},
                {"id": 2, "kind": "s3", "url": "s3://music", "created_at": self.early}]  # fmt: skip
        self.tx.conn.execute(object_storage_backends.insert(), rows)
        return 1, 2

    # --- the engine -------------------------------------------------------------------------

    def _engine(self) -> None:
        """A full run that ended with errors, and downloads that go on now."""
        run = self.tx.conn.execute
        definition = TEMPLATES["full"].model_dump(mode="json")
        run(workflows.insert(), [{"id": 1, "name": "full", "version": 1, "definition": definition,
                                  "created_at": self.early, "updated_at": self.early}])  # fmt: skip
        job = {"workflow_id": 1, "lane": "catalog", "created_at": self.early, "updated_at": self.early}
        run(
            jobs.insert(),
            [{"id": 1, "order_seq": 1, "status": "completed_with_errors", "finished_at": self.late, **job}],
        )
        run(jobs.insert(), [{"id": 2, "order_seq": 2, "status": "running", **job}])
        number, playlist = numbers(self.song_count), numbers(self.playlist_count)
        unwanted = sa.not_(self._wanted(number))
        self._stage(1, 1, "sync", "playlist:", playlist, sa.true(), SUCCEEDED)
        failed = sa.case((self._failed(number), FAILED), else_=SUCCEEDED)
        self._stage(2, 1, "download", "song:", number, unwanted, failed)
        self._stage(3, 1, "upload", "song:", number, sa.and_(unwanted, sa.not_(self._failed(number))), SUCCEEDED)
        running = sa.case((self._running(number), RUNNING), else_=PENDING)
        self._stage(4, 2, "download", "song:", number, self._wanted(number), running)
        alive = dict.fromkeys(("started_at", "heartbeat_at", "lease_until"), self.now)
        run(processes.insert(), [{"id": 1, "node": "here", "host": "here", "pid": 1, "version": "0", **alive}])
        at_work = sa.select(
            items.c.id.label("item_id"), sa.literal(1).label("number"), sa.literal(1).label("process_id"),
            items.c.stage_id, self._at(self.now).label("claimed_at"), self._at(self.now).label("begun_at"),
        ).where(items.c.status == RUNNING)  # fmt: skip
        self._insert(leases, at_work)

    def _stage(self, stage: int, job: int, service: str, prefix: str, number: Any, which: Any, status: Any) -> None:
        status = sa.literal(status) if isinstance(status, str) else status
        done = sa.or_(status == SUCCEEDED, status == FAILED)
        self._insert(
            items,
            sa.select(
                sa.literal(stage).label("stage_id"), sa.literal(job).label("job_id"), number.label("seq"),
                sa.literal(prefix).concat(sa.cast(number, sa.Text)).label("key"), status.label("status"),
                sa.case((status == RUNNING, 1), else_=2).label("lease"),
                sa.case((status == FAILED, "html_instead_of_audio")).label("error_code"),
                sa.case((status == FAILED, "The server answered with a page, not with audio.")).label("error_message"),
                sa.case((status != PENDING, self._at(self.late))).label("started_at"),
                sa.case((done, self._at(self.late))).label("finished_at"),
            ).where(which),
        )  # fmt: skip
        counts = {row["status"]: row["n"] for row in self.tx.rows(
            sa.select(items.c.status, sa.func.count().label("n")).where(items.c.stage_id == stage)
            .group_by(items.c.status))}  # fmt: skip
        left = counts.get(PENDING, 0)
        ended = not left and not counts.get(RUNNING)
        row = {"id": stage, "job_id": job, "seq": stage, "key": service, "service": service, "depends_on": [],
               "followed_by": [], "priority": 100, "order_seq": job, "status": "completed" if ended else "running",
               "open": not ended, "claimable": left > 0, "ready": left, "high_seq": self.song_count + 1,
               "total": sum(counts.values()), **{name: counts.get(name, 0) for name in map(str, COUNTERS)},
               "finished_at": self.late if ended else None}  # fmt: skip
        self.tx.conn.execute(stages.insert(), [row])

    # --- how --------------------------------------------------------------------------------

    def _at(self, moment: datetime) -> sa.ColumnElement[Any]:
        return sa.literal(moment, items.c.finished_at.type)

    def _insert(self, table: sa.Table, rows: sa.Select[Any]) -> None:
        self.tx.conn.execute(sa.insert(table).from_select([column.name for column in rows.selected_columns], rows))


def numbers(count: int, name: str = "numbers") -> Any:
    """The column of the numbers from 1 to `count`; two of them in one statement have two names."""
    first = sa.select(sa.literal(1, sa.BigInteger).label("n")).where(sa.literal(count) > 0).cte(name, recursive=True)
    return first.union_all(sa.select(first.c.n + 1).where(first.c.n < count)).c.n


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("database_url")
    parser.add_argument("--songs", type=int, default=200_000)
    parser.add_argument("--playlists", type=int, default=5_000)
    options = parser.parse_args()
    store = open_store(options.database_url)
    try:
        fill(store, song_count=options.songs, playlist_count=options.playlists)
    finally:
        store.close()
    print(f"{options.songs:,} songs in {options.playlists:,} playlists")


if __name__ == "__main__":
    main()
