"""Everything that can go wrong with a song, a disk or a store: the right state, a reason for people, no wrong file."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store
from dalsegno.catalog import spots
from dalsegno.catalog.downloader import _may_pass, useless
from dalsegno.catalog.fetch import Broken, Cancelled, Refused
from dalsegno.catalog.part import PartBusy
from dalsegno.catalog.schema import playlists, songs
from dalsegno.catalog.space import DiskFull
from dalsegno.catalog.status import list_playlists
from dalsegno.catalog.templates import order
from dalsegno.catalog.upload import Upload
from dalsegno.cli.ask import ask
from dalsegno.engine import breakers
from dalsegno.engine.item import Item
from dalsegno.objects.errors import UploadCancelled
from dalsegno.settings import Settings
from dalsegno.sources.demo_catalog import Fault
from dalsegno.sources.demo_server import DemoServer
from dalsegno.sources.model import Media, Track
from dalsegno.sources.playlist_file import PlaylistFiles
from dalsegno.store.schema import breakers as breakers_table
from tests import audio
from tests.catalog.studio import (
    ENDED,
    assert_clean,
    assert_playlists,
    at_work,
    audio_in,
    bucket,
    candidates,
    digest,
    places,
    run,
    settings_for,
    song,
    tagged,
    troubles,
)
from tests.helpers import (
    assert_sound,
    events_of,
    every,
    items_of,
    job_of,
    lane_of,
    status_of,
    statuses_of,
    types_of,
    wait_for_job,
    wait_until,
)
from tests.s3 import S3Server, juicefs
from tests.servers import free_port
from tests.sources.hostile import Hostile, hostile, ok, redirect

Answer = Callable[[str, dict[str, str]], bytes]
GOOD = audio.flac(0.3, 7)
PAGE = b"<!doctype html><title>Sign in</title>"


class Desk:
    """A web server that says what it is told to, and a catalog whose only playlist is on it."""

    def __init__(self, server: Hostile, folder: Path) -> None:
        self.server = server
        self.library, self.archive = folder / "library", folder / "archive"
        self._titles: list[str] = []
        self.server.answers["/list.m3u"] = self._list

    def _list(self, path: str, headers: dict[str, str]) -> bytes:
        lines = [f"#EXTINF:-1,Band - {title}\n/{quote(title)}" for title in self._titles]
        return ok("\n".join(["#EXTM3U", *lines]).encode())

    def song(self, title: str, answer: bytes | Answer) -> None:
        self._titles.append(title)
        self.server.answers[f"/{quote(title)}"] = answer

    def asked(self, title: str) -> list[dict[str, str]]:
        return [headers for path, headers in self.server.requests if path == f"/{quote(title)}"]

    def settings(self, **keys: object) -> Settings:
        lists = (f"{self.server.url}/list.m3u",)
        return settings_for(self.library, **{"playlist_files": lists, "object_store": f"file://{self.archive}", **keys})


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with hostile() as server:
        yield Desk(server, tmp_path)


def claiming(claimed: int, body: bytes, *headers: str) -> bytes:
    """A body, and an announced length that is another."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {claimed}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def once(first: bytes, then: bytes | Answer) -> Answer:
    """Answers differently the first time."""
    fresh = threading.Lock()

    def answer(path: str, headers: dict[str, str]) -> bytes:
        if fresh.acquire(blocking=False):
            return first
        return then(path, headers) if callable(then) else then

    return answer


def ranged(body: bytes) -> Answer:
    def answer(path: str, headers: dict[str, str]) -> bytes:
        asked = headers.get("range")
        if asked is None:
            return ok(body, 'ETag: "a"')
        start = int(asked.removeprefix("bytes=").partition("-")[0])
        end = f"{len(body) - 1}/{len(body)}"
        return ok(body[start:], 'ETag: "a"', f"Content-Range: bytes {start}-{end}", status="206 Partial Content")

    return answer


# --- songs ----------------------------------------------------------------------------------------

CORRUPT = GOOD[:5000] + bytes(200) + GOOD[5200:]
FATES: dict[str, tuple[bytes | Answer, str, str, int]] = {
    "vanished": (ok(b"", status="404 Not Found"), "song_gone", "gone from playlist-file", 1),
    "removed": (ok(b"", status="410 Gone"), "song_gone", "gone from playlist-file", 1),
    "forbidden": (ok(b"no", status="403 Forbidden"), "forbidden", "does not let us have it (HTTP 403)", 1),
    "private": (ok(b"no", status="401 Unauthorized"), "unauthorized", "wants other credentials (HTTP 401)", 1),
    "broken server": (ok(b"oops", status="500 Oops"), "http_500", "cannot give it now (HTTP 500)", 3),
    "truncated": (claiming(len(GOOD), GOOD[:9000]), "truncated_body", "after 9.0 kB of 53.0 kB", 3),
    "longer than it says": (claiming(5000, GOOD), "truncated_audio", "The file ends too early", 1),
    "shorter than it says": (claiming(len(GOOD) + 1000, GOOD), "truncated_body", "of 54.0 kB", 3),
    "loop": (redirect("/loop"), "redirect_loop", "redirects without end", 1),
    "link-local": (redirect("http://169.254.169.254/latest"), "address_refused", "169.254.169.254 was not asked", 1),
    "elsewhere": (redirect("file:///etc/passwd"), "bad_url", "only http and https are", 1),
    "web page": (ok(PAGE, "Content-Type: text/html"), "html_instead_of_audio", "A web page came instead of audio", 1),
    "web page unsaid": (ok(PAGE * 20), "html_instead_of_audio", "This is a web page, not audio", 1),
    "message": (
        ok(b'{"error": {"message": "For members."}}', "Content-Type: application/json"),
        "json_instead_of_audio", "It says: For members.", 1,
    ),
    "empty": (ok(b""), "empty_file", "The file is empty", 1),
    "corrupt": (ok(CORRUPT), "truncated_audio", "damaged beyond decoding", 1),
    "noise": (ok(bytes(range(256)) * 40), "not_audio", "no audio file of any known format", 1),
}  # fmt: skip
"""What the server says to each song; the code, words and attempts its item ends with."""


def test_each_trouble_has_its_code_and_its_words_and_no_file(
    desk: Desk, sqlite_url: str, stores: Callable[..., Store]
) -> None:
    store = stores(sqlite_url)
    desk.song("good", ok(GOOD))
    for title, (answer, *_) in FATES.items():
        desk.song(title, answer)

    job = run(store, desk.settings())

    assert status_of(store, job) == "completed_with_errors"
    seen = troubles(store, job)
    assert seen.pop("good").status == "succeeded"
    for title, (_, code, words, attempts) in FATES.items():
        end = seen.pop(title)
        assert (title, end.status, end.code, end.attempt) == (title, "failed", code, attempts)
        assert end.text is not None
        assert f"Band - {title}: " in end.text
        assert words in end.text
        assert not {"Error(", "Exception", "urllib3", "<", "Traceback"} & set(end.text.split())
        kept = candidates(store, title)
        assert [each["verdict"] for each in kept] == ["rejected"] * attempts
        assert all(each["reason"] and each["reason"] in end.text for each in kept)
        assert (song(store, title)["missing_at"] is not None) == (code == "song_gone")
        assert song(store, title)["asset_id"] is None
    assert seen == {}
    assert [path.name for path in audio_in(desk.library)] == ["good.flac"]
    assert [path.name for path in audio_in(desk.archive)] == ["good.flac"]
    assert_clean(desk.library)
    assert [path.stem for path in assert_playlists(store, desk.library)["file", "list"]] == ["good"]
    assert statuses_of(store, job, "upload") == {"succeeded": 1}
    assert_sound(store, job)


def test_a_body_that_breaks_off_once_is_gone_on_with(desk: Desk, store: Store) -> None:
    desk.song("song", once(claiming(len(GOOD), GOOD[:9000], 'ETag: "a"'), ranged(GOOD)))
    job = run(store, desk.settings())
    assert status_of(store, job) == "completed"
    assert troubles(store, job)["song"].attempt == 0
    assert [headers.get("range") for headers in desk.asked("song")] == [None, "bytes=9000-"]
    assert audio_in(desk.library)[0].read_bytes() == GOOD
    assert_clean(desk.library)


def test_a_song_that_always_breaks_off_is_gone_on_with_when_it_is_retried(desk: Desk, store: Store) -> None:
    desk.song("song", claiming(len(GOOD), GOOD[:9000], 'ETag: "a"'))
    job = run(store, desk.settings())
    assert troubles(store, job)["song"].code == "truncated_body"
    assert audio_in(desk.library) == []
    desk.server.answers["/song"] = ranged(GOOD)
    (item,) = items_of(store, job, "download")
    before = len(desk.asked("song"))

    assert ask(store, "retry_item", item_id=item["id"]).status == "applied"
    with at_work(store, desk.settings()):
        wait_for_job(store, job, ENDED, 60)

    assert status_of(store, job) == "completed"
    assert [headers.get("range") for headers in desk.asked("song")[before:]] == ["bytes=9000-"]
    assert audio_in(desk.library)[0].read_bytes() == GOOD
    assert_clean(desk.library)


def test_a_429_waits_as_long_as_it_was_told_to_and_costs_no_attempt(desk: Desk, store: Store) -> None:
    desk.song("song", once(ok(b"", "Retry-After: 1", status="429 Too Many Requests"), ok(GOOD)))
    job = run(store, desk.settings())
    assert status_of(store, job) == "completed"
    assert troubles(store, job)["song"] == ("succeeded", None, None, 0)
    assert len(desk.asked("song")) == 2
    told = [event["message"] or "" for event in events_of(store) if "breaker" in event["type"]]
    assert any("asked to wait 1 s" in text for text in told), told


def test_the_same_song_from_elsewhere_takes_the_place_of_a_broken_one(tmp_path: Path, store: Store) -> None:
    with DemoServer(pace=0, songs=8, playlists=1, faults={3: Fault.HTML}, mirrored={3}) as server:
        settings = settings_for(tmp_path / "library", demo_url=server.url)
        job = run(store, settings, "collect")
        job = run(store, settings, "sync-download")
        assert status_of(store, job) == "completed"
        (found,) = every(store, sa.select(songs).where(songs.c.remote_id == "song-3"))
        assert (found["found_on"], found["found_id"]) == ("demo", "mirror-3")
        (place,) = [place for place in places(store) if place.remote_id == "song-3"]
        assert (tmp_path / "library" / place.path).read_bytes() == server.audio("mirror-3")
        kept = [(each["remote_id"], each["verdict"], each["reason"]) for each in candidates(store, found["title"])]
        assert ("song-3", "rejected", "A web page came instead of audio.") in kept
        assert [remote for remote, verdict, _ in kept if verdict == "chosen"] == ["mirror-3"]


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        (claiming(len(GOOD), GOOD[:9000]), 2),
        (ok(b"oops", status="500 Oops"), 2),
        (ok(b"down", status="502 Bad Gateway"), 2),
        (b"220 mail.example ESMTP\r\n\r\n", 2),
        (ok(b"no", status="400 Bad Request"), 0),
    ],
)
def test_what_fails_in_every_attempt_is_fetched_elsewhere_in_the_last(
    desk: Desk, sqlite_url: str, stores: Callable[..., Store], tmp_path: Path, answer: bytes, attempts: int
) -> None:
    store, (content, suffix) = stores(sqlite_url), tagged(3, "song", "Band", "Album")
    desk.song("song", answer)
    music = tmp_path / "music"
    music.mkdir()
    (music / f"other{suffix}").write_bytes(content)
    settings = desk.settings(folder_roots=(str(music),))
    run(store, settings, "collect", scope={"sources": ["playlist-file"]})

    job = run(store, settings, "sync-download", scope={"sources": ["playlist-file"]})

    end = troubles(store, job)["song"]
    assert (end.status, end.attempt) == ("succeeded", attempts), end
    assert song(store, "song")["found_on"] == "folder"
    assert [path.read_bytes() for path in audio_in(desk.library)] == [content]
    kept = [(each["attempt"], each["platform"], each["verdict"]) for each in candidates(store, "song")]
    assert [each for each in kept if each[2] == "chosen"] == [(attempts, "folder", "chosen")]
    assert {each[0] for each in kept if each[1] == "playlist-file"} == set(range(attempts + 1))
    assert_clean(desk.library)


def test_what_fails_in_every_attempt_does_not_wait_for_a_source_that_is_down(desk: Desk, store: Store) -> None:
    desk.song("song", ok(b"oops", status="500 Oops"))
    settings = desk.settings(demo_url=f"http://127.0.0.1:{free_port()}")
    run(store, settings, "collect", scope={"sources": ["playlist-file"]})
    job = run(store, settings, "sync-download", scope={"sources": ["playlist-file"]}, timeout=40.0)
    assert status_of(store, job) == "completed_with_errors"
    end = troubles(store, job)["song"]
    assert (end.status, end.code, end.attempt) == ("failed", "http_500", 3)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (Broken("It broke off."), True),
        (Refused(500), True),
        (Refused(503), True),
        (Refused(429), False),
        (DiskFull(Path("/music"), 5, 3), False),
        (PartBusy("Somebody else is at it."), False),
        (Cancelled(), False),
        (PermissionError(13, "no"), False),
    ],
)
def test_only_what_a_candidate_did_is_a_reason_to_leave_it(error: Exception, passes: bool) -> None:
    assert _may_pass(error) is passes
    assert not useless(error)


# --- cancelling -----------------------------------------------------------------------------------


def cancel(store: Store, engine: Engine, job: int, service: str) -> None:
    """Until whatever is at work knows."""
    assert ask(store, "cancel", job_id=job).status == "applied"
    pool = engine.pools[service]
    wait_until(lambda: all(item.cancelled for _, item in pool.in_work()), "the workers to be told")


@pytest.mark.parametrize("verb", ["resolve", "download"])
def test_a_canceled_job_has_no_failed_songs(
    desk: Desk, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    told, asked = threading.Event(), threading.Event()

    def wait() -> None:
        asked.set()
        assert told.wait(60)

    def slow(path: str, headers: dict[str, str]) -> bytes:
        wait()
        return ok(GOOD)

    def lost(self: PlaylistFiles, track: Track) -> Media:
        wait()
        raise ConnectionError("it hung up")

    desk.song("song", slow)
    settings = desk.settings()
    run(store, settings, "collect")
    run(store, settings, "sync")
    if verb == "resolve":
        monkeypatch.setattr(PlaylistFiles, "resolve", lost)
    job = order(store, settings, "download").job_id
    with at_work(store, settings) as engine:
        assert asked.wait(60)
        cancel(store, engine, job, "download")
        told.set()
        wait_for_job(store, job, ENDED, 60)

    assert status_of(store, job) == "canceled"
    assert troubles(store, job)["song"] == ("canceled", None, None, 0)
    lines = store.read(list_playlists).lines
    assert [(line.status, line.failed) for line in lines] == [("incomplete", 0)]
    assert_sound(store, job)


def test_a_canceled_job_has_no_failed_uploads(desk: Desk, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    at_it = threading.Event()

    def put(self: Upload, item: Item, *_: object, **__: object) -> None:
        at_it.set()
        wait_until(lambda: item.cancelled, "the end")
        raise UploadCancelled

    monkeypatch.setattr(Upload, "_put", put)
    desk.song("song", ok(GOOD))
    job = order(store, desk.settings(), "full").job_id
    with at_work(store, desk.settings()) as engine:
        assert at_it.wait(60)
        cancel(store, engine, job, "upload")
        wait_for_job(store, job, ENDED, 60)

    assert status_of(store, job) == "canceled"
    assert troubles(store, job, "upload")["song"] == ("canceled", None, None, 0)
    assert_sound(store, job)


# --- disks ----------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A library of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    root = tmp_path / "small"
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(root)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield root
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


def test_a_full_disk_pauses_and_a_new_root_takes_the_rest(
    desk: Desk, store: Store, small_disk: Path, tmp_path: Path
) -> None:
    content = {f"song {number}": audio.wav(1.0, number) for number in range(20)}
    for title, body in content.items():
        desk.song(title, ok(body, f'ETag: "{title[5:]}"'))
    desk.library = small_disk
    settings = desk.settings()

    job = run(store, settings)

    row = job_of(store, job)
    assert row["status"] == "paused"
    assert re.fullmatch(
        rf"disk_full: The library at {small_disk} has [0-9.]+ (kB|bytes|MB) free; this song needs 176.4 kB. "
        "Make room there, or resume with another LIBRARY_ROOT.",
        row["pause_reason"],
    ), row["pause_reason"]
    assert lane_of(store, "catalog")["held_at"] is not None
    assert lane_of(store, "catalog")["held_reason"] == row["pause_reason"]
    here = {path.stem for path in audio_in(small_disk)}
    done = {title for title, end in troubles(store, job).items() if end.status == "succeeded"}
    assert here == done
    assert 5 < len(done) < 12
    assert {end.code for end in troubles(store, job).values() if end.status == "interrupted"} == {"disk_full"}
    assert_sound(store, job)
    first = {title: len(desk.asked(title)) for title in content}

    new_root = tmp_path / "roomy"
    said = ask(store, "resume", job_id=job, payload={"overrides": {"LIBRARY_ROOT": str(new_root)}})
    assert said.status == "applied", said.error_message
    with at_work(store, settings):
        wait_for_job(store, job, ENDED, 90)

    assert status_of(store, job) == "completed"
    assert lane_of(store, "catalog")["held_at"] is None
    assert {title: len(desk.asked(title)) for title in done} == {title: first[title] for title in done}
    assert {path.stem for path in audio_in(small_disk)} == done
    assert {path.stem for path in audio_in(new_root)} == content.keys() - done
    for path in (*audio_in(small_disk), *audio_in(new_root), *audio_in(desk.archive)):
        assert path.read_bytes() == content[path.stem]
    assert len(audio_in(desk.archive)) == 20
    exported = assert_playlists(store, new_root)
    assert [path.stem for path in exported["file", "list"]] == list(content)
    assert_clean(new_root)
    assert_clean(small_disk)
    assert_sound(store, job)


def test_a_disk_that_fills_up_under_the_first_song_is_left_clean(
    desk: Desk, sqlite_url: str, stores: Callable[..., Store], small_disk: Path, tmp_path: Path
) -> None:
    """Nobody knew how long it would be, so nobody could see it coming."""
    body, store = audio.wav(20.0, 1), stores(sqlite_url)
    desk.song("song", b'HTTP/1.1 200 OK\r\nETag: "a"\r\nConnection: close\r\n\r\n' + body)
    desk.library = small_disk
    job = run(store, desk.settings())
    assert job_of(store, job)["pause_reason"].startswith(f"disk_full: The library at {small_disk} has ")
    assert audio_in(small_disk) == []

    roomy = tmp_path / "roomy"
    assert ask(store, "resume", job_id=job, payload={"overrides": {"LIBRARY_ROOT": str(roomy)}}).status == "applied"
    with at_work(store, desk.settings()):
        wait_for_job(store, job, ENDED, 60)

    assert status_of(store, job) == "completed"
    assert [path.read_bytes() for path in audio_in(roomy)] == [body]
    assert_clean(roomy)
    assert_clean(small_disk)


def test_a_disk_without_room_for_another_name_is_full(
    desk: Desk, sqlite_url: str, stores: Callable[..., Store], small_disk: Path
) -> None:
    store = stores(sqlite_url)
    desk.song("song", ok(GOOD))
    desk.library = small_disk
    used = sum(1 for _ in small_disk.rglob("*"))
    staging = 2  # its folder, and the library's id
    subprocess.run(["mount", "-o", f"remount,nr_inodes={1 + used + staging}", str(small_disk)], check=True)

    job = run(store, desk.settings())

    reason = job_of(store, job)["pause_reason"]
    assert reason.startswith(f"disk_full: The library at {small_disk} has "), reason
    assert reason.endswith("Make room there, or resume with another LIBRARY_ROOT.")
    subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(small_disk)], check=True)
    assert ask(store, "resume", job_id=job).status == "applied"
    with at_work(store, desk.settings()):
        wait_for_job(store, job, ENDED, 60)
    assert status_of(store, job) == "completed"


def test_a_library_that_may_only_be_read_pauses_and_says_so(
    desk: Desk, sqlite_url: str, stores: Callable[..., Store], small_disk: Path
) -> None:
    store = stores(sqlite_url)
    desk.song("song", ok(GOOD))
    desk.library = small_disk
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    job = run(store, desk.settings())

    row = job_of(store, job)
    assert row["status"] == "paused"
    assert row["pause_reason"] == (
        f"library_unwritable: the library at {small_disk} cannot be written: Read-only file system"
    )
    assert {end.status for end in troubles(store, job).values()} == {"interrupted"}
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert ask(store, "resume", job_id=job).status == "applied"
    with at_work(store, desk.settings()):
        wait_for_job(store, job, ENDED, 60)
    assert status_of(store, job) == "completed"
    assert_clean(small_disk)


def test_a_file_that_cannot_be_read_fails_alone(tmp_path: Path, sqlite_url: str, stores: Callable[..., Store]) -> None:
    store, music = stores(sqlite_url), tmp_path / "music"
    music.mkdir()
    (music / "good.flac").write_bytes(GOOD)
    (music / "bad.flac").write_bytes(GOOD)
    settings = settings_for(tmp_path / "library", folder_roots=(str(music),))
    run(store, settings, "collect")
    run(store, settings, "sync")
    (music / "bad.flac").unlink()
    (music / "bad.flac").mkdir()

    job = run(store, settings, "download")

    assert status_of(store, job) == "completed_with_errors"
    ends = {item.status: item for item in troubles(store, job).values()}
    assert ends.keys() == {"succeeded", "failed"}
    assert len(audio_in(tmp_path / "library")) == 1
    assert ends["failed"].code in ("song_gone", "unreadable_file")


def test_what_must_stay_free_is_asked_for_before_anything_is_fetched(desk: Desk, store: Store) -> None:
    desk.song("song", ok(GOOD))
    job = run(store, desk.settings(min_free_space=1 << 60))
    row = job_of(store, job)
    assert row["status"] == "paused"
    assert row["pause_reason"].startswith(f"disk_full: The library at {desk.library} has ")
    assert "1152921.5 TB must stay free" in row["pause_reason"]
    assert desk.asked("song") == []


def test_a_library_that_cannot_be_written_pauses_and_says_so(desk: Desk, store: Store) -> None:
    desk.song("song", ok(GOOD))
    desk.library.write_text("a file stands where the folder should be")

    job = run(store, desk.settings())

    row = job_of(store, job)
    assert row["status"] == "paused"
    assert row["pause_reason"] == (
        f"library_unwritable: the library at {desk.library} cannot be written: Not a directory"
    )
    desk.library.unlink()
    assert ask(store, "resume", job_id=job).status == "applied"
    with at_work(store, desk.settings()):
        wait_for_job(store, job, ENDED, 60)
    assert status_of(store, job) == "completed"
    assert audio_in(desk.library)[0].read_bytes() == GOOD


# --- stores ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def juice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


def s3_keys(server: S3Server, **other: str) -> dict[str, str]:
    return {key.lower(): value for key, value in server.config.items()} | other


on_s3 = pytest.mark.xdist_group("s3")


@on_s3
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"s3_secret_key": "not the secret"}, "does not accept the secret key. Check S3_SECRET_KEY."),
        ({"s3_access_key": "nobody"}, "does not know this access key. Check S3_ACCESS_KEY."),
    ],
)
def test_wrong_credentials_pause_and_the_right_ones_go_on(
    desk: Desk, sqlite_url: str, stores: Callable[..., Store], juice: S3Server, wrong: dict[str, str], words: str
) -> None:
    store, place = stores(sqlite_url), f"s3://{juice.bucket}/credentials-{len(words)}"
    for number in range(5):
        desk.song(f"song {number}", ok(audio.flac(0.02, number)))

    job = run(store, desk.settings(object_store=place, **s3_keys(juice, **wrong)))

    row = job_of(store, job)
    assert row["status"] == "paused"
    assert row["pause_reason"].startswith(f"wrong_credentials: {place}: ")
    assert words in row["pause_reason"]
    assert not any(secret in row["pause_reason"] for secret in ("not the secret", juice.secret_key))
    assert ask(store, "resume", job_id=job).status == "applied"
    with at_work(store, desk.settings(object_store=place, **s3_keys(juice))):
        wait_for_job(store, job, ENDED, 60)
    assert status_of(store, job) == "completed"
    assert len(bucket(juice, place.rpartition("/")[2])) == 5
    assert all(len(desk.asked(f"song {number}")) == 1 for number in range(5))


@on_s3
def test_a_missing_bucket_pauses_until_there_is_one(desk: Desk, store: Store, juice: S3Server) -> None:
    name = f"later-{'pg' if store.shared else 'lite'}"
    settings = desk.settings(object_store=f"s3://{name}/prefix", **s3_keys(juice))
    desk.song("song", ok(GOOD))
    job = order(store, settings, "full").job_id
    with at_work(store, settings):
        wait_for_job(store, job, ENDED, 60)
        row = job_of(store, job)
        assert row["status"] == "paused"
        assert row["pause_reason"].startswith(f"bucket_missing: s3://{name}/prefix: There is no such bucket on ")
        assert row["pause_reason"].endswith("Create it, or correct OBJECT_STORE.")
        juice.create_bucket(name)
        assert ask(store, "resume", job_id=job).status == "applied"
        wait_until(lambda: status_of(store, job) == "completed", "the job to complete", 60)
    assert statuses_of(store, job, "upload") == {"succeeded": 1}


@on_s3
def test_a_store_that_dies_during_uploads_loses_nothing(
    desk: Desk, postgres_url: str, stores: Callable[..., Store], tmp_path: Path
) -> None:
    store = stores(postgres_url)
    for number in range(60):
        desk.song(f"song {number}", ok(audio.flac(0.02, number)))
    with juicefs(tmp_path / "juicefs") as server:
        settings = desk.settings(object_store=f"s3://{server.bucket}/all", upload_workers=2, **s3_keys(server))
        job = order(store, settings, "full").job_id
        with at_work(store, settings):
            wait_until(lambda: statuses_of(store, job, "upload")["succeeded"] >= 5, "five uploads", 60)
            server.kill()
            wait_until(lambda: _is_open(store, "store:s3"), "the store's breaker to open", 60)
            assert status_of(store, job) == "running"
            server.start()
            store.write("reset", lambda tx: breakers.reset(tx, "store:s3", "operator"))
            wait_for_job(store, job, ENDED, 90)
        assert status_of(store, job) == "completed"
        found = bucket(server, "all")
    here = {digest(path) for path in audio_in(desk.library)}
    assert len(here) == 60
    assert set(found.values()) == here
    assert_sound(store, job)


@on_s3
def test_what_is_gone_from_a_bucket_is_noticed_by_spot_checks_or_when_asked_for(
    desk: Desk, store: Store, juice: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        desk.song(f"song {number}", ok(audio.flac(0.02, number)))
    prefix = f"gone-{'pg' if store.shared else 'lite'}"
    settings = desk.settings(object_store=f"s3://{juice.bucket}/{prefix}", **s3_keys(juice))
    assert status_of(store, run(store, settings)) == "completed"
    keys = [place.path for place in places(store) if place.kind == "s3"]
    with contextlib.closing(juice.client()) as client:
        client.delete_object(Bucket=juice.bucket, Key=f"{prefix}/{keys[0]}")
        monkeypatch.setattr(spots, "FIRST", 0)
        assert statuses_of(store, run(store, settings, "upload"), "upload") == {"skipped": 3}
        sure = run(store, settings, "upload", options={"verify": True})
        assert statuses_of(store, sure, "upload") == {"succeeded": 1, "skipped": 2}
        client.delete_object(Bucket=juice.bucket, Key=f"{prefix}/{keys[1]}")
    monkeypatch.undo()
    assert statuses_of(store, run(store, settings, "upload"), "upload") == {"succeeded": 1, "skipped": 2}
    assert len(bucket(juice, prefix)) == 3


def _is_open(store: Store, name: str) -> bool:
    rows = every(store, sa.select(breakers_table).where(breakers_table.c.name == name))
    return [row["state"] for row in rows] == ["open"]


# --- sources --------------------------------------------------------------------------------------


def test_a_source_that_is_down_at_first_is_asked_again(tmp_path: Path, store: Store) -> None:
    port, library = free_port(), tmp_path / "library"
    settings = settings_for(library, demo_url=f"http://127.0.0.1:{port}", object_store=f"file://{tmp_path / 'archive'}")
    job = order(store, settings, "full").job_id
    with at_work(store, settings):
        wait_until(lambda: "item_returned" in types_of(store, job_id=job), "the item to come back", 60)
        (item,) = items_of(store, job, "collect")
        assert (item["key"], item["status"], item["attempt"]) == ("source:demo", "pending", 0)
        (told, *_) = [event["data"] for event in events_of(store, job_id=job) if event["type"] == "item_returned"]
        assert "cannot be reached" in told["throttled"]
        with DemoServer(pace=0, songs=10, playlists=2, faults=False, port=port):
            wait_for_job(store, job, ENDED, 90)
    assert status_of(store, job) == "completed"
    assert len(audio_in(library)) == len(items_of(store, job, "download")) > 5


def test_a_playlist_that_is_gone_fails_alone_and_is_marked_missing(desk: Desk, store: Store) -> None:
    desk.song("song", ok(GOOD))
    lists = (f"{desk.server.url}/list.m3u", f"{desk.server.url}/nowhere.m3u")

    job = run(store, desk.settings(playlist_files=lists))

    assert status_of(store, job) == "completed_with_errors"
    ends = {item["status"]: item for item in items_of(store, job, "sync")}
    assert ends.keys() == {"succeeded", "failed"}
    assert ends["failed"]["error_code"] == "gone"
    assert "syncing nowhere from playlist-file: " in ends["failed"]["error_message"]
    rows = {row["name"]: row["missing_at"] for row in every(store, sa.select(playlists))}
    assert rows["list"] is None
    assert rows["nowhere"] is not None
    assert len(audio_in(desk.archive)) == 1
