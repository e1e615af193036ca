"""A small catalog by hand: playlists, songs, files and where they are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno import Store
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


class Shelves:
    """Writes rows; every method returns the new row's id."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._numbers = iter(range(1, 1_000_000))

    @property
    def now(self) -> datetime:
        return self.store.clock.now()

    def backend(self, kind: str, url: str) -> int:
        return self._put(object_storage_backends, kind=kind, url=url, created_at=self.now)

    def pool(self, name: str, *, kind: str = "square", **fields: Any) -> int:
        return self._seen(playlist_pools, name=name, kind=kind, **{"collected_at": self.now, **fields})

    def playlist(self, name: str, *song_ids: int, pools: tuple[int, ...] = (), **fields: Any) -> int:
        number = self._seen(playlists, name=name, **{"synced_at": self.now, **fields})
        for position, song in enumerate(song_ids):
            self._put(playlist_songs, playlist_id=number, song_id=song, position=position, added_at=self.now)
        for pool in pools:
            self._put(pool_playlists, pool_id=pool, playlist_id=number, position=number)
        return number

    def song(self, title: str = "Rain", **fields: Any) -> int:
        return self._seen(songs, title=title, **fields)

    def songs(self, count: int, **fields: Any) -> list[int]:
        return [self.song(f"Song {number}", **fields) for number in range(1, count + 1)]

    def download(self, song_id: int, backend_id: int | None = None, path: str = "") -> int:
        """The song has its file from now on; returns the asset."""
        sha256 = f"{next(self._numbers):064x}"
        asset = self._put(file_assets, sha256=sha256, size_bytes=3, created_at=self.now)
        self.change(songs, song_id, asset_id=asset, downloaded_at=self.now)
        if backend_id is not None:
            self.place(asset, backend_id, path)
        return asset

    def place(self, asset_id: int, backend_id: int, path: str, **fields: Any) -> int:
        return self._put(file_locations, asset_id=asset_id, backend_id=backend_id, path=path, size_bytes=3,
                         created_at=self.now, verified_at=self.now, **fields)  # fmt: skip

    def change(self, table: sa.Table, row_id: int, **values: Any) -> None:
        statement = sa.update(table).where(table.c.id == row_id).values(**values)
        self.store.write("test", lambda tx: tx.conn.execute(statement).rowcount)

    def _seen(self, table: sa.Table, **fields: Any) -> int:
        named = {"platform": "demo", "remote_id": f"r{next(self._numbers)}", **fields}
        return self._put(table, created_at=self.now, updated_at=self.now, **named)

    def _put(self, table: sa.Table, **values: Any) -> int:
        statement = sa.insert(table).values(**values)
        return self.store.write("test", lambda tx: tx.conn.execute(statement).inserted_primary_key[0])
