"""Sources that name hosts all over the web: one that is dead stops its own songs, and nobody else's."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.catalog import Catalog
from dalsegno.catalog.download import Download
from dalsegno.catalog.downloader import CatalogDownloader
from dalsegno.catalog.templates import order
from dalsegno.engine import breakers as engine_breakers
from dalsegno.model.outcome import PauseJob, Retry
from dalsegno.sources.demo_server import DemoServer
from dalsegno.store.schema import breakers
from tests import audio
from tests.catalog.studio import ENDED, at_work, run, settings_for, troubles, web
from tests.catalog.test_troubles import Desk, desk, once
from tests.helpers import every, items_of, status_of, statuses_of, wait_for_job, wait_until
from tests.servers import free_port
from tests.sources.hostile import hostile, ok

__all__ = ["desk"]

FEED = b'<?xml version="1.0"?><rss version="2.0"><channel><title>Good</title></channel></rss>'


def test_dead_links_fail_alone_after_their_attempts(desk: Desk, store: Store) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    lines = ["#EXTM3U"]
    for number in range(4):
        lines += [f"#EXTINF:-1,Band - dead {number}", f"{dead}/{number}.flac"]
    for number in range(12):
        lines += [f"#EXTINF:-1,Band - good {number}", f"/good{number}"]
        desk.server.answers[f"/good{number}"] = ok(audio.wav(0.1, number))
    lines += ["#EXTINF:-1,Band - gibberish", "/gibberish"]
    desk.server.answers["/gibberish"] = b"220 mail.example ESMTP\r\n\r\n"
    desk.server.answers["/list.m3u"] = ok("\n".join(lines).encode())

    job = run(store, desk.settings(), timeout=40.0)

    assert status_of(store, job) == "completed_with_errors"
    seen = troubles(store, job)
    for title, end in seen.items():
        if title.startswith("good"):
            assert end.status == "succeeded", (title, end)
        else:
            code = "unreachable" if title.startswith("dead") else "connection_lost"
            assert (title, end.status, end.code, end.attempt) == (title, "failed", code, 3)
    assert len(seen) == 17
    assert every(store, sa.select(breakers).where(breakers.c.state != "closed")) == []


@pytest.mark.parametrize("said", ["502 Bad Gateway", "503 Busy", "504 Gateway Timeout", "522 Timed Out"])
def test_an_origin_that_is_down_behind_its_proxy_fails_its_own_songs_alone(
    desk: Desk, sqlite_url: str, stores: Callable[..., Store], said: str
) -> None:
    store = stores(sqlite_url)
    with hostile() as proxy:
        lines = ["#EXTM3U"]
        for number in range(5):
            lines += [f"#EXTINF:-1,Band - dead {number}", f"{proxy.url}/{number}.flac"]
            proxy.answers[f"/{number}.flac"] = ok(b"origin is down", status=said)
        lines += ["#EXTINF:-1,Band - good", "/good"]
        desk.server.answers["/good"] = ok(audio.wav(0.1, 1))
        desk.server.answers["/list.m3u"] = ok("\n".join(lines).encode())
        proxy.answers["/list.m3u"] = ok(b"origin is down", status=said)
        lists = (f"{desk.server.url}/list.m3u", f"{proxy.url}/list.m3u")

        job = run(store, desk.settings(playlist_files=lists), timeout=40.0)

    assert status_of(store, job) == "completed_with_errors"
    code = f"http_{said[:3]}"
    ends = [item for item in items_of(store, job, "sync") if item["status"] == "failed"]
    assert [(item["error_code"], item["attempt"]) for item in ends] == [(code, 3)]
    seen = troubles(store, job)
    assert seen.pop("good").status == "succeeded"
    assert {(end.status, end.code, end.attempt) for end in seen.values()} == {("failed", code, 3)}
    assert len(seen) == 5
    assert every(store, sa.select(breakers).where(breakers.c.state != "closed")) == []


def test_a_server_that_is_down_behind_its_proxy_is_waited_for(tmp_path: Path, store: Store) -> None:
    """Where all songs are on one host, the same answers cost nothing."""
    port = free_port()
    with web(before=f"127.0.0.1:{port}") as proxy:
        settings = settings_for(tmp_path / "library", demo_url=proxy.url)
        with DemoServer(pace=0, songs=10, playlists=2, faults=False, port=port):
            run(store, settings, "collect")
            assert status_of(store, run(store, settings, "sync")) == "completed"
        job = order(store, settings, "download").job_id
        opened = sa.select(breakers).where(breakers.c.name == "source:demo", breakers.c.state == "open")
        with at_work(store, settings):
            wait_until(lambda: every(store, opened), "the breaker to open")
            for trips in range(2, 5):  # each time it tries again it finds the server down
                store.write("probe", lambda tx: engine_breakers.probe(tx, "source:demo", "operator"))
                again = opened.where(breakers.c.trips == trips)
                wait_until(partial(every, store, again), "a probe that finds it down")
            assert status_of(store, job) == "running"
            with DemoServer(pace=0, songs=10, playlists=2, faults=False, port=port):
                store.write("probe", lambda tx: engine_breakers.probe(tx, "source:demo", "operator"))
                wait_for_job(store, job, ENDED, 60)
    assert status_of(store, job) == "completed"
    assert {(end.status, end.attempt) for end in troubles(store, job).values()} == {("succeeded", 0)}


def test_a_host_that_asks_to_wait_rests_alone_and_its_songs_lose_nothing(desk: Desk, store: Store) -> None:
    desk.song("song", once(ok(b"", "Retry-After: 1", status="503 Busy"), ok(audio.wav(0.1, 1))))
    job = run(store, desk.settings(), timeout=40.0)
    assert status_of(store, job) == "completed"
    assert troubles(store, job)["song"] == ("succeeded", None, None, 0)
    assert len(desk.asked("song")) == 2


def test_dead_feeds_fail_alone(desk: Desk, store: Store) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    feeds = [f"{dead}/{number}.xml" for number in range(3)]
    for number in range(5):
        feeds.append(f"{desk.server.url}/{number}.xml")
        desk.server.answers[f"/{number}.xml"] = ok(FEED, "Content-Type: application/rss+xml")

    job = run(store, settings_for(desk.library, feed_urls=tuple(feeds)), "collect", timeout=40.0)
    job = run(store, settings_for(desk.library, feed_urls=tuple(feeds)), "sync", timeout=40.0)

    assert status_of(store, job) == "completed_with_errors"
    assert statuses_of(store, job, "sync") == {"succeeded": 5, "failed": 3}
    ends = [item for item in items_of(store, job, "sync") if item["status"] == "failed"]
    assert [(item["error_code"], item["attempt"]) for item in ends] == [("unreachable", 3)] * 3


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), Retry),
        (PermissionError(13, "no"), PauseJob),
    ],
)
def test_tls_that_breaks_on_the_way_says_nothing_of_the_library(
    tmp_path: Path, store: Store, error: OSError, kind: type
) -> None:
    def fetch(*_: Any) -> None:
        raise error

    catalog = Catalog(store, settings_for(tmp_path))
    service = Download(catalog, cast(CatalogDownloader, SimpleNamespace(fetch=fetch)))
    resolution = SimpleNamespace(candidates=())
    song = SimpleNamespace(library_root=tmp_path, display_text="A - B", resolution=resolution, song_id=1)
    quiet = SimpleNamespace(forced=False, transferred=None, attempt=0, id=1, note=lambda _work: None)
    assert isinstance(service.download(cast(Any, quiet), cast(Any, song)), kind)
    catalog.close()
