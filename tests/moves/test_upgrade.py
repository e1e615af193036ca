"""Upgrades: one process changes the schema, after a backup; older processes go on beside newer ones."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store, open_store, submit
from dalsegno.errors import UpgradeNeedsBackup, UpgradeNeedsRoom
from dalsegno.insight.health import keeping
from dalsegno.store import upgrade as upgrading
from dalsegno.store.migrate import upgrade
from dalsegno.store.notes import MOVED, UPGRADE, read_note, write_note
from dalsegno.store.open import parse_url
from dalsegno.store.revisions import known_revisions
from dalsegno.store.upgrade import Precaution
from tests.cli.tool import ROOT, environment, say
from tests.helpers import assert_sound, items_of, keys, one_step, status_of, wait_until
from tests.store.test_migrate import _fill, dump, engine_for

Make = Callable[..., str]
LAST, BEFORE = known_revisions()[-1], known_revisions()[-2]


@pytest.fixture
def old_url(backend: str, fresh_database: Make) -> str:
    """A database of the version before, with a job in it."""
    url = fresh_database(backend, empty=True)
    upgrade(parse_url(url), BEFORE)
    _fill(url)
    return url


def kept_of(url: str, folder: Path) -> Path:
    if url.startswith("sqlite"):
        return Path(f"{url.removeprefix('sqlite:///')}.before-{LAST}")
    return folder / f"{parse_url(url).database}.before-{LAST}.dump"


def test_a_backup_is_made_first_and_brings_the_old_version_back(
    old_url: str, backend: str, fresh_database: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dump(old_url)
    say("jobs", "--database", old_url)
    kept = kept_of(old_url, tmp_path)
    assert kept.exists()
    with closing(open_store(old_url)) as store:
        note = store.read(lambda tx: read_note(tx, UPGRADE))
    assert note is not None
    assert (note["from"], note["to"], note["backup"]) == (BEFORE, LAST, str(kept))
    if backend == "sqlite":
        assert dump(f"sqlite:///{kept}") == before
    elsewhere = fresh_database(backend, empty=True)
    done = say("restore", kept, "--database", elsewhere, "--json").data["restored"]
    assert (done["schema"], done["now"]) == (BEFORE, LAST)


def test_nothing_is_kept_of_a_database_with_nothing_in_it(
    backend: str, fresh_database: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = fresh_database(backend, empty=True)
    upgrade(parse_url(url), BEFORE)
    say("jobs", "--database", url)
    assert not kept_of(url, tmp_path).exists()


def test_without_room_for_a_backup_sqlite_is_left_as_it_is(
    fresh_database: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_database("sqlite", empty=True)
    upgrade(parse_url(url), BEFORE)
    _fill(url)
    before = dump(url)
    monkeypatch.setattr(upgrading, "RESERVE", 1 << 60)
    with pytest.raises(UpgradeNeedsRoom, match="--without-backup"):
        open_store(url)
    assert dump(url) == before
    say("migrate", "--without-backup", "--database", url)
    assert dump(url)["alembic_version"] == [f"('{LAST}',)"]


def test_without_pg_dump_a_service_comes_up_and_says_so_and_a_person_is_asked(
    fresh_database: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PG_BIN", str(tmp_path))
    url = fresh_database("postgres", empty=True)
    upgrade(parse_url(url), BEFORE)
    _fill(url)
    refused = say("migrate", "--database", url, "--json", fine=False)
    assert (refused.code, refused.error["code"]) == (7, "schema_needs_backup")
    assert dump(url)["alembic_version"] == [f"('{BEFORE}',)"]
    careful = Precaution(tmp_path, tmp_path)
    with caplog.at_level(logging.WARNING), closing(open_store(url, precaution=careful)) as store:
        note = store.read(lambda tx: read_note(tx, UPGRADE))
    assert "no backup could be made" in caplog.text
    assert note is not None
    assert note["backup"].startswith("none: PostgreSQL's own program pg_dump is needed")


def test_an_attended_upgrade_without_a_folder_is_refused(fresh_database: Make) -> None:
    url = fresh_database("postgres", empty=True)
    upgrade(parse_url(url), BEFORE)
    _fill(url)
    with pytest.raises(UpgradeNeedsBackup, match="BACKUP_FOLDER"):
        open_store(url, precaution=Precaution(attended=True))


def test_processes_that_start_together_on_an_older_database_take_turns(old_url: str, backend: str) -> None:
    program = (
        "import sys, dalsegno; s = dalsegno.open_store(sys.argv[1]);"
        "s.write('x', lambda tx: None); assert len(s.read(lambda tx: tx.conn.exec_driver_sql("
        "'SELECT id FROM items').all())) == 2; s.close()"
    )
    words = [sys.executable, "-c", program, old_url]
    started = [subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ends = [(process.communicate(timeout=100)[1], process.returncode) for process in started]
    assert [code for _, code in ends] == [0] * 3, ends
    assert dump(old_url)["alembic_version"] == [f"('{LAST}',)"]


# --- rolling restart ----------------------------------------------------------------------------


def older_version(folder: Path) -> Path:
    """The package as it was when its schema was 0005, out of the history."""
    words = ["git", "-C", str(ROOT), "archive", "--format=tar", OLDER, "src"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the history is not here: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder / "older", filter="data")
    return folder / "older" / "src"


OLDER = "c2ad8e9b"
AGENT = """
import os, sys, time, dalsegno as d
from dalsegno.store.migrate import known_revisions
print(known_revisions()[-1], flush=True)
@d.service("work", workers=2)
def work(item):
    time.sleep(0.02)
    os.write(1, f"did {item.key}\\n".encode())
store = d.open_store(sys.argv[1])
with d.Engine(store, [work], d.EngineOptions(node=sys.argv[2])):
    print("at work", flush=True)
    sys.stdin.read()
store.close()
"""


class Agent:
    def __init__(self, url: str, node: str, path: Path, folder: Path) -> None:
        self._log = folder / f"{node}.log"
        env = {**environment(), "PYTHONPATH": str(path)}
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", AGENT, url, node], env=env, stdin=subprocess.PIPE, stdout=out, stderr=out
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def did(self) -> list[str]:
        return [line.split()[1] for line in self.said.splitlines() if line.startswith("did ")]

    def comes_up(self) -> None:
        wait_until(lambda: "at work" in self.said or self.process.poll() is not None, "an agent", 100)
        assert self.process.poll() is None, self.said

    def stop(self) -> None:
        """Its input ends, and so does it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(100)


@pytest.mark.timeout(400)
def test_an_older_process_goes_on_beside_a_newer_one_until_it_is_restarted(
    fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    """A version of schema 0005 out of the history works on; the one of today migrates under its feet."""
    code = older_version(tmp_path)
    url = fresh_database("postgres", empty=True)
    agents = [Agent(url, "older", code, tmp_path)]
    try:
        agents[0].comes_up()
        assert agents[0].said.startswith("0005\n")
        agents.append(Agent(url, "newer", ROOT / "src", tmp_path))
        agents[1].comes_up()
        store = stores(url)
        job = submit(store, one_step(), items=keys(400)).job_id
        wait_until(lambda: all(len(agent.did) > 20 for agent in agents), "work by both", 100)
        agents[0].stop()
        assert agents[0].process.returncode == 0, agents[0].said
        agents.append(Agent(url, "again", code, tmp_path))
        assert agents[2].process.wait(100) != 0
        assert "does not know" in agents[2].said
        wait_until(lambda: status_of(store, job) == "completed", "the rest by the newer one", 100)
    finally:
        for agent in agents:
            agent.stop()
    assert sorted(agents[0].did + agents[1].did) == keys(400), "each item once, by one or the other"
    assert {row["status"] for row in items_of(store, job)} == {"succeeded"}
    assert_sound(store, job)
    assert "rror" not in agents[0].said + agents[1].said


# --- the rule for authors of migrations ---------------------------------------------------------


def columns_of(url: str) -> dict[tuple[str, str], dict[str, Any]]:
    engine = engine_for(url)
    with engine.connect() as conn:
        looking = sa.inspect(conn)
        found = {
            (table, column["name"]): column
            for table in looking.get_table_names()
            for column in looking.get_columns(table)
        }
    engine.dispose()
    return found


@pytest.mark.parametrize("revision", known_revisions()[5:])
def test_a_migration_only_adds(revision: str, backend: str, fresh_database: Make) -> None:
    """What runs beside it is the version before: it neither knows new columns nor does without old ones."""
    url = fresh_database(backend, empty=True)
    upgrade(parse_url(url), f"{int(revision) - 1:04}")
    before = columns_of(url)
    upgrade(parse_url(url), revision)
    after = columns_of(url)
    months = re.compile(r"^(events|logs)_")
    gone = {each for each in before.keys() - after.keys() if not months.match(each[0])}
    assert not gone, "the version before still uses them"
    known = {table for table, _ in before}
    added = {each: after[each] for each in after.keys() - before.keys() if each[0] in known}
    blind = [each for each, column in added.items() if not column["nullable"] and column["default"] is None]
    assert not blind, "the version before inserts rows without them"
    changed = [each for each in before if each in after and str(before[each]["type"]) != str(after[each]["type"])]
    assert not changed, "the version before writes the old type"
    stricter = [each for each in before if each in after and before[each]["nullable"] and not after[each]["nullable"]]
    assert not stricter, "the version before leaves them empty"


def test_the_doctor_tells_of_upgrades_and_of_a_database_that_was_left(
    old_url: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: Callable[..., Store]
) -> None:
    monkeypatch.chdir(tmp_path)
    say("migrate", "--database", old_url)
    store = stores(old_url)

    def codes() -> dict[str, str]:
        return {each.code: each.says for each in store.read(keeping.look)}

    assert str(kept_of(old_url, tmp_path)) in codes()["upgrade_kept"]
    left = {"from": BEFORE, "to": LAST, "at": store.clock.now().isoformat(), "backup": "none: no room"}
    store.write("test", lambda tx: write_note(tx, UPGRADE, left, "test"))
    assert "without a backup: no room" in codes()["upgrade_unkept"]
    gone = {"to": "postgresql://db/new", "at": store.clock.now().isoformat()}
    store.write("test", lambda tx: write_note(tx, MOVED, gone, "test"))
    assert "postgresql://db/new" in codes()["moved_away"]
