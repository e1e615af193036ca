"""A folder of its own for every test of the command line, and processes that do not outlive it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.settings import KEYS
from tests.cli.tool import Process


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: None) -> Iterator[Path]:
    """Where the user stands: nothing is set, nothing is there."""
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    gc.collect()  # a connection nobody closed says so here


@pytest.fixture
def process(folder: Path) -> Iterator[Callable[..., Process]]:
    """`process(words…)` starts `dalsegno words…`; whatever still runs after the test is killed."""
    started: list[Process] = []

    def start(*words: object, **more: object) -> Process:
        started.append(Process(folder, *words, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def here(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that every command in this process uses, one test after another on both kinds."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    return database_url


@pytest.fixture
def file_here(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same, on SQLite alone."""
    monkeypatch.setenv("DATABASE_URL", sqlite_url)
    return sqlite_url
