"""Pools, playlists and songs: the catalog as it stands."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from dalsegno.catalog.browse import PLAYLISTS, find_playlists
from dalsegno.catalog.judged import shelves
from dalsegno.catalog.overview import upload_backend
from dalsegno.catalog.records import CandidateRecord
from dalsegno.catalog.scope import parse_scope
from dalsegno.catalog.songs import SONGS, SongLine, find_songs, list_songs, song_detail
from dalsegno.catalog.status import (
    PlaylistLine,
    PlaylistStatus,
    PoolLine,
    list_playlists,
    list_pools,
    playlist_detail,
)
from dalsegno.errors import InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.query import parse
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.parameters import Cursor, Limit, Named, Number, Q, place
from dalsegno.web.room import Here

router = APIRouter(tags=["catalog"])

MOST = 500
"""Songs of a playlist that come with it."""
PATIENCE = 5.0
"""Seconds that a query waits for the first look at all playlists."""

OfPool = Annotated[int | None, Query(ge=1, lt=2**63, description="Only of this pool.")]
OfPlaylist = Annotated[int | None, Query(ge=1, lt=2**63, description="Only of this playlist.")]
OfSongs = Annotated[
    str | None,
    Query(
        max_length=2000,
        description="The query language: words of a title, an artist or an album, and "
        + ", ".join(f"`{key.name}:` ({key.help.rstrip('.').lower()})" for key in SONGS.keys.values())
        + ".",
        examples=["source:qq status:left rain"],
    ),
]
Downloaded = Annotated[bool | None, Query(description="Only with a file, or only without.")]


class Pools(BaseModel):
    pools: list[PoolLine]
    at: datetime
    """When all of their playlists were looked at: a moment ago."""


class Playlists(BaseModel):
    playlists: list[PlaylistLine]
    next_cursor: str | None
    total: int | None = None
    """How many the query finds, as of the last look at all; null without a query."""
    partial: bool = False
    """All of them are being looked at for the first time: ask again in a moment."""


class Songs(BaseModel):
    songs: list[SongLine]
    next_cursor: str | None
    partial: bool
    """The time was up before the page was full: there may be more, further on."""


class PlaylistInFull(BaseModel):
    playlist: PlaylistLine
    songs: list[SongLine]
    """The first 500; the rest at `/api/songs?playlist=`."""
    next_cursor: str | None


class Place(BaseModel):
    kind: str
    root: str
    path: str
    size: int


class SongInFull(BaseModel):
    song: SongLine
    sha256: str | None
    copies: list[Place]
    playlists: list[str]
    candidates: list[CandidateRecord]
    """Considered in its latest attempts, and why each was taken or not."""


@router.get("/pools")
def pools(here: Here) -> Pools:
    """All pools, by platform and name; each with the worst status of its playlists, and why."""
    backend = upload_backend(here.store, here.settings)
    looked = shelves(here.store, backend, patience=PATIENCE)
    if looked is not None:
        return Pools(pools=looked.pools, at=looked.at)
    found, at = here.store.read(lambda tx: (list_pools(tx, upload_backend_id=backend), tx.now))
    return Pools(pools=found, at=at)


@router.get("/playlists", responses=refusals(NotFound, QueryInvalid, InputInvalid))
def playlists(
    here: Here,
    q: Q = None,
    source: Annotated[Named, Query(description="Only of this platform.")] = None,
    pool: OfPool = None,
    name: Annotated[Named, Query(description="Only with this text in the name.")] = None,
    status: Annotated[PlaylistStatus | None, Query(description="Only those that stand so.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Playlists:
    """Playlists by name, how each stands (异常, 进行中, 未完成, 已完成) and why: `status:error platform:qq rain`."""
    query = parse(q, PLAYLISTS)
    for key, value in (("platform", source), ("pool", pool and str(pool)), ("status", status), ("", name)):
        if value:
            query = query.with_(key, value)
    backend = upload_backend(here.store, here.settings)
    if not query:
        after = place(cursor)
        page = here.store.read(lambda tx: list_playlists(tx, upload_backend_id=backend, after=after, limit=limit))
        return Playlists(playlists=page.lines, next_cursor=None if page.next is None else str(page.next))
    looked = shelves(here.store, backend, patience=PATIENCE)
    if looked is None:  # a first look at very many takes longer than anybody waits
        return Playlists(playlists=[], next_cursor=None, partial=True)
    found = here.store.read(lambda tx: find_playlists(tx, looked, query, backend, cursor=cursor, limit=limit))
    return Playlists(playlists=found.lines, next_cursor=found.next_cursor, total=found.total)


@router.get("/playlists/{playlist_id}", responses=refusals(NotFound))
def playlist(here: Here, playlist_id: Number) -> PlaylistInFull:
    """One playlist, with its songs."""
    backend = upload_backend(here.store, here.settings)

    def read(tx: Tx) -> PlaylistInFull:
        line = playlist_detail(tx, playlist_id, upload_backend_id=backend)
        found = list_songs(tx, parse_scope({"playlists": [playlist_id]}), limit=MOST + 1)
        more = str(found[MOST - 1].id) if len(found) > MOST else None
        return PlaylistInFull(playlist=line, songs=found[:MOST], next_cursor=more)

    return here.store.read(read)


@router.get("/songs", responses=refusals(InputInvalid, QueryInvalid))
def songs(
    here: Here,
    q: OfSongs = None,
    source: Annotated[Named, Query(description="Only of this platform.")] = None,
    pool: OfPool = None,
    playlist: OfPlaylist = None,
    downloaded: Downloaded = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Songs:
    """Songs by number, and the file that each has: `source:qq status:left -artist:"A band" rain`."""
    scope = parse_scope(
        {
            "sources": [source] if source else [],
            "pools": [pool] if pool else [],
            "playlists": [playlist] if playlist else [],
        }
    )
    query = parse(q, SONGS)
    found = here.store.read(lambda tx: find_songs(tx, scope, query, downloaded=downloaded, cursor=cursor, limit=limit))
    return Songs(songs=found.lines, next_cursor=found.next_cursor, partial=found.partial)


@router.get("/songs/{song_id}", responses=refusals(NotFound))
def song(here: Here, song_id: Number) -> SongInFull:
    """One song: its file, where that is, and what was considered for it."""
    found = here.store.read(lambda tx: song_detail(tx, song_id))
    return SongInFull(
        song=found.song,
        sha256=found.sha256,
        copies=[Place(kind=copy.kind, root=copy.root, path=copy.path, size=copy.size) for copy in found.copies],
        playlists=found.playlists,
        candidates=found.candidates,
    )
