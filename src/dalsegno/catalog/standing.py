"""How playlists and their songs stand, as SQL: what has its file, what failed, what is at work, what waits.

`items` may hold millions of rows and is never walked: a failure is found by its key, work by its lease, what waits by
stage and key. For a page of playlists these are scalar subqueries on purpose. PostgreSQL runs those by index whatever
it believes about the tables; as joins they become hash joins over all items before the first ANALYZE.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from dalsegno.catalog.schema import file_locations, object_storage_backends, playlist_songs, playlists, songs
from dalsegno.model.states import ItemStatus, JobStatus
from dalsegno.store.schema import items, jobs, leases, stages

Column = sa.ColumnElement[Any]
Condition = sa.ColumnElement[bool]

COLLECT, SYNC, DOWNLOAD, UPLOAD = "collect", "sync", "download", "upload"
SERVICES = {"playlist": (SYNC,), "song": (DOWNLOAD, UPLOAD)}
"""Which services have items about a playlist, which about a song."""
UNFINISHED = (ItemStatus.PENDING, ItemStatus.CLAIMED, ItemStatus.RUNNING, ItemStatus.INTERRUPTED)
MOST = 2**62
"""`BETWEEN 1 AND MOST` is `IS NOT NULL`, except that PostgreSQL then expects few rows where it would expect all."""

_KEY_HELD = sa.select(items.c.key).where(items.c.id == leases.c.item_id).scalar_subquery()
LEASED = (
    sa.select(_KEY_HELD.label("key"), stages.c.service, leases.c.begun_at)
    .join(stages, stages.c.id == leases.c.stage_id)
    .where(stages.c.service.in_((COLLECT, SYNC, DOWNLOAD, UPLOAD)))
    .cte("leased")
)
"""What workers hold now."""

_PAUSING = sa.select(jobs.c.id).where(jobs.c.pause_reason.is_not(None), jobs.c.status == JobStatus.PAUSE_REQUESTED)
OPEN = (
    sa.select(
        stages.c.id,
        stages.c.service,
        stages.c.job_id.in_(_PAUSING).label("pausing"),
    )
    .where(
        stages.c.finished_at.is_(None),  # a short index has them, by service
        stages.c.service.in_((SYNC, DOWNLOAD, UPLOAD)),
        sa.or_(*(stages.c[status] > 0 for status in UNFINISHED)),
    )
    .cte("open_stages")
)
"""Stages of unfinished jobs that still have something to do: few, whatever the size of the catalog."""


def key(kind: str, number: Column) -> Column:
    """The key of the items about a thing: `song:17`."""
    return sa.literal(f"{kind}:").concat(sa.cast(number, sa.Text))


def number_in(kind: str, text: Column) -> Column:
    """The number in a key, or null: a stranger's key must not end the whole query, as a plain cast would."""
    digits = sa.func.substr(text, len(kind) + 2)
    plain = sa.and_(text.like(f"{kind}:_%"), sa.func.ltrim(digits, "0123456789") == "", sa.func.length(digits) < 19)
    return sa.case((plain, sa.cast(digits, sa.BigInteger)))


# --- songs ----------------------------------------------------------------------------------------


def uploaded_at(asset_id: Column, backend_id: int | None) -> Column:
    """When a file was last seen where files go: in one store, or in any."""
    anywhere = sa.select(object_storage_backends.c.id).where(object_storage_backends.c.kind != "library")
    place = file_locations.c.backend_id
    return (
        sa.select(sa.func.max(file_locations.c.verified_at))
        .where(
            file_locations.c.asset_id == asset_id,
            file_locations.c.missing_at.is_(None),
            place.in_(anywhere) if backend_id is None else place == backend_id,
        )
        .scalar_subquery()
    )


def verified_at(asset_id: Column) -> Column:
    """When a file was last seen in a library."""
    return (
        sa.select(sa.func.max(file_locations.c.verified_at))
        .where(
            file_locations.c.asset_id == asset_id,
            file_locations.c.missing_at.is_(None),
            file_locations.c.backend_id.in_(_libraries()),
        )
        .scalar_subquery()
    )


def lost(asset_id: Column) -> Column:
    """1 where no library has a file any more that one had, 0 where one has; null where none ever had."""
    return (
        sa.select(sa.func.min(sa.case((file_locations.c.missing_at.is_(None), 0), else_=1)))
        .where(file_locations.c.asset_id == asset_id, file_locations.c.backend_id.in_(_libraries()))
        .scalar_subquery()
    )


def _libraries() -> sa.Select[Any]:
    return sa.select(object_storage_backends.c.id).where(object_storage_backends.c.kind == "library")


def gone(song: sa.FromClause) -> Condition:
    """Missing upstream before we had its file: there is nothing to be done for it, so nothing is left to do."""
    return sa.and_(song.c.missing_at.is_not(None), song.c.downloaded_at.is_(None))


def unanswered(song: sa.FromClause, uploaded: Column) -> Condition:
    """That an item of a song failed and nothing succeeded since."""
    return sa.and_(
        items.c.error_code.is_not(None),
        items.c.status == ItemStatus.FAILED,
        sa.or_(
            sa.and_(
                stages.c.service == DOWNLOAD,
                _not_since(song.c.downloaded_at),
                _not_since(verified_at(song.c.asset_id)),  # a later run found that the file is there and whole
            ),
            sa.and_(stages.c.service == UPLOAD, _not_since(uploaded)),
        ),
    )


def _not_since(success: Column) -> Condition:
    return sa.func.coalesce(success <= items.c.finished_at, sa.true())


def waits(kind: str, number: Column) -> Column:
    """Whether a thing is an unfinished item: 1, or 2 in a job that is being paused; else null."""
    pausing = sa.select(OPEN.c.id).where(OPEN.c.pausing)
    return (
        sa.select(sa.func.max(sa.case((items.c.stage_id.in_(pausing), 2), else_=1)))
        .where(
            # Not a join: SQLite would index all items by key, anew for every page, before it goes by stage and key.
            items.c.stage_id.in_(_open(kind)),
            items.c.key == key(kind, number),
            items.c.status.in_(UNFINISHED),
        )
        .scalar_subquery()
    )


def _open(kind: str) -> sa.Select[Any]:
    return sa.select(OPEN.c.id).where(OPEN.c.service.in_(SERVICES[kind]))


def members(page: sa.FromClause, backend_id: int | None) -> sa.CTE:
    """The songs of some playlists, each with what is known of it. Of a `suspect` some item failed at some time."""
    live = sa.and_(playlist_songs.c.playlist_id == page.c.id, playlist_songs.c.removed_at.is_(None))
    failed = sa.select(sa.func.max(items.c.id)).where(
        items.c.key == key("song", songs.c.id), items.c.error_code.is_not(None), items.c.status == ItemStatus.FAILED
    )
    return (
        sa.select(
            page.c.id.label("playlist_id"),
            songs.c.id.label("song_id"),
            songs.c.asset_id,
            songs.c.downloaded_at,
            songs.c.missing_at,
            uploaded_at(songs.c.asset_id, backend_id).label("uploaded_at"),
            lost(songs.c.asset_id).label("lost"),
            failed.scalar_subquery().label("suspect"),
            waits("song", songs.c.id).label("waits"),
        )
        .select_from(page)
        .join(playlist_songs, live)
        .join(songs, songs.c.id == playlist_songs.c.song_id)
        .cte("members")
    )


def failures(song: sa.CTE) -> sa.CTE:
    """The failed items of suspects that nothing answered."""
    return (
        sa.select(
            song.c.playlist_id,
            song.c.song_id,
            items.c.id.label("item_id"),
            items.c.error_code.label("code"),
            items.c.finished_at.label("at"),
        )
        .select_from(song)
        .join(items, items.c.key == key("song", song.c.song_id))
        .join(stages, stages.c.id == items.c.stage_id)
        .where(song.c.suspect.between(1, MOST), unanswered(song, song.c.uploaded_at))
        .cte("failures")
    )


def unanswered_keys(service: str) -> sa.Select[Any]:
    """The keys of songs that this service owes something. By the index of failures, not by walking stages."""
    return (
        sa.select(items.c.key)
        .distinct()
        .join(stages, stages.c.id == items.c.stage_id)
        .join(songs, songs.c.id == number_in("song", items.c.key))
        .where(
            items.c.key.between("song:", "song;"),
            stages.c.service == service,
            unanswered(songs, uploaded_at(songs.c.asset_id, None)),
        )
    )


# --- playlists ------------------------------------------------------------------------------------


def failed_sync(playlist: sa.FromClause) -> Column:
    """The last failed item of a playlist that no later sync answered, or null."""
    return (
        sa.select(sa.func.max(items.c.id))
        .join(stages, stages.c.id == items.c.stage_id)
        .where(
            items.c.key == key("playlist", playlist.c.id),
            items.c.error_code.is_not(None),
            items.c.status == ItemStatus.FAILED,
            stages.c.service == SYNC,
            _not_since(playlist.c.synced_at),
        )
        .scalar_subquery()
    )


# The three below say the same of all playlists at once: from the songs and items that have it to their playlists.


def has_error(backend_id: int | None) -> Condition:
    failed = (
        sa.select(songs.c.id)
        .select_from(stages)
        .join(items, items.c.stage_id == stages.c.id)
        .join(songs, songs.c.id == number_in("song", items.c.key))
        .where(
            stages.c.service.in_(SERVICES["song"]),
            stages.c.failed > 0,
            unanswered(songs, uploaded_at(songs.c.asset_id, backend_id)),
        )
    )
    return sa.or_(_has_any(failed), failed_sync(playlists).is_not(None))


def is_active() -> Condition:
    pausing = OPEN.c.pausing
    return sa.or_(
        _has_any(sa.select(number_in("song", LEASED.c.key)).where(LEASED.c.service.in_(SERVICES["song"]))),
        playlists.c.id.in_(sa.select(number_in("playlist", LEASED.c.key)).where(LEASED.c.service == SYNC)),
        _has_any(_waiting("song", pausing)),
        playlists.c.id.in_(_waiting("playlist", pausing)),
    )


def is_incomplete(backend_id: int | None) -> Condition:
    lacking = sa.select(songs.c.id).where(songs.c.asset_id.is_(None), songs.c.missing_at.is_(None))
    ways = [
        sa.and_(playlists.c.synced_at.is_(None), playlists.c.missing_at.is_(None)),
        _has_any(lacking),
        _has_any(_lost_songs()),
        _has_any(_waiting("song")),
        playlists.c.id.in_(_waiting("playlist")),
    ]
    if backend_id is not None:
        there = sa.select(file_locations.c.id).where(
            file_locations.c.asset_id == songs.c.asset_id,
            file_locations.c.backend_id == backend_id,
            file_locations.c.missing_at.is_(None),
        )
        ways.append(_has_any(sa.select(songs.c.id).where(songs.c.asset_id.is_not(None), sa.not_(there.exists()))))
    return sa.or_(*ways)


def _lost_songs() -> sa.Select[Any]:
    """From the files that are gone, which are few."""
    gone = sa.select(file_locations.c.asset_id).where(
        file_locations.c.missing_at.is_not(None), file_locations.c.backend_id.in_(_libraries())
    )
    return sa.select(songs.c.id).where(songs.c.asset_id.in_(gone), lost(songs.c.asset_id) == 1)


def _has_any(song_ids: sa.Select[Any]) -> Condition:
    """That a playlist has one of these songs."""
    lists = sa.select(playlist_songs.c.playlist_id)
    return playlists.c.id.in_(
        lists.where(playlist_songs.c.song_id.in_(song_ids), playlist_songs.c.removed_at.is_(None))
    )


def _waiting(kind: str, *conditions: Condition) -> sa.Select[Any]:
    number = number_in(kind, items.c.key)
    return sa.select(number).where(
        items.c.stage_id.in_(_open(kind).where(*conditions)), items.c.status.in_(UNFINISHED), number.is_not(None)
    )


# --- pools ----------------------------------------------------------------------------------------


def failed_collect(pool: sa.FromClause) -> Column:
    """The last failed item of a pool, or of its whole source, that no later collection answered, or null."""
    return (
        sa.select(sa.func.max(items.c.id))
        .join(stages, stages.c.id == items.c.stage_id)
        .where(
            items.c.key.in_(_keys(pool)),
            items.c.error_code.is_not(None),
            items.c.status == ItemStatus.FAILED,
            stages.c.service == COLLECT,
            _not_since(pool.c.collected_at),
        )
        .scalar_subquery()
    )


def is_collecting(pool: sa.FromClause) -> Condition:
    return sa.exists().where(LEASED.c.service == COLLECT, LEASED.c.key.in_(_keys(pool))).correlate(pool)


def _keys(pool: sa.FromClause) -> list[Column]:
    return [key("pool", pool.c.id), sa.literal("source:").concat(pool.c.platform)]
