"""Backups: of a database in use, whole or not at all, and refused where they would do harm."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from psycopg import sql

from dalsegno import Engine, Store, open_store, service, submit
from dalsegno.errors import BackupNoRoom, BackupRefused, ToolMissing
from dalsegno.store.backup import backup
from dalsegno.store.backup_sqlite import copy_database
from dalsegno.store.manifest import beside, read
from dalsegno.store.notes import BACKUP, read_note
from dalsegno.store.open import parse_url
from dalsegno.store.postgres_tools import find_tools
from dalsegno.store.revisions import known_revisions
from dalsegno.store.schema import items
from tests.cli.tool import say
from tests.conftest import Postgres
from tests.helpers import SWIFT, items_of, keys, one_step, wait_for_job, wait_until
from tests.store.test_bad_databases import as_root, mounted

__all__ = ["mounted"]


@service("work", workers=4)
def work(item: object) -> None:
    return None


def items_in(file: Path, pg_bin: Path) -> int:
    """Rows of `items` in a backup, found with the database's own programs."""
    if file.read_bytes()[:5] == b"PGDMP":
        words = [pg_bin / "pg_restore", "--data-only", "--table=items", "--file=-", file]
        script = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        data = script.split("FROM stdin;\n")[1].split("\\.\n")[0]
        return len(data.splitlines())
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT count(*) FROM items").fetchone()[0])


def test_a_backup_says_what_is_in_it_and_is_for_its_owner_only(
    store: Store, database_url: str, tmp_path: Path, pg_bin: Path
) -> None:
    submit(store, one_step(), items=[("tab\tnew\nline", {"back": "\\slash"}), ("ü \\. 雨", None), *keys(300)])
    file = tmp_path / "safe.backup"
    told = say("backup", file, "--database", database_url, "--json").data
    assert told["tables"]["items"] == 302
    assert told["tables"]["jobs"] == 1
    assert told["schema"] == known_revisions()[-1]
    assert told["size"] == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(beside(file).stat().st_mode) == 0o600
    assert json.loads(beside(file).read_text())["sha256"] == told["sha256"]
    assert sorted(path.name for path in tmp_path.glob("safe*")) == ["safe.backup", "safe.backup.manifest"]
    assert items_in(file, pg_bin) == 302
    note = store.read(lambda tx: read_note(tx, BACKUP))
    assert note == {"at": told["taken_at"], "file": str(file), "bytes": told["size"]}


def test_a_backup_taken_under_load_is_of_one_moment(store: Store, database_url: str, tmp_path: Path) -> None:
    """Jobs come and are worked off while it is written: it ends, and what is in it agrees with itself."""
    stop = threading.Event()
    job = submit(store, one_step(), items=keys(2000)).job_id

    def load() -> None:
        for number in range(10_000):
            if stop.is_set():
                return
            submit(store, one_step(), items=keys(20), scope=number)

    loader = threading.Thread(target=load)
    with Engine(store, [work], SWIFT):
        loader.start()
        wait_for_job(store, job, timeout=90)
        before = store.read(lambda tx: tx.conn.execute(sa.select(sa.func.count()).select_from(items)).scalar_one())
        manifest = backup(parse_url(database_url), tmp_path / "b", tools=_bin())
        stop.set()
        loader.join()
    assert manifest.tables["items"] >= before
    assert manifest.tables["items"] % 20 == 0, "part of a submit"


def _bin() -> Path:
    return Path(os.environ["PG_BIN"])


def test_a_copy_does_not_begin_again_when_somebody_writes(sqlite_url: str, stores: Callable[..., Store]) -> None:
    """SQLite's own backup would, at each commit of another connection, and under load never end."""
    store = stores(sqlite_url)
    submit(store, one_step(), items=[(key, {"x": "y" * 900}) for key in keys(12_000)])
    path = parse_url(sqlite_url).database
    assert path is not None
    left: list[int] = []

    def told(_what: str, done: int, total: int) -> None:
        left.append(total - done)
        submit(store, one_step(), items=keys(3), scope=len(left))

    copy_database(Path(path), Path(path).with_name("copy.db"), told)
    assert len(left) > 2
    assert left == sorted(left, reverse=True)
    with closing(sqlite3.connect(Path(path).with_name("copy.db"))) as connection:
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (12_000,)


def test_what_is_there_is_not_overwritten_unless_asked(store: Store, database_url: str, tmp_path: Path) -> None:
    submit(store, one_step(), items=keys(3))
    file = tmp_path / "b"
    file.write_text("precious")
    refused = say("backup", file, "--database", database_url, "--json", fine=False)
    assert (refused.code, refused.error["code"]) == (2, "backup_refused")
    assert "--force" in refused.error["message"]
    assert file.read_text() == "precious"
    assert say("backup", file, "--database", database_url, "--force", "--json").data["tables"]["items"] == 3
    assert read(file) is not None


def test_the_database_itself_is_no_place_for_its_backup(sqlite_url: str, stores: Callable[..., Store]) -> None:
    submit(stores(sqlite_url), one_step(), items=keys(3))
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    for name in (path, path.with_name(path.name + "-wal")):
        with pytest.raises(BackupRefused, match="the database itself"):
            backup(parse_url(sqlite_url), name, force=True)


def test_a_device_is_not_replaced_by_a_backup(sqlite_url: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BackupRefused, match="it is no file"):
        backup(parse_url(sqlite_url), pipe, force=True)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("pipe")] == ["pipe"]


def test_two_backups_to_one_file_do_not_mix(sqlite_url: str, tmp_path: Path) -> None:
    part = tmp_path / "b.part"
    with part.open("w") as file:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BackupRefused, match="another process"):
            backup(parse_url(sqlite_url), tmp_path / "b")
    assert part.exists()


@as_root
def test_a_full_disk_leaves_nothing_behind(
    store: Store, database_url: str, mounted: Callable[..., Path], pg_bin: Path
) -> None:
    point = mounted("size=1m")
    noise = [(key, {"x": os.urandom(700).hex()}) for key in keys(1500)]
    submit(store, one_step(), items=noise)
    with pytest.raises(BackupNoRoom, match="Nothing was left behind"):
        backup(parse_url(database_url), point / "b", tools=pg_bin)
    assert list(point.iterdir()) == []


def test_programs_that_are_missing_or_too_old_are_named_with_the_fix(tmp_path: Path, pg_bin: Path) -> None:
    with pytest.raises(ToolMissing, match=r"(?s)none in .*PG_BIN="):
        find_tools(18, tmp_path)
    with pytest.raises(ToolMissing, match=r"version 18, older than the server \(99\)"):
        find_tools(99, pg_bin)
    assert find_tools(14, pg_bin).version == 18


def test_a_password_is_on_no_command_line_and_in_no_answer(
    postgres_url: str, tmp_path: Path, pg_bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that write down how they were called stand in for PostgreSQL's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("pg_dump", "pg_restore", "psql"):
        script = (
            f'#!/bin/sh\necho "$0 $@" >> {tmp_path}/calls\n[ -z "$PGPASSWORD" ] || touch {tmp_path}/secret-in-env\n'
        )
        (folder / name).write_text(f'{script}exec {pg_bin / name} "$@"\n')
        (folder / name).chmod(0o755)
    with_password = postgres_url.replace("postgres:@", "postgres:velvet@")
    assert with_password != postgres_url
    monkeypatch.setenv("PG_BIN", str(folder))
    said = say("backup", tmp_path / "b", "--database", with_password, "--json")
    assert "velvet" not in said.out + said.err + (tmp_path / "calls").read_text() + beside(tmp_path / "b").read_text()
    assert (tmp_path / "secret-in-env").exists()


def test_a_name_and_a_password_may_have_any_sign_in_them(
    postgres: Postgres, postgres_template: str, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    name = "my music + ü"
    with postgres.admin() as connection:
        template = sql.Identifier(postgres_template)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), template))
    try:
        plain = sa.make_url(postgres.url()).set(database=name, password="open sesame + ü")
        url = plain.update_query_dict({"application_name": "a + b"}).render_as_string(hide_password=False)
        with closing(open_store(url)) as store, heard_by(store) as heard, closing(open_store(url)) as other:
            submit(other, one_step("nobody"), items=keys(7))
            wait_until(lambda: "lane:default" in heard, "the news of the job")
        assert say("backup", tmp_path / "b", "--database", url, "--json").data["tables"]["items"] == 7
        assert say("restore", tmp_path / "b", "--force", "--database", url, "--json").data["check"]["agrees"]
        moved = f"sqlite:///{tmp_path}/moved.db"
        say("migrate", "--to", moved, "--database", url)
        assert len(items_of(stores(moved), 1)) == 7
    finally:
        postgres.drop(name)


@contextmanager
def heard_by(store: Store) -> Iterator[set[str]]:
    """What a store is told by others; entered once it listens."""
    heard: set[str] = set()
    store.listen(heard.update)
    over = threading.Event()
    watching = threading.Thread(target=store.watch, args=(over,))
    watching.start()
    try:
        wait_until(lambda: "work" in heard, "the watch to begin")
        heard.clear()
        yield heard
    finally:
        over.set()
        watching.join()


def test_the_database_that_was_named_is_the_one_that_is_backed_up(
    postgres_url: str, fresh_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever LISTEN_DATABASE_URL says: it may be about another one."""
    other = fresh_database("postgres")
    with closing(open_store(other)) as store:
        submit(store, one_step(), items=keys(7))
    monkeypatch.setenv("LISTEN_DATABASE_URL", other)
    assert say("backup", tmp_path / "a", "--database", postgres_url, "--json").data["tables"]["items"] == 0
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    assert say("backup", tmp_path / "b", "--json").data["tables"]["items"] == 0


@pytest.mark.parametrize("point", ["backup.copied", "backup.verified", "backup.placed"])
def test_a_backup_that_is_killed_is_none_and_the_next_one_is_whole(
    point: str, store: Store, database_url: str, tmp_path: Path
) -> None:
    from tests.cli.tool import Process

    submit(store, one_step(), items=keys(50))
    file = tmp_path / "b"
    killed = Process(tmp_path, "backup", file, "--database", database_url, DALSEGNO_FAULT=point, PG_BIN=_bin())
    wait_until(lambda: killed.process.poll() is not None, "the kill", 100)
    assert killed.process.returncode == -9, killed.err
    assert file.exists() == (point == "backup.placed")
    assert not beside(file).exists()
    done = say("backup", file, "--database", database_url, "--json", *(["--force"] if file.exists() else []))
    assert done.data["tables"]["items"] == 50
    assert not (tmp_path / "b.part").exists()
