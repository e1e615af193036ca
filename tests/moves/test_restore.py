"""Restoring: what was there comes back, nothing of its old life acts on, and nothing is replaced by accident."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Engine, Lane, Limit, Store, open_store, service, submit
from dalsegno.clock import ManualClock
from dalsegno.errors import BackupDamaged, EngineAtWork, RestoreRefused, SchemaNewer
from dalsegno.moves.restore import restore
from dalsegno.store.backup import backup
from dalsegno.store.manifest import beside
from dalsegno.store.migrate import upgrade
from dalsegno.store.notes import RESTORED, read_note
from dalsegno.store.open import parse_url
from dalsegno.store.revisions import known_revisions
from dalsegno.store.schema import events, leases, processes
from dalsegno.store.sqlite import address
from tests.cli.tool import Process, say
from tests.helpers import (
    SWIFT,
    assert_sound,
    begin,
    claim,
    every,
    items_of,
    keys,
    one_step,
    register,
    settle,
    status_of,
    statuses_of,
    strays,
    submitted,
    wait_for_job,
    wait_until,
)
from tests.store.test_migrate import dump, stamp

Make = Callable[..., str]


@service("work")
def work(item: object) -> None:
    return None


def tools() -> Path:
    return Path(os.environ["PG_BIN"])


def taken(url: str, folder: Path) -> Path:
    backup(parse_url(url), folder / "b", force=True, tools=tools())
    return folder / "b"


def test_everything_is_there_again(
    store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    job = submit(store, one_step(), items=[("tab\tnew\nline", {"b": "\\"}), ("雨 \\. \\N", {"n": [1.5, None]}), "c"])
    elsewhere = fresh_database(backend, empty=True)
    before = dump(database_url)
    done = say("restore", taken(database_url, tmp_path), "--database", elsewhere, "--json").data
    assert done["restored"]["checked"] is True
    assert done["restored"]["rescued"] == 0
    assert done["check"]["agrees"] is True
    after = dump(elsewhere)
    before["system_settings"], after["system_settings"] = [], []
    assert after == before
    again = stores(elsewhere)
    with Engine(again, [work], SWIFT):
        wait_for_job(again, job.job_id, timeout=90)
    assert_sound(again, job.job_id)
    note = again.read(lambda tx: read_note(tx, RESTORED))
    assert note is not None
    assert note["file"] == str(tmp_path / "b")


def test_what_was_under_lease_comes_back_as_after_a_crash(
    store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    """The process that held it goes on elsewhere, on the old database: here it is dead."""
    lane = Lane(name="catalog", max_active=1, recovery="pause")
    job = submitted(store, one_step(lane=lane), 5).job_id
    mine = register(store)
    held = claim(store, mine, 3)
    begin(store, held[:2])
    elsewhere = fresh_database(backend, empty=True)
    done = restore(taken(database_url, tmp_path), parse_url(elsewhere), tools=tools())
    assert done.rescued == 1
    there = stores(elsewhere)
    assert every(there, sa.select(leases)) == every(there, sa.select(processes)) == []
    assert [row["status"] for row in items_of(there, job)] == ["interrupted", "interrupted", *["pending"] * 3]
    assert status_of(there, job) == "paused"
    assert_sound(there, job)
    assert statuses_of(store, job)["running"] == 2, "the origin was touched"
    new = submit(there, one_step(), items=["x"]).job_id
    assert new > job


def test_a_backup_of_long_ago_gets_its_months_before_anything_is_said(
    postgres_url: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store], clock: ManualClock
) -> None:
    store = stores(postgres_url, clock)
    submitted(store, one_step(), 2)
    begin(store, claim(store, register(store), 2))
    elsewhere = fresh_database("postgres", empty=True)
    clock.advance(200 * 86_400.0)
    assert restore(taken(postgres_url, tmp_path), parse_url(elsewhere), tools=tools(), clock=clock).rescued == 1
    there = stores(elsewhere, clock)
    assert every(there, sa.select(events.c.id).where(events.c.type == "recovery"))
    assert strays(there) == {}


def test_new_numbers_go_on_after_the_highest(
    store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    submit(store, one_step(), items=keys(7))
    last = register(store)
    elsewhere = fresh_database(backend, empty=True)
    restore(taken(database_url, tmp_path), parse_url(elsewhere), tools=tools())
    there = stores(elsewhere)
    assert register(there) > last
    found = submit(there, one_step(), items=keys(1), scope=1)
    assert items_of(there, found.job_id)[0]["id"] == 8


def test_events_of_another_cluster_are_the_past(
    postgres_url: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    """A server that has seen fewer transactions must not take what it gets for the future, and show it for ever."""
    from dalsegno.insight.events import Cursor, tail

    store = stores(postgres_url)
    job = submitted(store, one_step(), 2).job_id
    settle(store, claim(store, register(store, 0.0), 2))
    with psycopg.connect(postgres_url) as connection:
        # As where each had waited for the one before: the older transaction wrote later.
        connection.execute("UPDATE events SET tx = 4000000000 - tx")
    happened = [(row["id"], row["type"]) for row in every(store, sa.select(events).order_by(events.c.id))]
    elsewhere = fresh_database("postgres", empty=True)
    restore(taken(postgres_url, tmp_path), parse_url(elsewhere), tools=tools())
    there = stores(elsewhere)
    told = every(there, sa.select(events).order_by(events.c.id))
    assert {row["tx"] for row in told} == {0}
    assert [(row["id"], row["type"]) for row in told] == happened, "not in the order in which it was written"
    assert_sound(there, job)
    job = submit(there, one_step(), items=keys(1), scope=2).job_id
    told = there.read(lambda tx: tail(tx, Cursor(0, 0), limit=100)).events
    assert told[-1].job_id == job


def test_a_database_with_work_in_it_is_not_replaced_unless_asked(
    store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    submit(store, one_step(), items=keys(3))
    other = fresh_database(backend)
    submit(stores(other), one_step(), items=keys(9), requested_by="the other")
    stores(other).close()
    before = dump(other)
    file = taken(database_url, tmp_path)
    refused = say("restore", file, "--database", other, "--json", fine=False)
    assert (refused.code, refused.error["code"]) == (2, "restore_refused")
    assert "--force" in refused.error["message"]
    assert dump(other) == before
    done = say("restore", file, "--database", other, "--force", "--json").data["restored"]
    there = stores(other)
    assert len(items_of(there, 1)) == 3
    if backend == "sqlite":
        assert dump(f"sqlite:///{done['kept']}") == before
        assert Path(done["kept"]).parent == tmp_path


def test_an_engine_at_work_is_not_pulled_away(
    store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    submit(store, one_step(), items=keys(3))
    file = taken(database_url, tmp_path)
    other = fresh_database(backend)
    busy = stores(other)
    with Engine(busy, [work], SWIFT), pytest.raises(EngineAtWork, match=str(os.getpid())):
        restore(file, parse_url(other), force=True, tools=tools())
    busy.close()
    restore(file, parse_url(other), tools=tools())


def test_a_newer_schema_is_refused_and_an_older_one_brought_up(
    backend: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    old = fresh_database(backend, empty=True)
    if backend == "sqlite":
        open_store(old).close()
        Path(old.removeprefix("sqlite:///")).unlink()
        sqlite3.connect(old.removeprefix("sqlite:///")).close()
    upgrade(parse_url(old), "0005")
    older = taken(old, tmp_path)
    target = fresh_database(backend, empty=True)
    done = restore(older, parse_url(target), tools=tools())
    assert (done.schema, done.now) == ("0005", known_revisions()[-1])
    submit(stores(target), one_step(), items=keys(1))
    newer = older
    stamp(old, "9999")
    if backend == "sqlite":
        newer = taken(old, tmp_path)
    else:  # only the version that made it knows all of its tables
        subprocess.run([tools() / "pg_dump", "-Fc", f"--file={newer}", f"--dbname={old}"], check=True)
        beside(newer).unlink()
    with pytest.raises(SchemaNewer, match="9999"):
        restore(newer, parse_url(fresh_database(backend, empty=True)), tools=tools())


@pytest.mark.parametrize("harm", ["cut", "flipped", "not one", "other rows", "no manifest, cut"])
def test_a_damaged_backup_is_found_out_before_anything_is_touched(
    harm: str, store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path
) -> None:
    submit(store, one_step(), items=[(key, {"x": os.urandom(40).hex()}) for key in keys(500)])
    file = taken(database_url, tmp_path)
    data = bytearray(file.read_bytes())
    match harm:
        case "cut" | "no manifest, cut":
            file.write_bytes(data[: len(data) // 2])
        case "flipped":
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        case "not one":
            file.write_text("hello")
        case "other rows":
            told = beside(file).read_text()
            beside(file).write_text(told.replace('"items": 500', '"items": 501'))
    if harm == "no manifest, cut":
        beside(file).unlink()
    target = fresh_database(backend)
    before = dump(target)
    with pytest.raises(BackupDamaged):
        restore(file, parse_url(target), tools=tools())
    assert dump(target) == before
    leftovers = [path.name for path in tmp_path.glob("*.restoring*")]
    assert leftovers == []


def test_without_its_manifest_a_backup_is_still_one(
    store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path
) -> None:
    submit(store, one_step(), items=keys(4))
    file = taken(database_url, tmp_path)
    beside(file).unlink()
    done = restore(file, parse_url(fresh_database(backend, empty=True)), tools=tools())
    assert done.checked is False
    assert done.rows > 4


def test_a_backup_goes_to_its_own_kind_of_database(sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match="migrate --to"):
        restore(taken(sqlite_url, tmp_path), parse_url(postgres_url), tools=tools())
    with pytest.raises(RestoreRefused, match="migrate --to"):
        restore(taken(postgres_url, tmp_path), parse_url(sqlite_url), tools=tools())


@pytest.mark.parametrize(
    ("backend", "point"), [("sqlite", "restore.copied"), ("sqlite", "restore.ready"), ("postgres", "restore.chunk")]
)
def test_a_restore_that_is_killed_has_changed_nothing_and_is_done_again(
    point: str, store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path
) -> None:
    submit(store, one_step(), items=[(key, {"x": os.urandom(700).hex()}) for key in keys(1000)])
    file = taken(database_url, tmp_path)
    target = fresh_database(backend)
    other = open_store(target)
    submit(other, one_step(), items=keys(2))
    other.close()
    before = dump(target)
    words = ("restore", file, "--database", target, "--force")
    killed = Process(tmp_path, *words, DALSEGNO_FAULT=point, PG_BIN=tools())
    wait_until(lambda: killed.process.poll() is not None, "the kill", 100)
    assert killed.process.returncode == -9, killed.err
    assert dump(target) == before
    assert say(*words, "--json").data["restored"]["rows"] > 1000
    assert len(dump(target)["items"]) == 1000
    assert not list(tmp_path.glob("*.restoring*"))


def test_a_log_that_a_killed_process_left_does_not_get_into_the_restored_database(
    sqlite_url: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    origin = stores(sqlite_url)
    submit(origin, one_step(), items=keys(3))
    file = taken(sqlite_url, tmp_path)
    target = Path(fresh_database("sqlite").removeprefix("sqlite:///"))
    program = (
        "import os, sys, dalsegno as d; from tests.helpers import *;"
        "s = d.open_store(sys.argv[1]); submit(s, one_step(), items=keys(40)); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, f"sqlite:///{target}"], check=False)
    assert target.with_name(target.name + "-wal").stat().st_size > 0
    kept = restore(file, parse_url(f"sqlite:///{target}"), force=True).kept
    assert len(dump(f"sqlite:///{target}")["items"]) == 3
    assert len(dump(f"sqlite:///{kept}")["items"]) == 40
    with closing(sqlite3.connect(target)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_limits_and_permits_are_sane_after_a_restore(
    store: Store, database_url: str, backend: str, fresh_database: Make, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    """A call that was under way then holds no place of a limit now."""
    from dalsegno.store.schema import permits

    entered = []

    @service("work", limit=Limit(concurrent=1))
    def limited(item: object) -> None:
        if not entered:
            entered.append(backup(parse_url(database_url), tmp_path / "b", tools=tools()))

    job = submit(store, one_step(), items=keys(3)).job_id
    with Engine(store, [limited], SWIFT):
        wait_for_job(store, job, timeout=60)
    elsewhere = fresh_database(backend, empty=True)
    restore(tmp_path / "b", parse_url(elsewhere), tools=tools())
    there = stores(elsewhere)
    assert every(there, sa.select(permits).where(~permits.c.released)) == []
    with Engine(there, [limited], SWIFT):
        wait_for_job(there, job, timeout=90)
    assert statuses_of(there, job) == {"succeeded": 3}
    assert_sound(there, job)


def test_a_folder_may_be_called_by_what_a_url_reads_otherwise(tmp_path: Path, stores: Callable[..., Store]) -> None:
    folder = tmp_path / "50%41 what?"
    url = address(folder / "a b.db").render_as_string()
    job = submit(stores(url), one_step(), items=["a"])
    kept = taken(url, tmp_path)
    with pytest.raises(RestoreRefused, match="there is work in it"):
        restore(kept, parse_url(url))
    done = restore(kept, parse_url(url), force=True)
    assert done.kept is not None
    assert [row["key"] for row in items_of(stores(url), job.job_id)] == ["a"]
    assert [each.name for each in tmp_path.iterdir() if each.is_dir()] == [folder.name]


def test_a_copy_whose_last_words_are_in_its_log_is_no_backup_until_they_are_folded_in(
    sqlite_url: str, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    """As `cp` makes one of a database in use."""
    copy, target = tmp_path / "copy.db", f"sqlite:///{tmp_path}/target.db"
    with closing(open_store(sqlite_url)) as store:
        job = submit(store, one_step(), items=["a"])
        for end in ("", "-wal"):
            shutil.copy(f"{parse_url(sqlite_url).database}{end}", f"{copy}{end}")
    with pytest.raises(BackupDamaged, match=r"is in copy.db-wal. Fold that in first"):
        restore(copy, parse_url(target))
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    restore(copy, parse_url(target))
    assert len(items_of(stores(target), job.job_id)) == 1
