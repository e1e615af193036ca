"""Pages read by yt-dlp, offline: its generic extractor against files of a local server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dalsegno.errors import InputInvalid
from dalsegno.model.signal import ProviderError
from dalsegno.sources.http import Http
from dalsegno.sources.model import Gone, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config
from dalsegno.sources.ytdlp import open_source
from tests.servers import wav
from tests.sources.hostile import hostile, ok

pytest.importorskip("yt_dlp")
POOL = Pool(id="pages", name="")


@contextmanager
def pages(*urls: str) -> Iterator[Source]:
    source = open_source(Config({"YTDLP_URLS": list(urls)}))
    try:
        yield source
    finally:
        source.close()


@pytest.fixture
def site(caddy: tuple[str, Path]) -> str:
    url, root = caddy
    for name in ("a", "b"):
        wav(root / "yt" / f"{name}.wav", tone=300.0 + ord(name))
    (root / "yt" / "page.html").write_text(
        '<html><head><title>Two sounds</title></head><body><audio src="a.wav"></audio><audio src="b.wav"></audio>'
    )
    items = "".join(f"<item><title>{name}</title><link>{url}/yt/{name}.wav</link></item>" for name in ("b", "a"))
    (root / "yt" / "list.xml").write_text(f'<rss version="2.0"><channel><title>A list</title>{items}</channel></rss>')
    return f"{url}/yt"


def test_one_file(site: str, caddy: tuple[str, Path]) -> None:
    with pages(f"{site}/a.wav") as source, Http() as http:
        (playlist,) = source.playlists(POOL)
        (track,) = source.tracks(playlist)
        assert track.title == "a"
        media = source.resolve(track)
        assert (media.url, media.suffix, media.trusted) == (f"{site}/a.wav", ".wav", True)
        body = http.get(media.url or "", headers=media.headers, trusted=True).body
        assert body == (caddy[1] / "yt" / "a.wav").read_bytes()


def test_sounds_inside_a_page(site: str) -> None:
    with pages(f"{site}/page.html") as source:
        (playlist,) = source.playlists(POOL)
        assert playlist.name == "Two sounds"
        tracks = list(source.tracks(playlist))
        assert len({track.id for track in tracks}) == 2
        assert [source.resolve(track).url for track in tracks] == [f"{site}/a.wav", f"{site}/b.wav"]


def test_a_list_of_pages_is_read_flat(site: str) -> None:
    with pages(f"{site}/list.xml") as source:
        (playlist,) = source.playlists(POOL)
        assert playlist.name == "A list"
        tracks = list(source.tracks(playlist))
        assert [track.title for track in tracks] == ["b", "a"]
        assert [source.resolve(track).url for track in tracks] == [f"{site}/b.wav", f"{site}/a.wav"]


def test_what_went_wrong_is_told(site: str) -> None:
    with hostile() as server:
        server.answers["/busy"] = ok(b"", "Retry-After: 5", status="429 Too Many Requests")
        server.answers["/page"] = ok(b"<html><body>Nothing to hear</body></html>", "Content-Type: text/html")
        with pages(f"{site}/missing.html", f"{server.url}/busy", f"{server.url}/page") as source:
            missing, busy, page = source.playlists(POOL)
            with pytest.raises(Gone, match="yt-dlp"):
                list(source.tracks(missing))
            with pytest.raises(ProviderError) as caught:
                list(source.tracks(busy))
            assert caught.value.status == 429
            with pytest.raises(Unusable):
                list(source.tracks(page))


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "http://localhost:1/x", "file:///etc/passwd"])
def test_a_page_cannot_send_it_inside(url: str, site: str) -> None:
    with pages(f"{site}/a.wav") as source, pytest.raises(Unusable):
        source.resolve(Track(id="x", title="x", snapshot={"url": url}))


def test_without_yt_dlp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yt_dlp", None)
    with pages("http://h.example/") as source, pytest.raises(InputInvalid, match=r"dalsegno\[ytdlp\]"):
        list(source.playlists(POOL))
