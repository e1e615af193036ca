"""The status of playlists and pools, derived and never stored, each with its because and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from dalsegno.catalog import standing
from dalsegno.catalog.judgement import TITLES, Numbers, PlaylistStatus, PoolNumbers, Reason, judge, judge_pool, spoken
from dalsegno.catalog.schema import playlist_pools, playlists, pool_playlists
from dalsegno.catalog.standing import DOWNLOAD, LEASED, SYNC, UPLOAD, Condition
from dalsegno.errors import NotFound
from dalsegno.store.schema import items
from dalsegno.store.store import Tx

__all__ = ["TITLES", "LatestError", "Page", "PlaylistLine", "PlaylistStatus", "PoolLine", "PoolName", "lines_of",
           "list_playlists", "list_pools", "playlist_detail", "pool_line"]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    lines: list[T]
    next: int | None
    """What to pass as `after` for the next page; None on the last one."""


@dataclass(frozen=True, slots=True)
class PoolName:
    id: int
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class LatestError:
    item_id: int
    code: str
    message: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class PlaylistLine:
    id: int
    platform: str
    remote_id: str
    kind: str
    name: str
    pools: list[PoolName]
    status: PlaylistStatus
    because: str
    reasons: list[Reason]
    """The because in parts."""
    song_count: int
    downloaded: int
    uploaded: int
    failed: int
    """Songs, not items: a song that failed in three jobs is one."""
    running: int
    """Songs at work now, and its own sync."""
    gone: int
    """Songs missing upstream of which there is no file."""
    stage: str | None
    """The service at work on it now."""
    latest_error: LatestError | None
    last_processed_at: datetime | None
    synced_at: datetime | None
    songs_added: int | None
    songs_removed: int | None
    missing_at: datetime | None


@dataclass(frozen=True, slots=True)
class PoolLine:
    id: int
    platform: str
    remote_id: str
    kind: str
    name: str
    status: PlaylistStatus
    """The worst of its playlists' and its own: it is collected, or that failed, or goes on."""
    because: str
    reasons: list[Reason]
    """The because in parts."""
    playlists: int
    counts: dict[PlaylistStatus, int]
    """Its playlists by status."""
    latest_error: LatestError | None
    """Of its own collection."""
    collected_at: datetime | None
    missing_at: datetime | None


def list_playlists(
    tx: Tx,
    *,
    platform: str | None = None,
    pool_id: int | None = None,
    name: str | None = None,
    status: PlaylistStatus | None = None,
    upload_backend_id: int | None = None,
    after: int | None = None,
    limit: int = 50,
) -> Page[PlaylistLine]:
    """A page of playlists by name; `after` is the last id of the page shown before it.

    With `upload_backend_id`, songs must also be in that store before their playlist is complete.
    """
    wanted: list[Condition] = []
    if platform is not None:
        wanted.append(playlists.c.platform == platform)
    if pool_id is not None:
        inside = sa.select(pool_playlists.c.playlist_id)
        inside = inside.where(pool_playlists.c.pool_id == pool_id, pool_playlists.c.removed_at.is_(None))
        wanted.append(playlists.c.id.in_(inside))
    if name:
        wanted.append(playlists.c.name.icontains(name, autoescape=True))
    if after is not None:
        last = sa.select(playlists.c.name).where(playlists.c.id == after).scalar_subquery()
        # The first half alone is a range of the index.
        wanted += [playlists.c.name >= last, sa.or_(playlists.c.name > last, playlists.c.id > after)]
    if status is not None:
        wanted += _having(status, upload_backend_id)
    lines = _lines(tx, wanted, upload_backend_id, limit + 1)
    if not lines and after is not None and tx.row(sa.select(playlists.c.id).where(playlists.c.id == after)) is None:
        raise NotFound(what="playlist", id=after)
    return Page(lines[:limit], lines[limit - 1].id if len(lines) > limit else None)


def playlist_detail(tx: Tx, playlist_id: int, *, upload_backend_id: int | None = None) -> PlaylistLine:
    lines = lines_of(tx, [playlist_id], upload_backend_id)
    if not lines:
        raise NotFound(what="playlist", id=playlist_id)
    return lines[0]


def lines_of(tx: Tx, playlist_ids: Sequence[int], upload_backend_id: int | None = None) -> list[PlaylistLine]:
    """These playlists, by name."""
    if not playlist_ids:
        return []
    rows = tx.rows(_of_these(upload_backend_id), {"playlist_ids": list(playlist_ids)})
    return _grouped(rows, upload_backend_id)


def list_pools(tx: Tx, *, upload_backend_id: int | None = None) -> list[PoolLine]:
    """All pools by platform and name. Every playlist is judged for it, so it costs more than a page of them."""
    status = sa.case(
        (standing.has_error(upload_backend_id), PlaylistStatus.ERROR),
        (standing.is_active(), PlaylistStatus.ACTIVE),
        (standing.is_incomplete(upload_backend_id), PlaylistStatus.INCOMPLETE),
        else_=PlaylistStatus.COMPLETE,
    )
    judged = sa.select(playlists.c.id, status.label("status")).cte("judged").prefix_with("MATERIALIZED")
    counted = (
        sa.select(pool_playlists.c.pool_id, judged.c.status, sa.func.count().label("playlists"))
        .join(judged, judged.c.id == pool_playlists.c.playlist_id)
        .where(pool_playlists.c.removed_at.is_(None))
        .group_by(pool_playlists.c.pool_id, judged.c.status)
        .cte("counted")
    )
    failed = standing.failed_collect(playlist_pools)
    query = (
        sa.select(
            playlist_pools,
            counted.c.status,
            counted.c.playlists,
            failed.label("item_id"),
            standing.is_collecting(playlist_pools).label("collecting"),
            *(_of_item(column, failed).label(label) for column, label in _ERROR_COLUMNS),
        )
        .outerjoin(counted, counted.c.pool_id == playlist_pools.c.id)
        .order_by(playlist_pools.c.platform, playlist_pools.c.name, playlist_pools.c.id)
    )
    return [_pool(list(rows)) for _, rows in groupby(tx.rows(query), key=lambda row: row["id"])]


def _having(status: PlaylistStatus, backend_id: int | None) -> list[Condition]:
    """That it holds, and nothing worse: what is not needed for the answer is not looked for."""
    holds = (standing.has_error(backend_id), standing.is_active(), standing.is_incomplete(backend_id))
    place = list(PlaylistStatus).index(status)
    return [*(sa.not_(worse) for worse in holds[:place]), *holds[place : place + 1]]


def _lines(tx: Tx, wanted: Sequence[Condition], backend_id: int | None, limit: int) -> list[PlaylistLine]:
    page = sa.select(playlists.c.id).where(*wanted).order_by(playlists.c.name, playlists.c.id).limit(limit)
    return lines_of(tx, list(tx.conn.execute(page).scalars()), backend_id)


def _grouped(rows: Sequence[sa.RowMapping], backend_id: int | None) -> list[PlaylistLine]:
    return [_line(list(some), backend_id is not None) for _, some in groupby(rows, key=lambda row: row["id"])]


@cache
def _of_these(backend_id: int | None) -> sa.Select[Any]:
    """Everything about some playlists; a row for each pool a playlist is in.

    Made once: to put it together and to recognise it takes longer than to run it.
    """
    page = sa.select(playlists).where(playlists.c.id.in_(sa.bindparam("playlist_ids", expanding=True))).cte("page")
    members = standing.members(page, backend_id)
    failures = standing.failures(members)
    failed_sync = sa.select(page.c.id.label("playlist_id"), standing.failed_sync(page).label("item_id")).cte("syncs")
    totals, working, codes, latest = _totals(members), _working(members), _codes(failures), _latest(failures)
    syncing = sa.select(LEASED.c.key).where(
        LEASED.c.key == standing.key("playlist", page.c.id), LEASED.c.service == SYNC
    )
    in_pool = sa.and_(pool_playlists.c.playlist_id == page.c.id, pool_playlists.c.removed_at.is_(None))
    return (
        sa.select(
            page,
            *(column for column in totals.c if column.name != "playlist_id"),
            *(column for column in working.c if column.name != "playlist_id"),
            sa.exists(syncing).label("syncing"),
            standing.waits("playlist", page.c.id).label("sync_waits"),
            codes.c.failed,
            codes.c.codes,
            latest.c.item_id,
            latest.c.code,
            latest.c.at,
            _of_item(items.c.error_message, latest.c.item_id).label("message"),
            failed_sync.c.item_id.label("sync_item_id"),
            *(_of_item(column, failed_sync.c.item_id).label(f"sync_{label}") for column, label in _ERROR_COLUMNS),
            playlist_pools.c.id.label("pool_id"),
            playlist_pools.c.kind.label("pool_kind"),
            playlist_pools.c.name.label("pool_name"),
        )
        .select_from(page)
        .join(failed_sync, failed_sync.c.playlist_id == page.c.id)
        .outerjoin(totals, totals.c.playlist_id == page.c.id)
        .outerjoin(working, working.c.playlist_id == page.c.id)
        .outerjoin(codes, codes.c.playlist_id == page.c.id)
        .outerjoin(latest, sa.and_(latest.c.playlist_id == page.c.id, latest.c.rank == 1))
        .outerjoin(pool_playlists, in_pool)
        .outerjoin(playlist_pools, playlist_pools.c.id == pool_playlists.c.pool_id)
        .order_by(page.c.name, page.c.id, playlist_pools.c.id)
    )


def _totals(members: sa.CTE) -> sa.CTE:
    count = sa.func.count
    return (
        sa.select(
            members.c.playlist_id,
            count().label("song_count"),
            count(sa.case((sa.func.coalesce(members.c.lost, 0) == 0, members.c.downloaded_at))).label("downloaded"),
            count(sa.case((members.c.lost == 1, 1))).label("lost"),
            count(members.c.uploaded_at).label("uploaded"),
            count(sa.case((standing.gone(members), 1))).label("gone"),
            count(members.c.waits).label("waiting"),
            count(sa.case((members.c.waits == 2, 1))).label("pausing"),
            sa.func.max(members.c.downloaded_at).label("downloaded_at"),
            sa.func.max(members.c.uploaded_at).label("uploaded_at"),
        )
        .group_by(members.c.playlist_id)
        .cte("totals")
    )


def _working(members: sa.CTE) -> sa.CTE:
    def songs(service: str) -> sa.ColumnElement[int]:
        return sa.func.count(sa.distinct(sa.case((LEASED.c.service == service, members.c.song_id))))

    return (
        sa.select(
            members.c.playlist_id,
            songs(DOWNLOAD).label("downloading"),
            songs(UPLOAD).label("uploading"),
            sa.func.max(LEASED.c.begun_at).label("begun_at"),
        )
        .join(LEASED, LEASED.c.key == standing.key("song", members.c.song_id))
        .where(LEASED.c.service != SYNC)
        .group_by(members.c.playlist_id)
        .cte("working")
    )


def _codes(failures: sa.CTE) -> sa.CTE:
    each = sa.select(failures.c.playlist_id, failures.c.code).distinct().subquery("each_code")
    codes = (
        sa.select(each.c.playlist_id, sa.func.aggregate_strings(each.c.code, "\n").label("codes"))
        .group_by(each.c.playlist_id)
        .subquery("all_codes")
    )
    return (
        sa.select(failures.c.playlist_id, sa.func.count(sa.distinct(failures.c.song_id)).label("failed"), codes.c.codes)
        .join(codes, codes.c.playlist_id == failures.c.playlist_id)
        .group_by(failures.c.playlist_id, codes.c.codes)
        .cte("codes")
    )


def _latest(failures: sa.CTE) -> sa.CTE:
    newest_first = (failures.c.at.desc(), failures.c.item_id.desc())
    rank = sa.func.row_number().over(partition_by=failures.c.playlist_id, order_by=newest_first)
    return sa.select(failures, rank.label("rank")).cte("latest")


def _of_item(column: sa.Column[Any], item_id: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.select(column).where(items.c.id == item_id).scalar_subquery()


_COUNTS = ("song_count", "downloaded", "lost", "uploaded", "gone", "failed", "waiting", "pausing", "downloading",
           "uploading")  # fmt: skip


def _line(rows: list[sa.RowMapping], uploads: bool) -> PlaylistLine:
    row = rows[0]
    count: dict[str, Any] = {name: row[name] or 0 for name in _COUNTS}
    numbers = Numbers(
        songs=count["song_count"],
        **{name: count[name] for name in count if name != "song_count"},
        uploads=uploads,
        synced=row["synced_at"] is not None,
        missing=row["missing_at"] is not None,
        codes=(row["codes"] or "").split("\n"),
        sync_error=row["sync_code"],
        syncing=row["syncing"],
        sync_waiting=row["sync_waits"] is not None,
        sync_pausing=row["sync_waits"] == 2,
    )
    status, reasons = judge(numbers)
    errors = filter(None, (_error(row), _error(row, "sync_")))
    error = max(errors, key=lambda error: error.at, default=None)
    at_work = {SYNC: numbers.syncing, DOWNLOAD: numbers.downloading, UPLOAD: numbers.uploading}
    moments = [row[name] for name in ("synced_at", "downloaded_at", "uploaded_at", "begun_at")]
    return PlaylistLine(
        **{name: row[name] for name in ("id", "platform", "remote_id", "kind", "name", "synced_at", "songs_added",
                                        "songs_removed", "missing_at")},
        **{name: count[name] for name in ("song_count", "downloaded", "uploaded", "failed", "gone")},
        pools=[PoolName(each["pool_id"], each["pool_kind"], each["pool_name"]) for each in rows if each["pool_id"]],
        status=status,
        because=spoken(reasons),
        reasons=reasons,
        running=sum(at_work.values()),
        stage=next((service for service, busy in at_work.items() if busy), None),
        latest_error=error,
        last_processed_at=max(filter(None, [*moments, error and error.at]), default=None),
    )  # fmt: skip


def _pool(rows: list[sa.RowMapping]) -> PoolLine:
    row = rows[0]
    counts = {status: sum(each["playlists"] for each in rows if each["status"] == status) for status in PlaylistStatus}
    return pool_line(row, counts, _error(row))


def pool_line(row: sa.RowMapping, counts: dict[PlaylistStatus, int], error: LatestError | None) -> PoolLine:
    """A pool as its playlists and its own collection make it."""
    numbers = PoolNumbers(
        counts=counts,
        collected=row["collected_at"] is not None,
        missing=row["missing_at"] is not None,
        collecting=row["collecting"],
        error=None if error is None else error.code,
    )
    status, reasons = judge_pool(numbers)
    return PoolLine(
        **{name: row[name] for name in ("id", "platform", "remote_id", "kind", "name", "collected_at", "missing_at")},
        status=status,
        because=spoken(reasons),
        reasons=reasons,
        playlists=sum(counts.values()),
        counts=counts,
        latest_error=error,
    )


_ERROR_COLUMNS = ((items.c.error_code, "code"), (items.c.error_message, "message"), (items.c.finished_at, "at"))


def _error(row: sa.RowMapping, prefix: str = "") -> LatestError | None:
    item_id, code, message, at = (row[prefix + name] for name in ("item_id", "code", "message", "at"))
    return None if item_id is None else LatestError(item_id, code, message, at)
