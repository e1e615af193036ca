"""The catalog's tables, beside the engine's. What is gone upstream gets a time; nothing is deleted but what was
considered for an item, when that item goes."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from dalsegno.store.schema import GOES_WITH_ITEM, Id, Json, UtcTime, identity, metadata


def _to(table: str, name: str, *, null: bool = False, primary: bool = False) -> sa.Column[int]:
    return sa.Column(name, Id, sa.ForeignKey(f"{table}.id"), nullable=null, primary_key=primary)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _seen() -> tuple[sa.Column[datetime], sa.Column[datetime], sa.Column[datetime]]:
    """When we met it, when it last changed, and since when it is missing upstream."""
    return (
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("missing_at", UtcTime),
    )


playlist_pools = sa.Table(
    "playlist_pools",
    metadata,
    identity(),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("remote_id", sa.Text, nullable=False),
    _text("kind"),
    _text("name"),
    sa.Column("url", sa.Text),
    sa.Column("snapshot", Json),
    sa.Column("collected_at", UtcTime),
    *_seen(),
    sa.UniqueConstraint("platform", "remote_id"),
)

playlists = sa.Table(
    "playlists",
    metadata,
    identity(),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("remote_id", sa.Text, nullable=False),
    _text("kind"),
    _text("name"),
    _text("description"),
    _text("owner"),
    sa.Column("url", sa.Text),
    sa.Column("remote_count", sa.Integer),
    sa.Column("snapshot", Json),
    sa.Column("synced_at", UtcTime),
    # When its M3U file was last brought up to date.
    sa.Column("exported_at", UtcTime),
    # What the last sync changed: +12 -3.
    sa.Column("songs_added", sa.Integer),
    sa.Column("songs_removed", sa.Integer),
    *_seen(),
    sa.UniqueConstraint("platform", "remote_id"),
    sa.Index("ix_playlists_name", "name", "id"),
)

pool_playlists = sa.Table(
    "pool_playlists",
    metadata,
    _to("playlist_pools", "pool_id", primary=True),
    _to("playlists", "playlist_id", primary=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("removed_at", UtcTime),
    sa.Index("ix_pool_playlists_playlist_id", "playlist_id"),
)

file_assets = sa.Table(
    "file_assets",
    metadata,
    identity(),
    sa.Column("sha256", sa.Text, nullable=False, unique=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    _text("format"),
    _text("codec"),
    _text("quality"),
    sa.Column("bitrate", sa.Integer),
    sa.Column("sample_rate", sa.Integer),
    sa.Column("bits", sa.Integer),
    sa.Column("channels", sa.Integer),
    sa.Column("duration", sa.Float),
    sa.Column("lossless", sa.Boolean),
    _text("verified"),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.CheckConstraint("size_bytes >= 0", name="size_not_negative"),
    sa.CheckConstraint("length(sha256) = 64", name="sha256_is_hex"),
)

songs = sa.Table(
    "songs",
    metadata,
    identity(),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("remote_id", sa.Text, nullable=False),
    _text("title"),
    _text("artist"),
    _text("album"),
    sa.Column("track_no", sa.Integer),
    sa.Column("disc_no", sa.Integer),
    sa.Column("year", sa.Integer),
    sa.Column("duration", sa.Float),
    sa.Column("isrc", sa.Text),
    # The deferred snapshot: what its source wants back when the song is resolved, at download time.
    sa.Column("snapshot", Json),
    _to("file_assets", "asset_id", null=True),
    sa.Column("downloaded_at", UtcTime),
    # Where its file came from, which may be another platform than its own.
    sa.Column("found_on", sa.Text),
    sa.Column("found_id", sa.Text),
    *_seen(),
    sa.UniqueConstraint("platform", "remote_id"),
    sa.CheckConstraint("(asset_id IS NULL) = (downloaded_at IS NULL)", name="downloaded_has_file"),
    sa.Index("ix_songs_asset_id", "asset_id"),
)

artists = sa.Table(
    "artists",
    metadata,
    identity(),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.UniqueConstraint("platform", "name"),
)

song_artists = sa.Table(
    "song_artists",
    metadata,
    _to("songs", "song_id", primary=True),
    sa.Column("position", sa.Integer, primary_key=True),
    _to("artists", "artist_id"),
    sa.Index("ix_song_artists_artist_id", "artist_id"),
)

playlist_songs = sa.Table(
    "playlist_songs",
    metadata,
    _to("playlists", "playlist_id", primary=True),
    _to("songs", "song_id", primary=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("added_at", UtcTime, nullable=False),
    sa.Column("removed_at", UtcTime),
    sa.Index("ix_playlist_songs_song_id", "song_id"),
)

object_storage_backends = sa.Table(
    "object_storage_backends",
    metadata,
    identity(),
    # `library`: a LIBRARY_ROOT that files were downloaded to. `file`, `s3`: where they are uploaded.
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False, unique=True),
    sa.Column("capabilities", Json),
    sa.Column("probed_at", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.CheckConstraint("kind = 'library' OR kind = 'file' OR kind = 's3'", name="kind_known"),
)

file_locations = sa.Table(
    "file_locations",
    metadata,
    identity(),
    _to("file_assets", "asset_id"),
    _to("object_storage_backends", "backend_id"),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("etag", sa.Text),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("verified_at", UtcTime, nullable=False),
    # A file that was looked for and not found, or that gave way to a newer one.
    sa.Column("missing_at", UtcTime),
    sa.UniqueConstraint("backend_id", "path"),
    sa.Index("ix_file_locations_asset_id", "asset_id", "backend_id"),
)

uploads = sa.Table(
    "uploads",
    metadata,
    # A multipart upload that has begun: its number survives a restart, the store knows its parts.
    _to("object_storage_backends", "backend_id", primary=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("upload_id", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("part_size", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
)

song_candidates = sa.Table(
    "song_candidates",
    metadata,
    # What was considered for a song in one attempt, best first, and why each was taken or not.
    identity(),
    _to("songs", "song_id"),
    sa.Column("item_id", Id, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("platform", sa.Text, nullable=False),
    sa.Column("remote_id", sa.Text),
    _text("title"),
    _text("artist"),
    sa.Column("duration", sa.Float),
    sa.Column("score", sa.Float),
    sa.Column("verdict", sa.Text, nullable=False),
    _text("reason"),
    sa.Column("seconds", sa.Float),
    sa.Column("at", UtcTime, nullable=False),
    sa.CheckConstraint("verdict = 'chosen' OR verdict = 'rejected'", name="verdict_known"),
    sa.Index("ix_song_candidates_item_id", "item_id", "id"),
    sa.Index("ix_song_candidates_song_id", "song_id", "id"),
    info=GOES_WITH_ITEM,
)
