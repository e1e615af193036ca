"""Decoders: the built-in ones, programs that are kept warm, and programs that behave badly."""

from __future__ import annotations

import shlex
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from dalsegno.errors import InputInvalid
from dalsegno.model.signal import ProviderError, Signal
from dalsegno.requests.decoders.external import ExternalDecoder
from dalsegno.requests.decoders.model import Decoder, Link
from dalsegno.requests.decoders.registry import Decoders
from dalsegno.requests.decoders.ytdlp import YtDlp
from dalsegno.sources.hosts import Hosts
from dalsegno.sources.http import Http
from dalsegno.sources.model import Gone, Unusable
from dalsegno.sources.registry import Config, Sources
from tests.helpers import wait_until
from tests.requests.conftest import Studio
from tests.requests.upstream import Kodik

ECHO = Path(__file__).parents[2] / "examples" / "external" / "echo_decoder.py"
Start = Callable[..., ExternalDecoder]


@pytest.fixture
def http() -> Iterator[Http]:
    with Http(read_timeout=5, connect_timeout=5) as client:
        yield client


@pytest.fixture
def decoders(http: Http) -> Iterator[Callable[..., Decoders]]:
    made: list[Decoders] = []

    def make(**values: Any) -> Decoders:
        config = Config(values)
        made.append(Decoders(config, http, Sources(config), processes=2))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs a program, given as its text or its file, as the decoder `ext`."""
    opened: list[ExternalDecoder] = []

    def started(program: str | Path, processes: int = 1, **settings: str) -> ExternalDecoder:
        file = program if isinstance(program, Path) else tmp_path / f"child{len(opened)}.py"
        if isinstance(program, str):
            file.write_text(PREAMBLE + textwrap.dedent(program))
        command = shlex.join([sys.executable, str(file), str(tmp_path)])
        config = Config({f"SOURCE_EXT_{key}": value for key, value in settings.items()})
        opened.append(ExternalDecoder("ext", command, config, processes))
        return opened[-1]

    yield started
    for decoder in opened:
        decoder.close()


PREAMBLE = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
def ask():
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)
def say(**line):
    print(json.dumps(line), flush=True)
with (folder / "starts").open("a") as file:
    file.write(f"{os.getpid()}\\n")
say(id=ask()["id"], item={"protocol": 1}, done=True)
"""
PID = """
while True:
    question = ask()
    say(id=question["id"], item={"url": f"https://files.example/{os.getpid()}.mp4"}, done=True)
"""


def starts(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "starts").read_text().split()]


# ---- which is asked ----


def test_a_file_is_its_own_link_if_it_is_there(decoders: Callable[..., Decoders], upstream: Kodik) -> None:
    found = decoders(KODIK_URL=upstream.url, REQUESTS_DECODERS=("direct",))
    (direct,) = found.of(Link(url=f"{upstream.url}/media/1/1.mp4"))
    assert direct.decode(Link(url=f"{upstream.url}/media/1/1.mp4")).url == f"{upstream.url}/media/1/1.mp4"
    upstream.hook = lambda path, count: (404, {}, b"")
    with pytest.raises(Gone):
        direct.decode(Link(url=f"{upstream.url}/media/1/2.mp4"))
    upstream.hook = lambda path, count: (200, {"Content-Type": "text/html"}, b"")
    with pytest.raises(Unusable, match="no media file"):
        direct.decode(Link(url=f"{upstream.url}/media/1/3.mp4"))
    assert found.of(Link(url=f"{upstream.url}/player/17")) == []


def test_who_does_not_take_head_is_asked_with_get(decoders: Callable[..., Decoders], upstream: Kodik) -> None:
    (direct,) = decoders(KODIK_URL=upstream.url, REQUESTS_DECODERS=("direct",)).of(Link(url=f"{upstream.url}/a.mp4"))
    upstream.hook = lambda path, count: (405, {}, b"") if count == 1 else (200, {"Content-Type": "video/mp4"}, b"x")
    assert direct.decode(Link(url=f"{upstream.url}/media/a.mp4")).url


def test_an_address_inside_is_not_asked_unless_it_is_the_operators_own(
    decoders: Callable[..., Decoders], upstream: Kodik
) -> None:
    link = Link(url=f"{upstream.url}/media/1/1.mp4")
    (direct,) = decoders(REQUESTS_DECODERS=("direct",)).of(link)
    with pytest.raises(Unusable, match="private network"):
        direct.decode(link)
    assert not upstream.calls


def test_programs_come_before_what_is_built_in(decoders: Callable[..., Decoders]) -> None:
    command = shlex.join([sys.executable, str(ECHO)])
    link = Link(url="https://player.example/1.mp4")
    names = [each.name for each in decoders(EXTERNAL_DECODERS={"echo": command}).of(link)]
    assert names[:2] == ["echo", "direct"]
    chosen = decoders(EXTERNAL_DECODERS={"echo": command}, REQUESTS_DECODERS=("direct", "echo"))
    assert [each.name for each in chosen.of(link)] == ["direct", "echo"]
    with pytest.raises(InputInvalid, match="Did you mean"):
        decoders(REQUESTS_DECODERS=("dirct",)).of(link)


def test_ytdlp_finds_the_file_of_a_page(upstream: Kodik) -> None:
    pytest.importorskip("yt_dlp")
    decoder: Decoder = YtDlp(Hosts(Config({}), "kodik", [upstream.url]))
    link = Link(url=f"{upstream.url}/media/1/1.mp4")
    assert decoder.can(link)
    assert decoder.decode(link).url == link.url
    with pytest.raises(Unusable, match="private network"):
        YtDlp(Hosts(Config({}), "kodik", [])).decode(link)


# ---- programs ----


def test_the_example_decodes(start: Start) -> None:
    decoder = start(ECHO, SUFFIX=".m3u8", HOSTS="player.example, *.sub.example")
    decoded = decoder.decode(Link(url="https://player.example/serial/17/", quality="720p"))
    assert (decoded.url, decoded.quality) == ("https://player.example/serial/17.m3u8", "720p")
    with pytest.raises(Gone):
        decoder.decode(Link(url="https://player.example/"))
    hosts = ("player.example", "a.sub.example", "sub.example", "other.example")
    assert [decoder.can(Link(url=f"https://{host}/1")) for host in hosts] == [True, True, False, False]
    assert not decoder.can(Link(url="catalog:demo:{}"))


def test_it_says_when_the_link_expires(start: Start) -> None:
    decoder = start("""
        link = ask()
        assert link["params"]["link"] == {"url": "https://p.example/1", "episode": 3}, link
        say(id=link["id"], item={"url": "https://f.example/1.mp4", "quality": 720, "expires_at": 1777917600}, done=True)
    """)
    decoded = decoder.decode(Link(url="https://p.example/1", episode=3))
    assert (decoded.quality, decoded.expires_at) == ("720", datetime(2026, 5, 4, 18, tzinfo=UTC))


@pytest.mark.parametrize(
    ("answer", "kind", "status"),
    [("item={'url': 5}", Unusable, None), ("item={}", Unusable, None), ("item={'url': 'file:///x'}", Unusable, None),
     ("item={'url': 'https://f/1', 'expires_at': 'soon'}", Unusable, None), ("item=None", Gone, None),
     ("error={'code': 'gone'}", Gone, None), ("error={'code': 'drm'}", Unusable, None),
     ("error={'code': 'rate_limited', 'retry_after': 9}", ProviderError, 429),
     ("error={'code': 'failed'}", ProviderError, None)],
)  # fmt: skip
def test_answers_that_are_of_no_use(start: Start, answer: str, kind: type[Exception], status: int | None) -> None:
    decoder = start(f"say(id=ask()['id'], {answer}, done=True)\nask()")
    with pytest.raises(kind) as caught:
        decoder.decode(Link(url="https://p.example/1"))
    assert Signal.of(caught.value).status == status
    assert "source" not in str(caught.value)


def test_it_is_started_once_and_reused(start: Start, tmp_path: Path) -> None:
    decoder = start(PID, processes=3)
    urls = {decoder.decode(Link(url=f"https://p.example/{number}")).url for number in range(20)}
    assert len(urls) == len(starts(tmp_path)) == 1


def test_one_that_died_is_started_again(start: Start, tmp_path: Path) -> None:
    decoder = start("""
        while True:
            question = ask()
            if question["params"]["link"]["url"].endswith("poison"):
                os._exit(3)
            say(id=question["id"], item={"url": "https://files.example/1.mp4"}, done=True)
    """)
    assert decoder.decode(Link(url="https://p.example/1"))
    with pytest.raises(ProviderError, match="decoder ext ended with exit code 3"):
        decoder.decode(Link(url="https://p.example/poison"))
    assert decoder.decode(Link(url="https://p.example/2"))
    assert len(starts(tmp_path)) == 2


def test_as_many_as_there_is_work_for_and_no_more(start: Start, tmp_path: Path) -> None:
    decoder = start("""
        while True:
            question = ask()
            (folder / f"at-{os.getpid()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.005)
            say(id=question["id"], item={"url": f"https://files.example/{os.getpid()}.mp4"}, done=True)
    """, processes=3)  # fmt: skip
    found: list[str] = []

    def decode(number: int) -> None:
        found.append(decoder.decode(Link(url=f"https://p{number}.example/1")).url)

    threads = [threading.Thread(target=decode, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(list(tmp_path.glob("at-*"))) == 3, "three to be busy")
    (tmp_path / "go").touch()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == len(starts(tmp_path)) == 3


def test_a_process_keeps_to_the_host_it_knows(start: Start, tmp_path: Path) -> None:
    decoder = start(PID, processes=2)

    def of(host: str) -> str:
        return decoder.decode(Link(url=f"https://{host}/1")).url

    first = of("a.example")
    with decoder._warm.take("a.example"):  # the first is busy
        second = of("b.example")
    assert first != second
    for _ in range(3):
        assert of("b.example") == second
        assert of("a.example") == first
    assert of("c.example") in (first, second), "there are no more than two"


def test_closing_ends_them_all(start: Start, tmp_path: Path) -> None:
    decoder = start(PID, processes=2)
    decoder.decode(Link(url="https://a.example/1"))
    (pid,) = starts(tmp_path)
    assert psutil.pid_exists(pid)
    decoder.close()
    wait_until(lambda: not psutil.pid_exists(pid), "it to end")
    with pytest.raises(ProviderError):
        decoder.decode(Link(url="https://a.example/1"))


def test_requests_are_decoded_by_programs(studios: Callable[..., Studio], upstream: Kodik) -> None:
    """From the search to the links, with two processes for forty variants."""
    upstream.serial(episodes=20, translations=2)
    for result in upstream.results:
        episodes = result["seasons"]["1"]["episodes"]
        result["seasons"]["1"]["episodes"] = {at: link.removesuffix(".mp4") for at, link in episodes.items()}
    command = shlex.join([sys.executable, str(ECHO)])
    own = {"requests_decoders": ("echo",), "external_decoders": {"echo": command}, "requests_decode_workers": 2}
    done = studios(**{**upstream.settings, **own}).carry_out(title="long serial", decodeLinks=True)
    assert (done.status, done.decoded, done.failed) == ("DONE", 40, 0)
