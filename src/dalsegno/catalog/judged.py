"""Every playlist's status at once, counted now and then: pools, facets and "all that match" need them all.

Judging thousands of playlists takes as long as some pages together, so one look serves everybody for a while and says
how old it is. A page of playlists is judged anew for whoever reads it: see `status`.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from dalsegno.catalog import standing
from dalsegno.catalog.judgement import PlaylistStatus
from dalsegno.catalog.schema import playlist_pools, playlists, pool_playlists
from dalsegno.catalog.status import LatestError, PoolLine, PoolName, pool_line
from dalsegno.store.schema import items

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.catalog")

LEAST = 1.0
SHARE = 25.0
"""How many times as long as a look takes it is good for; `LEAST` seconds at least."""
PATIENCE = 2.0
"""Seconds that the first who asks waits for the first look."""


@dataclass(frozen=True, slots=True)
class Judged:
    id: int
    name: str
    platform: str
    kind: str
    status: PlaylistStatus
    pools: tuple[int, ...]


@dataclass(frozen=True)
class Shelves:
    """All playlists by name, and the pools they are in, as they stood at a moment."""

    playlists: list[Judged]
    pools: list[PoolLine]
    at: datetime

    @cached_property
    def facets(self) -> dict[str, dict[str, list[tuple[str, int]]]]:
        """Those counted already, by query."""
        return {}

    @cached_property
    def pool_names(self) -> dict[int, PoolName]:
        return {pool.id: PoolName(pool.id, pool.kind, pool.name) for pool in self.pools}


class _Looked:
    """The shelves of one store. Who asks gets those of a moment ago, and a thread looks again: nobody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Shelves | None = None
        self._good_until = 0.0
        self._looking: threading.Event | None = None

    def get(self, store: Store, backend_id: int | None, patience: float) -> Shelves | None:
        with self._lock:
            if self._looking is None and time.monotonic() >= self._good_until:
                self._looking = threading.Event()
                args = (store, backend_id, self._looking)
                threading.Thread(target=self._look, args=args, name="dalsegno-shelves", daemon=True).start()
            known, looking = self._known, self._looking
        if known is None and looking is not None:
            looking.wait(patience)
        return self._known

    def _look(self, store: Store, backend_id: int | None, done: threading.Event) -> None:
        began = time.monotonic()
        try:
            self._known = store.read(lambda tx: look(tx, backend_id))
        except Exception:  # the database may be away: what was known stays, and says how old it is
            logger.debug("the playlists could not be judged", exc_info=True)
        finally:
            with self._lock:
                self._good_until = time.monotonic() + max(LEAST, SHARE * (time.monotonic() - began))
                self._looking = None
            done.set()


_LOOKED: WeakKeyDictionary[Store, dict[int | None, _Looked]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def shelves(store: Store, backend_id: int | None, *, patience: float = PATIENCE) -> Shelves | None:
    """As of a moment ago. None: the first look is still under way."""
    with _LOCK:
        looked = _LOOKED.setdefault(store, {}).setdefault(backend_id, _Looked())
    return looked.get(store, backend_id, patience)


def look(tx: Tx, backend_id: int | None) -> Shelves:
    status = sa.case(
        (standing.has_error(backend_id), PlaylistStatus.ERROR),
        (standing.is_active(), PlaylistStatus.ACTIVE),
        (standing.is_incomplete(backend_id), PlaylistStatus.INCOMPLETE),
        else_=PlaylistStatus.COMPLETE,
    )
    inside: dict[int, list[int]] = {}
    lists = sa.select(pool_playlists.c.playlist_id, pool_playlists.c.pool_id)
    for playlist_id, pool_id in tx.conn.execute(lists.where(pool_playlists.c.removed_at.is_(None))):
        inside.setdefault(playlist_id, []).append(pool_id)
    rows = tx.conn.execute(
        sa.select(playlists.c.id, playlists.c.name, playlists.c.platform, playlists.c.kind, status.label("status"))
    )
    found = [
        Judged(row[0], row[1], row[2], row[3], PlaylistStatus(row[4]), tuple(sorted(inside.get(row[0], ()))))
        for row in rows
    ]
    found.sort(key=lambda each: (each.name, each.id))
    return Shelves(found, _pools(tx, found), tx.now)


def _pools(tx: Tx, judged: list[Judged]) -> list[PoolLine]:
    counts: dict[int, dict[PlaylistStatus, int]] = {}
    for each in judged:
        for pool_id in each.pools:
            of = counts.setdefault(pool_id, dict.fromkeys(PlaylistStatus, 0))
            of[each.status] += 1
    failed = standing.failed_collect(playlist_pools)
    rows = tx.rows(
        sa.select(
            playlist_pools,
            failed.label("item_id"),
            standing.is_collecting(playlist_pools).label("collecting"),
        ).order_by(playlist_pools.c.platform, playlist_pools.c.name, playlist_pools.c.id)
    )
    return [_pool(tx, row, counts.get(row["id"]) or dict.fromkeys(PlaylistStatus, 0)) for row in rows]


def _pool(tx: Tx, row: sa.RowMapping, counts: dict[PlaylistStatus, int]) -> PoolLine:
    error = None
    if row["item_id"] is not None:
        columns = (items.c.error_code, items.c.error_message, items.c.finished_at)
        code, message, at = tx.conn.execute(sa.select(*columns).where(items.c.id == row["item_id"])).one()
        error = LatestError(row["item_id"], code, message, at)
    return pool_line(row, counts, error)
