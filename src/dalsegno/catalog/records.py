"""The catalog's rows as people and programs read them: one model per table, field for column."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from dalsegno.model.records import Record


class PoolRecord(Record):
    id: int
    platform: str
    remote_id: str
    kind: str
    name: str
    url: str | None
    snapshot: Any | None
    collected_at: datetime | None
    created_at: datetime
    updated_at: datetime
    missing_at: datetime | None


class PlaylistRecord(Record):
    id: int
    platform: str
    remote_id: str
    kind: str
    name: str
    description: str
    owner: str
    url: str | None
    remote_count: int | None
    snapshot: Any | None
    synced_at: datetime | None
    exported_at: datetime | None
    songs_added: int | None
    songs_removed: int | None
    created_at: datetime
    updated_at: datetime
    missing_at: datetime | None


class PoolPlaylistRecord(Record):
    pool_id: int
    playlist_id: int
    position: int
    removed_at: datetime | None


class FileAssetRecord(Record):
    id: int
    sha256: str
    size_bytes: int
    format: str
    codec: str
    quality: str
    bitrate: int | None
    sample_rate: int | None
    bits: int | None
    channels: int | None
    duration: float | None
    lossless: bool | None
    verified: str
    created_at: datetime


class SongRecord(Record):
    id: int
    platform: str
    remote_id: str
    title: str
    artist: str
    album: str
    track_no: int | None
    disc_no: int | None
    year: int | None
    duration: float | None
    isrc: str | None
    snapshot: Any | None
    asset_id: int | None
    downloaded_at: datetime | None
    found_on: str | None
    found_id: str | None
    created_at: datetime
    updated_at: datetime
    missing_at: datetime | None


class ArtistRecord(Record):
    id: int
    platform: str
    name: str


class SongArtistRecord(Record):
    song_id: int
    position: int
    artist_id: int


class PlaylistSongRecord(Record):
    playlist_id: int
    song_id: int
    position: int
    added_at: datetime
    removed_at: datetime | None


class BackendRecord(Record):
    id: int
    kind: Literal["library", "file", "s3"]
    url: str
    capabilities: Any | None
    probed_at: datetime | None
    created_at: datetime


class FileLocationRecord(Record):
    id: int
    asset_id: int
    backend_id: int
    path: str
    size_bytes: int
    etag: str | None
    created_at: datetime
    verified_at: datetime
    missing_at: datetime | None


class UploadRecord(Record):
    backend_id: int
    path: str
    upload_id: str
    sha256: str
    size_bytes: int
    part_size: int
    created_at: datetime


class CandidateRecord(Record):
    id: int
    song_id: int
    item_id: int
    attempt: int
    position: int
    platform: str
    remote_id: str | None
    title: str
    artist: str
    duration: float | None
    score: float | None
    verdict: Literal["chosen", "rejected"]
    reason: str
    seconds: float | None
    at: datetime


RECORDS: dict[str, type[Record]] = {
    "playlist_pools": PoolRecord,
    "playlists": PlaylistRecord,
    "pool_playlists": PoolPlaylistRecord,
    "file_assets": FileAssetRecord,
    "songs": SongRecord,
    "artists": ArtistRecord,
    "song_artists": SongArtistRecord,
    "playlist_songs": PlaylistSongRecord,
    "object_storage_backends": BackendRecord,
    "file_locations": FileLocationRecord,
    "uploads": UploadRecord,
    "song_candidates": CandidateRecord,
}
