"""The scope of a job: which part of the catalog it is about. Empty is everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, ValidationError

from dalsegno.catalog.schema import playlist_pools, playlist_songs, playlists, pool_playlists, songs
from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx


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
        found.append(sa.or_(*(holds(column, scope.query) for column in (songs.c.title, songs.c.artist, songs.c.album))))
    return found


def holds(column: sa.Column[str], text: str) -> Condition:
    """Whether it has this text somewhere, in capitals or not. SQLite knows only those of English by itself."""
    spellings = dict.fromkeys((text, text.lower(), text.upper(), text.title()))
    return sa.or_(*(column.icontains(each, autoescape=True) for each in ([text] if text.isascii() else spellings)))


# --- names that nothing has -----------------------------------------------------------------------


def check_names(store: Store, scope: Scope, sources: Sequence[str]) -> None:
    """Raises InputInvalid for the first name of a scope that nothing has: a job about nothing helps nobody.

    `sources` are those configured; one that songs came from once is known too.
    """
    check_pools(store, scope)
    store.read(lambda tx: _check(tx, "playlist", scope.playlists, playlists, playlists.c.name))
    store.read(lambda tx: _check(tx, "song", scope.songs, songs))
    for name in set(scope.sources) - set(sources):
        if not store.read(lambda tx, name=name: tx.rows(sa.select(songs.c.id).filter_by(platform=name).limit(1))):  # type: ignore[misc]
            raise unknown_source(name, sources)


def check_pools(store: Store, scope: Scope) -> None:
    store.read(lambda tx: _check(tx, "pool", scope.pools, playlist_pools, playlist_pools.c.name))


def unknown_source(name: str, sources: Sequence[str]) -> InputInvalid:
    known = ", ".join(sources) or "none"
    return InputInvalid(problem=f'Source "{name}" is not configured here; configured: {known}.')


def _check(tx: Tx, noun: str, wanted: list[int | str], table: sa.Table, name: sa.Column[str] | None = None) -> None:
    numbers = [each for each in wanted if isinstance(each, int)]
    found: set[int | str] = set()
    for start in range(0, len(numbers), 500):
        some = sa.select(table.c.id).where(table.c.id.in_(numbers[start : start + 500]))
        found.update(tx.conn.execute(some).scalars())
    for each in wanted:
        if each in found or (isinstance(each, str) and _is_there(tx, each, table, name)):
            continue
        if not tx.rows(sa.select(table.c.id).limit(1)):
            first = "Sync" if noun == "song" else "Collect"
            raise InputInvalid(problem=f"There is no {noun} {_named(each)}: none is known yet. {first} first.")
        near = [] if name is None else list(tx.conn.execute(sa.select(name).limit(5000)).scalars())
        raise InputInvalid(problem=f"There is no {noun} {_named(each)}.{did_you_mean(str(each), near)}")


def _is_there(tx: Tx, each: str, table: sa.Table, name: sa.Column[str] | None) -> bool:
    return bool(tx.rows(sa.select(table.c.id).where(*_any_of([each], table, name)).limit(1)))


def _named(each: int | str) -> str:
    return str(each) if isinstance(each, int) else f'"{each:.100}"'


# --- conditions -----------------------------------------------------------------------------------


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
