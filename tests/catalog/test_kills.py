"""A process killed after every step of fetching and landing: the next one ends with the right file, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dalsegno.catalog.part import clear, note_path
from tests.audio import wav
from tests.servers import caddy

PROGRAM = """
import sys
from pathlib import Path, PurePosixPath
from dalsegno.catalog import landing
from dalsegno.catalog.fetch import fetch
from dalsegno.catalog.landing import adopt, land
from dalsegno.catalog.part import Part
from dalsegno.sources.http import Http
from dalsegno.sources.model import Media

root, url, links, old = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
if links == "no":
    def refuse(*_):
        raise PermissionError(1, "no hard links here")
    landing.os.link = refuse
receipt = adopt(root, "song-1")
if receipt is None:
    with Http() as http, Part.open(root, "song-1", source="web", remote_id="1") as part:
        media = Media(url=url, trusted=True)
        fetched = fetch(http, media, part, moved=lambda *_: None, cancelled=lambda: False)
        landed = land(part, fetched, name=lambda suffix: PurePosixPath("Band/Song" + suffix),
                      replace=PurePosixPath(old) if old else None)
        print("fetched", fetched.transferred, landed.path)
else:
    print("adopted", 0, receipt.path)
"""
POINTS = ["land.synced", "land.receipt", "land.moved", "land.durable", "land.removed"]
SONG = wav(20.0, seed=5)


def run(root: Path, url: str, *, fault: str = "", links: str = "yes", old: str = "") -> tuple[str, int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), url, links, old],
        env={**os.environ, "DALSEGNO_FAULT": fault},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if fault:
        assert done.returncode == -signal.SIGKILL, done.stderr
        return "", 0, ""
    assert done.returncode == 0, done.stderr
    how, moved, path = done.stdout.split(" ", 2)
    return how, int(moved), path.strip()


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".dalsegno" not in path.parts
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> object:
    web = tmp_path_factory.mktemp("web")
    (web / "song.wav").write_bytes(SONG)
    with caddy(web) as address:
        yield f"{address}/song.wav"


def settled(root: Path) -> None:
    """As after the item's success was stored: the file is there, and nothing else."""
    clear(root, "song-1")
    assert files(root) == {"Band/Song.wav": SONG}
    assert not list((root / ".dalsegno").iterdir())


@pytest.mark.parametrize("point", POINTS)
def test_killed_while_landing(tmp_path: Path, url: str, point: str) -> None:
    run(tmp_path, url, fault=point)
    how, moved, path = run(tmp_path, url)
    assert path == "Band/Song.wav"
    assert moved == 0
    assert how == ("fetched" if point == "land.synced" else "adopted")
    settled(tmp_path)


@pytest.mark.parametrize("point", ["land.receipt", "land.claimed", "land.moved", "land.durable", "land.removed"])
def test_killed_while_landing_where_there_are_no_links(tmp_path: Path, url: str, point: str) -> None:
    run(tmp_path, url, fault=point, links="no")
    assert run(tmp_path, url, links="no") == ("adopted", 0, "Band/Song.wav")
    settled(tmp_path)


@pytest.mark.parametrize("point", ["land.synced", "land.receipt", "land.moved"])
def test_killed_while_replacing_keeps_the_old_or_has_the_new(tmp_path: Path, url: str, point: str) -> None:
    old = wav(seed=9)
    (tmp_path / "Band").mkdir()
    (tmp_path / "Band/Song.wav").write_bytes(old)
    run(tmp_path, url, fault=point, old="Band/Song.wav")
    assert files(tmp_path)["Band/Song.wav"] == (SONG if point == "land.moved" else old)
    run(tmp_path, url, old="Band/Song.wav")
    settled(tmp_path)


@pytest.mark.parametrize("pieces", [1, 3, 6])
def test_killed_while_fetching_asks_only_for_the_rest(tmp_path: Path, url: str, pieces: int) -> None:
    run(tmp_path, url, fault=f"fetch.stored:{pieces}")
    have = (tmp_path / ".dalsegno/song-1.part").stat().st_size
    assert 0 < have < len(SONG)
    assert note_path(tmp_path, "song-1").exists()
    assert run(tmp_path, url) == ("fetched", len(SONG) - have, "Band/Song.wav")
    settled(tmp_path)


def test_killed_when_the_same_bytes_were_there(tmp_path: Path, url: str) -> None:
    (tmp_path / "Band").mkdir()
    (tmp_path / "Band/Song.wav").write_bytes(SONG)
    run(tmp_path, url, fault="land.reused")
    assert run(tmp_path, url) == ("adopted", 0, "Band/Song.wav")
    settled(tmp_path)


def test_killed_again_and_again(tmp_path: Path, url: str) -> None:
    for fault in ["fetch.stored", "fetch.stored", "fetch.stored:2", "land.synced", "land.receipt", "land.moved"]:
        run(tmp_path, url, fault=fault)
    assert run(tmp_path, url) == ("adopted", 0, "Band/Song.wav")
    settled(tmp_path)
