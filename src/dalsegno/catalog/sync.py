"""Sync: which songs a playlist has. One item is one playlist; what changed is counted, nothing is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog.schema import playlist_pools, playlist_songs, playlists, pool_playlists
from dalsegno.catalog.scope import check_names, holds, of_playlists, parse_scope
from dalsegno.catalog.trouble import trouble
from dalsegno.catalog.upsert import Members, keep_songs, known_as, own_id, own_snapshot
from dalsegno.engine.service import Service
from dalsegno.model.outcome import Fail
from dalsegno.sources.model import Gone, Playlist, Source

if TYPE_CHECKING:
    from dalsegno.catalog.catalog import Catalog
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan
    from dalsegno.store.store import Tx

CHUNK = 500
PAGE = 1000


class Sync:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def service(self) -> Service:
        return Service("sync", self.sync, workers=1, planner=self.plan)

    def plan(self, plan: Plan) -> Iterator[str]:
        """One item a playlist, of the sources in use. Where songs are downloaded, a query is about them.

        A playlist that is gone, or in no pool any more, is left alone until it is seen again or named.
        """
        scope = parse_scope(plan.scope)
        names = self._catalog.sources(plan.snapshot).names()
        check_names(self._catalog.store, scope.model_copy(update={"songs": []}), names)
        wanted = sa.select(playlists.c.id).where(playlists.c.platform.in_(names), *of_playlists(scope))
        if not scope.playlists:
            wanted = wanted.where(playlists.c.missing_at.is_(None), _is_pooled())
        if scope.query and "download" not in plan.steps():
            wanted = wanted.where(holds(playlists.c.name, scope.query))
        after = 0
        while True:
            page = wanted.where(playlists.c.id > after).order_by(playlists.c.id).limit(PAGE)
            ids = self._catalog.store.read(lambda tx, page=page: list(tx.conn.execute(page).scalars()))  # type: ignore[misc]
            yield from (f"playlist:{number}" for number in ids)
            if len(ids) < PAGE:
                return
            after = ids[-1]

    def sync(self, item: Item) -> Any:
        number = int(item.key.partition(":")[2])
        store = self._catalog.store
        row = store.read(lambda tx: tx.row(sa.select(playlists).where(playlists.c.id == number)))
        if row is None:
            return Fail(f"there is no playlist {number}", code="not_found")
        source = self._catalog.sources(item.snapshot).at_hand(row["platform"])
        item.progress(text=f"{row['platform']}: {row['name']}")
        try:
            return self._sync(item, source, row)
        except Gone as error:
            item.note(lambda conn: _mark_missing(conn, number, store.clock.now()))
            return trouble(error, f"syncing {row['name']} from {row['platform']}")
        except Exception as error:
            return trouble(error, f"syncing {row['name']} from {row['platform']}")

    def _sync(self, item: Item, source: Source, row: sa.RowMapping) -> dict[str, int]:
        store = self._catalog.store
        playlist = Playlist(id=own_id(row), name=row["name"], kind=row["kind"], url=row["url"],
                            count=row["remote_count"], snapshot=own_snapshot(row))  # fmt: skip
        order: list[int] = []

        def keep(tx: Tx, some: list[Any]) -> list[int]:
            ids = keep_songs(tx.conn, source.name, some, tx.now).ids
            return [ids[known_as(track.id)] for track in some]

        with self._catalog.asking(item, source, playlist.url):
            found = iter(source.tracks(playlist))
            while chunk := list(islice(found, CHUNK)):
                order += store.write("sync", lambda tx, some=chunk: keep(tx, some))  # type: ignore[misc]
                share = len(order) / playlist.count if playlist.count else None
                item.progress(share, f"{source.name}: {playlist.name}, {len(order)} songs")
        members = Members(playlist_songs.c.playlist_id, row["id"], playlist_songs.c.song_id)
        diff = store.read(lambda tx: members.compare(tx.conn, order))
        now = store.clock.now()

        def finish(conn: sa.Connection) -> None:
            kept = members.keep(conn, order, now)
            values = {"synced_at": now, "songs_added": kept.added, "songs_removed": kept.removed, "missing_at": None}
            conn.execute(sa.update(playlists).where(playlists.c.id == row["id"]).values(**values))

        item.also(finish)
        root = self._catalog.library(item.snapshot)
        if row["exported_at"] is not None and self._catalog.presence.is_here(root):
            item.afterwards(lambda: self._catalog.exporter.nudge_playlist(row["id"], root))
        item.log.info("%s: %s has %d songs (+%d -%d)", source.name, playlist.name, len(set(order)), diff.added,
                      diff.removed)  # fmt: skip
        return {"songs": len(set(order)), "added": diff.added, "removed": diff.removed, "moved": len(diff.moved)}


def _is_pooled() -> sa.ColumnElement[bool]:
    pools = sa.select(pool_playlists.c.pool_id).join(playlist_pools, playlist_pools.c.id == pool_playlists.c.pool_id)
    return pools.where(
        pool_playlists.c.playlist_id == playlists.c.id,
        pool_playlists.c.removed_at.is_(None),
        playlist_pools.c.missing_at.is_(None),
    ).exists()


def _mark_missing(conn: sa.Connection, playlist_id: int, now: datetime) -> None:
    known = sa.update(playlists).where(playlists.c.id == playlist_id, playlists.c.missing_at.is_(None))
    conn.execute(known.values(missing_at=now))
