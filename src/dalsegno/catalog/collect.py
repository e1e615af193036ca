"""Collect: which playlists a source has. One item is one pool of one source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog.schema import playlist_pools, playlists, pool_playlists
from dalsegno.catalog.scope import Scope, check_pools, of_pools, parse_scope, unknown_source
from dalsegno.catalog.trouble import trouble
from dalsegno.catalog.upsert import Members, known_as, own_id, own_snapshot, upsert
from dalsegno.engine.service import Service
from dalsegno.errors import InputInvalid
from dalsegno.model.outcome import Fail, Skip
from dalsegno.sources.model import Playlist, Pool, Source

if TYPE_CHECKING:
    from dalsegno.catalog.catalog import Catalog
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan
    from dalsegno.store.store import Tx

CHUNK = 500


class Collect:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def service(self) -> Service:
        return Service("collect", self.collect, workers=1, planner=self.plan)

    def plan(self, plan: Plan) -> Iterator[str]:
        """One item a pool. A source that does not answer now, or cannot be opened, gets an item of its own, which asks
        again."""
        scope = parse_scope(plan.scope)
        sources = self._catalog.sources(plan.snapshot)
        names = _chosen(sources.names(), scope)
        if not names:
            raise InputInvalid(
                problem="No source is configured, so there is nothing to collect. "
                "Set for example SUBSONIC_URL, FEED_URLS or FOLDER_ROOTS in dalsegno.env, or try: dalsegno demo"
            )
        keys: list[str] = []
        silent: list[str] = []
        for name in names:
            try:
                source = sources.get(name)
                if not source.can("pools"):
                    continue
                ids = self._keep_pools(name, self._wanted(source, scope), whole=not scope.pools)
            except Exception:
                silent.append(f"source:{name}")
            else:
                keys += [f"pool:{number}" for number in ids]
        if not silent:
            check_pools(self._catalog.store, scope)
        yield from (*keys, *silent)

    def collect(self, item: Item) -> Any:
        kind, _, rest = item.key.partition(":")
        sources = self._catalog.sources(item.snapshot)
        if kind == "source":
            return self._collect_source(item, sources.at_hand(rest))
        row = self._catalog.store.read(
            lambda tx: tx.row(sa.select(playlist_pools).where(playlist_pools.c.id == int(rest)))
        )
        if row is None:
            return Fail(f"there is no pool {rest}", code="not_found")
        source = sources.at_hand(row["platform"])
        pool = Pool(id=own_id(row), name=row["name"], kind=row["kind"], url=row["url"],
                    snapshot=own_snapshot(row))  # fmt: skip
        item.progress(text=f"{row['platform']}: {pool.name}")
        try:
            return self._collect_pool(item, source, pool, row["id"])
        except Exception as error:
            return trouble(error, f"collecting {pool.name} from {row['platform']}")

    def _collect_source(self, item: Item, source: Source) -> Any:
        """Every pool of a source that did not answer when the job was planned."""
        scope = parse_scope(item.stage.scope)
        totals = {"playlists": 0, "added": 0, "removed": 0}
        try:
            with self._catalog.asking(item, source):
                pools = self._wanted(source, scope)
            ids = self._keep_pools(source.name, pools, whole=not scope.pools)
            for pool, number in zip(pools, ids, strict=True):
                for name, count in self._collect_pool(item, source, pool, number).items():
                    totals[name] += count
        except Exception as error:
            return trouble(error, f"collecting from {source.name}")
        return totals if pools else Skip("the source has no such pools")

    def _collect_pool(self, item: Item, source: Source, pool: Pool, pool_id: int) -> dict[str, int]:
        store = self._catalog.store
        order: list[int] = []
        with self._catalog.asking(item, source, pool.url):
            found = iter(source.playlists(pool))
            while chunk := list(islice(found, CHUNK)):
                order += store.write(
                    "collect",
                    lambda tx, some=chunk: _keep_playlists(tx, source.name, some),  # type: ignore[misc]
                )
                item.progress(text=f"{source.name}: {pool.name}, {len(order)} playlists")
        members = Members(pool_playlists.c.pool_id, pool_id, pool_playlists.c.playlist_id)
        diff = store.read(lambda tx: members.compare(tx.conn, order))
        now = store.clock.now()

        def finish(conn: sa.Connection) -> None:
            members.keep(conn, order, now)
            conn.execute(sa.update(playlist_pools).where(playlist_pools.c.id == pool_id).values(collected_at=now))

        item.also(finish)
        item.log.info("%s: %s has %d playlists (+%d -%d)", source.name, pool.name, len(order), diff.added, diff.removed)
        return {"playlists": len(set(order)), "added": diff.added, "removed": diff.removed}

    def _wanted(self, source: Source, scope: Scope) -> list[Pool]:
        pools = list(source.pools())
        if not scope.pools:
            return pools
        query = sa.select(playlist_pools.c.remote_id).where(playlist_pools.c.platform == source.name, *of_pools(scope))
        known = set(self._catalog.store.read(lambda tx: tx.conn.execute(query).scalars().all()))
        asked = {str(each) for each in scope.pools}
        return [
            each
            for each in pools
            if known_as(each.id) in known or {each.id, each.name, f"{source.name}:{each.id}"} & asked
        ]

    def _keep_pools(self, platform: str, pools: Sequence[Pool], *, whole: bool) -> list[int]:
        """Where these are the `whole` list, others that were known are missing now."""
        rows = [
            {"remote_id": each.id, "kind": each.kind, "name": each.name, "url": each.url,
             "snapshot": dict(each.snapshot) or None}
            for each in pools
        ]  # fmt: skip

        def work(tx: Tx) -> list[int]:
            ids = upsert(tx.conn, playlist_pools, platform, rows, tx.now).ids
            if whole:
                _mark_missing(tx, platform, set(ids.values()))
            return [ids[known_as(each.id)] for each in pools]

        return self._catalog.store.write("collect", work)


def _mark_missing(tx: Tx, platform: str, here: set[int]) -> None:
    live = sa.select(playlist_pools.c.id).where(
        playlist_pools.c.platform == platform, playlist_pools.c.missing_at.is_(None)
    )
    gone = [{"pool": number} for number in tx.conn.execute(live).scalars() if number not in here]
    if gone:
        one = sa.update(playlist_pools).where(playlist_pools.c.id == sa.bindparam("pool"))
        tx.conn.execute(one.values(missing_at=tx.now), gone)


def _chosen(names: list[str], scope: Scope) -> list[str]:
    if not scope.sources:
        return names
    unknown = [name for name in scope.sources if name not in names]
    if unknown:
        raise unknown_source(unknown[0], names)
    return [name for name in names if name in scope.sources]


def _keep_playlists(tx: Tx, platform: str, found: Sequence[Playlist]) -> list[int]:
    rows = [
        {"remote_id": each.id, "kind": each.kind, "name": each.name, "description": each.description,
         "owner": each.owner, "url": each.url, "remote_count": each.count, "snapshot": dict(each.snapshot) or None}
        for each in found
    ]  # fmt: skip
    ids = upsert(tx.conn, playlists, platform, rows, tx.now).ids
    return [ids[known_as(each.id)] for each in found]
