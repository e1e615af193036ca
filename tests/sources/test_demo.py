"""The demo source against its own server, over loopback."""

from __future__ import annotations

import hashlib
import io
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
import wave
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import miniaudio
import pytest
import urllib3
from tinytag import TinyTag

from dalsegno.clock import ManualClock
from dalsegno.model.signal import ProviderError
from dalsegno.sources import demo_server
from dalsegno.sources.demo import Demo
from dalsegno.sources.demo_catalog import FAULTS, MIRRORED, ODD, Catalog, Fault
from dalsegno.sources.demo_http import Response, Web
from dalsegno.sources.demo_server import DemoServer
from dalsegno.sources.model import Gone, Playlist, Pool, Track, Unusable
from dalsegno.sources.registry import Config, Sources

FOR_GOOD = {Fault.GONE, Fault.FORBIDDEN, Fault.HTML, Fault.TRUNCATED, Fault.CORRUPT}


def track(number: int, edition: str = "song") -> Track:
    return Track(id=f"{edition}-{number}", title="")


@pytest.fixture(scope="module")
def sound() -> Iterator[DemoServer]:
    """A server on which nothing goes wrong."""
    with DemoServer(faults=False, pace=0) as server:
        yield server


@contextmanager
def serving(*faults: Fault, **options: Any) -> Iterator[tuple[DemoServer, Demo]]:
    """Song 0 has the first fault, song 1 the second, and so on."""
    options = {"pace": 0} | options
    with DemoServer(faults=dict(enumerate(faults)), **options) as server, closing(Demo(server.url)) as source:
        yield server, source


@pytest.fixture(scope="module")
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=30) as manager:
        yield manager


@pytest.fixture
def source(sound: DemoServer) -> Iterator[Demo]:
    with closing(Demo(sound.url)) as opened:
        yield opened


def link(source: Demo, number: int, edition: str = "song") -> str:
    url = source.resolve(track(number, edition)).url
    assert url is not None
    return url


def all_tracks(source: Demo) -> dict[str, list[Track]]:
    lists = {each.id: each for pool in source.pools() for each in source.playlists(pool)}
    return {id: list(source.tracks(each)) for id, each in lists.items()}


# -- the catalog


def test_the_small_catalog_is_three_pools_twelve_playlists_and_120_songs(source: Demo) -> None:
    pools = list(source.pools())
    assert [pool.name for pool in pools] == ["Charts", "排行榜", "Radio"]
    found = all_tracks(source)
    assert len(found) == 12
    songs = {each.id for tracks in found.values() for each in tracks}
    assert len(songs) == 120
    assert sum(map(len, found.values())) > 130, "some songs are in several playlists"
    assert all(len({each.id for each in tracks}) == len(tracks) for tracks in found.values())
    assert sum(len(list(source.playlists(pool))) for pool in pools) == 13, "one playlist is in two pools"


def test_a_playlist_has_as_many_tracks_as_it_says(source: Demo) -> None:
    for pool in source.pools():
        for playlist in source.playlists(pool):
            assert playlist.count == len(list(source.tracks(playlist)))


def test_names_come_in_many_scripts_and_some_are_hostile(source: Demo) -> None:
    titles = {each.title for tracks in all_tracks(source).values() for each in tracks}
    assert {"../../etc/passwd", "CON", "Fading Out...", "Ночной трамвай", "מגדלור בערפל"} <= titles
    assert {title for title, _ in ODD.values()} <= titles
    assert max(map(len, titles)) == 300
    every = "".join(titles)
    for character in "éüñø雨の🎷\n\u202e":
        assert character in every.casefold(), character


def test_two_servers_of_one_seed_are_the_same_and_another_seed_is_not(sound: DemoServer, source: Demo) -> None:
    with DemoServer(faults=False) as twin, DemoServer(seed=2) as other:
        with closing(Demo(twin.url)) as second, closing(Demo(other.url)) as third:
            assert all_tracks(source) == all_tracks(second) != all_tracks(third)
        for number in range(0, 120, 7):
            id = f"song-{number}"
            assert sound.audio(id) == twin.audio(id) != other.audio(id)


def test_no_two_songs_are_the_same_bytes(sound: DemoServer) -> None:
    files = {hashlib.sha256(sound.audio(f"song-{number}")).digest() for number in range(120)}
    assert len(files) == 120


@pytest.mark.parametrize(("songs", "playlists"), [(1, 1), (3, 5), (7, 2), (100, 1), (997, 31), (40, 40)])
def test_every_song_of_a_catalog_of_any_size_is_in_a_playlist(songs: int, playlists: int) -> None:
    catalog = Catalog(songs=songs, playlists=playlists)
    seen = set()
    for number in range(playlists):
        listing = catalog.listing_at(number)
        ids = [each.id for each in catalog.tracks(listing, 0, 10**6)]
        assert len(ids) == len(set(ids)) == listing.count
        seen.update(ids)
    assert seen == {f"song-{number}" for number in range(songs)}


def test_a_catalog_of_200000_songs_is_walked_in_bounded_memory() -> None:
    songs: set[int] = set()
    with DemoServer(songs=200_000, playlists=5_000, faults=False) as server, closing(Demo(server.url)) as source:
        pools = list(source.pools())
        lists = [each.id for pool in pools for each in source.playlists(pool)]
        assert len(set(lists)) == 5_000
        tracemalloc.start()
        try:
            for id in lists[::10]:
                songs.update(int(each.id.removeprefix("song-")) for each in source.tracks(Playlist(id=id, name="")))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(songs) > 15_000
        assert peak < 16 * 1024 * 1024
        assert max(songs) > 199_000
        far = source.resolve(track(199_999))
        assert far.size == len(server.audio("song-199999"))


def test_a_long_playlist_comes_in_pages() -> None:
    with DemoServer(songs=1_234, playlists=1, faults=False) as server, closing(Demo(server.url)) as source:
        ids = [each.id for each in source.tracks(Playlist(id="list-0", name=""))]
    assert ids == [f"song-{number}" for number in range(1_234)]


def test_pages_with_odd_numbers_are_refused(sound: DemoServer, http: urllib3.PoolManager) -> None:
    for query in ("offset=-1", "limit=0", "limit=many"):
        assert http.request("GET", f"{sound.url}/playlists/list-0/tracks?{query}").status == 400
    beyond = http.request("GET", f"{sound.url}/playlists/list-0/tracks?offset=100000000000").json()
    assert beyond["tracks"] == []


def test_search_finds_a_song_by_its_title_best_first(source: Demo) -> None:
    for number in (0, 9, 14, 24, 29, 39, 44, 49, 59, 74):
        wanted = Catalog().song_at(number)
        found = list(source.search(Track(id="elsewhere", title=wanted.title)))
        assert wanted.title in found[0].title
        assert wanted.id in [each.id for each in found]
    assert list(source.search(Track(id="elsewhere", title="nothing of the kind"))) == []
    assert list(source.search(Track(id="elsewhere", title=""))) == []


def test_search_reaches_the_far_end_of_a_big_catalog() -> None:
    with DemoServer(songs=200_000, playlists=5_000) as server, closing(Demo(server.url)) as source:
        title = Catalog(songs=200_000, playlists=5_000).song_at(199_998).title
        assert [each.id for each in source.search(Track(id="elsewhere", title=title))] == ["song-199998"]


# -- the audio


def md5_inside(data: bytes) -> bytes:
    """That of STREAMINFO, which comes first."""
    return data[26:42]


def decoded_md5(data: bytes) -> bytes:
    info = miniaudio.flac_get_info(data)
    samples = miniaudio.decode(
        data, output_format=miniaudio.SampleFormat.SIGNED16, nchannels=1, sample_rate=info.sample_rate
    )
    return hashlib.md5(samples.samples.tobytes()).digest()


def test_every_flac_decodes_to_its_own_checksum(sound: DemoServer) -> None:
    for number in range(120):
        song = Catalog().song_at(number)
        data = sound.audio(song.id)
        assert 50_000 < len(data) < 500_000
        if song.suffix == ".flac":
            assert decoded_md5(data) == md5_inside(data)
            assert miniaudio.flac_get_info(data).duration == pytest.approx(song.melody.duration)


@pytest.mark.skipif(shutil.which("flac") is None, reason="needs the flac program")
def test_the_flac_program_finds_nothing_wrong_but_in_the_corrupt_one(tmp_path: Path) -> None:
    corrupt = {number for number, fault in FAULTS.items() if fault is Fault.CORRUPT}
    server = DemoServer()
    try:
        numbers = [*range(0, 120, 11), *corrupt]
        flacs = [number for number in numbers if Catalog().song_at(number).suffix == ".flac"]
        for number in flacs:
            (tmp_path / f"{number}.flac").write_bytes(server.audio(f"song-{number}"))
        for number in flacs:
            command = ["flac", "--silent", "--test", "--warnings-as-errors", f"{number}.flac"]
            done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
            assert (done.returncode != 0) == (number in corrupt), done.stderr
    finally:
        server.close()


def test_some_songs_are_wav(sound: DemoServer) -> None:
    song = Catalog().song_at(4)
    with wave.open(io.BytesIO(sound.audio(song.id))) as read:
        assert read.getnframes() / read.getframerate() == pytest.approx(song.melody.duration)
        samples = read.readframes(read.getnframes())
    assert max(samples) > 0


@pytest.mark.parametrize("number", [0, 4, 9, 29, 39, 44, 49, 54])
def test_files_are_tagged(number: int, sound: DemoServer, tmp_path: Path) -> None:
    song = Catalog().song_at(number)
    path = tmp_path / f"a{song.suffix}"
    path.write_bytes(sound.audio(song.id))
    tag = TinyTag.get(path)
    assert (tag.title or "").strip() == song.title.strip()
    assert (tag.artist or "").strip() == song.artists[0].strip()
    assert tag.duration == pytest.approx(song.melody.duration)


def test_the_cover_is_a_png(sound: DemoServer, source: Demo, http: urllib3.PoolManager) -> None:
    cover = source.resolve(track(5)).cover
    assert cover is not None
    assert cover.url is not None
    answer = http.request("GET", cover.url)
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.data == demo_server.cover(5)
    start = answer.data.index(b"IDAT")
    size = int.from_bytes(answer.data[start - 4 : start], "big")
    assert len(zlib.decompress(answer.data[start + 4 : start + 4 + size])) == 96 * (96 * 3 + 1)


# -- HTTP


def test_what_resolve_says_is_what_is_served(sound: DemoServer, source: Demo, http: urllib3.PoolManager) -> None:
    media = source.resolve(track(1))
    answer = http.request("GET", str(media.url))
    assert answer.status == 200
    assert answer.data == sound.audio("song-1")
    assert media.size == len(answer.data) == int(answer.headers["Content-Length"])
    assert media.suffix == ".flac"
    assert answer.headers["Content-Type"] == "audio/flac"
    assert media.duration == Catalog().song_at(1).melody.duration
    assert media.lossless
    assert media.trusted
    assert media.expires_at is not None
    assert all(secret in str(media.url) for secret in media.secrets)
    assert media.secrets


def test_some_songs_have_lyrics_with_times(source: Demo) -> None:
    found = [source.resolve(track(number)).lyrics for number in range(20)]
    assert None in found
    assert any(text and text.startswith("[00:00.00]") for text in found)


def test_ranges_are_parts_of_the_whole(sound: DemoServer, source: Demo, http: urllib3.PoolManager) -> None:
    url, whole = link(source, 0), sound.audio("song-0")
    size = len(whole)
    for asked, part in {
        "bytes=0-0": (0, 1),
        "bytes=10-99": (10, 100),
        "bytes=1000-": (1000, size),
        "bytes=-10": (size - 10, size),
        f"bytes=5-{size + 5}": (5, size),
        f"bytes=-{size + 5}": (0, size),
    }.items():
        answer = http.request("GET", url, headers={"Range": asked})
        assert answer.status == 206, asked
        assert answer.data == whole[slice(*part)], asked
        assert answer.headers["Content-Range"] == f"bytes {part[0]}-{part[1] - 1}/{size}"


def test_a_range_beyond_the_end_is_refused_and_one_that_is_none_is_ignored(
    sound: DemoServer, source: Demo, http: urllib3.PoolManager
) -> None:
    url, whole = link(source, 0), sound.audio("song-0")
    for asked in (f"bytes={len(whole)}-", "bytes=-0"):
        answer = http.request("GET", url, headers={"Range": asked})
        assert answer.status == 416
        assert answer.headers["Content-Range"] == f"bytes */{len(whole)}"
    for asked in ("bytes=-", "bytes=9-3", "bytes=0-1,4-5", "pages=1-2", "bytes=a-b"):
        answer = http.request("GET", url, headers={"Range": asked})
        assert (answer.status, answer.data) == (200, whole)


def test_if_range_gives_the_part_only_of_the_same_file(
    sound: DemoServer, source: Demo, http: urllib3.PoolManager
) -> None:
    url, whole = link(source, 0), sound.audio("song-0")
    etag = http.request("HEAD", url).headers["ETag"]
    same = http.request("GET", url, headers={"Range": "bytes=7-", "If-Range": etag})
    assert (same.status, same.data) == (206, whole[7:])
    for other in ('"something else"', f"W/{etag}", "Mon, 01 Jan 2024 00:00:00 GMT"):
        changed = http.request("GET", url, headers={"Range": "bytes=7-", "If-Range": other})
        assert (changed.status, changed.data) == (200, whole)


def test_head_says_the_same_without_a_body_and_is_not_counted(http: urllib3.PoolManager) -> None:
    with serving() as (server, source):
        url = link(source, 0)
        head = http.request("HEAD", url)
        assert head.data == b""
        assert server.requests == {}
        got = http.request("GET", url)
        assert dict(head.headers) == dict(got.headers)
        assert head.headers["Accept-Ranges"] == "bytes"
        assert server.requests == {"song-0": 1}


def test_a_connection_is_kept(http: urllib3.PoolManager) -> None:
    with serving() as (server, _):
        pool = http.connection_from_url(server.url)
        for _ in range(5):
            assert pool.request("GET", "/pools").status == 200
        assert pool.num_connections == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(method: str, sound: DemoServer, http: urllib3.PoolManager) -> None:
    assert http.request(method, f"{sound.url}/pools").status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/pools/none/playlists",
        "/playlists/list-12/tracks",
        "/playlists/list-²/tracks",
        "/tracks/song-120/link",
        "/tracks/song--1/link",
        "/tracks/mirror-0/link",
        "/tracks/song-²/link",
        f"/tracks/song-{'9' * 5000}/link",
        "/covers/song-1.gif",
        "/audio/",
        "/audio/../../etc/passwd",
    ],
)
def test_what_is_not_there_is_answered_404(path: str, sound: DemoServer, http: urllib3.PoolManager) -> None:
    assert http.request("GET", sound.url + path).status == 404


def test_requests_and_bytes_are_counted_per_song(http: urllib3.PoolManager) -> None:
    with serving() as (server, source):
        url = link(source, 3)
        size = len(http.request("GET", url).data)
        http.request("GET", url, headers={"Range": "bytes=100-199"})
        assert server.requests == {"song-3": 2}
        assert server.resolves == {"song-3": 1}
        assert server.bytes_sent == {"song-3": size + 100}
        stats = http.request("GET", server.url + "/stats").json()
    assert stats == {"requests": {"song-3": 2}, "resolves": {"song-3": 1}, "bytes_sent": {"song-3": size + 100}}


def test_many_threads_are_served_and_counted(http: urllib3.PoolManager) -> None:
    with serving() as (server, source):

        def fetch() -> None:
            with urllib3.PoolManager(retries=False) as own:
                for number in range(10):
                    assert own.request("GET", link(source, number)).status == 200

        threads = [threading.Thread(target=fetch) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.requests == {f"song-{number}": 8 for number in range(10)}


def test_old_audio_is_forgotten_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_server, "CACHE_BYTES", 500_000)
    server = DemoServer(faults=False)
    try:
        first = server.audio("song-0")
        for number in range(20):
            server.audio(f"song-{number}")
            assert server._files_bytes == sum(len(data) for data, _ in server._files.values()) <= 500_000
        assert server.audio("song-0") == first
    finally:
        server.close()


# -- links


@pytest.mark.parametrize("spoil", [lambda url: url.partition("?")[0], lambda url: url + "0", lambda url: url[:-1]])
def test_a_link_without_a_good_token_is_refused(
    spoil: Any, sound: DemoServer, source: Demo, http: urllib3.PoolManager
) -> None:
    assert http.request("GET", spoil(link(source, 0))).status == 403


def test_a_token_is_good_for_its_own_song_only(source: Demo, http: urllib3.PoolManager) -> None:
    assert http.request("GET", link(source, 0).replace("song-0", "song-1")).status == 403


def test_a_link_expires(http: urllib3.PoolManager) -> None:
    clock = ManualClock()
    with serving(clock=clock, link_seconds=60) as (_, source):
        media = source.resolve(track(0))
        assert media.expires_at is not None
        assert (media.expires_at - clock.now()).total_seconds() == 60
        clock.advance(59)
        assert http.request("GET", str(media.url)).status == 200
        clock.advance(1)
        late = http.request("GET", str(media.url))
        assert (late.status, late.json()["error"]) == (403, "This link has expired.")


# -- what goes wrong


def test_the_small_catalog_has_five_songs_that_fail_for_good_and_two_with_a_mirror() -> None:
    broken = {number for number, fault in FAULTS.items() if fault in FOR_GOOD}
    assert len(broken - MIRRORED) == 5
    assert broken > MIRRORED
    assert {FAULTS[number] for number in broken - MIRRORED} == FOR_GOOD
    corrupt = next(number for number, fault in FAULTS.items() if fault is Fault.CORRUPT)
    assert Catalog().song_at(corrupt).suffix == ".flac", "a WAV has no checksum to be wrong"


def test_without_faults_every_song_is_sound(sound: DemoServer, source: Demo, http: urllib3.PoolManager) -> None:
    for number in FAULTS:
        answer = http.request("GET", link(source, number))
        assert (answer.status, answer.data) == (200, sound.audio(f"song-{number}"))


def test_a_gone_song_is_gone(http: urllib3.PoolManager) -> None:
    with serving() as (server, source):
        url = link(source, 0)
        server.faults = {0: Fault.GONE}
        with pytest.raises(Gone):
            source.resolve(track(0))
        assert http.request("GET", url).status == 404


def test_a_forbidden_song_has_a_link_and_no_audio(http: urllib3.PoolManager) -> None:
    with serving(Fault.FORBIDDEN) as (_, source):
        for _ in range(3):
            assert http.request("GET", link(source, 0)).status == 403


def test_a_web_page_comes_in_place_of_audio(http: urllib3.PoolManager) -> None:
    with serving(Fault.HTML) as (_, source):
        answer = http.request("GET", link(source, 0), headers={"Range": "bytes=100-"})
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/html")
        assert answer.data.startswith(b"<!doctype html>")


def received(http: urllib3.PoolManager, url: str, start: int = 0) -> tuple[bytes, bool]:
    """What arrived before the end, and whether that was all."""
    headers = {"Range": f"bytes={start}-"} if start else {}
    answer = http.request("GET", url, headers=headers, preload_content=False)
    data = bytearray()
    try:
        while piece := answer.read1(4096):
            data += piece
    except urllib3.exceptions.ProtocolError:
        return bytes(data), False
    finally:
        answer.close()
    return bytes(data), True


def test_a_truncated_song_never_gets_past_its_middle(http: urllib3.PoolManager) -> None:
    with serving(Fault.TRUNCATED) as (server, source):
        whole = server.audio("song-0")
        half = len(whole) // 2
        for _ in range(3):
            assert received(http, link(source, 0)) == (whole[:half], False)
        assert received(http, link(source, 0), half) == (b"", False)
        assert received(http, link(source, 0), half - 10) == (whole[half - 10 : half], False)


def test_a_flaky_song_is_cut_once_and_then_goes_on(http: urllib3.PoolManager) -> None:
    with serving(Fault.FLAKY) as (server, source):
        whole, url = server.audio("song-0"), link(source, 0)
        first, complete = received(http, url)
        assert not complete
        assert first == whole[: len(whole) // 2]
        assert received(http, url, len(first)) == (whole[len(first) :], True)


def test_a_one_use_link_has_to_be_asked_for_again(http: urllib3.PoolManager) -> None:
    with serving(Fault.ONE_USE) as (server, source):
        whole, url = server.audio("song-0"), link(source, 0)
        assert http.request("HEAD", url).status == 200, "looking does not use it up"
        first, complete = received(http, url)
        assert not complete
        used = http.request("GET", url, headers={"Range": f"bytes={len(first)}-"})
        assert (used.status, used.json()["error"]) == (403, "This link has been used.")
        assert received(http, link(source, 0), len(first)) == (whole[len(first) :], True)


def test_a_busy_song_answers_503_once(http: urllib3.PoolManager) -> None:
    with serving(Fault.BUSY) as (_, source):
        url = link(source, 0)
        first = http.request("GET", url)
        assert (first.status, first.headers["Retry-After"]) == (503, "0")
        assert http.request("GET", url).status == 200


def test_rate_limited_songs_share_two_links_in_two_seconds() -> None:
    clock = ManualClock()
    with serving(*[Fault.RATE_LIMITED] * 3, pace=1, clock=clock) as (_, source):
        source.resolve(track(0))
        source.resolve(track(1))
        for _ in range(3):
            with pytest.raises(ProviderError) as refused:
                source.resolve(track(2))
            assert refused.value.status == 429
            assert refused.value.headers["retry-after"] == "2"
        source.resolve(track(3))
        clock.advance(2)
        source.resolve(track(2))


def test_without_delays_every_third_link_of_the_rate_limited_is_one_too_many() -> None:
    with serving(Fault.RATE_LIMITED) as (_, source):
        for _ in range(2):
            source.resolve(track(0))
            source.resolve(track(0))
            with pytest.raises(ProviderError) as refused:
                source.resolve(track(0))
            assert refused.value.headers["retry-after"] == "0"


def test_slow_songs_arrive_whole(http: urllib3.PoolManager) -> None:
    with serving(Fault.SLOW, Fault.SLOW_LINK, pace=0.01) as (server, source):
        assert http.request("GET", link(source, 0)).data == server.audio("song-0")
        assert http.request("GET", link(source, 1)).data == server.audio("song-1")
        assert server.bytes_sent["song-1"] == len(server.audio("song-1"))


def test_a_closing_server_does_not_wait_for_slow_songs() -> None:
    """At this pace the song takes hours and the link too."""
    began = threading.Event()
    with serving(Fault.SLOW, Fault.SLOW_LINK, pace=10_000) as (server, source):
        slow = server._link

        def told(song: Any) -> Any:
            began.set()
            return slow(song)

        server._link = told  # type: ignore[method-assign]

        def ask() -> None:
            with pytest.raises(urllib3.exceptions.HTTPError):
                source.resolve(track(1))

        with urllib3.PoolManager(retries=False) as http:
            answer = http.request("GET", link(source, 0), preload_content=False)
            assert answer.read(100) == server.audio("song-0")[:100]
            began.clear()
            asking = threading.Thread(target=ask)
            asking.start()
            assert began.wait(30)
            server.close()
            asking.join(30)
            assert not asking.is_alive()
            answer.close()


def test_a_corrupt_song_decodes_but_not_to_its_checksum() -> None:
    with serving(Fault.CORRUPT) as (server, _):
        data = server.audio("song-0")
        assert decoded_md5(data) != md5_inside(data)


def test_a_lying_length_calls_half_a_song_whole(http: urllib3.PoolManager) -> None:
    with serving(Fault.LYING_LENGTH) as (server, source):
        media = source.resolve(track(0))
        data, complete = received(http, str(media.url))
        assert complete
        assert media.size == len(server.audio("song-0"))
        assert len(data) == media.size // 2


def test_a_redirect_loop_leads_to_itself(http: urllib3.PoolManager) -> None:
    with serving(Fault.REDIRECT_LOOP) as (_, source):
        url = link(source, 0)
        answer = http.request("GET", url, redirect=False)
        assert answer.status == 302
        assert url.endswith(answer.headers["Location"])


def test_a_mirror_is_the_same_song_and_sound(http: urllib3.PoolManager) -> None:
    with serving(Fault.GONE, mirrored=[0]) as (server, source):
        song = Catalog().song_at(0)
        found = {each.id: each for each in source.search(Track(id=song.id, title=song.title))}
        original, mirror = found["song-0"], found["mirror-0"]
        assert (mirror.title, mirror.artists, mirror.duration) == (original.title, original.artists, original.duration)
        data = http.request("GET", link(source, 0, "mirror")).data
        assert data == server.audio("mirror-0")
        assert server.requests == {"mirror-0": 1}
        assert "mirror-0" not in {each.id for tracks in all_tracks(source).values() for each in tracks}


# -- the source


def test_the_registry_opens_it() -> None:
    with DemoServer() as server:
        sources = Sources(Config({"DEMO_URL": server.url + "/"}))
        assert sources.names() == ["demo"]
        assert [pool.id for pool in sources.get("demo").pools()] == ["charts", "paihang", "radio"]
        sources.close()


def test_a_pool_or_playlist_that_is_not_there_is_gone(source: Demo) -> None:
    with pytest.raises(Gone):
        list(source.playlists(Pool(id="a/b?c", name="")))
    with pytest.raises(Gone):
        list(source.tracks(Playlist(id="list-99", name="")))
    with pytest.raises(Gone):
        source.resolve(Track(id="../stats", title=""))


@pytest.mark.parametrize("body", [b"<!doctype html>", b"[1]", b"\xff", b""])
def test_an_address_that_is_no_demo_server_is_unusable(body: bytes) -> None:
    web = Web(lambda _: Response(body=body)).start()
    try:
        with closing(Demo(web.url)) as source, pytest.raises(Unusable, match="DEMO_URL"):
            list(source.pools())
    finally:
        web.close()


def test_a_server_that_fails_is_quoted() -> None:
    web = Web(lambda _: Response(500, {"X-Why": "rain"}, b"no luck")).start()
    try:
        with closing(Demo(web.url)) as source, pytest.raises(ProviderError) as failed:
            list(source.pools())
    finally:
        web.close()
    assert (failed.value.status, failed.value.body, failed.value.headers["x-why"]) == (500, "no luck", "rain")


# -- on its own


def test_it_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "dalsegno.sources.demo_server", "--songs", "30", "--playlists", "3", "--no-faults"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            with closing(Demo(url)) as source, urllib3.PoolManager(retries=False) as http:
                assert len({each.id for tracks in all_tracks(source).values() for each in tracks}) == 30
                assert http.request("GET", link(source, 6)).status == 200
                assert http.request("GET", f"{url}/stats").json()["requests"] == {"song-6": 1}
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
