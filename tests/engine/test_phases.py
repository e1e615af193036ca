"""Services made of phases: the split, the hand-off, elasticity, and stopping with something in between."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, EngineOptions, Fail, Item, Service, Skip, Store, Throttled, submit
from dalsegno.cli.toolbox import Toolbox
from dalsegno.config.current import Current
from dalsegno.engine import phases, places
from dalsegno.engine.elastic import Elastic, split
from dalsegno.engine.item import Transfer
from dalsegno.engine.pace import Pace
from dalsegno.engine.phases import PhasedPool, families
from dalsegno.engine.serial import SerialPool
from dalsegno.engine.service import Phase, phased
from dalsegno.insight.workers import transfer_totals
from dalsegno.model.limit import Limit
from dalsegno.settings import Settings
from dalsegno.store.schema import leases, permits, workers
from tests.cli.tool import say
from tests.helpers import (
    SWIFT,
    ask,
    assert_sound,
    every,
    item_of,
    items_of,
    keys,
    one_step,
    run_job,
    status_of,
    statuses_of,
    types_of,
    wait_for_job,
    wait_until,
)

WORK = "download"

one_database = pytest.mark.parametrize("backend", ["sqlite"])
"""For what happens in memory only."""


def pool_of(engine: Engine) -> PhasedPool:
    pool = engine.pools[WORK]
    assert isinstance(pool, PhasedPool)
    return pool


class Songs:
    """A service of two phases whose every item can be held in either, and who is where."""

    def __init__(self, workers: int = 4) -> None:
        self.resolving: set[str] = set()
        self.transferring: set[str] = set()
        self.resolved: list[str] = []
        self.transferred: list[str] = []
        self.most = {"resolving": 0, "transferring": 0, "both": 0}
        self.names: set[str] = set()
        self.items: dict[str, Item] = {}
        self._lock = threading.Lock()
        self._may_resolve, self._may_transfer = threading.Semaphore(0), threading.Semaphore(0)
        self.service = phased(
            WORK, [Phase("resolve", self._resolve), Phase("download", self._download, transfers=True)], workers=workers
        )

    def let_resolve(self, count: int = 1) -> None:
        self._may_resolve.release(count)

    def let_transfer(self, count: int = 1) -> None:
        self._may_transfer.release(count)

    @contextmanager
    def _inside(self, where: set[str], item: Item) -> Iterator[None]:
        with self._lock:
            where.add(item.key)
            self.names.add(item.worker)
            self.items[item.key] = item
            now = {"resolving": len(self.resolving), "transferring": len(self.transferring)}
            now["both"] = sum(now.values())
            self.most = {what: max(count, self.most[what]) for what, count in now.items()}
        try:
            yield
        finally:
            with self._lock:
                where.discard(item.key)

    def _resolve(self, item: Item) -> str:
        with self._inside(self.resolving, item):
            assert self._may_resolve.acquire(timeout=60)
            self.resolved.append(item.key)
        return f"https://example.org/{item.key}"

    def _download(self, item: Item, url: str) -> str:
        with self._inside(self.transferring, item):
            while not self._may_transfer.acquire(timeout=0.01):
                if item.cancelled:
                    raise RuntimeError("told to stop")
            self.transferred.append(item.key)
        return url


@contextmanager
def at_work(store: Store, songs: Songs, options: EngineOptions = SWIFT) -> Iterator[Engine]:
    """An engine that need not wait for held items when the test has seen enough."""
    with Engine(store, [songs.service], options) as engine:
        try:
            yield engine
        finally:
            songs.let_resolve(1000)
            songs.let_transfer(1000)


@pytest.fixture
def songs() -> Iterator[Songs]:
    made = Songs()
    yield made
    made.let_resolve(1000)  # nobody is left behind in a handler
    made.let_transfer(1000)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "sizes"),
    [(2, (1, 1)), (3, (1, 2)), (4, (1, 3)), (5, (1, 4)), (6, (2, 4)), (9, (3, 6)), (10, (3, 7)), (40, (3, 37))],
)
def test_the_split_to_begin_with(total: int, sizes: tuple[int, ...]) -> None:
    assert split(total, 2) == sizes


def test_the_split_of_more_phases_leaves_the_rest_to_the_last() -> None:
    assert split(10, 3) == (2, 2, 6)
    assert split(2, 3) == (1, 1, 1)
    assert split(30, 4) == (3, 3, 3, 21)


@pytest.mark.parametrize(
    ("transferring", "queued", "resolve", "transfer", "most"),
    [
        (0, 0, 0.0, 0.0, 10),  # nothing measured: the workers' places, and no burst
        (4, 0, 0.0, 0.0, 6),
        (10, 0, 80.0, 0.0, 0),
        (0, 0, 80.0, 1.0, 40),  # waiting needs no bandwidth: up to the cap
        (10, 0, 80.0, 1.0, 30),
        (10, 0, 1.0, 1.0, 14),  # as many as feed ten transfers, and a few to spare
        (10, 7, 1.0, 1.0, 10),
        (10, 14, 1.0, 1.0, 3),  # the queue is full enough
        (10, 0, 1.0, 20.0, 2),
        (10, 14, 1.0, 20.0, 0),
        (5, 0, 1.0, 20.0, 5),  # places that transfers leave idle
    ],
)
def test_resolvers_by_ratio(transferring: int, queued: int, resolve: float, transfer: float, most: int) -> None:
    assert Elastic(10, 40, 7).resolvers(transferring, queued, resolve, transfer) == most


@pytest.mark.parametrize("ratio", [0.01, 1.0, 100.0])
def test_with_a_cap_of_the_workers_nothing_goes_past_them(ratio: float) -> None:
    for most in (1, 3, 10):
        rule = Elastic(10, most, 7)
        assert rule.places == 10
        for transferring in range(11):
            for queued in range(15):
                allowed = rule.resolvers(transferring, queued, ratio, 1.0)
                assert allowed == min(most, 10 - transferring)


def test_a_limit_is_the_narrowest_of_three() -> None:
    rule = Elastic(10, 40, 7)
    assert rule.per_second(0.8, 0.01) == pytest.approx(40 / 0.81)
    assert rule.per_second(0.1, 0.1) == pytest.approx(100)
    assert rule.per_second(0.02, 0.4) == pytest.approx(25)


def test_what_runs_makes_the_mean_at_least_its_age() -> None:
    pace = Pace()
    assert pace.seconds(0.0) == 0.0
    pace.begin(0.0)
    assert (pace.seconds(5.0), pace.age(5.0)) == (0.0, 5.0)
    pace.end(0.0, 1.0)
    assert pace.seconds(5.0) == 1.0
    pace.begin(10.0)
    pace.begin(20.0)
    assert pace.seconds(16.0) == 1.0
    assert pace.seconds(100.0) == 85.0
    pace.end(10.0, None)
    assert pace.seconds(100.0) == 80.0


def test_speed_is_that_of_the_last_seconds_and_none_when_stalled() -> None:
    moved = Transfer(1_000, 0.0)
    assert moved.speed(0.0) == 0.0
    for second in range(1, 11):
        moved.moved(1_000 + 100 * second, 4_000, float(second))
    assert moved.speed(10.0) == pytest.approx(100.0)
    assert moved.speed(13.0) == pytest.approx(40.0)
    assert moved.speed(16.0) == 0.0
    moved.moved(0, None, 17.0)  # started over
    assert moved.speed(18.0) == 0.0
    assert moved.total == 4_000


# --- hand-off -------------------------------------------------------------------------------------


def test_resolvers_feed_transfers_and_every_item_goes_through_once(store: Store) -> None:
    ran: list[tuple[str, str, str]] = []

    def find(item: Item) -> str:
        ran.append(("resolve", item.key, item.worker))
        return item.key.upper()

    def fetch(item: Item, found: str) -> dict[str, str]:
        ran.append(("download", found, item.worker))
        return {"found": found}

    service = phased(WORK, [Phase("resolve", find), Phase("download", fetch)], workers=6)
    job = submit(store, one_step(WORK), items=keys(400)).job_id
    assert run_job(store, [service], job) == "completed"
    assert sorted(key for phase, key, _ in ran if phase == "resolve") == keys(400)
    assert sorted(key for phase, key, _ in ran if phase == "download") == [key.upper() for key in keys(400)]
    assert {name.rpartition("-")[0] for phase, _, name in ran if phase == "resolve"} == {"resolve"}
    assert {name.rpartition("-")[0] for phase, _, name in ran if phase == "download"} == {"download"}
    assert all(row["result"] == {"found": row["key"].upper()} for row in items_of(store, job))
    assert_sound(store, job)


@one_database
def test_three_phases_follow_one_another(store: Store) -> None:
    seen: list[tuple[int, ...]] = []

    def first(item: Item) -> list[str]:
        seen.append(tuple(pool.handed()))
        return ["first"]

    def second(item: Item, so_far: list[str]) -> list[str]:
        seen.append(tuple(pool.handed()))
        return [*so_far, "second"]

    async def third(item: Item, so_far: list[str]) -> list[str]:
        await asyncio.sleep(0)
        return [*so_far, "third"]

    service = phased(WORK, [Phase("find", first), Phase("check", second), Phase("fetch", third)], workers=5)
    job = submit(store, one_step(WORK), items=keys(300)).job_id
    engine = Engine(store, [service], SWIFT)
    pool = pool_of(engine)
    with engine:
        assert wait_for_job(store, job) == "completed"
    assert all(row["result"] == ["first", "second", "third"] for row in items_of(store, job))
    assert pool.capacities == (0, 2, 6)
    assert all(waiting <= most for line in seen for waiting, most in zip(line, pool.capacities, strict=True))


@one_database
def test_answers_that_wait_never_exceed_the_queue(store: Store, songs: Songs) -> None:
    """Resolves that are suddenly much faster than transfers: what does not fit stays in the resolvers' hands."""
    job = submit(store, one_step(WORK), items=keys(60)).job_id
    with at_work(store, songs) as engine:
        pool = pool_of(engine)
        assert pool.capacities == (0, 6)
        songs.let_resolve(4)
        wait_until(lambda: len(songs.transferring) == 4, "four transfers")
        songs.let_transfer(1)  # now both are measured, and the transfers that run make up for nothing
        wait_until(lambda: len(songs.transferred) == 1, "the first transfer")
        pool.places.rule = replace(pool.places.rule, stock=1000)  # claims that transfers need far more than they do
        for pace in pool.places.paces[:1]:
            pace._mean = 100.0
        seen = []
        for _ in range(12):
            songs.let_resolve(1)
            before = len(songs.resolved)
            wait_until(lambda before=before: len(songs.resolved) >= before, "a resolve")
            seen.append(pool.handed()[1])
        wait_until(lambda: pool.handed()[1] == 6 and pool._blocked >= 1, "the queue to be full and a resolver to wait")
        assert max(seen) <= 6
        assert len(songs.transferring) <= 4
        songs.let_resolve(1000)
        songs.let_transfer(1000)
        while status_of(store, job) != "completed":
            assert pool.handed()[1] <= 6
    assert sorted(songs.transferred) == keys(60)
    assert songs.most["transferring"] <= 4
    assert songs.most["resolving"] <= 16
    assert_sound(store, job)


def test_an_outcome_of_the_first_phase_ends_the_item_there(store: Store) -> None:
    fetched: list[str] = []

    def find(item: Item) -> Any:
        match item.key:
            case "k00001":
                return Skip("on disk", {"path": "/x"})
            case "k00002":
                return Fail("no source", code="no_source")
            case "k00003" if item.attempt == 0:
                raise LookupError("flaky")
            case "k00004":
                return Throttled(store.clock.now(), "busy") if not fetched else "late"
        return "found"

    def fetch(item: Item, found: str) -> None:
        fetched.append(item.key)

    service = phased(WORK, [Phase("resolve", find), Phase("download", fetch)], workers=3)
    job = submit(store, one_step(WORK, max_attempts=3), items=keys(5)).job_id
    assert run_job(store, [service], job) == "completed_with_errors"
    assert sorted(fetched) == ["k00003", "k00004", "k00005"]
    assert item_of(store, job, "k00001")["status"] == "skipped"
    assert item_of(store, job, "k00001")["result"] == {"path": "/x"}
    failed = item_of(store, job, "k00002")
    assert (failed["status"], failed["error_code"]) == ("failed", "no_source")
    assert item_of(store, job, "k00003")["attempt"] == 1
    assert item_of(store, job, "k00004")["attempt"] == 0
    assert_sound(store, job)


def test_an_exception_in_the_last_phase_starts_again_with_the_first(store: Store) -> None:
    ran: list[str] = []

    def find(item: Item) -> int:
        ran.append("resolve")
        return item.attempt

    def fetch(item: Item, tries: int) -> int:
        ran.append("download")
        if tries == 0:
            raise OSError("cut off")
        return tries

    service = phased(WORK, [Phase("resolve", find), Phase("download", fetch)], workers=2)
    job = submit(store, one_step(WORK), items=["k"]).job_id
    assert run_job(store, [service], job) == "completed"
    assert ran == ["resolve", "download"] * 2


@one_database
def test_hooks_are_called_once_an_item(store: Store, monkeypatch: pytest.MonkeyPatch, songs: Songs) -> None:
    entered: list[str] = []
    left: list[str] = []
    monkeypatch.setattr(PhasedPool, "_enter", lambda self, items: entered.extend(item.key for item in items))
    monkeypatch.setattr(PhasedPool, "_leave", lambda self, items, error: left.extend(item.key for item in items))
    with at_work(store, songs) as engine:
        job = fill(store, songs, engine)
        ask(store, "pause", job_id=job)
        songs.let_resolve(1000)
        songs.let_transfer(1000)
        wait_for_job(store, job, ["paused", "completed"])
    assert len(entered) > 8
    assert sorted(left) == sorted(entered)
    assert len(set(left)) == len(left)


def permits_in_use(store: Store) -> int:
    return len(every(store, sa.select(permits).where(~permits.c.released)))


def test_a_limit_counts_an_item_from_its_first_phase_to_its_last(store: Store, songs: Songs) -> None:
    """Also while it lies between two phases; and what is given back there gives back its permit."""
    songs.service.limit = Limit(concurrent=3)
    job = submit(store, one_step(WORK), items=keys(12)).job_id
    with at_work(store, songs) as engine:
        wait_until(lambda: len(songs.resolving) == 3, "as many as the limit lets in")
        songs.let_resolve(3)
        wait_until(lambda: len(songs.transferring) == 3, "them to be handed on")
        assert not songs.resolving
        assert permits_in_use(store) == 3
        songs.let_transfer(1)
        wait_until(lambda: len(songs.resolving) == 1, "the next to be let in")
        ask(store, "pause", job_id=job)
        wait_until(lambda: engine.pools[WORK].places.turns["resolve-1"].unwanted, "the pause to be seen")  # type: ignore[attr-defined]
        songs.let_resolve(1)
        songs.let_transfer(2)
        wait_for_job(store, job, ["paused"])
        wait_until(lambda: permits_in_use(store) == 0, "the permits to be given back")
        songs.let_resolve(1000)
        songs.let_transfer(1000)
        ask(store, "resume", job_id=job)
        assert wait_for_job(store, job) == "completed"
    assert songs.most["both"] <= 3
    assert_sound(store, job)


# --- one worker -----------------------------------------------------------------------------------


@one_database
def test_a_single_worker_does_the_phases_one_after_the_other(store: Store) -> None:
    ran: list[tuple[str, str | None, str]] = []

    async def find(item: Item) -> str:
        ran.append((item.key, item.current_phase, item.worker))
        return item.key

    def fetch(item: Item, found: str) -> str:
        ran.append((found, item.current_phase, item.worker))
        return found

    service = phased(WORK, [Phase("resolve", find), Phase("download", fetch)], workers=1)
    job = submit(store, one_step(WORK), items=["a", "b"]).job_id
    with Engine(store, [service], SWIFT) as engine:
        assert isinstance(engine.pools[WORK], SerialPool)
        assert wait_for_job(store, job) == "completed"
    each = [("resolve", "download-1"), ("download", "download-1")]
    assert ran == [("a", *each[0]), ("a", *each[1]), ("b", *each[0]), ("b", *each[1])]


@one_database
def test_an_operators_number_of_workers_decides_the_shape(store: Store, songs: Songs) -> None:
    one = Engine(store, [songs.service], EngineOptions(concurrency={WORK: 1}))
    ten = Engine(store, [songs.service], EngineOptions(concurrency={WORK: 10}, phase_workers_max={WORK: 12}))
    assert isinstance(one.pools[WORK], SerialPool)
    assert pool_of(ten).places.rule == Elastic(10, 12, 7)


# --- names ----------------------------------------------------------------------------------------


@one_database
def test_workers_are_named_after_their_phases(store: Store) -> None:
    made = Songs(workers=10)
    engine = Engine(store, [made.service], SWIFT)
    names = engine.pools[WORK].worker_names()
    assert names == [f"resolve-{n}" for n in (1, 2, 3)] + [f"download-{n}" for n in range(1, 8)]


def test_names_that_two_services_would_share_carry_the_services() -> None:
    made = [Phase("resolve", lambda item: None), Phase("download", lambda item, value: None)]
    songs, covers = phased("songs", made, workers=2), phased("covers", made, workers=2)
    assert families(songs, [songs]) == ("resolve", "download")
    assert families(songs, [songs, covers]) == ("songs-resolve", "songs-download")
    assert families(songs, [songs, Service("download", len)]) == ("resolve", "songs-download")


@one_database
def test_the_lowest_free_number_is_used_again(store: Store, songs: Songs) -> None:
    job = submit(store, one_step(WORK), items=keys(40)).job_id
    with at_work(store, songs, replace(SWIFT, phase_workers_max={WORK: 4})):
        songs.let_transfer(1000)
        for done in range(1, 41):
            songs.let_resolve()
            wait_until(lambda done=done: len(songs.transferred) >= done, f"{done} songs")
        assert wait_for_job(store, job) == "completed"
    assert {name for name in songs.names if name.startswith("resolve")} == {f"resolve-{n}" for n in (1, 2, 3, 4)}
    assert "download-1" in songs.names
    assert songs.names <= {f"{family}-{n}" for family in ("resolve", "download") for n in (1, 2, 3, 4)}


@one_database
def test_threads_and_extra_names_go_when_there_is_nothing_to_do(
    store: Store, songs: Songs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "LINGER", 0.05)
    monkeypatch.setattr(places, "SHOWN", 0.05)
    job = submit(store, one_step(WORK), items=keys(8)).job_id
    with at_work(store, songs) as engine:
        pool = pool_of(engine)
        songs.let_resolve(8)
        songs.let_transfer(8)
        assert wait_for_job(store, job) == "completed"
        wait_until(lambda: pool._hands == 0, "the threads to end")
        assert pool.worker_names() == ["resolve-1", "download-1", "download-2", "download-3"]
        again = submit(store, one_step(WORK), items=keys(3)).job_id
        songs.let_resolve(3)
        songs.let_transfer(3)
        assert wait_for_job(store, again) == "completed"


# --- elasticity -----------------------------------------------------------------------------------


@one_database
def test_before_anything_is_measured_resolvers_take_the_idle_places_and_no_more(store: Store, songs: Songs) -> None:
    job = submit(store, one_step(WORK), items=keys(60)).job_id
    with at_work(store, songs) as engine:
        pool = pool_of(engine)
        wait_until(lambda: len(songs.resolving) == 4, "the transfer workers' places to be lent")
        for _ in range(20):
            pool.appetite()
        assert pool.running.keys() == {f"resolve-{n}" for n in (1, 2, 3, 4)}
        assert statuses_of(store, job)["pending"] > 30, "claimed far ahead of what can begin"
        songs.let_resolve(4)
        wait_until(lambda: len(songs.transferring) == 4, "the places to be given back to transfers")
        pool.appetite()
        assert len(songs.resolving) == 0, "a transfer has not been measured, yet there are more than the workers"
        assert songs.most == {"resolving": 4, "transferring": 4, "both": 4}


@one_database
def test_slow_resolves_bring_more_resolvers_up_to_the_cap(store: Store, songs: Songs) -> None:
    submit(store, one_step(WORK), items=keys(100))
    with at_work(store, songs, replace(SWIFT, phase_workers_max={WORK: 11})) as engine:
        pool = pool_of(engine)
        songs.let_transfer(1000)
        wait_until(lambda: len(songs.resolving) == 4, "four to resolve")
        wait_until(lambda: pool.places.paces[0].age(pool._clock.monotonic()) > 0.1, "them to take a while")
        songs.let_resolve(1)
        wait_until(lambda: len(songs.resolving) == 11, "resolvers up to the cap")
        for _ in range(30):
            songs.let_resolve(1)
        wait_until(lambda: len(songs.transferred) >= 25, "some to go through")
        assert songs.most["resolving"] == 11
        assert songs.most["both"] <= 11
        assert songs.most["transferring"] <= 4


@one_database
def test_slow_transfers_bring_hardly_any(store: Store, songs: Songs) -> None:
    submit(store, one_step(WORK), items=keys(100))
    with at_work(store, songs) as engine:
        pool = pool_of(engine)
        songs.let_resolve(1000)
        wait_until(lambda: len(songs.transferring) == 4, "four transfers")
        wait_until(lambda: pool.places.paces[1].age(pool._clock.monotonic()) > 0.3, "them to take a while")
        for done in range(1, 9):
            songs.let_transfer(1)
            wait_until(lambda done=done: len(songs.transferred) == done, "a transfer")
        assert songs.most["transferring"] == 4
        assert songs.most["both"] <= 8


@one_database
@pytest.mark.parametrize("cap", [1, 2, 4])
def test_with_a_cap_within_the_workers_the_total_stays(store: Store, cap: int) -> None:
    made = Songs()
    made.let_resolve(1000)
    made.let_transfer(1000)
    job = submit(store, one_step(WORK), items=keys(300)).job_id
    assert run_job(store, [made.service], job, options=replace(SWIFT, phase_workers_max={WORK: cap})) == "completed"
    assert made.most["resolving"] <= cap
    assert made.most["both"] <= 4


@one_database
def test_a_waiting_transfer_goes_before_a_new_resolve(store: Store, songs: Songs) -> None:
    submit(store, one_step(WORK), items=keys(20))
    with at_work(store, songs, replace(SWIFT, phase_workers_max={WORK: 4})):
        wait_until(lambda: len(songs.resolving) == 4, "four to resolve")
        songs.let_resolve(4)
        wait_until(lambda: len(songs.transferring) == 4, "the same places to transfer")
        assert not songs.resolving


# --- pause, cancel, stop --------------------------------------------------------------------------


def fill(store: Store, songs: Songs, engine: Engine) -> int:
    """Four that transfer, two that wait for it, two that resolve, more that wait."""
    job = submit(store, one_step(WORK, max_attempts=1), items=keys(30)).job_id
    pool = pool_of(engine)
    songs.let_resolve(4)
    wait_until(lambda: len(songs.transferring) == 4, "four transfers")
    with pool._ready:
        # As after an hour of resolves that took as long as transfers.
        pool.places.rule = replace(pool.places.rule, stock=4)
        for pace in pool.places.paces:
            pace._mean, pace._count = 60.0, 100
    pool.appetite()
    engine._claimer.wake()
    wait_until(lambda: len(songs.resolving) >= 4, "more to resolve")
    songs.let_resolve(2)
    wait_until(lambda: pool.handed()[1] == 2, "two answers to wait")
    wait_until(lambda: len(songs.resolving) >= 2, "more to resolve")
    return job


def test_a_pause_releases_what_was_handed_on_and_lets_transfers_finish(store: Store, songs: Songs) -> None:
    with at_work(store, songs) as engine:
        job = fill(store, songs, engine)
        pool = pool_of(engine)
        transferring, resolved = set(songs.transferring), list(songs.resolved)
        ask(store, "pause", job_id=job)
        wait_until(lambda: pool.handed()[1] == 0 and not pool.waiting, "the queues to be emptied")
        songs.let_resolve(100)
        wait_until(lambda: not songs.resolving, "the resolves to come back")
        assert status_of(store, job) == "pause_requested"
        songs.let_transfer(100)
        wait_for_job(store, job, ["paused"])
        assert set(songs.transferred) == transferring, "something was handed on after the pause"
        assert set(songs.resolved) > set(resolved)
        assert statuses_of(store, job) == {"succeeded": 4, "pending": 26}
        assert {(row["attempt"], row["interruptions"]) for row in items_of(store, job)} == {(0, 0)}
        assert_sound(store, job)
        ask(store, "resume", job_id=job)
        assert wait_for_job(store, job) == "completed"
    assert sorted(songs.transferred) == keys(30)
    assert_sound(store, job)


def test_a_resolve_that_was_unwanted_once_is_released_although_its_job_goes_on(store: Store, songs: Songs) -> None:
    job = submit(store, one_step(WORK), items=["k"]).job_id
    with at_work(store, songs) as engine:
        wait_until(lambda: songs.resolving, "it to be resolved")
        assert engine.pools[WORK].take_back(lambda item: True) == []
        songs.let_transfer(2)
        songs.let_resolve(1)
        wait_until(lambda: "item_returned" in types_of(store, job_id=job), "it to come back")
        songs.let_resolve(1)
        assert wait_for_job(store, job) == "completed"
    assert songs.resolved == ["k", "k"]
    assert songs.transferred == ["k"]
    assert item_of(store, job, "k")["attempt"] == 0


def test_a_cancel_is_seen_by_transfers_and_nothing_is_handed_on(store: Store, songs: Songs) -> None:
    with at_work(store, songs) as engine:
        job = fill(store, songs, engine)
        transferring = set(songs.transferring)
        resolving = set(songs.resolving)
        ask(store, "cancel", job_id=job)
        wait_until(lambda: not songs.transferring, "the transfers to see it")
        assert all(songs.items[key].cancelled for key in transferring | resolving)
        songs.let_resolve(100)
        assert wait_for_job(store, job) == "canceled"
        assert songs.transferred == []
        assert set(songs.items) >= transferring | resolving
        assert statuses_of(store, job).keys() <= {"canceled", "failed"}
        assert every(store, sa.select(leases)) == []
        assert_sound(store, job)


def test_stopping_gives_back_what_was_handed_on_and_lets_transfers_finish(store: Store, songs: Songs) -> None:
    engine = Engine(store, [songs.service], SWIFT).start()
    job = fill(store, songs, engine)
    pool = pool_of(engine)
    transferring = set(songs.transferring)
    clean: list[bool] = []
    stopper = threading.Thread(target=lambda: clean.append(engine.stop(drain_seconds=60)))
    stopper.start()
    wait_until(lambda: pool.handed()[1] == 0 and not pool.waiting, "the queues to be emptied")
    songs.let_resolve(100)
    songs.let_transfer(100)
    stopper.join(60)
    assert clean == [True]
    assert set(songs.transferred) == transferring
    assert statuses_of(store, job) == {"succeeded": 4, "pending": 26}
    assert {(row["attempt"], row["interruptions"]) for row in items_of(store, job)} == {(0, 0)}
    assert every(store, sa.select(leases)) == every(store, sa.select(workers)) == []
    wait_until(lambda: pool._hands == 0, "the threads to end")
    assert_sound(store, job)
    assert run_job(store, [songs.service], job) == "completed"


def test_what_still_runs_at_the_deadline_is_interrupted_and_never_handed_on(store: Store, songs: Songs) -> None:
    engine = Engine(store, [songs.service], SWIFT).start()
    job = fill(store, songs, engine)
    running = len(songs.resolving) + len(songs.transferring)
    assert engine.stop(drain_seconds=0.0) is False
    found = statuses_of(store, job)
    assert found.keys() == {"interrupted", "pending"}
    assert found["interrupted"] >= running
    assert {row["interruptions"] for row in items_of(store, job) if row["status"] == "pending"} == {0}
    songs.let_resolve(100)
    wait_until(lambda: not songs.resolving, "the resolves to come back")
    assert not songs.transferred
    assert_sound(store, job)


# --- timeouts, suspects, async --------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["resolve", "download"])
def test_a_timeout_in_each_phase_frees_the_place(store: Store, slow: str) -> None:
    leave = threading.Event()
    fetched: list[str] = []

    def hang(item: Item) -> None:
        if item.key == "k00001" and item.attempt == 0:
            assert leave.wait(60)

    def find(item: Item) -> str:
        if slow == "resolve":
            hang(item)
        return item.key

    def fetch(item: Item, found: str) -> None:
        if slow == "download":
            hang(item)
        fetched.append(item.key)

    service = phased(WORK, [Phase("resolve", find), Phase("download", fetch)], workers=2)
    job = submit(store, one_step(WORK, timeout=0.2), items=keys(20)).job_id
    with Engine(store, [service], SWIFT) as engine:
        pool = pool_of(engine)
        assert wait_for_job(store, job) == "completed"
        assert item_of(store, job, "k00001")["attempt"] == 1
        assert pool.places.busy == [0, 0]
        before = sorted(fetched)
        leave.set()
    assert before == keys(20)
    assert sorted(fetched) in (keys(20), sorted([*keys(20), "k00001"]))
    assert_sound(store, job)


@one_database
def test_a_timeout_cancels_an_async_phase(store: Store) -> None:
    async def find(item: Item) -> str:
        if item.attempt == 0:
            await asyncio.sleep(3600)
        return item.key

    async def fetch(item: Item, found: str) -> str:
        return found

    service = phased(WORK, [Phase("resolve", find), Phase("download", fetch)], workers=2)
    job = submit(store, one_step(WORK, timeout=0.2), items=keys(3)).job_id
    assert run_job(store, [service], job) == "completed"
    assert {row["attempt"] for row in items_of(store, job)} == {1}


@one_database
def test_suspects_go_through_all_phases_one_at_a_time(store: Store) -> None:
    from dalsegno.store.schema import items as table

    inside: list[str] = []
    worst: list[int] = []

    def note(item: Item, *_: Any) -> str:
        inside.append(item.key)
        worst.append(len(set(inside)))
        return item.key

    def fetch(item: Item, found: str) -> str:
        worst.append(len(set(inside)))
        inside.remove(item.key)
        return found

    service = phased(WORK, [Phase("resolve", note), Phase("download", fetch)], workers=2)
    job = submit(store, one_step(WORK), items=keys(12)).job_id
    store.write("test", lambda tx: tx.conn.execute(sa.update(table).values(interruptions=2)))
    assert run_job(store, [service], job) == "completed"
    assert max(worst) == 1
    assert_sound(store, job)


def test_entering_a_phase_is_no_progress_of_a_suspect(store: Store) -> None:
    """Or an item that kills its process in its second phase would be run for ever."""
    from dalsegno.store.schema import items as table

    leave = threading.Event()
    service = phased(
        WORK, [Phase("resolve", lambda item: 1), Phase("download", lambda item, _: leave.wait(60))], workers=2
    )
    job = submit(store, one_step(WORK), items=["k"]).job_id
    store.write("test", lambda tx: tx.conn.execute(sa.update(table).values(interruptions=1)))
    with Engine(store, [service], SWIFT):
        wait_until(lambda: item_of(store, job, "k")["phase"] == "download", "the phase to be written")
        assert item_of(store, job, "k")["interruptions"] == 1
        leave.set()
        wait_for_job(store, job)


# --- worker rows ----------------------------------------------------------------------------------


def rows_of(store: Store) -> dict[str, sa.RowMapping]:
    return {row["name"]: row for row in every(store, sa.select(workers))}


def test_worker_rows_show_families_and_transfer_figures(store: Store, database_url: str) -> None:
    leave, sizes = threading.Event(), iter(range(1_000, 10**9, 1_000))

    def find(item: Item) -> str:
        if item.key == "k00002":
            item.progress(text="resolving source qq (1/6)")
            item.transferred(77, 100)  # its search result: no transfer of ours
            assert leave.wait(60)
        return item.key

    def fetch(item: Item, found: str) -> None:
        while not leave.wait(0.01):
            item.transferred(12 << 20, 48 << 20) if item.transfer is None else item.transferred(
                (12 << 20) + next(sizes), 48 << 20
            )

    service = phased(WORK, [Phase("resolve", find), Phase("download", fetch, transfers=True)], workers=2)
    job = submit(store, one_step(WORK), items=keys(2)).job_id
    with Engine(store, [service], SWIFT):
        wait_until(lambda: (row := rows_of(store).get("download-1")) and row["speed"], "a speed")
        rows = rows_of(store)
        resolver, transfer = rows["resolve-1"], rows["download-1"]
        if resolver["status"] == "idle":  # the first went through this place, the second has the next
            resolver = rows["resolve-2"]
        assert (resolver["phase"], resolver["text"]) == ("resolve", "resolving source qq (1/6)")
        assert (resolver["speed"], resolver["bytes_done"], resolver["bytes_total"]) == (None, None, None)
        assert transfer["phase"] == "download"
        assert transfer["item_id"] == item_of(store, job, "k00001")["id"]
        assert transfer["bytes_done"] >= 12 << 20
        assert transfer["bytes_total"] == 48 << 20
        assert transfer["text"].startswith("12.")
        assert transfer["text"].endswith("MB/48.00MB")
        assert transfer["progress"] == pytest.approx(0.25, abs=0.05)
        totals = store.read(transfer_totals)
        assert totals.workers == 1
        assert totals.speed > 0
        shown = say("workers", "--database", database_url).out
        assert "MB/s" in shown
        assert "25%" in shown
        assert "1 transferring" in shown
        wait_until(lambda: item_of(store, job, "k00001")["phase"] == "download", "the item's phase")
        leave.set()
        wait_for_job(store, job)
        wait_until(lambda: store.read(transfer_totals).workers == 0, "the totals to be empty")


def test_rows_of_names_that_are_gone_are_removed(store: Store, songs: Songs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SHOWN", 0.05)
    job = submit(store, one_step(WORK), items=keys(4)).job_id
    with at_work(store, songs):
        wait_until(lambda: "resolve-4" in rows_of(store), "four resolvers to be shown")
        songs.let_resolve(4)
        songs.let_transfer(4)
        wait_for_job(store, job)
        wait_until(lambda: set(rows_of(store)) == {"resolve-1", *(f"download-{n}" for n in (1, 2, 3))}, "the others")


# --- kill -9 --------------------------------------------------------------------------------------

PROGRAM = """
import sys, threading, time
from dalsegno import Engine, EngineOptions, open_store
from dalsegno.engine.service import Phase, phased

url, hang = sys.argv[1:3]

def told(phase, item):
    print(phase, item.key, flush=True)
    if phase == hang:
        threading.Event().wait()

def find(item):
    told("resolve", item)
    return item.key

def fetch(item, found):
    told("download", item)

store = open_store(url)
Engine(store, [phased("download", [Phase("resolve", find), Phase("download", fetch)], workers=3)]).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("phase", ["resolve", "download"])
def test_a_process_killed_in_each_phase_loses_nothing(
    database_url: str, stores: Callable[..., Store], tmp_path: Path, phase: str
) -> None:
    store = stores(database_url)
    job = submit(store, one_step(WORK, max_attempts=1), items=keys(8)).job_id
    out = tmp_path / "out"
    with out.open("w") as file:
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, database_url, phase], stdout=file)
    try:
        wait_until(lambda: out.read_text().count(phase) >= 3, f"it to {phase}")
        wait_until(lambda: statuses_of(store, job)["running"] >= 3, "the begins to be written")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    ran: list[str] = []
    service = phased(
        WORK, [Phase("resolve", lambda item: item.key), Phase("download", lambda item, key: ran.append(key))], workers=3
    )
    assert run_job(store, [service], job) == "completed"
    assert sorted(ran) == keys(8)
    assert {row["attempt"] for row in items_of(store, job)} == {0}
    assert_sound(store, job)


@pytest.mark.parametrize(("setting", "most"), [(None, 16), (7, 7)])
def test_the_cap_is_a_setting_and_four_times_the_workers_without_it(
    store: Store, setting: int | None, most: int
) -> None:
    pair = phased("pair", [Phase("resolve", lambda _: 1), Phase("download", lambda _, __: None)], workers=4)
    engine = Toolbox([pair], {}).engine(store, Current.fixed(Settings(resolve_workers_max=setting)))
    pool = engine.pools["pair"]
    assert isinstance(pool, PhasedPool)
    assert pool.places.rule.most == most
