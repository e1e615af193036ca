"""Room on the disk, on a real small one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from dalsegno.catalog import space
from dalsegno.catalog.fetch import fetch
from dalsegno.catalog.landing import land
from dalsegno.catalog.part import Part, clear
from dalsegno.catalog.space import DiskFull
from dalsegno.sources.http import Http
from dalsegno.sources.model import Media
from tests.audio import wav
from tests.catalog.script import Line, Request, honest, scripted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk of a few megabytes")
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_the_message_says_what_is_needed(tmp_path: Path) -> None:
    full = DiskFull(Path("/music"), 12_000_000, 3_100_000, 1_000_000_000)
    assert str(full) == ("The library at /music has 3.1 MB free; this song needs 12.0 MB and 1.0 GB must stay free.")
    assert str(DiskFull(Path("/music"), None, 5)) == "The library at /music has 5 bytes free."


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (10**17, "100000.0 TB"),
    ],
)
def test_sizes_are_spoken(size: int, text: str) -> None:
    assert space.spoken(size) == text


def test_a_folder_that_is_not_there_yet_has_its_parents_room(tmp_path: Path) -> None:
    assert space.free(tmp_path / "a" / "b") == pytest.approx(space.free(tmp_path), rel=0.1)


def test_a_song_that_does_not_fit_is_not_begun(small_disk: Path) -> None:
    space.room_for(small_disk, 1_000_000, 1_000_000)
    with pytest.raises(DiskFull) as caught:
        space.room_for(small_disk, 3_000_000, 2_000_000)
    assert (caught.value.needed, caught.value.keep) == (3_000_000, 2_000_000)


def test_a_disk_that_fills_up_on_the_way_keeps_what_came_and_goes_on_later(small_disk: Path) -> None:
    song = wav(17.0)[:3_000_000]
    song = (
        song[:4]
        + (len(song) - 8).to_bytes(4, "little")
        + song[8:40]
        + (len(song) - 44).to_bytes(4, "little")
        + song[44:]
    )
    other = small_disk / "other"

    def unannounced(request: Request, line: Line) -> None:
        line.send(b'HTTP/1.1 200 OK\r\nETag: "a"\r\nConnection: close\r\n\r\n' + song)

    with Http() as http, scripted(unannounced, honest(song)) as server:
        media = Media(url=server.url, trusted=True)
        other.write_bytes(bytes(2_500_000))
        with Part.open(small_disk, "song-1") as part, pytest.raises(DiskFull):
            fetch(http, media, part, moved=lambda *_: None, cancelled=lambda: False)
        kept = (small_disk / ".dalsegno/song-1.part").read_bytes()
        assert song.startswith(kept)
        other.unlink()
        with Part.open(small_disk, "song-1") as part:
            fetched = fetch(http, media, part, moved=lambda *_: None, cancelled=lambda: False)
            landed = land(part, fetched, name=lambda suffix: PurePosixPath(f"song{suffix}"))
    assert (small_disk / landed.path).read_bytes() == song
    assert fetched.resumed_from + fetched.transferred == len(song)
    clear(small_disk, "song-1")
