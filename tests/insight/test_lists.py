"""Jobs, logs, events and commands by query: what is found, page by page, and that pages go by an index."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Lane, Store, submit
from dalsegno.insight.commands import COMMANDS, find_commands
from dalsegno.insight.dashboard import read_dashboard
from dalsegno.insight.events import EVENTS, find_events
from dalsegno.insight.grammar import Grammar
from dalsegno.insight.jobs import JOBS, find_jobs, find_queued
from dalsegno.insight.logs import LOGS, count_levels, find_logs
from dalsegno.insight.query import parse
from dalsegno.store.schema import events, jobs, logs
from tests.helpers import admit, claim, command, keys, named, one_step, register, settle, submitted

LEVELS = ("debug", "info", "warn", "error")


@pytest.fixture
def history(store: Store) -> Store:
    """Four jobs, one of them done and one paused; forty lines of log; a command."""
    process = register(store)
    for number in range(4):
        submitted(store, one_step(), items=3, requested_by="the shelf" if number % 2 else "the cellar", priority=number)
    done = claim(store, process, 3)
    settle(store, done, "succeeded")
    command(store, "pause", job_id=2)
    now = store.clock.now()
    rows = [
        {
            "at": now - timedelta(minutes=39.5 - number),
            "level": LEVELS[number % 4],
            "logger": f"dalsegno.part{number % 2}",
            "message": f"line {number} of the log",
            "traceback": "Traceback: a wheel came off" if number == 7 else None,
            "job_id": number % 5 + 1,
            "stage_id": 1 if number % 5 == 0 else None,
            "item_id": number % 10,
            "worker": f"work-{number % 3}",
        }
        for number in range(40)
    ]
    store.write("test", lambda tx: tx.conn.execute(sa.insert(logs), rows))
    return store


def everything(store: Store, find: Callable[..., Any], among: Grammar, text: str, limit: int = 3) -> list[Any]:
    """All pages of it, one after the other."""
    found: list[Any] = []
    cursor = None
    for _ in range(200):
        page = store.read(lambda tx, at=cursor: find(tx, parse(text, among), cursor=at, limit=limit))  # type: ignore[misc]
        assert len(page.lines) <= limit
        found += page.lines
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [4, 3, 2, 1]),
        ("state:completed", [1]),
        ("state:paused", [2]),
        ("state:running,queued", [4, 3]),
        ("-state:running", [2, 1]),
        ('by:"the shelf"', [4, 2]),
        ("by:the*", [4, 3, 2, 1]),
        ("lane:nowhere", []),
        ("priority:<2", [2, 1]),
        ("job:>2 -job:4", [3]),
        ("cellar", [3, 1]),
        ("age:>1h", []),
        ("age:<1h template:w-*", [4, 3, 2, 1]),
    ],
)
def test_jobs(history: Store, text: str, expected: list[int]) -> None:
    assert [line.job.id for line in everything(history, find_jobs, JOBS, text)] == expected


@pytest.fixture
def queues(store: Store) -> dict[str, list[int]]:
    """Twelve jobs in each of two lanes, none of which was admitted; in the order in which they will run."""
    waiting = []
    for number in range(12):
        for lane in ("low", "high"):
            workflow = one_step(lane=Lane(name=lane, max_active=1))
            priority = -number % 4 - 2
            job = submit(store, workflow, items=keys(1), priority=priority, requested_by=f"shelf {number % 2}").job_id
            waiting.append((priority, job, lane))
    turns = sorted(waiting)
    return {
        "": [job for _, job, _ in turns],
        "lane:high": [job for _, job, lane in turns if lane == "high"],
        'by:"shelf 1"': [job for _, job, _ in turns if (job - 1) // 2 % 2],
        'lane:l* -by:"shelf 1"': [job for _, job, lane in turns if lane == "low" and not (job - 1) // 2 % 2],
        "lane:nowhere": [],
        "shelf -job:1,2": [job for _, job, _ in turns if job > 2],
    }


def test_jobs_that_wait_are_told_in_the_order_in_which_they_will_run(
    store: Store, queues: dict[str, list[int]]
) -> None:
    for text, expected in queues.items():
        found = everything(store, find_queued, JOBS, f"state:queued {text}", limit=5)
        assert [line.job.id for line in found] == expected, text
    admit(store)
    left = [line.job.id for line in everything(store, find_queued, JOBS, "state:queued lane:high", limit=5)]
    assert left == queues["lane:high"][1:], "the first of them runs"


def test_a_page_of_jobs_that_wait_comes_further_however_short_the_time(
    store: Store, queues: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lane is looked through a little, the other as a whole: nothing is told before what was not read yet."""
    monkeypatch.setattr("dalsegno.insight.walk.QUICK", 0.0)
    monkeypatch.setattr("dalsegno.insight.walk.FIRST", 2)
    monkeypatch.setattr("dalsegno.insight.jobs.SECONDS", 1e-9)
    found = everything(store, find_queued, JOBS, 'state:queued by:"shelf 1"', limit=5)
    assert [line.job.id for line in found] == queues['by:"shelf 1"']


def test_the_dashboard_shows_what_runs_next_however_many_jobs_wait(store: Store) -> None:
    lane = Lane(name="one", max_active=1)
    for _ in range(110):
        submit(store, one_step(lane=lane), items=keys(1))
    board = store.read(lambda tx: read_dashboard(tx, parts={"jobs"}))
    assert [line.job.id for line in board.waiting] == list(range(2, 10)), "the first is the one that is shown"
    admit(store)
    command(store, "pause", job_id=1)
    board = store.read(lambda tx: read_dashboard(tx, parts={"job", "jobs"}))
    assert board.job is not None
    assert [board.job.detail.job.id, *(line.job.id for line in board.waiting)] == list(range(1, 10))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", range(40)),
        ("level:error", range(3, 40, 4)),
        ("level:warn,error", [n for n in range(40) if n % 4 > 1]),
        ("-level:debug,info", [n for n in range(40) if n % 4 > 1]),
        ("job:2", range(1, 40, 5)),
        ("job:2 level:error", [n for n in range(40) if n % 5 == 1 and n % 4 == 3]),
        ("item:7", range(7, 40, 10)),
        ("stage:a", range(0, 40, 5)),
        ("worker:work-1 logger:*part0", [n for n in range(40) if n % 3 == 1 and n % 2 == 0]),
        ("age:>20m", range(20)),
        ("age:<10m", range(30, 40)),
        ("wheel", [7]),
        ('"LINE 3 "', [3]),
    ],
)
def test_logs(history: Store, text: str, expected: range | list[int]) -> None:
    found = [int(line.message.split()[1]) for line in everything(history, find_logs, LOGS, text)]
    assert found == sorted(expected, reverse=True)


def test_logs_forward_is_what_came_after_a_line(history: Store) -> None:
    query = parse("level:error", LOGS)
    page = history.read(lambda tx: find_logs(tx, query, limit=2))
    later = history.read(lambda tx: find_logs(tx, query, cursor=page.next_cursor, forward=True))
    assert [line.id for line in later.lines] == [page.lines[0].id]


def test_levels_are_counted_for_what_else_is_asked(history: Store) -> None:
    counts = history.read(lambda tx: count_levels(tx, parse("job:2 level:error", LOGS)))
    assert counts == {"debug": 2, "info": 2, "warn": 2, "error": 2}


@pytest.mark.parametrize(
    "text",
    ["", "kind:item_claimed", "kind:job_*", "kind:job_*,stage_* job:1", "job:1", "job:2", "item:1", "by:engine job:1",
     "-kind:item_*", "level:info stage:a", "age:<1h", "succeeded"],
)  # fmt: skip
def test_events(history: Store, text: str) -> None:
    """The same as asking every event of the log."""
    query = parse(text, EVENTS)
    with_all = history.read(
        lambda tx: list(tx.conn.execute(sa.select(events.c.id).where(*EVENTS.where(query, tx.now))).scalars())
    )
    assert with_all
    found = [event.id for event in everything(history, find_events, EVENTS, text)]
    assert sorted(found) == sorted(with_all)
    assert len(found) == len(set(found))


def test_events_come_newest_first(history: Store) -> None:
    kinds = [event.type for event in everything(history, find_events, EVENTS, "job:1 kind:job_*")]
    assert kinds[-1] == "job_submitted"
    assert kinds[0] == "job_completed"
    assert everything(history, find_events, EVENTS, "job:99") == []


def test_commands(history: Store) -> None:
    assert [each.type for each in everything(history, find_commands, COMMANDS, "kind:pause job:2")] == ["pause"]
    assert everything(history, find_commands, COMMANDS, "state:rejected kind:pause") == []


def test_a_job_of_another_shape_is_found_by_its_workflow(store: Store) -> None:
    submitted(store, one_step(), items=1)
    other = named(*one_step("other").steps)
    submitted(store, other, items=1)
    assert [line.job.id for line in everything(store, find_jobs, JOBS, f"template:{other.name}")] == [2]
    assert store.read(lambda tx: tx.conn.execute(sa.select(sa.func.count()).select_from(jobs)).scalar()) == 2
