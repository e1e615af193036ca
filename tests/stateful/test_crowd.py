"""Many at once on PostgreSQL: workers, operators and readers on their own connections, and the same invariants."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import sqlalchemy as sa

from dalsegno import Backoff, Step, Store, Workflow, service, submit
from dalsegno.engine.claimer import _stage_infos
from dalsegno.engine.commander import cancel_job, retry_item, set_priority
from dalsegno.engine.engine import _pause_by_service
from dalsegno.engine.executor import AsyncLoop
from dalsegno.engine.heart import Heart
from dalsegno.engine.item import Item
from dalsegno.engine.pauses import pause_job, resume_job
from dalsegno.engine.planner import Planner
from dalsegno.engine.rescuer import rescue
from dalsegno.engine.scheduler import admit, cancel_some, sweep, wake_due
from dalsegno.engine.service import Services
from dalsegno.engine.settler import Rules, Settler
from dalsegno.engine.skip import skip_items
from dalsegno.errors import CommandRefused
from dalsegno.model.outcome import Done, Fail, Outcome, Release, Retry, Skip
from dalsegno.model.states import JOB_UNFINISHED
from dalsegno.store.schema import events
from tests.stateful.audit import Tail, Trail, check, event_places, look

SECONDS = 8.0
WORKERS = 4
JOBS = 6
ITEMS = 40
MOST = 12
"""Items in one claim."""
SERVICES = ("collect", "download", "upload")


class Crowd:
    """Threads that each do one thing over and over, until time is up; the first error of any is everybody's."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[random.Random], None]) -> None:
        rng = random.Random(len(self._threads))

        def loop() -> None:
            while not self.over.is_set():
                try:
                    work(rng)
                except BaseException as error:  # a deadlock that surfaced is just what this test is for
                    self.errors.append(error)
                    self.over.set()

        self._threads.append(threading.Thread(target=loop, daemon=True))

    def run(self, seconds: float) -> None:
        for thread in self._threads:
            thread.start()
        self.over.wait(seconds)
        self.over.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a thread never came back"
        if self.errors:
            raise self.errors[0]


class Worker:
    """A process without threads: claims, begins, settles; sometimes it is declared dead in the middle of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._be_born()

    def _be_born(self) -> None:
        self.heart = Heart(self.store, "node", {}, 60.0, lambda: None)
        self.heart.register({})
        rules = Rules(Backoff(base=0.01, cap=0.05), random.Random(0))
        self.settler = Settler(self.store, {}, AsyncLoop(), rules, _pause_by_service, lambda: None)
        made = [service(name)(lambda _item: None) for name in SERVICES]
        for each in made:
            each.plan(lambda plan: [f"{plan.step}.{n}" for n in range(ITEMS)])
        self.planner = Planner(self.store, Services(made), lambda: self.heart.process_id)

    def turn(self, rng: random.Random) -> None:
        self.planner.tick()
        name, want, process_id = rng.choice(SERVICES), rng.randint(1, MOST), self.heart.process_id
        claimed = self.store.write("claim", lambda tx: tx.hot.claim(tx, name, process_id, want))
        needed = {row.stage_id for row in claimed}
        infos = self.store.read(lambda tx: _stage_infos(tx, needed)) if needed else {}
        work = [Item(row, infos[row.stage_id]) for row in claimed]
        self.settler.hold(work)
        for item in work:
            item.started_at, item.worker = self.store.clock.now(), "worker"
        begun = [item for item in work if rng.random() < 0.5]
        if begun:
            self.settler.beginning.note(begun)
        if rng.random() < 0.05:
            rescue(self.store, process_id)  # declared dead: what it says from now on must count for nothing
            for item in work:
                item.lost = True
            self._settle(work, rng)
            self._be_born()
            return
        self._settle(work, rng)

    def _settle(self, work: list[Item], rng: random.Random) -> None:
        for item in work:
            self.settler.put(item, _outcome(rng))
        self.settler.flush()


def _outcome(rng: random.Random) -> Outcome:
    roll = rng.random()
    if roll < 0.6:
        return Done({"n": rng.randint(0, 3)} if rng.random() < 0.5 else None)
    choices: list[Outcome] = [Skip("there"), Retry("no luck"), Fail("never"), Release("not now")]
    return rng.choice(choices)


def workflow(number: int) -> Workflow:
    return Workflow(
        name=f"crowd-{number}",
        steps=(
            Step(key="a", service="collect", on_failure="continue"),
            Step(key="b", service="download", depends_on=("a",), follow="each", on_failure="continue"),
            Step(key="c", service="upload", depends_on=("b",), follow="each", on_failure="continue"),
            Step(key="d", service="collect", depends_on=("a", "c"), on_failure="stop"),
        ),
    )


def operator(store: Store) -> Callable[[random.Random], None]:
    """Pauses, resumes, re-prioritises, retries and now and then cancels, without looking first; skips what is about to
    be claimed, and wants it after all."""

    def turn(rng: random.Random) -> None:
        picture = look(store)
        job_id = rng.choice(list(picture.jobs))
        finished = [key for key, item in picture.items.items() if item["finished_at"] is not None]
        actions: list[Callable[[Any], Any]] = [
            lambda tx: pause_job(tx, job_id, "film night", "desk"),
            lambda tx: resume_job(tx, job_id, {}, "desk"),
            lambda tx: resume_job(tx, job_id, {}, "desk"),
            lambda tx: set_priority(tx, job_id, rng.choice((50, 100, 150)), "desk"),
        ]
        if finished:
            item_id = rng.choice(finished)
            actions += [lambda tx: retry_item(tx, item_id, "desk", force=True)] * 2
        action = rng.choice(actions)
        if rng.random() < 0.01:
            action = lambda tx: cancel_job(tx, job_id, "desk")  # noqa: E731
        with contextlib.suppress(CommandRefused):
            store.write("command", action)
        low = {key: stage["low_seq"] for key, stage in picture.stages.items()}
        next_ones = [item for item in picture.items.values() if 0 < item["seq"] - low[item["stage_id"]] <= MOST]
        if next_ones:
            chosen = rng.choice(next_ones)
            store.write("command", lambda tx: skip_items(tx, chosen["job_id"], [chosen["id"]], "desk", {}))
            with contextlib.suppress(CommandRefused):
                store.write("command", lambda tx: retry_item(tx, chosen["id"], "desk", force=True))

    return turn


def housekeeper(store: Store) -> Callable[[random.Random], None]:
    def turn(rng: random.Random) -> None:
        rng.choice((wake_due, admit, cancel_some, sweep))(store)

    return turn


def test_a_crowd_on_one_database_breaks_no_promise(postgres_url: str, stores: Callable[..., Store]) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("ALTER SEQUENCE events_id_seq CACHE 1")  # so that the trail can be replayed by id
    store = stores(postgres_url)
    for number in range(JOBS):
        given = [f"k{n}" for n in range(ITEMS)] if number % 2 else None
        submit(store, workflow(number), items=given, priority=100 + number % 3)
    workers = [Worker(stores(postgres_url)) for _ in range(WORKERS)]
    tail, reader = Tail(), stores(postgres_url)
    crowd = Crowd()
    for worker in workers:
        crowd.add(worker.turn)
    for role in (operator, operator, housekeeper, housekeeper):
        crowd.add(role(stores(postgres_url)))
    crowd.add(lambda rng: None if tail.read(reader, rng.randint(1, 200)) else time.sleep(0.005))
    crowd.run(SECONDS)

    check(look(store))
    _finish(store, workers[0])
    picture = look(store)
    check(picture)
    assert not picture.leases
    trail = Trail()
    trail.replay(store)
    trail.check(picture)
    canceled = _ever_canceled(store)  # nothing follows from what finishes in a job that is being canceled
    for stage in picture.stages.values():  # whoever has a finished parent exists, and exists once
        for key in stage["followed_by"] if stage["job_id"] not in canceled else ():
            (after,) = [s for s in picture.stages.values() if (s["job_id"], s["key"]) == (stage["job_id"], key)]
            keys = [item["key"] for item in picture.items_of(after["id"])]
            assert len(keys) == len(set(keys))
            done = {i["key"] for i in picture.items_of(stage["id"]) if i["status"] in ("succeeded", "skipped")}
            assert done <= set(keys)
    while tail.read(reader, 1000):
        pass
    assert tail.places == event_places(store), "a reader missed an event, or saw one twice"


def _ever_canceled(store: Store) -> set[int]:
    query = sa.select(events.c.job_id).where(events.c.type == "job_cancel_requested")
    return set(store.read(lambda tx: tx.conn.execute(query).scalars().all()))


def _finish(store: Store, worker: Worker) -> None:
    """Alone now: everything comes to its end."""
    rng = random.Random(1)
    deadline = time.monotonic() + 60
    while True:
        picture = look(store)
        open_jobs = [job for job in picture.jobs.values() if job["status"] in JOB_UNFINISHED]
        if not open_jobs:
            return
        assert time.monotonic() < deadline, f"never finished: {open_jobs}, {list(picture.stages.values())}"
        for job in open_jobs:
            if job["status"] == "paused":
                store.write("command", lambda tx, job_id=job["id"]: resume_job(tx, job_id, {}, "desk"))
        for tidy in (wake_due, cancel_some, admit, sweep):
            tidy(store)
        worker.turn(rng)
