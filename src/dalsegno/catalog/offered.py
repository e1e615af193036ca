"""Pools and playlists that a form offers by name: the first ones. Others are named by hand."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from dalsegno.catalog.schema import playlist_pools, playlists
from dalsegno.store.store import Tx

MOST = 200


class Offered(NamedTuple):
    id: int
    name: str
    platform: str


def offered_pools(tx: Tx, limit: int = MOST) -> list[Offered]:
    return _first(tx, playlist_pools, limit)


def offered_playlists(tx: Tx, limit: int = MOST) -> list[Offered]:
    return _first(tx, playlists, limit)


def _first(tx: Tx, table: sa.Table, limit: int) -> list[Offered]:
    query = sa.select(table.c.id, table.c.name, table.c.platform).order_by(table.c.id).limit(limit)
    return [Offered(*row) for row in tx.conn.execute(query)]
