"""The catalog from the command line: one stage at a time, the whole chain, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.sources.demo_server import DemoServer
from tests.catalog.studio import audio_in
from tests.cli.tool import Process, say


@pytest.fixture
def demo(here: str, folder: Path) -> Iterator[DemoServer]:
    """A small catalog in which nothing is broken, named in the env file with everything else."""
    with DemoServer(songs=24, playlists=4, pace=0, faults=False) as server:
        (folder / "dalsegno.env").write_text(
            f"DEMO_URL={server.url}\nLIBRARY_ROOT=library\nMIN_FREE_SPACE=0\nOBJECT_STORE=file://{folder}/archive\n"
        )
        yield server


def test_the_four_stages_one_after_the_other(demo: DemoServer, folder: Path) -> None:
    assert "completed" in say("collect").out
    assert "completed" in say("sync").out
    playlists = say("playlists", "--json").data["lines"]
    assert [line["status"] for line in playlists] == ["incomplete"] * 4
    chosen = playlists[0]
    assert "completed" in say("download", "--playlist", chosen["id"]).out
    here = say("songs", "--here", "--limit", 100, "--json").data
    assert len(here) == chosen["song_count"]
    assert "completed" in say("upload").out
    line = next(each for each in say("playlists", "--json").data["lines"] if each["id"] == chosen["id"])
    assert (line["status"], line["uploaded"]) == ("complete", chosen["song_count"])
    assert len(audio_in(folder / "archive")) == len(here)


def test_the_whole_chain_by_its_chinese_name(demo: DemoServer, folder: Path) -> None:
    assert "completed" in say("run", "全链路").out
    assert {line["status"] for line in say("playlists", "--json").data["lines"]} == {"complete"}
    assert {line["status"] for line in say("pools", "--json").data} == {"complete"}
    assert "已完成" in say("playlists").out
    before = dict(demo.requests)
    assert "completed" in say("run", "full").out
    assert demo.requests == before, "what is there is not asked for again"
    song = say("song", 1, "--json").data
    assert {copy[0] for copy in song["copies"]} == {"library", "file"}
    assert song["playlists"]
    assert list((folder / "library" / "Playlists").glob("*.m3u8"))


def test_a_job_that_goes_on_says_which_settings_are_other_than_those_it_was_made_with(
    demo: DemoServer, folder: Path
) -> None:
    env = folder / "dalsegno.env"
    env.write_text(env.read_text().replace("MIN_FREE_SPACE=0", f"MIN_FREE_SPACE={2**60}"))
    assert say("run", "full", fine=False).code == 6
    same = say("run", "full", fine=False)
    assert "continued from the mark" in same.err
    assert "It keeps" not in same.err
    env.write_text(env.read_text().replace(str(2**60), "0"))
    other = say("run", "full", fine=False)
    assert other.code == 6
    assert (
        "those of now differ in MIN_FREE_SPACE. To change them: dalsegno resume 1 --set MIN_FREE_SPACE=…" in other.err
    )
    say("resume", 1, "--set", "MIN_FREE_SPACE=0")
    last = say("run", "full")
    assert "completed" in last.out
    assert "It keeps" not in last.err


def test_a_run_says_which_breaker_it_waits_for(demo: DemoServer, here: str, process: Callable[..., Process]) -> None:
    say("breaker", "trip", "source:demo", "--reason", "they asked us to stop", "--for", "1h")
    run = process("run", "collect", DATABASE_URL=here)
    run.wait_for("Breaker source:demo is open (")
    run.wait_for("in line): they asked us to stop. It opens by itself at ")
    run.wait_for("; or now: dalsegno breaker probe source:demo")
    say("breaker", "reset", "source:demo")
    assert run.end().code == 0


@pytest.mark.parametrize(("folder_of", "verb"), [("library", "download"), ("archive", "upload")])
def test_what_a_check_advises_about_a_file_mends_it(demo: DemoServer, folder: Path, folder_of: str, verb: str) -> None:
    say("run", "full")
    changed, gone, *_ = audio_in(folder / folder_of)
    changed.write_bytes(b"cut")
    gone.unlink()
    told = say("check", fine=False).out
    for file, before in ((changed, f"Otherwise move it away and have it again: dalsegno {verb} --song "),
                         (gone, f"or have it again: dalsegno {verb} --song ")):  # fmt: skip
        after = told[told.index(str(file)) :]
        number = re.match(r"\d+", " ".join(after.split()).partition(before)[2])
        assert number is not None, told
        file.unlink(missing_ok=True)
        say(verb, "--song", number[0])
    assert "Everything agrees" in say("check").out


def test_a_scope_of_one_song(demo: DemoServer) -> None:
    say("run", "sync-download", "--song", "demo:song-3", fine=False)
    assert say("songs", "--json").data == [], "nothing was collected yet"
    say("collect")
    assert "completed" in say("run", "sync-download", "--song", "demo:song-3").out
    assert [song["remote_id"] for song in say("songs", "--here", "--json").data] == ["song-3"]


def test_a_query_is_about_songs_where_songs_are_downloaded(demo: DemoServer) -> None:
    say("collect")
    say("sync")
    title = say("songs", "--limit", 1, "--json").data[0]["title"]
    say("download", "--query", title)
    here = say("songs", "--here", "--json").data
    assert here
    assert all(title.lower() in f"{song['title']} {song['artist']} {song['album']}".lower() for song in here)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("run", "full", "--source", "demmo"), 'Did you mean "demo"'),
        (("run", "full", "--download-source", "qq"), 'There is no source "qq"'),
        (("run", "fulll"), 'Did you mean "full"'),
        (("run", "scale", "--playlist", "x"), "it has no scope"),
        (("playlists", "--status", "fine"), "complete"),
        (("song", 99), "There is no song 99"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_likely_intention(
    words: tuple[object, ...], why: str, demo: DemoServer
) -> None:
    answer = say(*words, fine=False)
    assert answer.code == 2
    assert why in " ".join(answer.err.split())


def test_uploads_need_somewhere_to_go(demo: DemoServer, folder: Path) -> None:
    env = folder / "dalsegno.env"
    env.write_text("".join(line for line in env.read_text().splitlines(True) if "OBJECT_STORE" not in line))
    answer = say("upload", fine=False)
    assert answer.code == 4
    assert "Set OBJECT_STORE" in answer.out
    assert "completed" in say("run", "full").out, "without a store the whole chain ends with the downloads"


def test_a_job_without_any_source_says_what_to_set(here: str) -> None:
    answer = say("run", "full", fine=False)
    assert answer.code == 4
    assert "SUBSONIC_URL" in answer.out
    assert "InputInvalid" not in answer.out
