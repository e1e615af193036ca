"""Starting, killing and judging the program of the crash tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

import dalsegno
from dalsegno import Store, open_store
from dalsegno.model.states import JOB_FINISHED
from dalsegno.store.schema import events
from tests.stateful.audit import Picture, Trail, check, look

PROGRAM = Path(__file__).with_name("program.py")
KILLED = -signal.SIGKILL
POLL = 0.01


def eventually(what: str, ready: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true answer of `ready`; fails when none comes in time."""
    deadline = time.monotonic() + seconds
    while not (answer := ready()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(POLL)
    return answer


def fault_names() -> list[str]:
    """Every name under which the engine writes: each is a place to die before and after its commit."""
    found: set[str] = set()
    for file in (Path(dalsegno.__file__).parent / "engine").glob("*.py"):
        found.update(re.findall(r"\.write\(\s*\"([a-z.]+)\"", file.read_text()))
    return sorted(found)


class Child:
    """One run of the program, in a process group of its own."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=output, stderr=output, start_new_session=True
            )
        self.pid = self.process.pid

    def wait(self, seconds: float = 60.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"process {self.pid} does not end; it said: {self.said()}") from None

    def ends_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would; the corpse is buried, so that its pid is free again."""
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


@dataclass
class Kill:
    """What was true when a process had just died."""

    journal: int
    """How long the journal was."""
    done: set[str]
    """What had succeeded."""
    running: set[tuple[int, int]]
    """What had begun: item and lease, because the next process may die before it has rescued it."""


@dataclass
class Harness:
    url: str
    folder: Path
    children: list[Child] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.is_sqlite:
            with psycopg.connect(self.url, autocommit=True) as connection:
                # With a cache of numbers per connection, ids say nothing about who came first; the trail needs it.
                connection.execute("ALTER SEQUENCE events_id_seq CACHE 1")

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    @property
    def journal_path(self) -> Path:
        return self.folder / "journal"

    def start(self, job: str = "job", fault: str = "", **environment: object) -> Child:
        if job not in self.jobs:
            self.jobs.append(job)
        extra = {f"CRASH_{key.upper()}": str(value) for key, value in environment.items()}
        command = [sys.executable, str(PROGRAM), self.url, str(self.journal_path), job]
        child = Child(command, {"DALSEGNO_FAULT": fault, **extra}, self.folder / "log")
        self.children.append(child)
        return child

    def end_all(self) -> None:
        for child in self.children:
            child.kill()

    def journal(self) -> list[list[str]]:
        if not self.journal_path.exists():
            return []
        return [line.split() for line in self.journal_path.read_text().splitlines()]

    def begun(self, pid: int | None = None) -> list[str]:
        return [line[1] for line in self.journal() if line[0] == "begin" and pid in (None, int(line[3]))]

    def said(self, word: str, pid: int) -> bool:
        return any(line[0] == word and int(line[3]) == pid for line in self.journal())

    # --- the database, while nobody else is there ---------------------------------------------

    @contextmanager
    def store(self) -> Iterator[Store]:
        store = open_store(self.url)
        try:
            yield store
        finally:
            store.close()

    def look(self) -> Picture:
        with self.store() as store:
            return look(store)

    def settled_down(self) -> None:
        """PostgreSQL may still be committing what a dead client had sent."""
        if self.is_sqlite:
            return
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with psycopg.connect(self.url, autocommit=True) as connection:
            eventually(
                "the backends of a dead process end",
                lambda: connection.execute(query).fetchone() == (0,),  # type: ignore[comparison-overlap]
            )

    def is_finished(self, job: str) -> bool:
        rows = self.look().jobs.values()
        return any(row["dedupe_key"] == job and row["status"] in JOB_FINISHED for row in rows)

    # --- kills --------------------------------------------------------------------------------

    def note_kill(self) -> Kill:
        self.settled_down()
        picture = self.look()
        check(picture)
        kill = Kill(
            journal=len(self.journal()),
            done={self.place(picture, key) for key, item in picture.items.items() if item["status"] == "succeeded"},
            running={(key, item["lease"]) for key, item in picture.items.items() if item["status"] == "running"},
        )
        self.kills.append(kill)
        return kill

    @staticmethod
    def place(picture: Picture, item_id: int) -> str:
        item = picture.items[item_id]
        return f"{item['job_id']}/{picture.stages[item['stage_id']]['key']}/{item['key']}"

    # --- the verdict --------------------------------------------------------------------------

    def judge(self, *, items: int = 40) -> Picture:
        """Everything finished, nothing twice, nothing lost, nothing left behind."""
        with self.store() as store:
            picture = look(store)
            check(picture)
            trail = Trail()
            trail.replay(store)
            trail.check(picture)
            died = Counter(
                store.read(
                    lambda tx: list(
                        tx.conn.execute(
                            sa.select(events.c.item_id).where(
                                events.c.type == "item_interrupted", events.c.message == "its process died"
                            )
                        ).scalars()
                    )
                )
            )
        assert sorted(job["dedupe_key"] for job in picture.jobs.values()) == sorted(self.jobs)
        assert {job["status"] for job in picture.jobs.values()} == {"completed"}
        assert {item["status"] for item in picture.items.values()} == {"succeeded"}
        assert not picture.leases
        assert not picture.processes
        per_job = Counter(self.place(picture, key).rpartition("/")[0] for key in picture.items)
        for job_id in picture.jobs:
            assert per_job[f"{job_id}/gather"] == per_job[f"{job_id}/polish"] == items
            assert per_job[f"{job_id}/bind"] == -(-items // 5)
            assert per_job[f"{job_id}/ship"] == 2
        deaths = Counter(key for key, _lease in set().union(*(kill.running for kill in self.kills)))
        for key, item in picture.items.items():
            place = self.place(picture, key)
            fails_once = "/polish/" in place and int(place.rpartition("-")[2]) % 10 == 3
            assert item["attempt"] == int(fails_once), f"{place}: a death cost an attempt"
            # To run when its process dies is one interruption; to be claimed is none.
            assert died[key] == deaths[key], f"{place}: interrupted {died[key]} times by {deaths[key]} deaths"
        self.judge_journal(picture)
        return picture

    def judge_journal(self, picture: Picture) -> None:
        lines = self.journal()
        ended = {line[1] for line in lines if line[0] == "end"}
        assert ended == {self.place(picture, key) for key in picture.items}, "succeeded without having run"
        for kill in self.kills:
            again = {line[1] for line in lines[kill.journal :] if line[0] == "begin"} & kill.done
            assert not again, f"ran again after its success was committed: {again}"
