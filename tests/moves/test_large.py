"""200,000 songs, backed up and moved to PostgreSQL in the middle of a job: it goes on there, and every file agrees."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import open_store
from dalsegno.catalog.schema import file_locations, songs
from dalsegno.store.schema import items, jobs
from tests.cli.tool import say
from tests.crash.harness import eventually

SONGS, PLAYLISTS = 200_000, 5_000
WANTED = [f"--playlist={number}" for number in range(1, 31)]


@contextmanager
def source() -> Iterator[str]:
    command = [sys.executable, "-m", "dalsegno.sources.demo_server", "--no-faults", "--pace", "0"]
    command += ["--songs", str(SONGS), "--playlists", str(PLAYLISTS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def asked(url: str, statement: sa.Select[Any]) -> list[Any]:
    with closing(open_store(url)) as store:
        return [tuple(row.values()) for row in store.read(lambda tx: tx.rows(statement))]


def succeeded(url: str) -> int:
    """Downloads of the last job."""
    last = sa.select(sa.func.max(jobs.c.id)).scalar_subquery()
    done = sa.select(sa.func.count()).where(items.c.job_id == last, items.c.status == "succeeded")
    return int(asked(url, done)[0][0])


def published(origin: str, remote_id: str) -> str:
    """The checksum of what the source has."""

    def get(path: str) -> bytes:
        with urllib.request.urlopen(urllib.parse.urljoin(origin, path), timeout=30) as answer:
            return bytes(answer.read())

    return hashlib.sha256(get(json.loads(get(f"/tracks/{remote_id}/link"))["url"])).hexdigest()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_200_000_songs_move_to_postgresql_in_the_middle_of_a_job(
    fresh_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = fresh_database("sqlite"), fresh_database("postgres", empty=True)
    again = fresh_database("sqlite", empty=True)
    library, shelf = tmp_path / "library", tmp_path / "shelf"
    with source() as origin:
        for name, value in {
            "DEMO_URL": origin, "LIBRARY_ROOT": library, "OBJECT_STORE": f"file://{shelf}", "MIN_FREE_SPACE": "1MB",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, str(value))
        say("run", "collect", "--database", here)
        say("run", "sync", "--database", here)
        assert asked(here, sa.select(sa.func.count()).select_from(songs)) == [(SONGS,)]
        job = ("run", "download-upload", *WANTED, "--database")
        command = [sys.executable, "-m", "dalsegno", *job, here]
        child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually("some songs", lambda: succeeded(here) >= 200, 120)
        say("backup", tmp_path / "taken", "--database", here)
        eventually("more songs", lambda: succeeded(here) >= 400, 120)
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        before = set(asked(here, sa.select(items.c.key).where(items.c.status == "succeeded")))
        say("migrate", "--to", there, "--database", here)
        say("restore", tmp_path / "taken", "--database", again, fine=False)
        for url in (there, again):
            say(*job, url)
            told = say("check", "--deep", "--database", url, "--json").data["check"]
            assert told["agrees"], told["named"]
            assert asked(url, sa.select(sa.func.count()).select_from(songs)) == [(SONGS,)]
            assert before <= set(asked(url, sa.select(items.c.key).where(items.c.status.in_(["succeeded", "skipped"]))))
        done = asked(there, sa.select(songs.c.remote_id, file_locations.c.path)
                     .join(file_locations, file_locations.c.asset_id == songs.c.asset_id)
                     .where(file_locations.c.path.not_like("%/.dalsegno/%")))  # fmt: skip
        assert len(done) > 1000
        for remote_id, path in done[::7]:
            file = library / path if (library / path).exists() else shelf / path
            assert hashlib.sha256(file.read_bytes()).hexdigest() == published(origin, remote_id), path
