"""A settings file of its own for every test, and nothing else that sets anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.config.current import Current
from dalsegno.settings import KEYS

CONTENT = """\
# The attic's music.

LIBRARY_ROOT=/mnt/music   # the big disk
SUBSONIC_URL=http://nas:4533
SUBSONIC_PASSWORD="winter river"
FEED_URLS=https://me:autumn1@feeds.example/a, https://feeds.example/b
"""
SECRETS = ("winter river", "autumn1")


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "my.env"
    found.write_text(CONTENT)
    return found


@pytest.fixture
def current(file: Path) -> Current:
    return Current.of(file)
