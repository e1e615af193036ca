"""`dalsegno collect`, `sync`, `download` and `upload`: one stage of the catalog, as `dalsegno run` does it."""

from __future__ import annotations

import typer

from dalsegno.cli.desk import Desk, command
from dalsegno.cli.run import Fresh, From, OfPlaylist, OfPool, OfQuery, OfSong, OfSource, Priority, run_job

app = typer.Typer()


@command(app, "collect")
def collect(
    desk: Desk, source: OfSource = None, pool: OfPool = None, priority: Priority = 100, fresh: Fresh = False
) -> None:
    """Find out which playlists the sources have (仅采集)."""
    scope = {"sources": source or [], "pools": pool or []}
    run_job(desk, "collect", None, priority, None, None, fresh, scope, [])


@command(app, "sync")
def sync(
    desk: Desk, source: OfSource = None, pool: OfPool = None, playlist: OfPlaylist = None, query: OfQuery = "",
    priority: Priority = 100, fresh: Fresh = False,
) -> None:  # fmt: skip
    """Find out which songs the playlists have (仅同步)."""
    scope = {"sources": source or [], "pools": pool or [], "playlists": playlist or [], "query": query}
    run_job(desk, "sync", None, priority, None, None, fresh, scope, [])


@command(app, "download")
def download(
    desk: Desk, source: OfSource = None, pool: OfPool = None, playlist: OfPlaylist = None, song: OfSong = None,
    query: OfQuery = "", download_source: From = None, priority: Priority = 100, fresh: Fresh = False,
) -> None:  # fmt: skip
    """Fetch the songs that are not in the library yet (仅下载)."""
    scope = {"sources": source or [], "pools": pool or [], "playlists": playlist or [], "songs": song or [],
             "query": query}  # fmt: skip
    run_job(desk, "download", None, priority, None, None, fresh, scope, download_source or [])


@command(app, "upload")
def upload(
    desk: Desk, source: OfSource = None, pool: OfPool = None, playlist: OfPlaylist = None, song: OfSong = None,
    query: OfQuery = "", priority: Priority = 100, fresh: Fresh = False,
) -> None:  # fmt: skip
    """Bring the library's files to the object store (仅上传)."""
    scope = {"sources": source or [], "pools": pool or [], "playlists": playlist or [], "songs": song or [],
             "query": query}  # fmt: skip
    run_job(desk, "upload", None, priority, None, None, fresh, scope, [])
