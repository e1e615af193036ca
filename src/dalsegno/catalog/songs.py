"""Songs as people read them: what there is of each, where its file is, and what was considered for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.catalog.find import called
from dalsegno.catalog.library import Copy, holding
from dalsegno.catalog.records import CandidateRecord
from dalsegno.catalog.schema import file_assets, playlist_songs, playlists, song_candidates, songs
from dalsegno.catalog.scope import Scope, holds, of_songs
from dalsegno.errors import NotFound
from dalsegno.insight.grammar import Condition, Key, age, grammar, number, word
from dalsegno.insight.query import Query, Value
from dalsegno.insight.walk import SECONDS, TEXT_SECONDS, Page, Walk, begin, page_of, place_of, walk

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

CANDIDATES = 100


@dataclass(frozen=True, slots=True)
class SongLine:
    id: int
    platform: str
    remote_id: str
    title: str
    artist: str
    album: str
    duration: float | None
    quality: str | None
    size_bytes: int | None
    downloaded_at: datetime | None
    found_on: str | None
    missing_at: datetime | None


@dataclass(frozen=True, slots=True)
class SongDetail:
    song: SongLine
    sha256: str | None
    copies: list[Copy]
    playlists: list[str]
    candidates: list[CandidateRecord]
    """Of its latest attempts, newest attempt last."""


_LINES = sa.select(
    songs.c.id, songs.c.platform, songs.c.remote_id, songs.c.title, songs.c.artist, songs.c.album, songs.c.duration,
    file_assets.c.quality, file_assets.c.size_bytes, songs.c.downloaded_at, songs.c.found_on, songs.c.missing_at,
).outerjoin(file_assets, file_assets.c.id == songs.c.asset_id)  # fmt: skip


def list_songs(
    tx: Tx, scope: Scope, *, downloaded: bool | None = None, after: int = 0, limit: int = 50
) -> list[SongLine]:
    """The songs of a scope by number; with or without a file, where asked for."""
    query = _LINES.where(*_wanted(scope, downloaded), songs.c.id > after).order_by(songs.c.id).limit(limit)
    return [SongLine(**row) for row in tx.rows(query)]


def _in_playlist(value: Value, _now: datetime) -> Condition:
    inside = sa.select(playlist_songs.c.song_id).where(
        playlist_songs.c.playlist_id.in_(called(value)), playlist_songs.c.removed_at.is_(None)
    )
    return songs.c.id.in_(inside)


def _stands(value: Value, _now: datetime) -> Condition:
    match value.text:
        case "downloaded":
            return songs.c.asset_id.is_not(None)
        case "missing":
            return songs.c.missing_at.is_not(None)
        case _:
            return songs.c.asset_id.is_(None)


def _said(text: str) -> Condition:
    return sa.or_(*(holds(column, text) for column in (songs.c.title, songs.c.artist, songs.c.album)))


SONGS = grammar(
    "songs",
    _said,
    Key("source", "Where it comes from.", word(songs.c.platform)),
    Key("playlist", "A playlist it is in, by name or number.", _in_playlist),
    Key("song", "Its number.", number(songs.c.id), kind="number"),
    Key("artist", "Whose it is.", word(songs.c.artist)),
    Key("album", "What it is on.", word(songs.c.album)),
    Key("status", "Whether there is a file of it, or it is gone.", _stands, values=("downloaded", "left", "missing")),
    Key("age", "How long ago it was downloaded.", age(songs.c.downloaded_at), kind="age"),
)


def find_songs(
    tx: Tx,
    scope: Scope,
    query: Query | None = None,
    *,
    downloaded: bool | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[SongLine]:
    """The same as a page, within a bounded time."""
    asked = query or Query()
    wanted = [*_wanted(scope, downloaded), *SONGS.where(asked, tx.now)]
    path = Walk(_LINES, (songs.c.id,), wanted=wanted, forward=True)
    budget = begin(tx, TEXT_SECONDS if scope.query or asked.text else SECONDS)
    found = walk(tx, path, after=place_of(cursor, 1), limit=limit + 1, budget=budget)
    return page_of([SongLine(**row) for row in found.rows], found, limit, lambda line: (line.id,))


def _wanted(scope: Scope, downloaded: bool | None) -> list[sa.ColumnElement[bool]]:
    if downloaded is None:
        return of_songs(scope)
    return [*of_songs(scope), songs.c.asset_id.is_not(None) if downloaded else songs.c.asset_id.is_(None)]


def candidates_of(tx: Tx, item_id: int) -> list[CandidateRecord]:
    """What was considered in the attempts of one item, newest attempt last."""
    query = sa.select(song_candidates).where(song_candidates.c.item_id == item_id)
    found = tx.rows(query.order_by(song_candidates.c.id.desc()).limit(CANDIDATES))
    return [CandidateRecord.model_validate(dict(each)) for each in reversed(found)]


def song_detail(tx: Tx, song_id: int) -> SongDetail:
    row = tx.row(_LINES.where(songs.c.id == song_id))
    found = holding(tx, song_id)
    if row is None or found is None:
        raise NotFound(what="song", id=song_id)
    lists = (
        sa.select(playlists.c.name)
        .join(playlist_songs, playlist_songs.c.playlist_id == playlists.c.id)
        .where(playlist_songs.c.song_id == song_id, playlist_songs.c.removed_at.is_(None))
        .order_by(playlists.c.name, playlists.c.id)
    )
    considered = (
        sa.select(song_candidates)
        .where(song_candidates.c.song_id == song_id)
        .order_by(song_candidates.c.id.desc())
        .limit(CANDIDATES)
    )
    return SongDetail(
        SongLine(**row),
        found.sha256,
        [copy for copy in found.copies if not copy.lost],
        list(tx.conn.execute(lists).scalars()),
        [CandidateRecord.model_validate(dict(each)) for each in reversed(tx.rows(considered))],
    )
