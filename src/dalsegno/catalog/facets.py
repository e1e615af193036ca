"""What a list of items could be narrowed to in the catalog: the sources and the playlists of what it finds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.catalog.find import ITEMS, SOURCE
from dalsegno.catalog.schema import playlist_songs, playlists
from dalsegno.catalog.subjects import number_of
from dalsegno.insight.facets import Facet, counted, some_items
from dalsegno.store.schema import items

if TYPE_CHECKING:
    from dalsegno.insight.query import Query
    from dalsegno.store.store import Tx

LISTS = 10


def catalog_facets(tx: Tx, query: Query) -> tuple[list[Facet], list[Facet]]:
    """The sources and the playlists of the first few hundred that it finds, most first."""
    columns = sa.select(items.c.stage_id, items.c.seq, items.c.key, SOURCE.label("source"))
    rows, more = some_items(tx, query.without("source").without("playlist"), columns, ITEMS)
    return counted((row["source"] for row in rows), more), _playlists(tx, [row["key"] for row in rows], more)


def _playlists(tx: Tx, keys: list[str], more: bool) -> list[Facet]:
    count: Counter[int] = Counter(number for key in keys if (number := number_of(key, "playlist")) is not None)
    numbers = {number for key in keys if (number := number_of(key, "song")) is not None}
    if numbers:
        query = (
            sa.select(playlist_songs.c.playlist_id, sa.func.count().label("songs"))
            .where(playlist_songs.c.song_id.in_(numbers), playlist_songs.c.removed_at.is_(None))
            .group_by(playlist_songs.c.playlist_id)
        )
        for playlist_id, songs in tx.conn.execute(query):
            count[playlist_id] += songs
    most = count.most_common(LISTS)
    named = sa.select(playlists.c.id, playlists.c.name).where(playlists.c.id.in_([number for number, _ in most]))
    names: dict[int, str] = {row[0]: row[1] for row in tx.conn.execute(named)} if most else {}
    return [Facet(str(number), songs, more, names.get(number, str(number))) for number, songs in most]
