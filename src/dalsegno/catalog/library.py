"""The library: which file a song has, where copies of it are, and how a finished one is written down."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dalsegno.catalog.schema import file_assets, file_locations, playlist_songs, songs
from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.catalog.scope import Scope, of_songs
from dalsegno.store.bulk import run_many

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

PAGE = 1000


class Copy(NamedTuple):
    """One place where a file is."""

    kind: str
    root: str
    """The backend's address; of a library, its folder."""
    path: str
    backend_id: int
    size: int
    lost: bool = False
    """It was looked for and not found."""

    @property
    def file(self) -> Path:
        return Path(self.root, self.path)

    def is_there(self) -> bool:
        return self._size() == self.size

    def is_absent(self) -> bool:
        """Nothing is there; where that cannot be told, something may be."""
        try:
            os.stat(f"{self.root}/{self.path}")
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, ValueError):
            return False
        return False

    def is_whole(self, sha256: str | None) -> bool:
        """Read to the end."""
        try:
            with self.file.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == sha256
        except (OSError, ValueError):
            return False

    def is_changed(self) -> bool:
        """Something else is there by now: the file with other tags, most likely. It is its owner's."""
        return self._size() not in (self.size, 0)

    def _size(self) -> int:
        try:
            return os.stat(f"{self.root}/{self.path}").st_size
        except (OSError, ValueError):
            return 0


@dataclass(frozen=True, slots=True)
class Holding:
    """A song, and every place its file is known to be."""

    song: Mapping[str, Any]
    sha256: str | None
    size: int | None
    copies: tuple[Copy, ...]

    def local(self) -> Copy | None:
        """A copy in some library that is really there, whichever folder new songs go to by now. One that was gone and
        is there again is read to the end first."""
        return next((copy for copy in self.in_libraries() if copy.is_there()), None) or next(
            (copy for copy in self.in_libraries(lost=True) if copy.is_there() and copy.is_whole(self.sha256)), None
        )

    def in_libraries(self, *, lost: bool = False) -> Iterator[Copy]:
        return (copy for copy in self.copies if copy.kind == "library" and copy.lost == lost)

    def changed(self) -> Copy | None:
        """A copy in some library that its owner made into something else."""
        return next((copy for copy in self.in_libraries() if copy.is_changed()), None)

    def result(self) -> dict[str, Any]:
        """What a finished download says, the same whether the song was fetched or was there already."""
        return {"song": self.song["id"], "sha256": self.sha256, "size": self.size}


LATEST = (file_locations.c.verified_at.desc(), file_locations.c.id)
"""The copy that was checked last is the best one: an older one may have rotted since."""
_KNOWN = (
    sa.select(
        songs,
        file_assets.c.sha256,
        file_assets.c.size_bytes,
        backends.c.kind.label("backend_kind"),
        backends.c.url.label("backend_url"),
        file_locations.c.path,
        file_locations.c.backend_id,
        file_locations.c.missing_at.is_not(None).label("is_lost"),
    )
    .outerjoin(file_assets, file_assets.c.id == songs.c.asset_id)
    .outerjoin(file_locations, file_locations.c.asset_id == songs.c.asset_id)
    .outerjoin(backends, backends.c.id == file_locations.c.backend_id)
)
_HOLDING = _KNOWN.where(songs.c.id == sa.bindparam("wanted")).order_by(*LATEST)
HOLDINGS = _KNOWN.where(songs.c.id.between(sa.bindparam("first"), sa.bindparam("last"))).order_by(songs.c.id, *LATEST)
_SAME = (
    sa.select(backends.c.kind, backends.c.url, file_locations.c.path, file_locations.c.backend_id,
              file_assets.c.size_bytes)
    .join(file_assets, file_assets.c.id == file_locations.c.asset_id)
    .join(backends, backends.c.id == file_locations.c.backend_id)
    .where(file_assets.c.sha256 == sa.bindparam("wanted"), backends.c.kind == sa.literal_column("'library'"),
           file_locations.c.missing_at.is_(None))
    .order_by(*LATEST)
)  # fmt: skip


def holding(tx: Tx, song_id: int) -> Holding | None:
    return as_holding([dict(row) for row in tx.rows(_HOLDING, {"wanted": song_id})])


def look(store: Store, song_id: int) -> Holding | None:
    """The same at a glance."""
    return as_holding(store.glance(_HOLDING, {"wanted": song_id}))


def as_holding(rows: list[dict[str, Any]]) -> Holding | None:
    """Of the rows of one song."""
    if not rows:
        return None
    first = rows[0]
    copies = tuple(
        Copy(
            row["backend_kind"],
            row["backend_url"],
            row["path"],
            row["backend_id"],
            first["size_bytes"],
            bool(row["is_lost"]),
        )
        for row in rows
        if row["backend_id"] is not None
    )
    return Holding(first, first["sha256"], first["size_bytes"], copies)


def same_content(store: Store, sha256: str) -> list[Copy]:
    """Copies of these bytes in libraries, whichever song they were fetched for."""
    return [Copy(*row.values()) for row in store.glance(_SAME, {"wanted": sha256})]


def songs_sharing(tx: Tx, song_id: int) -> int:
    """How many other songs have the same file."""
    asset = sa.select(songs.c.asset_id).where(songs.c.id == song_id).scalar_subquery()
    query = sa.select(sa.func.count()).where(songs.c.asset_id == asset, songs.c.id != song_id)
    return int(tx.conn.execute(query).scalar_one())


def is_listed(song: sa.FromClause) -> sa.ColumnElement[bool]:
    """That some playlist has this song now."""
    here = sa.and_(playlist_songs.c.song_id == song.c.id, playlist_songs.c.removed_at.is_(None))
    return sa.select(playlist_songs.c.song_id).where(here).correlate(song).exists()


def songs_in(store: Store, scope: Scope, *conditions: sa.ColumnElement[bool]) -> Iterator[int]:
    """The songs of a scope, page by page. Those that no playlist has any more are left out, unless named."""
    wanted = sa.select(songs.c.id).where(*of_songs(scope), *conditions)
    if not scope.songs:
        wanted = wanted.where(is_listed(songs))
    after = 0
    while True:
        page = wanted.where(songs.c.id > after).order_by(songs.c.id).limit(PAGE)
        ids = store.read(lambda tx, page=page: list(tx.conn.execute(page).scalars()))  # type: ignore[misc]
        yield from ids
        if len(ids) < PAGE:
            return
        after = ids[-1]


# --- writing down -------------------------------------------------------------------------------


class Filed(NamedTuple):
    """A song's file in the library, verified and in place."""

    song_id: int
    backend_id: int
    path: str
    sha256: str
    size: int
    audio: dict[str, Any]
    """The columns of `file_assets` that describe it."""
    found_on: str
    found_id: str
    at: datetime


_ASSET = sa.select(file_assets.c.id).where(file_assets.c.sha256 == sa.bindparam("asset")).scalar_subquery()
_FILED = (
    sa.update(songs)
    .where(songs.c.id == sa.bindparam("song"))
    .values(asset_id=_ASSET, downloaded_at=sa.bindparam("now", type_=songs.c.downloaded_at.type),
            found_on=sa.bindparam("via"), found_id=sa.bindparam("via_id"), missing_at=sa.null())
)  # fmt: skip


def file_songs(conn: sa.Connection, rows: Sequence[Filed]) -> None:
    """Write finished downloads down: the file once, however many songs have it, and where it is."""
    assets: dict[str, dict[str, Any]] = {}
    for row in rows:  # a song that found its file there knows nothing of it
        if row.audio.get("format") or row.sha256 not in assets:
            assets[row.sha256] = {"sha256": row.sha256, "size_bytes": row.size, "created_at": row.at, **row.audio}
    run_many(conn, _put_asset(conn.dialect.name, tuple(rows[0].audio)), list(assets.values()))
    put_locations(conn, [Placed(row.sha256, row.backend_id, row.path, row.size, None, row.at) for row in rows])
    run_many(conn, _FILED, [{"song": row.song_id, "asset": row.sha256, "now": row.at, "via": row.found_on,
                             "via_id": row.found_id} for row in rows])  # fmt: skip


@cache
def _put_asset(dialect: str, described: tuple[str, ...]) -> sa.Insert:
    """A file that is known stays as it was described, unless nobody could say before."""
    insert = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(file_assets)
    names = ("sha256", "size_bytes", "created_at", *described)
    new = insert.values({name: sa.bindparam(name) for name in names})
    if not described:
        return new.on_conflict_do_nothing()
    return new.on_conflict_do_update(
        index_elements=["sha256"],
        set_={name: insert.excluded[name] for name in described},
        where=sa.and_(file_assets.c.format == "", insert.excluded.format != ""),
    )


class Placed(NamedTuple):
    """A file that is somewhere now."""

    asset: str
    """Its SHA-256."""
    backend_id: int
    path: str
    size_bytes: int
    etag: str | None
    at: datetime


@cache
def _put_location(dialect: str) -> sa.Insert:
    insert = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(file_locations)
    new, at = insert.excluded, sa.bindparam("at", type_=file_locations.c.created_at.type)
    values: dict[str, Any] = {name: sa.bindparam(name) for name in ("backend_id", "path", "size_bytes", "etag")}
    return insert.values(**values, asset_id=_ASSET, created_at=at, verified_at=at).on_conflict_do_update(
        index_elements=["backend_id", "path"],
        set_={"asset_id": new.asset_id, "size_bytes": new.size_bytes, "etag": new.etag,
              "verified_at": new.verified_at, "missing_at": sa.null()},
    )  # fmt: skip


def put_locations(conn: sa.Connection, rows: Sequence[Placed]) -> None:
    """Where files are now. A path that another file had is this one's."""
    by_place = {(row.backend_id, row.path): row._asdict() for row in rows}
    run_many(conn, _put_location(conn.dialect.name), list(by_place.values()))


def confirm_locations(conn: sa.Connection, rows: Sequence[tuple[int, str, datetime]]) -> None:
    """Files that were looked at once more, and are whole: by backend and path, and when."""
    seen = sa.update(file_locations).where(
        file_locations.c.backend_id == sa.bindparam("backend"), file_locations.c.path == sa.bindparam("place")
    )
    values = [{"backend": backend, "place": path, "at": when} for backend, path, when in rows]
    at = sa.bindparam("at", type_=file_locations.c.verified_at.type)
    conn.execute(seen.values(verified_at=at, missing_at=sa.null()), values)


def lose_locations(conn: sa.Connection, rows: Sequence[tuple[int, str, datetime]]) -> None:
    """Files that were looked for and are not there: by backend and path, and when. What landed since is there."""
    at = sa.bindparam("at", type_=file_locations.c.missing_at.type)
    gone = sa.update(file_locations).where(
        file_locations.c.backend_id == sa.bindparam("backend"),
        file_locations.c.path == sa.bindparam("place"),
        file_locations.c.verified_at < at,
        file_locations.c.missing_at.is_(None),
    )
    conn.execute(gone.values(missing_at=at), [{"backend": one, "place": path, "at": when} for one, path, when in rows])
