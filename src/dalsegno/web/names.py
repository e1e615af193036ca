"""What items are about, by their keys: `song:17` is a title and who sings it."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from dalsegno.catalog.schema import playlist_pools, playlists, songs
from dalsegno.store.schema import items
from dalsegno.store.store import Tx

KINDS: dict[str, tuple[sa.Column[int], sa.ColumnElement[str]]] = {
    "song": (songs.c.id, sa.case((songs.c.artist == "", songs.c.title), else_=songs.c.artist + " – " + songs.c.title)),
    "playlist": (playlists.c.id, playlists.c.name),
    "pool": (playlist_pools.c.id, playlist_pools.c.name),
}


def names_of(tx: Tx, keys: Iterable[str]) -> dict[str, str]:
    """Those that the catalog knows."""
    numbers: dict[str, list[int]] = {}
    for kind, _, number in (key.partition(":") for key in set(keys)):
        if kind in KINDS and number.isascii() and number.isdecimal() and len(number) < 19:
            numbers.setdefault(kind, []).append(int(number))
    found = {}
    for kind, wanted in numbers.items():
        id, name = KINDS[kind]
        rows = tx.conn.execute(sa.select(id, name).where(id.in_(wanted)))
        found.update({f"{kind}:{row[0]}": str(row[1]) for row in rows})
    return found


def keys_of(tx: Tx, item_ids: Iterable[int]) -> dict[int, str]:
    query = sa.select(items.c.id, items.c.key).where(items.c.id.in_(list(item_ids)))
    return {row[0]: row[1] for row in tx.conn.execute(query)}
