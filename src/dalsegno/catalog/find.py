"""Items by what they are about in the catalog: the source, a playlist, a song, words of a title."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno.catalog.schema import playlist_pools, playlist_songs, playlists, songs
from dalsegno.catalog.standing import COLLECT, DOWNLOAD, SYNC, UPLOAD, key, number_in
from dalsegno.engine.bulk import Found
from dalsegno.insight import bulk, finding
from dalsegno.insight.facets import Facet, counted, some_items
from dalsegno.insight.grammar import Condition, Key, containing, forms, like, word
from dalsegno.insight.query import Query, Value
from dalsegno.store.schema import items
from dalsegno.store.store import Tx

_SONG, _PLAYLIST, _POOL = (number_in(kind, items.c.key) for kind in ("song", "playlist", "pool"))


_ALL = (COLLECT, SYNC, DOWNLOAD, UPLOAD)


def _platform(table: sa.Table, number: Any) -> Any:
    return sa.select(table.c.platform).where(table.c.id == number).scalar_subquery()


SOURCE = sa.func.coalesce(_platform(songs, _SONG), _platform(playlists, _PLAYLIST), _platform(playlist_pools, _POOL))
"""Where the thing that an item is about comes from."""


def called(value: Value) -> sa.Select[Any]:
    """Playlists by number or by name."""
    text = value.text
    named: Condition
    if "*" in text:
        patterns = [like(form).replace("*", "%") for form in forms(text)]
        named = sa.or_(*(playlists.c.name.like(pattern, escape="\\") for pattern in patterns))
    elif text.isascii() and text.isdecimal() and len(text) < 19:
        named = sa.or_(playlists.c.id == int(text), playlists.c.name == text)
    else:
        named = playlists.c.name.in_(forms(text))
    return sa.select(playlists.c.id).where(named)


def _in_playlist(value: Value, _now: datetime) -> Condition:
    within = sa.select(playlist_songs.c.song_id).where(
        playlist_songs.c.playlist_id.in_(called(value)),
        playlist_songs.c.song_id == _SONG,
        playlist_songs.c.removed_at.is_(None),
    )
    return sa.or_(_PLAYLIST.in_(called(value)), _there(within))


def _there(found: sa.Select[Any]) -> Condition:
    """There is one. As EXISTS, PostgreSQL may read the whole table once instead of one row by its key."""
    return found.limit(1).scalar_subquery().is_not(None)


def _of_playlist(value: Value) -> Any:
    """The keys of a playlist and of its songs."""
    named = called(value)
    inside = sa.select(key("song", playlist_songs.c.song_id)).where(
        playlist_songs.c.playlist_id.in_(named), playlist_songs.c.removed_at.is_(None)
    )
    return sa.union_all(sa.select(key("playlist", playlists.c.id)).where(playlists.c.id.in_(named)), inside)


def _song(value: Value) -> str:
    return f"song:{int(value.text)}"


def _titled(text: str) -> Condition:
    titled = containing(songs.c.title, songs.c.artist, songs.c.album)(text)
    song = sa.select(songs.c.id).where(songs.c.id == _SONG, titled)
    playlist = sa.select(playlists.c.id).where(playlists.c.id == _PLAYLIST, containing(playlists.c.name)(text))
    return sa.or_(_there(song), _there(playlist))


def _is_song(value: Value, _now: datetime) -> Condition:
    return items.c.key == _song(value)


ITEMS = finding.ITEMS.extended(
    Key("source", "Where what it is about comes from.", word(SOURCE), services=_ALL),
    Key("playlist", "A playlist or a song of it, by name or number.", _in_playlist, names=_of_playlist, services=_ALL),
    Key("song", "The number of a song.", _is_song, kind="number", names=_song, services=_ALL),
    text=_titled,
)


def matching(tx: Tx, text: str, as_of: datetime, cursor: str | None, limit: int, /, *, jobs: bool = False) -> Found:
    """How an engine that knows the catalog finds items for commands about many of them."""
    return bulk.matching(tx, text, as_of, cursor, limit, jobs=jobs, among=ITEMS)


def source_facet(tx: Tx, query: Query) -> list[Facet]:
    """The sources of the first few hundred that a query finds."""
    columns = sa.select(items.c.stage_id, items.c.seq, SOURCE.label("source"))
    rows, more = some_items(tx, query.without("source"), columns, ITEMS)
    return counted((row["source"] for row in rows), more)
