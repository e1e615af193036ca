"""What is written beside a song."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from dalsegno.catalog.companions import write_companions
from tests.growth import growth

SONG = PurePosixPath("a.flac")


@pytest.mark.parametrize(
    ("lyrics", "suffix"),
    [("\n\n  \t[00:12.00]la", ".lrc"), ("[ar:x]\r\n[01:02]la", ".lrc"), ("la [00:12]", ".txt"), ("[00:1]la", ".txt")],
)
def test_words_with_times_are_lrc(tmp_path: Path, lyrics: str, suffix: str) -> None:
    assert write_companions(tmp_path, SONG, lyrics=lyrics) == [PurePosixPath(f"a{suffix}")]


@pytest.mark.parametrize("piece", ["\n", " ", "[", "[1", "\r\n\t"])
def test_no_words_take_more_work_than_they_are_long(tmp_path: Path, piece: str) -> None:
    def write(size: int) -> None:
        (tmp_path / "a.txt").unlink(missing_ok=True)
        assert write_companions(tmp_path, SONG, lyrics=f"la{piece * size}!")

    assert growth(write, 2000) < 24
