"""The download service by itself."""

from __future__ import annotations

import os
import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog import space
from dalsegno.catalog.catalog import Catalog
from dalsegno.catalog.download import Download
from dalsegno.catalog.fetch import BUFFER
from dalsegno.catalog.part import Note, Part, boot, origin_of
from dalsegno.catalog.schema import songs
from dalsegno.catalog.templates import order
from dalsegno.sources.demo_server import DemoServer
from dalsegno.sources.model import Track
from dalsegno.store.schema import workers
from tests import audio
from tests.catalog.script import Line, Request, scripted
from tests.catalog.studio import ENDED, at_work, audio_in, run, settings_for, troubles
from tests.helpers import every, status_of, wait_for_job, wait_until


def test_room_is_asked_only_for_what_is_still_missing(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    with DemoServer(pace=0, songs=1, playlists=1, faults=False) as server:
        settings = settings_for(library, demo_url=server.url)
        assert status_of(store, run(store, settings, "collect")) == "completed"
        assert status_of(store, run(store, settings, "sync")) == "completed"
        (row,) = every(store, sa.select(songs))
        catalog = Catalog(store, settings)
        media = catalog.sources(settings.snapshot()).get("demo").resolve(Track(id=row["remote_id"], title=""))
        catalog.close()
        assert media.url is not None
        assert media.size is not None
        content = server.audio(row["remote_id"])
        half = len(content) // 2
        with urllib.request.urlopen(media.url) as answer:
            etag = answer.headers["ETag"]
        with Part.open(library, f"song-{row['id']}", source="demo", remote_id=row["remote_id"]) as part:
            os.write(part.descriptor, content[:half])
            part.write_note(Note(origin=origin_of(media.url, media.secrets), source="demo", remote_id=row["remote_id"],
                                 etag=etag, length=len(content), synced=half, boot=boot()))  # fmt: skip
        monkeypatch.setattr(space, "free", lambda _path: len(content) - half + 1)

        job = run(store, settings, "download")

        assert status_of(store, job) == "completed"
        assert [path.read_bytes() for path in audio_in(library)] == [content]


def test_the_sources_a_job_asks_for_are_worked_out_once(tmp_path: Path, store: Store) -> None:
    catalog = Catalog(store, settings_for(tmp_path))
    service, snapshot = Download(catalog), {"LIBRARY_ROOT": str(tmp_path)}

    def item(kept: dict[str, Any], *wanted: str) -> Any:
        return cast(Any, SimpleNamespace(snapshot=kept, stage=SimpleNamespace(options={"download_sources": wanted})))

    merged = service._snapshot(item(snapshot, "demo"))
    assert merged == {**snapshot, "DOWNLOAD_SOURCES": ["demo"]}
    assert service._snapshot(item(snapshot, "demo")) is merged
    assert service._snapshot(item(snapshot, "feed"))["DOWNLOAD_SOURCES"] == ["feed"]
    assert service._snapshot(item(dict(snapshot), "demo")) is not merged
    assert service._snapshot(item(snapshot)) is snapshot
    catalog.close()


def test_a_worker_says_where_its_bytes_come_from_and_then_how_many_have_come(tmp_path: Path, store: Store) -> None:
    song = audio.wav(2 * BUFFER / (44100 * 4))
    half, leave = BUFFER, [threading.Event(), threading.Event()]

    def slowly(request: Request, line: Line) -> None:
        leave[0].wait(60)
        line.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(song)}\r\n\r\n".encode() + song[:half])
        leave[1].wait(60)
        line.send(song[half:])

    def seen() -> list[str]:
        return [row["text"] for row in every(store, sa.select(workers).where(workers.c.name == "download-1"))]

    with scripted(slowly) as server:
        (tmp_path / "list.m3u").write_text(f"#EXTINF:-1,Band - Rain\n{server.url}/rain.wav\n")
        settings = settings_for(tmp_path / "library", playlist_files=(str(tmp_path / "list.m3u"),))
        assert status_of(store, run(store, settings, "collect")) == "completed"
        job = order(store, settings, "sync-download").job_id
        with at_work(store, settings):
            wait_until(lambda: seen() == ["starting download via playlist-file"], "the download to begin")
            leave[0].set()
            told = f"{half / 2**20:.2f}MB/{len(song) / 2**20:.2f}MB via playlist-file"
            wait_until(lambda: seen() == [told], f"half of it to be told: {told}")
            leave[1].set()
            wait_for_job(store, job, ENDED)
    assert status_of(store, job) == "completed"


def test_a_playlist_file_that_is_not_there_fails_by_itself_and_says_so(tmp_path: Path, store: Store) -> None:
    (tmp_path / "there.m3u").write_text("#EXTINF:-1,Band - Rain\nhttp://h.example/rain.flac\n")
    files = tuple(str(tmp_path / name) for name in ("missing.m3u", "there.m3u"))
    settings = settings_for(tmp_path / "library", playlist_files=files)
    assert status_of(store, run(store, settings, "collect")) == "completed"
    job = run(store, settings, "sync")
    assert status_of(store, job) == "completed_with_errors"
    missing, there = troubles(store, job, "sync").values()
    assert (missing.status, missing.code, there.status) == ("failed", "gone", "succeeded")
    assert f"{files[0]} is not there" in str(missing.text)
