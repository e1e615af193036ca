"""Upsert: rows known by `(platform, remote_id)` are added, or changed where they differ. The rest costs no write."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dalsegno.catalog.schema import artists, song_artists, songs
from dalsegno.engine.item import storable
from dalsegno.sources.model import Track

AT_ONCE = 500
"""Keys asked for in one statement."""
ID_MAX = 1000
"""Bytes of a remote id, and"""
NAME_MAX = 500
"""characters of a name: an index of PostgreSQL takes 2,704 bytes."""
LONG_ID = "dalsegno:remote_id"
"""Where a snapshot keeps an id that is longer."""

Row = Mapping[str, Any] | sa.RowMapping


def clean(value: Any) -> Any:
    """What a source said, as both databases take it."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {storable(str(key)): clean(each) for key, each in value.items()}
        case list() | tuple():
            return [clean(each) for each in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def known_as(remote_id: str) -> str:
    """The key of what a source calls so: the id itself, unless it is too long for an index."""
    plain = storable(remote_id)
    content = plain.encode("utf-8", "replace")
    if len(content) <= ID_MAX:
        return plain
    return f"{content[: ID_MAX - 65].decode('utf-8', 'ignore')}~{hashlib.sha256(content).hexdigest()}"


def own_id(row: Row) -> str:
    """What its source calls it, of a row that `upsert` wrote."""
    return str((row["snapshot"] or {}).get(LONG_ID, row["remote_id"]))


def own_snapshot(row: Row) -> dict[str, Any]:
    return {name: value for name, value in (row["snapshot"] or {}).items() if name != LONG_ID}


def _fitting(table: sa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """A source's row as every column and index takes it."""
    fit: dict[str, Any] = clean(row)
    key = known_as(fit["remote_id"])
    if key != fit["remote_id"]:
        fit |= {"remote_id": key, "snapshot": {**(fit["snapshot"] or {}), LONG_ID: fit["remote_id"]}}
    for name, value in fit.items():
        if name == "name":
            fit[name] = value[:NAME_MAX]
        elif isinstance(value, int) and _is_small(table, name) and not -(2**31) <= value < 2**31:
            fit[name] = None
    return fit


@cache
def _is_small(table: sa.Table, name: str) -> bool:
    kind = table.c[name].type
    return isinstance(kind, sa.Integer) and not isinstance(kind, sa.BigInteger)


class Upserted(NamedTuple):
    ids: dict[str, int]
    """By remote id, as it is known."""
    new: set[str]
    changed: set[str]


@cache
def _insert_missing(table: sa.Table, dialect: str, columns: tuple[str, ...]) -> sa.Insert:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return insert(table).values({name: sa.bindparam(name) for name in columns}).on_conflict_do_nothing()


def insert_missing(conn: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert; where a unique key is taken, the row that is there stays. All rows have the same columns.

    One statement for many rows would be compiled anew for every number of them, which takes longer than running it.
    """
    if rows:
        conn.execute(_insert_missing(table, conn.dialect.name, tuple(rows[0])), list(rows))


def upsert(
    conn: sa.Connection, table: sa.Table, platform: str, rows: Sequence[dict[str, Any]], now: datetime
) -> Upserted:
    """Each row has its `remote_id` and the columns to keep up to date. One that was missing upstream is back."""
    by_id = {row["remote_id"]: row for row in (_fitting(table, each) for each in rows)}
    before = _existing(conn, table, platform, by_id)
    fresh = [
        {**row, "platform": platform, "created_at": now, "updated_at": now}
        for key, row in by_id.items()
        if key not in before
    ]
    changed = {
        key
        for key, row in by_id.items()
        if key in before
        and (before[key]["missing_at"] is not None or any(before[key][name] != row[name] for name in row))
    }
    if fresh:
        insert_missing(conn, table, fresh)
    for key in changed:
        values = {**by_id[key], "updated_at": now, "missing_at": None}
        conn.execute(sa.update(table).where(table.c.id == before[key]["id"]).values(**values))
    ids = {key: row["id"] for key, row in before.items()}
    if fresh:
        missing = [row["remote_id"] for row in fresh]
        ids |= {key: row["id"] for key, row in _existing(conn, table, platform, missing).items()}
    return Upserted(ids, by_id.keys() - before.keys(), changed)


def _existing(
    conn: sa.Connection, table: sa.Table, platform: str, remote_ids: Iterable[str]
) -> dict[str, sa.RowMapping]:
    wanted = list(remote_ids)
    found: dict[str, sa.RowMapping] = {}
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        query = sa.select(table).where(table.c.platform == platform, table.c.remote_id.in_(some))
        found |= {row["remote_id"]: row for row in conn.execute(query).mappings()}
    return found


# --- songs --------------------------------------------------------------------------------------


def keep_songs(conn: sa.Connection, platform: str, tracks: Sequence[Track], now: datetime) -> Upserted:
    """Songs as their source describes them, each with the snapshot it is resolved from later."""
    known = {known_as(track.id): replace(track, artists=_names(track)) for track in tracks}
    done = upsert(conn, songs, platform, [_song(track) for track in known.values()], now)
    moved = {key: track for key, track in known.items() if key in done.new or key in done.changed}
    if moved:
        _keep_artists(conn, platform, moved, done)
    return done


def _names(track: Track) -> tuple[str, ...]:
    return tuple(storable(name)[:NAME_MAX] for name in track.artists)


def _song(track: Track) -> dict[str, Any]:
    return {
        "remote_id": track.id,
        "title": track.title,
        "artist": ", ".join(track.artists),
        "album": track.album,
        "track_no": track.track_no,
        "disc_no": track.disc_no,
        "year": track.year,
        "duration": track.duration,
        "isrc": track.isrc,
        "snapshot": {"artists": list(track.artists), **({"own": dict(track.snapshot)} if track.snapshot else {})},
    }


def track_of(song: Row) -> Track:
    """The track that a song's row was made from."""
    kept = song["snapshot"] or {}
    return Track(
        id=own_id(song),
        title=song["title"],
        artists=tuple(kept.get("artists", ())),
        album=song["album"],
        track_no=song["track_no"],
        disc_no=song["disc_no"],
        year=song["year"],
        duration=song["duration"],
        isrc=song["isrc"],
        snapshot=kept.get("own", {}),
    )


def _keep_artists(conn: sa.Connection, platform: str, tracks: Mapping[str, Track], done: Upserted) -> None:
    names = list(dict.fromkeys(name for track in tracks.values() for name in track.artists))
    insert_missing(conn, artists, [{"platform": platform, "name": name} for name in names])
    ids: dict[str, int] = {}
    for start in range(0, len(names), AT_ONCE):
        query = sa.select(artists.c.name, artists.c.id).where(
            artists.c.platform == platform, artists.c.name.in_(names[start : start + AT_ONCE])
        )
        ids.update((name, number) for name, number in conn.execute(query))
    changed = [done.ids[key] for key in done.changed]
    for start in range(0, len(changed), AT_ONCE):
        conn.execute(sa.delete(song_artists).where(song_artists.c.song_id.in_(changed[start : start + AT_ONCE])))
    links = [
        {"song_id": done.ids[key], "position": position, "artist_id": ids[name]}
        for key, track in tracks.items()
        for position, name in enumerate(dict.fromkeys(track.artists))
    ]
    insert_missing(conn, song_artists, links)


# --- membership ---------------------------------------------------------------------------------


class Diff(NamedTuple):
    came: list[int]
    left: list[int]
    moved: list[int]
    back: list[int]

    @property
    def added(self) -> int:
        return len(self.came) + len(self.back)

    @property
    def removed(self) -> int:
        return len(self.left)


class Members:
    """The members of one list, in order. Who left stays as a row with a time."""

    def __init__(self, owner: sa.Column[int], owner_id: int, member: sa.Column[int]) -> None:
        self._table: sa.Table = owner.table
        self._owner, self._owner_id, self._member = owner, owner_id, member

    def compare(self, conn: sa.Connection, wanted: Iterable[int]) -> Diff:
        """What it takes to make `wanted` the members."""
        order = {key: position for position, key in enumerate(dict.fromkeys(wanted))}
        columns = (self._member, self._table.c.position, self._table.c.removed_at)
        rows = conn.execute(sa.select(*columns).where(self._owner == self._owner_id))
        before = {row[0]: (row[1], row[2] is None) for row in rows}
        return Diff(
            came=[key for key in order if key not in before],
            left=[key for key, (_, live) in before.items() if live and key not in order],
            moved=[key for key in order if key in before and before[key] != (order[key], True) and before[key][1]],
            back=[key for key in order if key in before and not before[key][1]],
        )

    def keep(self, conn: sa.Connection, wanted: Iterable[int], now: datetime) -> Diff:
        order = {key: position for position, key in enumerate(dict.fromkeys(wanted))}
        diff = self.compare(conn, order)
        base: dict[str, Any] = {self._owner.name: self._owner_id}
        if "added_at" in self._table.c:
            base["added_at"] = now
        new = [{**base, self._member.name: key, "position": order[key]} for key in diff.came]
        insert_missing(conn, self._table, new)
        one = sa.update(self._table).where(self._owner == self._owner_id, self._member == sa.bindparam("key"))
        if diff.back or diff.moved:
            here = one.values(position=sa.bindparam("place"), removed_at=None)
            conn.execute(here, [{"key": key, "place": order[key]} for key in (*diff.back, *diff.moved)])
        if diff.left:
            conn.execute(one.values(removed_at=now), [{"key": key} for key in diff.left])
        return diff
