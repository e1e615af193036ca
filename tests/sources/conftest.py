"""Real servers for the sources, one of each for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers

SONGS = {
    "björk/ünder/01 夜曲.wav": {"title": "夜曲", "artist": "Björk", "album": "Ünder", "track_no": 1, "year": 2001},
    "björk/ünder/02 a & b=c.wav": {"title": "a & b=c?", "artist": "Björk", "album": "Ünder", "track_no": 2},
    "周杰倫/七里香/01 七里香.wav": {
        "title": "七里香",
        "artist": "周杰倫",
        "album": "七里香",
        "track_no": 1,
        "year": 2004,
    },
    "untagged/noise 🎧.wav": {},
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small library whose every file sounds different."""
    root = tmp_path_factory.mktemp("library")
    for number, (name, tags) in enumerate(SONGS.items()):
        servers.wav(root / name, 1.0, tone=200.0 + 50 * number, **tags)
    return root


@pytest.fixture(scope="session")
def caddy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An HTTP server: its address, and the folder that tests put files into."""
    root = tmp_path_factory.mktemp("www")
    with servers.caddy(root) as url:
        yield url, root


@pytest.fixture(scope="session")
def supysonic(library: Path) -> Iterator[tuple[str, str, str]]:
    """A Subsonic server that has the library: its address, a user, the password."""
    with servers.supysonic(library) as server:
        yield server
