"""`dalsegno serve` and `dalsegno demo` as real processes: addresses, signals, ports, and two at once."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from dalsegno.web.server import bind
from tests.cli.tool import STUDIO, Process
from tests.helpers import wait_until

Start = Callable[..., Process]
ADDRESS = re.compile(r"The console is at (http://127\.0\.0\.1:\d+)\n")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def start(*words: object, **more: object) -> Process:
        started.append(Process(tmp_path, *words, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def address(of: Process) -> str:
    of.wait_for("The console is at")
    found = ADDRESS.search(of.out)
    assert found is not None, of.out
    return found[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_answers_until_a_signal_and_ends_well(process: Start, sqlite_url: str, number: int) -> None:
    serving = process("serve", "--port", 0, DATABASE_URL=sqlite_url)
    url = address(serving)
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    wait_until(lambda: httpx.get(f"{url}/api/workers").json()["processes"], "the engine to be there")
    serving.signal(number)
    ended = serving.end()
    assert ended.code == 0
    assert "Stopping" in ended.err


def test_serve_drains_while_the_console_still_answers(process: Start, sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "items.txt").write_text("one\ntwo\n")
    serving = process("serve", "--port", 0, *STUDIO, DATABASE_URL=sqlite_url)
    url = address(serving)
    words = ("submit", "gated", *STUDIO, "-p", f"gate={tmp_path}/gate", "--items", "items.txt")
    assert process(*words, DATABASE_URL=sqlite_url).end().code == 0
    wait_until((tmp_path / "gate.one").exists, "the first to begin")
    serving.signal(signal.SIGTERM)
    serving.wait_for("Stopping")
    job = httpx.get(f"{url}/api/jobs").json()["jobs"][0]
    assert job["counts"]["running"] >= 1
    (tmp_path / "gate").touch()
    assert serving.end().code == 0


def test_a_port_that_is_taken_is_said_with_the_way_out(process: Start, sqlite_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = process("serve", "--port", port, DATABASE_URL=sqlite_url).end()
    assert refused.code == 2
    assert f"CONSOLE_PORT: port {port} on 127.0.0.1 is taken by another program." in refused.err
    assert f"--port {port + 1}" in refused.err


def test_an_open_address_needs_to_be_asked_for(process: Start, sqlite_url: str) -> None:
    refused = process("serve", "--host", "0.0.0.0", "--port", 0, DATABASE_URL=sqlite_url).end()
    assert refused.code == 2
    assert "--insecure" in refused.err
    refused = process("serve", "--port", 0, DATABASE_URL=sqlite_url, CONSOLE_HOST="0.0.0.0").end()
    assert refused.code == 2
    assert process("serve", "--host", "0.0.0.0", "--port", 0, "--insecure", DATABASE_URL=sqlite_url).wait_for(
        "The console is at http://"
    ) is None  # fmt: skip


def test_with_a_password_any_address_may_be_listened_on(process: Start, sqlite_url: str) -> None:
    words = ("serve", "--host", "0.0.0.0", "--port", 0, "--read-only")
    serving = process(*words, DATABASE_URL=sqlite_url, CONSOLE_PASSWORD="da capo al fine")
    serving.wait_for("The console is at http://")
    found = re.search(r"The console is at http://.*:(\d+)\n", serving.out)
    assert found is not None
    url = f"http://127.0.0.1:{found[1]}"
    assert httpx.get(f"{url}/healthz").status_code == 200
    assert httpx.get(f"{url}/api/jobs").status_code == 401
    known = ("wall", "da capo al fine")
    assert httpx.get(f"{url}/api/jobs", auth=known, timeout=30).json()["jobs"] == []
    refused = httpx.post(f"{url}/api/jobs", json={"template": "full"}, auth=known)
    assert (refused.status_code, refused.json()["code"]) == (403, "read_only")
    assert "da capo" not in serving.out + serving.err


def test_beside_another_engine_the_console_works_with_it_and_takes_its_place(process: Start, sqlite_url: str) -> None:
    first = process("serve", "--port", 0, DATABASE_URL=sqlite_url)
    wait_until(lambda: httpx.get(f"{address(first)}/api/workers").json()["processes"], "the engine to be there")
    second = process("serve", "--port", 0, DATABASE_URL=sqlite_url)
    second.wait_for(f"Process {first.process.pid} already runs an engine on this database")
    url = address(second)
    assert [line["pid"] for line in httpx.get(f"{url}/api/workers").json()["processes"]] == [first.process.pid]
    first.signal(signal.SIGTERM)
    assert first.end().code == 0
    second.wait_for("The other engine has stopped; this one goes on.")
    second.signal(signal.SIGTERM)
    assert second.end().code == 0


# --- the demo -------------------------------------------------------------------------------------


def files(folder: Path, *kinds: str) -> list[str]:
    return sorted(path.name for kind in kinds for path in folder.rglob(f"*{kind}"))


def test_the_demo_runs_by_itself_to_its_expected_end(process: Start, tmp_path: Path) -> None:
    demo = process("demo", "--folder", "here", "--port", 0, "--pace", 0, "--once", SUBSONIC_URL="http://192.0.2.1:1")
    url = address(demo)
    assert httpx.get(f"{url}/healthz").status_code == 200
    ended = demo.end(100)
    assert ended.code == 3, ended
    assert "broken on purpose" in ended.err
    here = tmp_path / "here"
    songs = files(here / "library", ".flac", ".wav")
    assert len(songs) > 100
    assert len(files(here / "archive", ".flac", ".wav")) > 100
    assert {path.name for path in here.iterdir()} >= {"library", "archive", "dalsegno.db"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["here"], "all of it is in its folder"


def test_the_demo_goes_on_from_the_mark_after_a_kill(process: Start, tmp_path: Path) -> None:
    words = ("demo", "--folder", "here", "--port", 0)
    first = process(*words, "--pace", 1)
    url = address(first)
    wait_until(lambda: _done(url) >= 20, "some songs to be done")
    first.kill()
    again = process(*words, "--pace", 0)
    again.wait_for("Job 1: full, continued from the mark")
    again.wait_for("broken on purpose", 100)
    again.wait_for("Ctrl-C ends it")
    jobs = httpx.get(f"{address(again)}/api/jobs").json()["jobs"]
    assert [(job["id"], job["status"]) for job in jobs] == [(1, "completed_with_errors")]
    again.signal(signal.SIGINT)
    assert again.end().code == 0


def test_the_demo_stopped_before_its_end_says_how_to_go_on(process: Start) -> None:
    demo = process("demo", "--folder", "here", "--port", 0, "--pace", 1)
    url = address(demo)
    wait_until(lambda: _done(url) >= 20, "some songs to be done")
    demo.signal(signal.SIGINT)
    ended = demo.end()
    assert ended.code == 130
    assert "run the same command to go on from the mark" in ended.err


def test_a_demo_whose_catalog_had_to_move_still_goes_on(process: Start, tmp_path: Path) -> None:
    demo = process("demo", "--folder", "here", "--port", 0, "--pace", 1)
    url = address(demo)
    wait_until(lambda: _done(url) >= 20, "some songs to be done")
    demo.signal(signal.SIGINT)
    assert demo.end().code == 130
    port = int((tmp_path / "here/catalog-port").read_text())
    with socket.create_server(("127.0.0.1", port)):
        again = process("demo", "--folder", "here", "--port", 0, "--pace", 0, "--once").end(100)
    assert again.code == 3
    assert "continued from the mark" in again.err


def _done(url: str) -> int:
    jobs = httpx.get(f"{url}/api/jobs").json()["jobs"]
    return int(jobs[0]["counts"]["succeeded"]) if jobs else 0


def test_the_body_of_an_answer_does_not_wait_for_its_head_to_be_acknowledged() -> None:
    with bind("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
