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


def number_of(key: str, kind: str) -> int | None:
    """17 of `song:17`; None where it is about something else."""
    found, _, number = key.partition(":")
    plain = found == kind and number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if plain else None


def names_of(tx: Tx, keys: Iterable[str]) -> dict[str, str]:
    """Those that the catalog knows."""
    wanted = set(keys)
    found = {}
    for kind, (id, name) in KINDS.items():
        numbers = [number for key in wanted if (number := number_of(key, kind)) is not None]
        if numbers:
            rows = tx.conn.execute(sa.select(id, name).where(id.in_(numbers)))
            found.update({f"{kind}:{row[0]}": str(row[1]) for row in rows})
    return found


_KEYS = sa.select(items.c.id, items.c.key).where(items.c.id.in_(sa.bindparam("ids", expanding=True)))


def keys_of(tx: Tx, item_ids: Iterable[int]) -> dict[int, str]:
    wanted = list(item_ids)
    return {row[0]: row[1] for row in tx.conn.execute(_KEYS, {"ids": wanted})} if wanted else {}
