"""The scope of a job: which part of the catalog it is about. Empty is everything."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, ValidationError

from dalsegno.catalog.schema import playlist_pools, playlist_songs, playlists, pool_playlists, songs
from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean


class Scope(BaseModel):
    """Pools, playlists and songs by number, by `platform:remote id`, or pools and playlists by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: list[str] = []
    pools: list[int | str] = []
    playlists: list[int | str] = []
    songs: list[int | str] = []
    query: str = ""
    """Part of a song's title, artist or album; of a playlist's name, where playlists are asked for."""

    @property
    def names_lists(self) -> bool:
        return bool(self.pools or self.playlists)


def parse_scope(data: Any) -> Scope:
    """A checked scope, or one sentence about what is wrong with it."""
    if isinstance(data, Scope):
        return data
    if data is not None and not isinstance(data, dict):
        raise InputInvalid(problem=f'A scope is an object such as {{"sources": [], "songs": []}}, not {data!r:.60}.')
    try:
        return Scope.model_validate(data or {})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"][:2]))
        if fault["type"] == "extra_forbidden":
            hint = did_you_mean(where, Scope.model_fields)
            raise InputInvalid(problem=f'A scope has no "{where}".{hint}') from None
        raise InputInvalid(problem=f"scope.{where}: {fault['msg'][0].lower()}{fault['msg'][1:]}.") from None


Condition = sa.ColumnElement[bool]


def of_pools(scope: Scope) -> list[Condition]:
    return [*_of_sources(scope, playlist_pools), *_any_of(scope.pools, playlist_pools, playlist_pools.c.name)]


def of_playlists(scope: Scope) -> list[Condition]:
    """What makes a playlist part of the scope."""
    found = [*_of_sources(scope, playlists), *_any_of(scope.playlists, playlists, playlists.c.name)]
    if scope.pools:
        inside = (
            sa.select(pool_playlists.c.playlist_id)
            .join(playlist_pools, playlist_pools.c.id == pool_playlists.c.pool_id)
            .where(pool_playlists.c.removed_at.is_(None), *_any_of(scope.pools, playlist_pools, playlist_pools.c.name))
        )
        found.append(playlists.c.id.in_(inside))
    return found


def of_songs(scope: Scope) -> list[Condition]:
    """What makes a song part of the scope."""
    found = [*_of_sources(scope, songs), *_any_of(scope.songs, songs)]
    if scope.names_lists:
        inside = (
            sa.select(playlist_songs.c.song_id)
            .join(playlists, playlists.c.id == playlist_songs.c.playlist_id)
            .where(playlist_songs.c.removed_at.is_(None), *of_playlists(scope.model_copy(update={"sources": []})))
        )
        found.append(songs.c.id.in_(inside))
    if scope.query:
        text = scope.query
        found.append(sa.or_(*(column.icontains(text, autoescape=True)
                              for column in (songs.c.title, songs.c.artist, songs.c.album))))  # fmt: skip
    return found


def _of_sources(scope: Scope, table: sa.Table) -> list[Condition]:
    return [table.c.platform.in_(scope.sources)] if scope.sources else []


def _any_of(wanted: list[int | str], table: sa.Table, name: sa.Column[str] | None = None) -> list[Condition]:
    if not wanted:
        return []
    ids = [each for each in wanted if isinstance(each, int)]
    ids += [int(each) for each in wanted if isinstance(each, str) and each.isdecimal() and len(each) < 19]
    texts = [each for each in wanted if isinstance(each, str)]
    pairs = [each.partition(":")[::2] for each in texts if ":" in each]
    ways = [sa.and_(table.c.platform == platform, table.c.remote_id == remote) for platform, remote in pairs]
    if ids:
        ways.append(table.c.id.in_(ids))
    if name is not None and texts:
        ways.append(name.in_(texts))
    return [sa.or_(*ways)] if ways else [sa.false()]
