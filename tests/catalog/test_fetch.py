"""Fetching, from servers that behave (caddy) and from one that does everything wrong."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dalsegno.catalog import fetch as module
from dalsegno.catalog.fetch import Broken, Cancelled, Fetched, Refused, Vanished, fetch
from dalsegno.catalog.part import Note, Part, PartBusy, boot, note_path, origin_of
from dalsegno.catalog.space import DiskFull
from dalsegno.model.signal import Signal
from dalsegno.sources.http import Http
from dalsegno.sources.model import Media, Unusable
from tests.audio import wav
from tests.catalog.script import Line, Request, cut, honest, scripted, whole
from tests.servers import caddy

SONG = wav(0.5, seed=3)
LARGE = os.urandom(5_000_000)
"""More than is fetched without a note."""


@pytest.fixture
def http() -> Iterator[Http]:
    with Http(connect_timeout=5) as client:
        yield client


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "library"


def get(http: Http, media: Media | str, root: Path, **options: Any) -> Fetched:
    if isinstance(media, str):
        media = Media(url=media, trusted=True)
    options = {"moved": lambda done, total: None, "cancelled": lambda: False, "stall": 5, "breath": 0, **options}
    with Part.open(root, "song-1", source="test", remote_id="1") as part:
        return fetch(http, media, part, **options)


def content(root: Path) -> bytes:
    return (root / ".dalsegno/song-1.part").read_bytes()


def right(fetched: Fetched, root: Path, body: bytes) -> bool:
    return content(root) == body and (fetched.size, fetched.sha256) == (len(body), hashlib.sha256(body).hexdigest())


# --- as it should be ----------------------------------------------------------------------------------------


def test_every_byte_arrives_and_is_hashed(http: Http, root: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    with scripted(whole(SONG, ETag='"x"')) as server:
        fetched = get(http, f"{server.url}/song.wav", root, moved=lambda *bytes_: heard.append(bytes_))
    assert right(fetched, root, SONG)
    assert heard[-1] == (len(SONG), len(SONG))
    assert (fetched.resumed_from, fetched.transferred, fetched.etag) == (0, len(SONG), '"x"')


def test_a_chunked_body_has_no_announced_length(http: Http, root: Path) -> None:
    def step(request: Request, line: Line) -> None:
        line.answer("200 OK", Content_Length=None, Transfer_Encoding="chunked")
        for start in range(0, len(SONG), 5000):
            piece = SONG[start : start + 5000]
            line.send(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        line.send(b"0\r\n\r\n")

    with scripted(step) as server:
        assert right(get(http, server.url, root), root, SONG)


def test_bytes_that_drip_in_are_all_kept(http: Http, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_EVERY", 0.0)

    def step(request: Request, line: Line) -> None:
        line.answer("200 OK", Content_Length=200)
        for byte in SONG[:200]:
            line.send(bytes([byte]))

    with scripted(step) as server:
        assert right(get(http, server.url, root), root, SONG[:200])


def test_a_later_run_asks_caddy_only_for_what_is_missing(http: Http, root: Path, tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "song.bin").write_bytes(LARGE)
    seen = 0

    def moved(done: int, total: int | None) -> None:
        nonlocal seen
        seen = done

    with caddy(tmp_path / "web") as url:
        with pytest.raises(Cancelled):
            get(http, f"{url}/song.bin", root, moved=moved, cancelled=lambda: seen > 2_000_000)
        left = len(content(root))
        fetched = get(http, f"{url}/song.bin", root)
    assert 2_000_000 < left < len(LARGE)
    assert (fetched.resumed_from, fetched.transferred) == (left, len(LARGE) - left)
    assert right(fetched, root, LARGE)


def test_a_file_that_changed_on_caddy_is_fetched_from_the_start(http: Http, root: Path, tmp_path: Path) -> None:
    web = tmp_path / "web"
    web.mkdir()
    (web / "song.bin").write_bytes(LARGE)
    other = LARGE[::-1]
    with caddy(web) as url:
        with pytest.raises(Cancelled):
            get(http, f"{url}/song.bin", root, cancelled=lambda: (root / ".dalsegno/song-1.part").stat().st_size > 0)
        (web / "song.bin").write_bytes(other)
        os.utime(web / "song.bin", (1_000_000_000, 1_000_000_000))
        fetched = get(http, f"{url}/song.bin", root)
    assert right(fetched, root, other)
    assert fetched.resumed_from == 0


def test_a_local_file_is_copied(http: Http, root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(LARGE)
    assert right(get(http, Media(path=tmp_path / "a.wav"), root), root, LARGE)


def test_a_local_file_that_is_gone_is_gone(http: Http, root: Path, tmp_path: Path) -> None:
    with pytest.raises(Vanished) as caught:
        get(http, Media(path=tmp_path / "a.wav"), root)
    assert caught.value.code == "not_found"


# --- cut, stalled, resumed ----------------------------------------------------------------------------------


def test_a_cut_connection_goes_on_from_where_it_broke(http: Http, root: Path) -> None:
    with scripted(cut(SONG, 30_000, ETag='"a"'), cut(SONG, 20_000, ETag='"a"'), honest(SONG)) as server:
        fetched = get(http, server.url, root)
    assert [request.start for request in server.requests] == [0, 30_000, 50_000]
    assert [request.header("If-Range") for request in server.requests] == [None, '"a"', '"a"']
    assert right(fetched, root, SONG)
    assert fetched.transferred == len(SONG)


def test_a_modification_time_is_good_enough_to_go_on(http: Http, root: Path) -> None:
    when = "Wed, 21 Oct 2015 07:28:00 GMT"
    with scripted(cut(SONG, 30_000, ETag='W/"weak"', Last_Modified=when), cut(SONG, 99_999, ETag='W/"weak"')) as server:
        assert right(get(http, server.url, root), root, SONG)
    assert server.requests[1].header("If-Range") == when


def test_without_a_validator_it_starts_over(http: Http, root: Path) -> None:
    with scripted(cut(SONG, 30_000), whole(SONG)) as server:
        assert right(get(http, server.url, root), root, SONG)
    assert [request.header("Range") for request in server.requests] == [None, None]


def test_a_stalled_connection_is_left_and_taken_up_again(http: Http, root: Path) -> None:
    def stall(request: Request, line: Line) -> None:
        line.answer("200 OK", SONG[:40_000], Content_Length=len(SONG), ETag='"a"')
        line.hold()

    with scripted(stall, honest(SONG)) as server:
        fetched = get(http, server.url, root, stall=0.2)
    assert right(fetched, root, SONG)
    assert server.requests[1].start == 40_000


def test_a_server_that_only_stalls_is_given_up(http: Http, root: Path) -> None:
    def stall(request: Request, line: Line) -> None:
        line.hold()

    with scripted(stall) as server, pytest.raises(Broken) as caught:
        get(http, server.url, root, stall=0.05)
    assert caught.value.code == "stalled"
    assert len(server.requests) == 3


def test_200_instead_of_206_starts_over_with_that_body(http: Http, root: Path) -> None:
    with scripted(cut(SONG, 30_000, ETag='"a"'), whole(SONG, ETag='"a"')) as server:
        assert right(get(http, server.url, root), root, SONG)
    assert len(server.requests) == 2


def test_another_etag_halfway_starts_over(http: Http, root: Path) -> None:
    other = SONG[::-1]
    with scripted(cut(SONG, 30_000, ETag='"a"'), cut(other, 99_999, ETag='"b"'), honest(other, '"b"')) as server:
        assert right(get(http, server.url, root), root, other)
    assert [request.start for request in server.requests] == [0, 30_000, 0]


@pytest.mark.parametrize("told", ["bytes 0-99999/100000", "bytes 30000-40000/*", "nonsense", None])
def test_a_wrong_content_range_starts_over(http: Http, root: Path, told: str | None) -> None:
    def wrong(request: Request, line: Line) -> None:
        line.answer("206 Partial", SONG[30_000:], Content_Range=told, ETag='"a"')

    with scripted(cut(SONG, 30_000, ETag='"a"'), wrong, honest(SONG)) as server:
        assert right(get(http, server.url, root), root, SONG)
    assert [request.start for request in server.requests] == [0, 30_000, 0]


def test_416_at_another_length_starts_over(http: Http, root: Path) -> None:
    def no(request: Request, line: Line) -> None:
        line.answer("416 Range Not Satisfiable", Content_Range="bytes */30000", ETag='"a"')

    with scripted(cut(SONG, 30_000, ETag='"a"'), no, honest(SONG)) as server:
        assert right(get(http, server.url, root), root, SONG)


def test_416_at_the_end_means_that_all_is_there(http: Http, root: Path) -> None:
    def endless(request: Request, line: Line) -> None:
        line.answer("200 OK", Content_Length=None, Transfer_Encoding="chunked", ETag='"a"')
        line.send(f"{len(SONG):x}\r\n".encode() + SONG + b"\r\n")  # and the last chunk never comes

    with scripted(endless, honest(SONG)) as server:
        assert right(get(http, server.url, root), root, SONG)
    assert server.requests[1].start == len(SONG)


def test_a_complete_part_asks_for_nothing(http: Http, root: Path) -> None:
    with Part.open(root, "song-1", source="test", remote_id="1") as part:
        os.write(part.descriptor, LARGE)
        part.write_note(_note("http://127.0.0.1:9/x"))
    fetched = get(http, "http://127.0.0.1:9/x", root)
    assert right(fetched, root, LARGE)
    assert fetched.transferred == 0


def _note(url: str) -> Note:
    return Note(
        origin=origin_of(url),
        source="test",
        remote_id="1",
        etag='"a"',
        length=len(LARGE),
        synced=1_000_000,
        boot=boot(),
    )


def test_after_a_power_cut_only_flushed_bytes_are_trusted(http: Http, root: Path) -> None:
    with scripted(honest(LARGE)) as server:
        with Part.open(root, "song-1", source="test", remote_id="1") as part:
            os.write(part.descriptor, LARGE[:1_000_000] + bytes(2_000_000))
            part.write_note(replace(_note(server.url), boot="an earlier one"))
        fetched = get(http, server.url, root)
    assert right(fetched, root, LARGE)
    assert fetched.resumed_from == 1_000_000


@pytest.mark.parametrize("change", [{"remote_id": "2"}, {"source": "other"}, {"etag": None}, {"length": 5}])
def test_a_part_of_something_else_is_not_gone_on_with(http: Http, root: Path, change: dict[str, Any]) -> None:
    with scripted(honest(LARGE)) as server:
        with Part.open(root, "song-1", source="test", remote_id="1") as part:
            os.write(part.descriptor, bytes(1000))
            part.write_note(replace(_note(server.url), **change))
        media = Media(url=server.url, trusted=True, size=len(LARGE))
        assert right(get(http, media, root), root, LARGE)


def test_a_cut_that_repeats_is_reported_and_kept(http: Http, root: Path) -> None:
    def nothing_more(request: Request, line: Line) -> None:
        return

    with scripted(cut(LARGE, 3_000_000, ETag='"a"'), nothing_more) as server, pytest.raises(Broken) as caught:
        get(http, server.url, root)
    assert caught.value.code == "truncated_body"
    assert "3.0 MB of 5.0 MB" in str(caught.value)
    assert len(server.requests) == 4
    assert content(root) == LARGE[:3_000_000]
    assert note_path(root, "song-1").exists()


def test_a_refusal_on_the_way_leaves_the_part_to_go_on_from(http: Http, root: Path) -> None:
    def busy(request: Request, line: Line) -> None:
        line.answer("503 Busy", Retry_After="1")

    with scripted(cut(SONG, 30_000, ETag='"a"'), busy, honest(SONG)) as server:
        with pytest.raises(Refused):
            get(http, server.url, root)
        fetched = get(http, server.url, root)
    assert right(fetched, root, SONG)
    assert (fetched.resumed_from, server.requests[2].start) == (30_000, 30_000)


def test_nobody_listening_is_a_lost_connection(http: Http, root: Path) -> None:
    with scripted(whole(SONG)) as server:
        url = server.url
    with pytest.raises(Broken) as caught:
        get(http, url, root)
    assert caught.value.code == "connection_lost"


# --- lies -----------------------------------------------------------------------------------------------------


def test_a_length_that_is_never_reached_is_a_truncated_body(http: Http, root: Path) -> None:
    with scripted(whole(SONG, Content_Length=len(SONG) + 100)) as server, pytest.raises(Broken) as caught:
        get(http, server.url, root)
    assert caught.value.code in ("truncated_body", "changed_on_the_way")
    assert len(server.requests) <= 5


def test_a_length_other_than_the_sources_is_refused_before_writing(http: Http, root: Path) -> None:
    with scripted(whole(SONG)) as server, pytest.raises(Unusable) as caught:
        get(http, Media(url=server.url, trusted=True, size=len(SONG) + 1), root)
    assert caught.value.code == "length_mismatch"
    assert content(root) == b""


def test_more_than_the_source_has_is_a_mismatch(http: Http, root: Path) -> None:
    def endless(request: Request, line: Line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + SONG + b"more")

    with scripted(endless) as server, pytest.raises(Unusable) as caught:
        get(http, Media(url=server.url, trusted=True, size=len(SONG)), root)
    assert caught.value.code == "length_mismatch"
    assert not list(root.glob(".dalsegno/*"))


def test_a_truncated_chunked_body_is_not_taken_for_whole(http: Http, root: Path) -> None:
    def step(request: Request, line: Line) -> None:
        line.answer("200 OK", Content_Length=None, Transfer_Encoding="chunked")
        line.send(f"{len(SONG):x}\r\n".encode() + SONG[:1000])

    with scripted(step, step, whole(SONG)) as server:
        assert right(get(http, server.url, root), root, SONG)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("text/html; charset=utf-8", "html_instead_of_audio"),
        ("application/json", "json_instead_of_audio"),
        ("text/xml", "xml_instead_of_audio"),
    ],
)
def test_a_page_instead_of_audio_is_not_written(http: Http, root: Path, kind: str, code: str) -> None:
    with scripted(whole(b"<p>key=hush</p>", Content_Type=kind)) as server, pytest.raises(Unusable) as caught:
        get(http, Media(url=server.url, trusted=True, secrets=("hush",)), root)
    assert caught.value.code == code
    assert "hush" not in str(caught.value)
    assert content(root) == b""


def test_what_a_message_says_is_told_without_its_wrapping(http: Http, root: Path) -> None:
    said = b'{"answer": {"status": "failed", "error": {"code": 0, "message": "For members only."}}}'
    with scripted(whole(said, Content_Type="application/json")) as server, pytest.raises(Unusable) as caught:
        get(http, server.url, root)
    assert str(caught.value) == "A message came instead of audio. It says: For members only."


def test_a_body_that_always_breaks_off_and_cannot_be_gone_on_with(http: Http, root: Path) -> None:
    with scripted(cut(SONG, 9000)) as server, pytest.raises(Broken) as caught:
        get(http, server.url, root)
    assert caught.value.code == "truncated_body"
    assert "9.0 kB" in str(caught.value)
    assert not list(root.glob(".dalsegno/*"))


def test_a_server_that_never_heard_of_ranges_does_not_change_its_file(http: Http, root: Path) -> None:
    def deaf(request: Request, line: Line) -> None:
        line.answer("200 OK", SONG[:9000], Content_Length=len(SONG), ETag='"a"')

    with scripted(deaf) as server, pytest.raises(Broken) as caught:
        get(http, server.url, root)
    assert caught.value.code == "truncated_body"


def test_an_empty_body_is_no_song(http: Http, root: Path) -> None:
    with scripted(whole(b"")) as server, pytest.raises(Unusable) as caught:
        get(http, server.url, root)
    assert caught.value.code == "empty_file"


def test_a_packed_body_is_refused(http: Http, root: Path) -> None:
    with scripted(whole(SONG, Content_Encoding="gzip")) as server, pytest.raises(Unusable) as caught:
        get(http, server.url, root)
    assert caught.value.code == "packed_body"


def test_too_large_is_refused_by_its_announcement_and_on_the_way(http: Http, root: Path) -> None:
    def endless(request: Request, line: Line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + SONG)

    for step in (whole(SONG), endless):
        with scripted(step) as server, pytest.raises(Unusable) as caught:
            get(http, server.url, root, limit=10_000)
        assert caught.value.code == "too_large"


def test_a_redirect_loop_ends(http: Http, root: Path) -> None:
    def around(request: Request, line: Line) -> None:
        line.answer("302 Found", Location="/again")

    with scripted(around) as server, pytest.raises(Unusable) as caught:
        get(http, server.url, root)
    assert caught.value.code == "redirect_loop"


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (410, "gone")])
def test_what_is_not_there_is_gone(http: Http, root: Path, status: int, code: str) -> None:
    with scripted(lambda request, line: line.answer(f"{status} No")) as server, pytest.raises(Vanished) as caught:
        get(http, server.url, root)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unauthorized"), (403, "forbidden"), (429, "rate_limited"), (503, "unavailable")]
)
def test_a_refusal_carries_what_a_breaker_reads(http: Http, root: Path, status: int, code: str) -> None:
    def no(request: Request, line: Line) -> None:
        line.answer(f"{status} No", b"quota: hush", Retry_After="17")

    with scripted(no) as server, pytest.raises(Refused) as caught:
        get(http, Media(url=server.url, trusted=True, secrets=("hush",)), root)
    signal = Signal.of(caught.value)
    assert (caught.value.code, signal.status, signal.headers["retry-after"]) == (code, status, "17")
    assert signal.body == "quota: ***"
    assert len(server.requests) == 1


def _no(request: Request, line: Line) -> None:
    line.answer("403 Expired")


def test_an_expired_address_is_asked_for_once_more_and_gone_on_with(http: Http, root: Path) -> None:
    with scripted(cut(SONG, 30_000, ETag='"a"'), _no, honest(SONG)) as server:
        fetched = get(http, f"{server.url}/old", root, refresh=lambda: Media(url=f"{server.url}/new", trusted=True))
    assert right(fetched, root, SONG)
    assert [(request.path, request.start) for request in server.requests] == [
        ("/old", 0),
        ("/old", 30_000),
        ("/new", 30_000),
    ]


def test_an_address_past_its_time_is_renewed_before_a_byte(http: Http, root: Path) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    with scripted(_no, honest(SONG)) as server:
        media = Media(url=server.url, trusted=True, expires_at=past)
        assert right(get(http, media, root, refresh=lambda: replace(media, expires_at=None)), root, SONG)


def test_a_new_address_that_is_refused_too_is_the_end(http: Http, root: Path) -> None:
    with scripted(cut(SONG, 30_000, ETag='"a"'), _no) as server, pytest.raises(Refused):
        get(http, server.url, root, refresh=lambda: Media(url=server.url, trusted=True))
    assert len(server.requests) == 3


def test_addresses_that_live_shortly_are_asked_for_as_long_as_each_brings_bytes(http: Http, root: Path) -> None:
    some, asked = cut(SONG, 10_000, ETag='"a"'), iter(range(9))
    with scripted(some, _no, some, _no, some, _no, honest(SONG)) as server:
        fetched = get(http, server.url, root, refresh=lambda: Media(url=f"{server.url}/{next(asked)}", trusted=True))
    assert right(fetched, root, SONG)
    assert [(request.path, request.start) for request in server.requests[1:]] == [
        ("/", 10_000), ("/0", 10_000), ("/0", 20_000), ("/1", 20_000), ("/1", 30_000), ("/2", 30_000),
    ]  # fmt: skip


def test_a_plain_refusal_asks_for_no_new_address(http: Http, root: Path) -> None:
    with scripted(_no) as server, pytest.raises(Refused):
        get(http, server.url, root, refresh=lambda: pytest.fail("asked"))


# --- this side ----------------------------------------------------------------------------------------------------


def test_what_must_stay_free_is_not_taken(http: Http, root: Path) -> None:
    with scripted(whole(SONG)) as server, pytest.raises(DiskFull) as caught:
        get(http, server.url, root, keep_free=1 << 60)
    assert caught.value.needed == len(SONG)
    assert not list(root.glob(".dalsegno/*"))


def test_no_secret_is_left_beside_the_part(http: Http, root: Path) -> None:
    with scripted(honest(LARGE)) as server:
        host = server.url.removeprefix("http://")
        url = f"http://name:hush1@{host}/p/hush2/song?token=hush3#hush4"
        with pytest.raises(Cancelled):
            get(http, Media(url=url, trusted=True, secrets=("hush2",)), root, cancelled=lambda: True)
    text = note_path(root, "song-1").read_text()
    assert "hush" not in text
    assert f"http://{host}/p/***/song" in text


def test_two_cannot_fetch_the_same_song(root: Path) -> None:
    with Part.open(root, "song-1"), pytest.raises(PartBusy):
        Part.open(root, "song-1")
    Part.open(root, "song-1").close()


def test_many_at_once_keep_their_own_bytes(http: Http, root: Path, tmp_path: Path) -> None:
    web = tmp_path / "web"
    web.mkdir()
    songs = [wav(0.3, seed=number) for number in range(24)]
    for number, song in enumerate(songs):
        (web / str(number)).write_bytes(song)
    results: dict[int, str] = {}

    def work(first: int) -> None:
        for number in range(first, len(songs), 6):
            with Part.open(root, f"song-{number}") as part:
                media = Media(url=f"{url}/{number}", trusted=True)
                fetched = fetch(http, media, part, moved=lambda *_: None, cancelled=lambda: False)
                results[number] = fetched.sha256

    with caddy(web) as url:
        threads = [threading.Thread(target=work, args=(first,)) for first in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {number: hashlib.sha256(song).hexdigest() for number, song in enumerate(songs)}


def test_an_origin_that_cannot_be_read_is_not_the_librarys_trouble(http: Http, root: Path, tmp_path: Path) -> None:
    loop, folder = tmp_path / "loop.flac", tmp_path / "folder.flac"
    loop.symlink_to(loop)
    folder.mkdir()
    for path in (loop, folder):
        with pytest.raises(Broken) as caught:
            get(http, Media(path=path), root)
        assert caught.value.code == "unreadable_file"
        assert str(caught.value).startswith(f"{path.name} cannot be read: ")
        assert not list(root.glob(".dalsegno/*"))
