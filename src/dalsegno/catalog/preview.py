"""What a job of a template would have to do, before it is started: from what is known now, and saying so.

Sources are not asked: how many playlists a collection finds, or songs a sync adds, nobody knows before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog.library import is_listed
from dalsegno.catalog.schema import file_assets, file_locations, playlist_pools, playlists, songs
from dalsegno.catalog.scope import Scope, holds, of_playlists, of_pools, of_songs
from dalsegno.catalog.standing import COLLECT, DOWNLOAD, SYNC, UPLOAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dalsegno.store.store import Tx

SAMPLE = 2000
"""Files whose sizes say how large one is on average: the newest."""
FIRST = 5


@dataclass(frozen=True, slots=True)
class StagePreview:
    service: str
    items: int | None
    """As far as is known now; None where only its service can tell."""
    done: int | None
    """Of them, those that need nothing but a look."""
    left: int | None
    bytes: int | None
    """To be moved; None where nothing is, or nobody knows."""
    estimated: bool
    """It may turn out otherwise, for the reason that `basis` gives."""
    basis: str
    first: list[str]
    """A few of what is left, by name."""
    step: str = ""
    """What the stage will be called."""


def preview(
    tx: Tx, services: Sequence[str], scope: Scope, sources: Sequence[str], backend_id: int | None
) -> list[StagePreview]:
    """One for each stage. `backend_id` is the store that files go to; None: none is set."""
    found: list[StagePreview] = []
    for service in services:
        before = {stage.service for stage in found}
        match service:
            case "collect":
                found.append(_collect(tx, scope, sources))
            case "sync":
                found.append(_sync(tx, scope, sources, after=COLLECT in before, songs_too=DOWNLOAD in services))
            case "download":
                found.append(_download(tx, scope, after=SYNC in before))
            case "upload":
                found.append(_upload(tx, scope, backend_id, after=DOWNLOAD in before))
    return found


def _collect(tx: Tx, scope: Scope, sources: Sequence[str]) -> StagePreview:
    chosen = [name for name in sources if not scope.sources or name in scope.sources]
    wanted = sa.select(playlist_pools.c.id, playlist_pools.c.name).where(
        playlist_pools.c.platform.in_(chosen), playlist_pools.c.missing_at.is_(None), *of_pools(scope)
    )
    count = _count(tx, wanted)
    basis = "the pools that are known; sources may have more" if count else "the sources: their pools are not known yet"
    names = _names(tx, wanted, playlist_pools.c.id) or chosen[:FIRST]
    return StagePreview(COLLECT, count or len(chosen), 0, count or len(chosen), None, True, basis, names)


def _sync(tx: Tx, scope: Scope, sources: Sequence[str], *, after: bool, songs_too: bool) -> StagePreview:
    wanted = sa.select(playlists.c.id, playlists.c.name).where(playlists.c.platform.in_(sources), *of_playlists(scope))
    if not scope.playlists:
        wanted = wanted.where(playlists.c.missing_at.is_(None))
    if scope.query and not songs_too:
        wanted = wanted.where(holds(playlists.c.name, scope.query))
    count = _count(tx, wanted)
    basis = "the playlists that are known" + ("; collecting may find more" if after else "")
    return StagePreview(SYNC, count, 0, count, None, after, basis, _names(tx, wanted, playlists.c.id))


def _download(tx: Tx, scope: Scope, *, after: bool) -> StagePreview:
    wanted, about = _songs(scope)
    total, done = (int(number) for number in tx.conn.execute(
        wanted.with_only_columns(sa.func.count(songs.c.id), sa.func.count(songs.c.asset_id))).one())  # fmt: skip
    each = _mean_size(tx)
    size = None if each is None or total == done else round(each * (total - done))
    parts = ["the songs that are known"]
    if after:
        parts.append("a sync may add some")
    if size is not None:
        parts.append(f"{each / 1e6:.1f} MB each, as the newest files have" if each else "")
    lacking = wanted.where(songs.c.asset_id.is_(None))
    basis = "; ".join(part for part in parts if part)
    return StagePreview(DOWNLOAD, total, done, total - done, size, after or about or size is not None, basis,
                        _names(tx, lacking, songs.c.id))  # fmt: skip


def _upload(tx: Tx, scope: Scope, backend_id: int | None, *, after: bool) -> StagePreview:
    wanted, about = _songs(scope)
    if backend_id is None:
        basis = "no OBJECT_STORE is set: there is nowhere to upload to"
        return StagePreview(UPLOAD, 0, 0, 0, None, False, basis, [])
    there = (
        sa.select(file_locations.c.id)
        .where(
            file_locations.c.asset_id == songs.c.asset_id,
            file_locations.c.backend_id == backend_id,
            file_locations.c.missing_at.is_(None),
        )
        .exists()
    )
    files = wanted.join(file_assets, file_assets.c.id == songs.c.asset_id)
    absent = sa.case((there, 0), else_=1)
    columns = (sa.func.count(songs.c.id), sa.func.sum(absent), sa.func.sum(absent * file_assets.c.size_bytes))
    total, left, size = (int(number or 0) for number in tx.conn.execute(files.with_only_columns(*columns)).one())
    basis = "the files in the library"
    if after:
        done, basis = total - left, "the files in the library, and what is downloaded before"
        total = int(tx.conn.execute(wanted.with_only_columns(sa.func.count(songs.c.id))).scalar_one())
        each = _mean_size(tx)
        size += 0 if each is None else round(each * max(0, total - done - left))
        left = total - done
    names = _names(tx, files.where(sa.not_(there)), songs.c.id)
    return StagePreview(UPLOAD, total, total - left, left, size or None, after or about, basis, names)


def _songs(scope: Scope) -> tuple[sa.Select[Any], bool]:
    """The songs of a scope, and whether some may be counted that no playlist has any more.

    Looking each of two hundred thousand up in the playlists takes long; of a part of them it does not.
    """
    wanted = sa.select(songs.c.id, songs.c.title.label("name")).where(*of_songs(scope))
    if scope.songs:
        return wanted, False
    whole = not scope.names_lists
    return (wanted, True) if whole else (wanted.where(is_listed(songs)), False)


def _count(tx: Tx, wanted: sa.Select[Any]) -> int:
    return int(tx.conn.execute(sa.select(sa.func.count()).select_from(wanted.subquery())).scalar_one())


def _names(tx: Tx, wanted: sa.Select[Any], id: sa.Column[int]) -> list[str]:
    return [str(row["name"]) for row in tx.rows(wanted.order_by(id).limit(FIRST))]


def _mean_size(tx: Tx) -> float | None:
    newest = sa.select(file_assets.c.size_bytes).order_by(file_assets.c.id.desc()).limit(SAMPLE).subquery()
    mean = tx.conn.execute(sa.select(sa.func.avg(newest.c.size_bytes))).scalar()
    return None if mean is None else float(mean)
