"""Podcasts from feeds: what is heard, what is kept, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dalsegno.sources.feed import open_source
from dalsegno.sources.http import Http
from dalsegno.sources.model import Gone, Pool, Source, Unusable
from dalsegno.sources.registry import Config
from tests.servers import wav
from tests.sources.hostile import hostile, ok

POOL = Pool(id="feeds", name="")
ITEM = """<item><title>  Épisode
 &amp; 一 </title><guid isPermaLink="false">g1</guid><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>
<enclosure url="cover.jpg" type="image/jpeg"/><enclosure url="{url}" length="1" type="audio/x-wav"/>
<itunes:duration>1:02:03</itunes:duration><itunes:episode>5</itunes:episode></item>"""
RSS = """<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd"><channel><title>The Show</title>
<itunes:author>Someone</itunes:author><itunes:image href="https://img.example/c.jpg"/>
{items}<item><title>Only words</title><guid>g2</guid></item></channel></rss>"""
ATOM = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>Atomic</title><entry><title>One</title>
<id>tag:example.org,2024:1</id><updated>2023-02-03T04:05:06Z</updated><author><name>Somebody</name></author>
<link rel="enclosure" type="audio/mpeg" href="/audio/one.mp3"/></entry></feed>"""


@contextmanager
def feeds(*urls: str, **more: str) -> Iterator[Source]:
    source = open_source(Config({"FEED_URLS": list(urls), **more}))
    try:
        yield source
    finally:
        source.close()


def test_a_podcast_from_its_feed_to_its_bytes(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    wav(root / "cast" / "one.wav")
    (root / "cast" / "feed.xml").write_text(RSS.format(items=ITEM.format(url="one.wav")))
    with feeds(f"{url}/cast/feed.xml") as source, Http() as http:
        (playlist,) = source.playlists(POOL)
        assert (playlist.name, playlist.owner, playlist.count) == ("The Show", "Someone", 1)
        (track,) = source.tracks(playlist)
        assert (track.title, track.artists, track.album) == ("Épisode & 一", ("Someone",), "The Show")
        assert (track.duration, track.track_no, track.year) == (3723, 5, 2024)
        media = source.resolve(track)
        assert media.url == f"{url}/cast/one.wav"
        assert (media.suffix, media.trusted, media.lossless) == (".wav", True, True)
        assert media.cover is not None
        assert media.cover.url == "https://img.example/c.jpg"
        assert not media.cover.trusted
        body = http.get(media.url, trusted=media.trusted).body
        assert body == (root / "cast" / "one.wav").read_bytes()


def test_atom_is_read_as_well(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "atom.xml").write_text(ATOM)
    with feeds(f"{url}/atom.xml") as source:
        (track,) = source.tracks(next(iter(source.playlists(POOL))))
        assert (track.title, track.artists, track.year) == ("One", ("Somebody",), 2023)
        assert source.resolve(track).url == f"{url}/audio/one.mp3"


def test_identifiers_are_stable_and_do_not_clash_between_feeds(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    for name in ("a.xml", "b.xml"):
        (root / name).write_text(RSS.format(items=ITEM.format(url=f"{name}.mp3")))
    with feeds(f"{url}/a.xml", f"{url}/b.xml") as source:
        first = [track.id for each in source.playlists(POOL) for track in source.tracks(each)]
        again = [track.id for each in source.playlists(POOL) for track in source.tracks(each)]
    assert first == again
    assert len(set(first)) == 2


def test_nothing_behind_credentials_is_kept_and_all_of_it_is_found_again() -> None:
    with hostile() as server:
        server.answers["/feed"] = ok(RSS.format(items=ITEM.format(url="/one.mp3?token=t1")).encode())
        private = server.url.replace("//", "//me:pa55@") + "/feed?auth=hush"
        with feeds(private) as source:
            (playlist,) = source.playlists(POOL)
            (track,) = source.tracks(playlist)
            for kept in (playlist, track):
                assert not any(secret in repr(kept) for secret in ("pa55", "hush", "t1"))
            server.answers["/feed"] = ok(RSS.format(items=ITEM.format(url="/one.mp3?token=t2")).encode())
            media = source.resolve(track)
            assert media.url == f"{server.url}/one.mp3?token=t2"
            assert media.headers["Authorization"].startswith("Basic ")
            assert {"t2", "pa55", media.headers["Authorization"]} <= set(media.secrets)
    assert all(headers["authorization"].startswith("Basic ") for _, headers in server.requests)


def test_a_signed_url_is_looked_up_when_it_is_needed() -> None:
    with hostile() as server:
        signed = ITEM.format(url="http://cdn.example/one.mp3?Expires=1&amp;Signature={}")
        server.answers["/feed"] = ok(RSS.format(items=signed.format("old")).encode())
        with feeds(f"{server.url}/feed") as source:
            (track,) = source.tracks(next(iter(source.playlists(POOL))))
            assert "old" not in repr(track)
            server.answers["/feed"] = ok(RSS.format(items=signed.format("new")).encode())
            media = source.resolve(track)
            assert (media.url or "").endswith("Signature=new")
            assert media.headers == {}
            assert not media.trusted
            server.answers["/feed"] = ok(RSS.format(items="").encode())
            source._last = None  # type: ignore[attr-defined]
            with pytest.raises(Gone):
                source.resolve(track)


def test_entries_without_an_identifier_are_known_by_where_they_are() -> None:
    item = '<item><title>{}</title><enclosure url="{}" type="audio/mpeg"/></item>'
    items = [("One", "play.php?ep=1"), ("Two", "play.php?ep=2"), ("Three", "play.php?token=a"),
             ("Four", "play.php?token=b"), ("Five", "five.mp3?source=rss")]  # fmt: skip
    with hostile() as server:
        server.answers["/feed"] = ok(RSS.format(items="".join(item.format(*each) for each in items)).encode())
        with feeds(f"{server.url}/feed") as source:
            tracks = list(source.tracks(next(iter(source.playlists(POOL)))))
            assert len({track.id for track in tracks}) == 5
            assert tracks[4].id.endswith(":five.mp3"), "as ever: its path says what it is"
            assert [source.resolve(track).url for track in tracks] == [f"{server.url}/{place}" for _, place in items]
    assert not any(secret in track.id for track in tracks for secret in ("token", "=a", "=b"))


def test_a_broken_feed_does_not_hide_the_others(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "fine.xml").write_text(ATOM)
    (root / "page.xml").write_text("<html><body>Sign in</body></html>")
    with feeds(f"{url}/page.xml", f"{url}/missing.xml", f"{url}/fine.xml") as source:
        page, missing, fine = source.playlists(POOL)
        assert fine.name == "Atomic"
        with pytest.raises(Unusable, match="neither RSS nor Atom"):
            source.tracks(page)
        with pytest.raises(Gone):
            source.tracks(missing)


def test_an_empty_answer_does_not_hide_the_other_feeds() -> None:
    with hostile() as server:
        server.answers |= {"/none": ok(b""), "/fine": ok(ATOM.encode())}
        with feeds(f"{server.url}/none", f"{server.url}/fine") as source:
            none, fine = source.playlists(POOL)
            assert fine.name == "Atomic"
            with pytest.raises(Unusable, match="neither RSS nor Atom"):
                source.tracks(none)


@pytest.mark.parametrize("body", [b"/etc/passwd", b"file:///etc/passwd", b"http://127.0.0.1:1/"])
def test_a_feed_cannot_make_the_parser_open_something(body: bytes) -> None:
    with hostile() as server:
        server.answers["/feed"] = ok(body)
        with feeds(f"{server.url}/feed") as source, pytest.raises(Unusable, match="neither RSS nor Atom"):
            source.tracks(next(iter(source.playlists(POOL))))


def test_an_entry_that_leads_elsewhere_is_not_trusted_and_files_are_no_entries() -> None:
    with hostile() as server:
        items = "".join(
            ITEM.format(url=url).replace("g1", url)
            for url in ("http://localhost:9/x.mp3", "file:///etc/passwd", "http://[bad/x.mp3", "ftp://h/x.mp3")
        )
        server.answers["/feed"] = ok(RSS.format(items=items).encode())
        with feeds(f"{server.url}/feed") as source:
            (track,) = source.tracks(next(iter(source.playlists(POOL))))
            assert not source.resolve(track).trusted
        with feeds(f"{server.url}/feed", SOURCE_FEED_HOSTS="nas, localhost") as source:
            assert source.resolve(track).trusted


def test_an_entry_whose_picture_has_no_sound_address_is_heard_all_the_same() -> None:
    with hostile() as server:
        item = ITEM.format(url="one.mp3").replace("</item>", '<itunes:image href="http://[bad/c.jpg"/></item>')
        server.answers["/feed"] = ok(RSS.format(items=item).encode())
        with feeds(f"{server.url}/feed") as source:
            (track,) = source.tracks(next(iter(source.playlists(POOL))))
            assert source.resolve(track).cover is None


def test_a_feed_that_is_not_configured_any_more(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "once.xml").write_text(ATOM)
    with feeds(f"{url}/once.xml") as source:
        playlist = next(iter(source.playlists(POOL)))
        (track,) = source.tracks(playlist)
    with feeds() as source:
        for ask in (lambda: source.tracks(playlist), lambda: source.resolve(track)):
            with pytest.raises(Gone, match="FEED_URLS"):
                ask()
