"""Playlists and songs by a text, newest first, within a bounded time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog.schema import playlists, songs
from dalsegno.catalog.scope import holds
from dalsegno.store.patience import TimeUp, at_most

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

STRETCH = 10_000
"""Rows in a stretch."""


@dataclass(frozen=True, slots=True)
class Hit:
    id: int
    name: str
    about: str
    """The artist of a song; the platform of a playlist."""
    platform: str


@dataclass(frozen=True, slots=True)
class Hits:
    hits: list[Hit]
    partial: bool
    """The time was up before everything was looked at."""


def playlists_like(tx: Tx, text: str, limit: int, seconds: float) -> Hits:
    select = sa.select(playlists.c.id, playlists.c.name, playlists.c.kind.label("about"), playlists.c.platform)
    return _walk(tx, select, playlists.c.id, [playlists.c.name], text, limit, seconds)


def songs_like(tx: Tx, text: str, limit: int, seconds: float) -> Hits:
    select = sa.select(songs.c.id, songs.c.title.label("name"), songs.c.artist.label("about"), songs.c.platform)
    return _walk(tx, select, songs.c.id, [songs.c.title, songs.c.artist, songs.c.album], text, limit, seconds)


def _walk(
    tx: Tx, select: sa.Select[Any], id: sa.Column[int], columns: list[Any], text: str, limit: int, seconds: float
) -> Hits:
    """From the newest back, a stretch of numbers at a time: ids have no large gaps, nothing is ever deleted."""
    end = time.monotonic() + seconds
    top = int(tx.conn.execute(sa.select(sa.func.max(id))).scalar() or 0)
    hits: list[Hit] = []
    wanted = sa.or_(*(holds(column, text) for column in columns)) if text else sa.true()
    while top > 0 and len(hits) < limit:
        part = select.where(id <= top, id > top - STRETCH, wanted).order_by(id.desc()).limit(limit - len(hits))
        try:
            with at_most(tx, end - time.monotonic()):
                hits += [Hit(**row) for row in tx.rows(part)]
        except TimeUp:
            return Hits(hits, True)
        top -= STRETCH
    return Hits(hits, False)
