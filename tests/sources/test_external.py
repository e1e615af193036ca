"""Sources in other programs: the example one, and programs that behave badly in every way that came to mind."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dalsegno.model.signal import ProviderError, Signal, is_unreachable
from dalsegno.sources.external import opener
from dalsegno.sources.http import Http
from dalsegno.sources.model import Gone, NotOffered, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config, Sources
from tests.helpers import wait_until
from tests.servers import wav

ECHO = Path(__file__).parents[2] / "examples" / "external" / "echo_source.py"
SONG = Track(id="x", title="x")
Start = Callable[..., Source]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs a program, given as its text or its file, as the source `ext`; with settings of its own."""
    opened = []

    def started(program: str | Path, **settings: str) -> Source:
        file = program if isinstance(program, Path) else tmp_path / f"child{len(opened)}.py"
        if isinstance(program, str):
            file.write_text(PREAMBLE + textwrap.dedent(program))
        command = shlex.join([sys.executable, str(file)])
        opened.append(opener("ext", command)(Config({f"SOURCE_EXT_{key}": value for key, value in settings.items()})))
        return opened[-1]

    yield started
    for source in opened:
        source.close()


PREAMBLE = """
import json, os, sys, subprocess, time
def ask():
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)
def say(**line):
    print(json.dumps(line), flush=True)
def greet(*verbs):
    say(id=ask()["id"], item={"verbs": list(verbs), "version": "1"}, done=True)
"""


def test_the_example_from_pool_to_bytes(start: Start, caddy: tuple[str, Path]) -> None:
    url, root = caddy
    wav(root / "ext" / "周杰倫 - 夜曲.wav")
    source = start(ECHO, BASE=f"{url}/ext", SONGS="周杰倫 - 夜曲.wav, gone.wav", HOSTS="127.0.0.1")
    assert all(source.can(verb) for verb in ("pools", "playlists", "tracks", "search", "resolve"))
    (pool,) = source.pools()
    (playlist,) = source.playlists(pool)
    assert (pool.name, playlist.name, playlist.count) == ("Everything", "Songs", 2)
    first, _ = source.tracks(playlist)
    assert (first.title, first.artists) == ("夜曲", ("周杰倫",))
    assert list(source.search(Track(id="y", title="夜曲"))) == [first]
    media = source.resolve(first)
    assert (media.suffix, media.trusted) == (".wav", True)
    with Http() as http:
        body = http.get(media.url or "", trusted=media.trusted).body
    assert body == (root / "ext" / "周杰倫 - 夜曲.wav").read_bytes()
    with pytest.raises(Gone):
        source.resolve(SONG)
    with pytest.raises(Gone):
        list(source.playlists(Pool(id="other", name="")))


def test_it_is_named_in_the_settings(caddy: tuple[str, Path]) -> None:
    command = shlex.join([sys.executable, str(ECHO)])
    sources = Sources(Config({"EXTERNAL_SOURCES": {"echo": command}, "SOURCE_ECHO_SONGS": "A - B.mp3"}))
    assert sources.names() == ["echo"]
    source = sources.get("echo")
    assert [track.title for track in source.tracks(Playlist(id="songs", name=""))] == ["B"]
    sources.close()


def test_only_what_it_offers_and_more_to_come_is_not_expected(start: Start) -> None:
    source = start("greet('resolve')\nsay(id=ask()['id'], error={'code': 'not_offered'})")
    assert (source.can("resolve"), source.can("search")) == (True, False)
    with pytest.raises(NotOffered):
        list(source.search(SONG))


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [({"code": "gone"}, Gone, None), ({"code": "unusable", "message": "m"}, Unusable, None),
     ({"code": "drm"}, Unusable, None), ({"code": "rate_limited", "retry_after": 7}, ProviderError, 429),
     ({"code": "unauthorized"}, ProviderError, 401), ({"code": "unavailable"}, ProviderError, 503),
     ({"code": "failed"}, ProviderError, None), ("just words", ProviderError, None), ({}, ProviderError, None)],
)  # fmt: skip
def test_its_errors_become_ours(start: Start, error: object, kind: type[Exception], status: int | None) -> None:
    source = start(f"greet('resolve')\nsay(id=ask()['id'], error={error!r})\nask()")
    with pytest.raises(kind) as caught:
        source.resolve(SONG)
    assert Signal.of(caught.value).status == status
    if status == 429:
        assert Signal.of(caught.value).headers["retry-after"] == "7"
    if error == {"code": "drm"}:
        assert isinstance(caught.value, Unusable)
        assert caught.value.code == "drm"


@pytest.mark.parametrize(
    ("program", "words"),
    [("sys.exit(3)", "exit code 3"), ("greet('resolve')\nask()\nos.kill(os.getpid(), 9)", "signal 9"),
     ("greet('resolve')\nask()\nsay(id=2, item={'id': '1', 'title': 't'})\nsys.exit(0)", "exit code 0")],
)  # fmt: skip
def test_a_program_that_dies_is_an_error(start: Start, program: str, words: str) -> None:
    with pytest.raises(ProviderError, match=words):
        list(start(program).tracks(Playlist(id="p", name="p")))


def test_a_program_that_is_not_there() -> None:
    source = opener("ext", "/nowhere/at/all --x")(Config())
    assert source.can("resolve")  # so that whoever asks is told
    with pytest.raises(ProviderError, match="cannot be started: No such file"):
        source.resolve(SONG)
    source.close()


def test_it_is_started_again_after_it_died(start: Start, tmp_path: Path) -> None:
    source = start(f"""
        with open({str(tmp_path / "starts")!r}, "a") as file:
            file.write("x")
        greet("resolve")
        say(id=ask()["id"], item={{"url": "http://h.example/"}}, done=True)
    """)
    for _ in range(5):
        try:
            assert source.resolve(SONG).url == "http://h.example/"
        except ProviderError:  # it was just about to go
            assert source.resolve(SONG).url == "http://h.example/"
    assert len((tmp_path / "starts").read_text()) >= 3


def test_silence_ends_it(start: Start) -> None:
    source = start("greet('resolve')\nask()\nwhile True: time.sleep(60)", TIMEOUT="0.2")
    with pytest.raises(TimeoutError, match="said nothing") as caught:
        source.resolve(SONG)
    assert is_unreachable(caught.value)
    quiet = start("while True: time.sleep(60)", TIMEOUT="0.2")
    with pytest.raises(TimeoutError):
        quiet.resolve(SONG)


def test_a_program_that_does_not_read(start: Start) -> None:
    source = start("greet('resolve')\nwhile True: time.sleep(60)", TIMEOUT="0.2")
    big = Track(id="x", title="x" * 300_000)
    with pytest.raises(TimeoutError, match="took no question"):
        source.resolve(big)


def test_lines_without_end(start: Start) -> None:
    source = start("greet('resolve')\nask()\nwhile True: sys.stdout.write('x' * 65536)")
    with pytest.raises(Unusable, match="longer than 1 MiB"):
        source.resolve(SONG)


def test_what_is_not_an_answer_is_passed_over(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    source = start("""
        print("Welcome!", file=sys.stderr, flush=True)
        print("loading…", flush=True)
        greet("resolve")
        number = ask()["id"]
        print("[1, 2]\\n{}\\nnull\\n\\xff", flush=True)
        say(id=999, item={})
        say(id="1", done=True)
        say(id=number, item={"url": "http://h.example/"}, done=True)
        ask()
    """)
    with caplog.at_level(logging.INFO, "dalsegno.sources.child"):
        assert source.resolve(SONG).url == "http://h.example/"
        source.close()
    assert "ext: loading…" in caplog.messages
    assert "ext: Welcome!" in caplog.messages


@pytest.mark.parametrize(
    "item",
    [{}, {"url": 7}, {"url": "file:///etc/passwd"}, {"path": "/etc/passwd"}, {"url": "http://h/", "headers": {"a": 1}},
     {"url": "http://h/", "size": "big"}, {"url": "http://h/", "size": -1}, {"url": "http://h/", "expires_at": "soon"}],
)  # fmt: skip
def test_answers_of_the_wrong_kind(start: Start, item: dict[str, object]) -> None:
    source = start(f"greet('resolve')\nsay(id=ask()['id'], item={item!r}, done=True)\nask()")
    with pytest.raises(Unusable):
        source.resolve(SONG)


def test_everything_an_answer_can_hold(start: Start, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    song = wav(tmp_path / "out" / "1.wav")
    item = {
        "url": "https://cdn.example/1?sig=hush", "headers": {"Cookie": "c=1"}, "size": 10, "suffix": "FLAC",
        "bitrate": 900, "lossless": True, "duration": 1.5, "expires_at": "2030-01-02T03:04:05Z", "secrets": ["s3"],
        "lyrics": "la", "cover": {"path": str(song)},
    }  # fmt: skip
    source = start(
        f"greet('resolve')\nsay(id=ask()['id'], item={item!r}, done=True)\nask()", ROOT=str(tmp_path / "out")
    )
    media = source.resolve(SONG)
    assert (media.suffix, media.bitrate, media.lossless, media.duration) == (".flac", 900, True, 1.5)
    assert media.expires_at is not None
    assert media.expires_at.isoformat() == "2030-01-02T03:04:05+00:00"
    assert {"hush", "c=1", "s3"} <= set(media.secrets)
    assert media.cover is not None
    assert media.cover.path == song
    assert not media.trusted


def test_several_questions_at_once_each_get_their_own_answer(start: Start) -> None:
    source = start("""
        greet("search")
        waiting = [ask() for _ in range(8)]
        for turn in range(3):
            for question in reversed(waiting):
                say(id=question["id"], item={"id": f"{question['params']['track']['id']}-{turn}", "title": "t"})
        for question in waiting:
            say(id=question["id"], done=True)
        ask()
    """)
    source.can("search")
    found: dict[int, list[str]] = {}

    def look(number: int) -> None:
        found[number] = [track.id for track in source.search(Track(id=str(number), title="t"))]

    threads = [threading.Thread(target=look, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [f"{number}-{turn}" for turn in range(3)] for number in range(8)}


def test_an_answer_that_is_not_read_to_its_end_is_called_off(start: Start) -> None:
    source = start("""
        greet("tracks", "resolve")
        number = ask()["id"]
        say(id=number, item={"id": "1", "title": "first"})
        called_off = ask()
        say(id=number, item={"id": "2", "title": "late"}, done=True)
        say(id=ask()["id"], item={"url": "http://h.example/" + called_off["method"]}, done=True)
        ask()
    """)
    tracks = iter(source.tracks(Playlist(id="p", name="p")))
    assert next(tracks).title == "first"
    tracks.close()  # type: ignore[attr-defined]
    assert source.resolve(SONG).url == "http://h.example/cancel"


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_closing_ends_it_and_all_it_started(start: Start, tmp_path: Path) -> None:
    source = start(f"""
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{grandchild.pid}}")
        greet("resolve")
        while True: time.sleep(60)
    """)
    assert source.can("resolve")
    pids = [int(text) for text in (tmp_path / "pids").read_text().split()]
    source.close()
    for pid in pids:  # killed is not yet gone: the kernel takes its time
        wait_until(lambda pid=pid: _is_gone(pid), "it to be gone")
    with pytest.raises(ProviderError, match="closed"):
        source.resolve(SONG)


def test_something_that_left_its_group_does_not_hold_us(start: Start, tmp_path: Path) -> None:
    """Nor is it ended: it made itself independent."""
    source = start(f"""
        greet("resolve")
        ask()
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        other = subprocess.Popen(sleeper, start_new_session=True, stdin=subprocess.DEVNULL)
        open({str(tmp_path / "pid")!r}, "w").write(str(other.pid))
        os._exit(4)
    """)
    try:
        with pytest.raises(ProviderError, match="exit code 4"):
            source.resolve(SONG)
        source.close()
    finally:
        psutil.Process(int((tmp_path / "pid").read_text())).kill()


def test_it_learns_its_own_settings_and_no_secrets_of_others(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBSONIC_PASSWORD", "hush")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hush@h/d")
    source = start(
        """
        hello = ask()
        assert not any("hush" in value for value in os.environ.values())
        say(id=hello["id"], item={"verbs": ["resolve"]}, done=True)
        say(id=ask()["id"], error={"message": f"no luck with {hello['params']['settings']['KEY']}"})
        ask()
        """,
        KEY="opensesame", HOSTS="h", ROOT="/tmp",
    )  # fmt: skip
    with pytest.raises(ProviderError, match=r"no luck with \*\*\*"):
        source.resolve(SONG)
    assert os.environ["SUBSONIC_PASSWORD"] == "hush"


def test_the_bridge_to_musicdl_says_what_is_missing(start: Start) -> None:
    source = start(ECHO.with_name("musicdl_bridge.py"))
    with pytest.raises((Unusable, ProviderError), match="musicdl is not installed"):
        source.resolve(SONG)


def test_the_bridge_speaks_the_protocol_whatever_is_printed_meanwhile(start: Start, tmp_path: Path) -> None:
    """With a stand-in of the same shape: musicdl itself is neither a dependency nor run here."""
    package = tmp_path / "musicdl"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "musicdl.py").write_text(STAND_IN)
    (tmp_path / "bridge.py").write_text(ECHO.with_name("musicdl_bridge.py").read_text())
    source = start(tmp_path / "bridge.py", CLIENTS="QQMusicClient")
    assert (source.can("search"), source.can("playlists")) == (True, False)
    (found,) = source.search(Track(id="x", title="夜曲", artists=("周杰倫",)))
    assert (found.id, found.title, found.artists) == ("QQMusicClient:7", "夜曲", ("周杰倫", "B"))
    media = source.resolve(found)
    assert (media.url, media.suffix, media.size) == ("https://cdn.example/夜曲 周杰倫", ".flac", 9)
    with pytest.raises(Gone):
        source.resolve(SONG)


STAND_IN = """
from types import SimpleNamespace
class MusicClient:
    def __init__(self, music_sources=[], init_music_clients_cfg={}):
        self.sources = music_sources
    def search(self, keyword):
        print("Searching", keyword)
        song = SimpleNamespace(
            identifier="7", song_name="夜曲", singers="周杰倫, B", album="NULL", ext="flac", file_size_bytes=9,
            duration_s=226, lyric="NULL", cover_url=None, default_download_headers={"Referer": "https://y.qq.com"},
            download_url="https://cdn.example/" + keyword,
        )
        return {source: [song] for source in self.sources}
"""
