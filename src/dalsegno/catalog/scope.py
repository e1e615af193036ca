"""The scope of a job: which part of the catalog it is about. Empty is everything."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, StrictInt, ValidationError

from dalsegno.catalog.schema import playlist_pools, playlist_songs, playlists, pool_playlists, songs
from dalsegno.catalog.standing import COLLECT, SYNC
from dalsegno.catalog.upsert import known_as
from dalsegno.engine.item import storable
from dalsegno.errors import InputInvalid
from dalsegno.insight.grammar import forms
from dalsegno.model.suggest import did_you_mean

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx


MOST = 10_000
"""Names in a scope."""
SOURCES = 100
"""Different sources in the names of a scope: each is a branch of a condition."""
TYPED = 1000
"""Names that people may have typed, and that are looked for however their accents are written."""
QUERY = 1000
_PLATFORM = re.compile(r"[\w.-]{1,64}")


class Scope(BaseModel):
    """Pools, playlists and songs by number, by `platform:remote id`, or pools and playlists by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: list[str] = []
    pools: list[StrictInt | str] = []
    playlists: list[StrictInt | str] = []
    songs: list[StrictInt | str] = []
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
        return _bounded(Scope.model_validate(data or {}))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"][:2]))
        if fault["type"] == "extra_forbidden":
            hint = did_you_mean(where, Scope.model_fields)
            raise InputInvalid(problem=f'A scope has no "{where}".{hint}') from None
        raise InputInvalid(problem=f"scope.{where}: {fault['msg'][0].lower()}{fault['msg'][1:]}.") from None


def _bounded(scope: Scope) -> Scope:
    """What one statement can ask for, on both databases."""
    named = [*scope.pools, *scope.playlists, *scope.songs]
    count = len(named) + len(scope.sources)
    if count > MOST:
        raise InputInvalid(
            problem=f"A scope names {MOST:,} things at most, not {count:,}. "
            "Name playlists or pools instead, or leave it empty for everything."
        )
    for each in named:
        if isinstance(each, int) and abs(each) >= 2**63:
            raise InputInvalid(problem=f"Nothing has the number {each!s:.40}.")
    if len(scope.query) > QUERY:
        raise InputInvalid(problem=f"A query has {QUERY} characters at most.")
    if len({platform for platform, _ in _pairs(named)}) > SOURCES:
        raise InputInvalid(problem=f"A scope names things of {SOURCES} sources at most.")
    return scope


def _pairs(wanted: Sequence[int | str]) -> list[tuple[str, str]]:
    """Those that may be `platform:remote id`; the names of playlists have colons too."""
    parts = [each.partition(":") for each in wanted if isinstance(each, str)]
    return [(platform, remote) for platform, colon, remote in parts if colon and _PLATFORM.fullmatch(platform)]


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
    cases = [text] if text.isascii() else [text, text.lower(), text.upper(), text.title()]
    spellings = dict.fromkeys(form for case in cases for form in forms(case))
    return sa.or_(*(column.icontains(each, autoescape=True) for each in spellings))


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


def check_findable(store: Store, scope: Scope, services: Collection[str]) -> None:
    """Raises InputInvalid for the first name that nothing has and that none of these services could bring."""
    if COLLECT not in services:
        check_names(store, scope if SYNC not in services else scope.model_copy(update={"songs": []}), scope.sources)


def check_pools(store: Store, scope: Scope) -> None:
    store.read(lambda tx: _check(tx, "pool", scope.pools, playlist_pools, playlist_pools.c.name))


def unknown_source(name: str, sources: Sequence[str]) -> InputInvalid:
    known = ", ".join(sources) or "none"
    return InputInvalid(problem=f'Source "{name}" is not configured here; configured: {known}.')


def _check(tx: Tx, noun: str, wanted: list[int | str], table: sa.Table, name: sa.Column[str] | None = None) -> None:
    columns = [table.c.id, table.c.platform, table.c.remote_id, *([] if name is None else [name])]
    found: set[int | str] = set()
    for start in range(0, len(wanted), 500):
        some = sa.select(*columns).where(*_any_of(wanted[start : start + 500], table, name))
        for number, platform, remote, *names in tx.conn.execute(some):
            found |= {number, str(number), f"{platform}:{remote}", *names}
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
    # A long list was made by a program, from names as they are; a statement has so many values at most.
    if len(wanted) <= TYPED:
        wanted = [form for each in wanted for form in (forms(each) if isinstance(each, str) else (each,))]
    texts = [storable(each) for each in wanted if isinstance(each, str)]
    by_platform: dict[str, list[str]] = {}
    for platform, remote in _pairs(wanted):
        by_platform.setdefault(platform, []).append(known_as(remote))
    ways: list[Condition] = [
        sa.and_(table.c.platform == platform, table.c.remote_id.in_(remotes))
        for platform, remotes in by_platform.items()
    ]
    if ids:
        ways.append(table.c.id.in_(ids))
    if name is not None and texts:
        ways.append(name.in_(texts))
    return [sa.or_(*ways)] if ways else [sa.false()]
