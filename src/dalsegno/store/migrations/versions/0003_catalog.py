"""The catalog: pools, playlists, songs, artists, files and where they are."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from dalsegno.store.schema import UtcTime

revision = "0003"
down_revision = "0002"

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "artists",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artists")),
        sa.UniqueConstraint("platform", "name", name=op.f("uq_artists_platform_name")),
    )
    op.create_table(
        "file_assets",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("format", sa.Text(), server_default="", nullable=False),
        sa.Column("codec", sa.Text(), server_default="", nullable=False),
        sa.Column("quality", sa.Text(), server_default="", nullable=False),
        sa.Column("bitrate", sa.Integer(), nullable=True),
        sa.Column("sample_rate", sa.Integer(), nullable=True),
        sa.Column("bits", sa.Integer(), nullable=True),
        sa.Column("channels", sa.Integer(), nullable=True),
        sa.Column("duration", sa.Float(), nullable=True),
        sa.Column("lossless", sa.Boolean(), nullable=True),
        sa.Column("verified", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_file_assets_sha256_is_hex")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_file_assets_size_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_file_assets")),
        sa.UniqueConstraint("sha256", name=op.f("uq_file_assets_sha256")),
    )
    op.create_table(
        "object_storage_backends",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("capabilities", Json, nullable=True),
        sa.Column("probed_at", UtcTime(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "kind = 'library' OR kind = 'file' OR kind = 's3'",
            name=op.f("ck_object_storage_backends_kind_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_object_storage_backends")),
        sa.UniqueConstraint("url", name=op.f("uq_object_storage_backends_url")),
    )
    op.create_table(
        "playlist_pools",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("remote_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("snapshot", Json, nullable=True),
        sa.Column("collected_at", UtcTime(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("missing_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_playlist_pools")),
        sa.UniqueConstraint("platform", "remote_id", name=op.f("uq_playlist_pools_platform_remote_id")),
    )
    op.create_table(
        "playlists",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("remote_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("remote_count", sa.Integer(), nullable=True),
        sa.Column("snapshot", Json, nullable=True),
        sa.Column("synced_at", UtcTime(), nullable=True),
        sa.Column("exported_at", UtcTime(), nullable=True),
        sa.Column("songs_added", sa.Integer(), nullable=True),
        sa.Column("songs_removed", sa.Integer(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("missing_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_playlists")),
        sa.UniqueConstraint("platform", "remote_id", name=op.f("uq_playlists_platform_remote_id")),
    )
    op.create_index("ix_playlists_name", "playlists", ["name", "id"], unique=False)
    op.create_table(
        "file_locations",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("asset_id", Id, nullable=False),
        sa.Column("backend_id", Id, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("verified_at", UtcTime(), nullable=False),
        sa.Column("missing_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(["asset_id"], ["file_assets.id"], name=op.f("fk_file_locations_asset_id")),
        sa.ForeignKeyConstraint(
            ["backend_id"], ["object_storage_backends.id"], name=op.f("fk_file_locations_backend_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_file_locations")),
        sa.UniqueConstraint("backend_id", "path", name=op.f("uq_file_locations_backend_id_path")),
    )
    op.create_index("ix_file_locations_asset_id", "file_locations", ["asset_id", "backend_id"], unique=False)
    op.create_table(
        "pool_playlists",
        sa.Column("pool_id", Id, nullable=False),
        sa.Column("playlist_id", Id, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("removed_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(["playlist_id"], ["playlists.id"], name=op.f("fk_pool_playlists_playlist_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["playlist_pools.id"], name=op.f("fk_pool_playlists_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "playlist_id", name=op.f("pk_pool_playlists")),
    )
    op.create_index("ix_pool_playlists_playlist_id", "pool_playlists", ["playlist_id"], unique=False)
    op.create_table(
        "songs",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("remote_id", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("artist", sa.Text(), server_default="", nullable=False),
        sa.Column("album", sa.Text(), server_default="", nullable=False),
        sa.Column("track_no", sa.Integer(), nullable=True),
        sa.Column("disc_no", sa.Integer(), nullable=True),
        sa.Column("year", sa.Integer(), nullable=True),
        sa.Column("duration", sa.Float(), nullable=True),
        sa.Column("isrc", sa.Text(), nullable=True),
        sa.Column("snapshot", Json, nullable=True),
        sa.Column("asset_id", Id, nullable=True),
        sa.Column("downloaded_at", UtcTime(), nullable=True),
        sa.Column("found_on", sa.Text(), nullable=True),
        sa.Column("found_id", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("missing_at", UtcTime(), nullable=True),
        sa.CheckConstraint("(asset_id IS NULL) = (downloaded_at IS NULL)", name=op.f("ck_songs_downloaded_has_file")),
        sa.ForeignKeyConstraint(["asset_id"], ["file_assets.id"], name=op.f("fk_songs_asset_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_songs")),
        sa.UniqueConstraint("platform", "remote_id", name=op.f("uq_songs_platform_remote_id")),
    )
    op.create_index("ix_songs_asset_id", "songs", ["asset_id"], unique=False)
    op.create_table(
        "uploads",
        sa.Column("backend_id", Id, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("upload_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("part_size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["backend_id"], ["object_storage_backends.id"], name=op.f("fk_uploads_backend_id")),
        sa.PrimaryKeyConstraint("backend_id", "path", name=op.f("pk_uploads")),
    )
    op.create_table(
        "playlist_songs",
        sa.Column("playlist_id", Id, nullable=False),
        sa.Column("song_id", Id, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("added_at", UtcTime(), nullable=False),
        sa.Column("removed_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(["playlist_id"], ["playlists.id"], name=op.f("fk_playlist_songs_playlist_id")),
        sa.ForeignKeyConstraint(["song_id"], ["songs.id"], name=op.f("fk_playlist_songs_song_id")),
        sa.PrimaryKeyConstraint("playlist_id", "song_id", name=op.f("pk_playlist_songs")),
    )
    op.create_index("ix_playlist_songs_song_id", "playlist_songs", ["song_id"], unique=False)
    op.create_table(
        "song_artists",
        sa.Column("song_id", Id, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("artist_id", Id, nullable=False),
        sa.ForeignKeyConstraint(["artist_id"], ["artists.id"], name=op.f("fk_song_artists_artist_id")),
        sa.ForeignKeyConstraint(["song_id"], ["songs.id"], name=op.f("fk_song_artists_song_id")),
        sa.PrimaryKeyConstraint("song_id", "position", name=op.f("pk_song_artists")),
    )
    op.create_index("ix_song_artists_artist_id", "song_artists", ["artist_id"], unique=False)
    op.create_table(
        "song_candidates",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("song_id", Id, nullable=False),
        sa.Column("item_id", Id, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("remote_id", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("artist", sa.Text(), server_default="", nullable=False),
        sa.Column("duration", sa.Float(), nullable=True),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.CheckConstraint("verdict = 'chosen' OR verdict = 'rejected'", name=op.f("ck_song_candidates_verdict_known")),
        sa.ForeignKeyConstraint(["song_id"], ["songs.id"], name=op.f("fk_song_candidates_song_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_song_candidates")),
    )
    op.create_index("ix_song_candidates_item_id", "song_candidates", ["item_id", "id"], unique=False)
    op.create_index("ix_song_candidates_song_id", "song_candidates", ["song_id", "id"], unique=False)
    op.create_index(
        "ix_items_trouble_key",
        "items",
        ["key"],
        unique=False,
        sqlite_where=sa.text("error_code IS NOT NULL"),
        postgresql_where=sa.text("error_code IS NOT NULL"),
    )
