"""The download service by itself."""

from __future__ import annotations

import os
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
from dalsegno.catalog.part import Note, Part, boot, origin_of
from dalsegno.catalog.schema import songs
from dalsegno.sources.demo_server import DemoServer
from dalsegno.sources.model import Track
from tests.catalog.studio import audio_in, run, settings_for
from tests.helpers import every, status_of


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
