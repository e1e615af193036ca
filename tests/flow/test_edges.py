"""Limits and breakers where things cross: lost answers, calls that never end, two who look at the same moment."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Breaker, Engine, Item, Limit, ProviderError, Store, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine import breakers, usher
from dalsegno.engine.holds import hold
from dalsegno.engine.limits import Pulse, Room, room, set_limit
from dalsegno.errors import DatabaseUnavailable
from dalsegno.model.trip import Kind, Trip
from dalsegno.store.hot import Claimed, Delta
from dalsegno.store.schema import waits
from tests.flow.test_breakers import NAME, row_of, running, settled_down, state_of
from tests.flow.test_limits import Crowd, live
from tests.helpers import (
    SWIFT,
    ask,
    assert_sound,
    begin,
    claim,
    every,
    item_of,
    items_of,
    keys,
    one_step,
    register,
    settled,
    status_of,
    statuses_of,
    submitted,
    wait_for_job,
    wait_until,
)

SOURCE = "source:qq"
ONE = Limit(concurrent=1)


def limit(store: Store, name: str, to: Limit) -> None:
    store.write("test", lambda tx: set_limit(tx, name, to, "test"))


def trip(store: Store, name: str, seconds: float) -> None:
    until = store.clock.now() + timedelta(seconds=seconds)
    store.write("test", lambda tx: breakers.trip(tx, name, "film night", "nas", until))


def half_open(store: Store, name: str = NAME) -> None:
    """The next call is the probe."""
    store.write("test", lambda tx: breakers.trip(tx, name, "film night", "nas"))
    store.write("test", lambda tx: breakers.probe(tx, name, "nas"))


def fail_once(store: Store, monkeypatch: pytest.MonkeyPatch, which: str, *, late: bool = False) -> threading.Event:
    """The next write of that name fails: before it came to anything or, `late`, after its commit. Set: it has."""
    real, failed = store.write, threading.Event()

    def write(name: str, work: Callable[[Any], Any]) -> Any:
        fails = name == which and not failed.is_set()
        if fails:
            failed.set()
        if not fails or late:
            answer = real(name, work)
        if fails:
            raise DatabaseUnavailable(problem="away for a moment")
        return answer

    monkeypatch.setattr(store, "write", write)
    return failed


def count_writes(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many transactions of each name there are from now on."""
    real, counts = store.write, Counter[str]()

    def write(name: str, work: Callable[[Any], Any]) -> Any:
        counts[name] += 1
        return real(name, work)

    monkeypatch.setattr(store, "write", write)
    return counts


def stand_in_line(store: Store, claimed: Sequence[Claimed], name: str) -> None:
    """Had to wait there in the middle of their work."""
    begin(store, claimed)
    rows = [settled(store, item, "pending", waits_for=name) for item in claimed]
    line = [
        {"item_id": item.id, "name": name, "stage_id": item.stage_id, "job_id": item.job_id, "seq": item.seq}
        for item in claimed
    ]

    def work(tx: Any) -> None:
        tx.hot.settle(tx, rows)
        tx.conn.execute(sa.insert(waits), [{**row, "since": tx.now} for row in line])

    store.write("test", work)


def is_blocked(store: Store) -> bool:
    """Whether some transaction stands behind another's lock (PostgreSQL)."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(every(store, sa.text(waiting)))


# --- permits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["never asked", "answer lost"])
def test_what_is_given_up_for_a_lost_answer_is_not_what_its_item_holds_by_now(
    store: Store, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Else a call is made that no permit stands for, and one more than the limit allows may join it."""
    crowd = Crowd()
    crowd.go_on.clear()
    work = service("work", workers=3, limit=ONE)(crowd)
    with Engine(store, [work], SWIFT) as engine:
        failed = fail_once(store, monkeypatch, "permit", late=late)
        job = submit(store, one_step(), items=keys(1)).job_id
        wait_until(lambda: failed.is_set() and crowd.inside == 1, "the call after the one that failed", 10)
        for _ in range(3):
            engine._usher.tick()
            assert live(store) == 1
        crowd.go_on.set()
        assert wait_for_job(store, job) == "completed"
    assert live(store) == 0
    assert item_of(store, job, *keys(1))["attempt"] == 0


def test_a_task_cancelled_while_it_waits_for_a_permit_leaves_none_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is granted after nobody waits any more would stay taken for as long as the process lives."""
    holding, let_go = threading.Event(), threading.Event()
    asked = count_writes(store, monkeypatch)

    async def pass_by(item: Item) -> None:
        async with item.permit(SOURCE):
            return

    @service("work", workers=2)
    async def work(item: Item) -> None:
        if item.key == keys(1)[0]:
            async with item.permit(SOURCE):
                holding.set()
                assert await asyncio.to_thread(let_go.wait, 30)
            return
        assert await asyncio.to_thread(holding.wait, 30)
        before = asked["permit"]
        waiting = asyncio.ensure_future(pass_by(item))
        await asyncio.to_thread(wait_until, lambda: asked["permit"] > before, "the second to ask")
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        let_go.set()

    limit(store, SOURCE, ONE)
    job = submit(store, one_step(), items=keys(2)).job_id
    with Engine(store, [work], SWIFT) as engine:
        assert wait_for_job(store, job) == "completed"
        wait_until(lambda: not engine._flow._desks[(SOURCE,)]._led, "the cancelled one to be answered")
        wait_until(lambda: live(store) == 0, "all permits to be given back", 5)


def test_who_waits_for_a_permit_is_not_in_the_way_of_who_gives_one_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many async waiters as there are threads to wait in, nobody could leave until one lost its patience."""
    crowd = 40  # more than the event loop has threads of its own, on any machine
    monkeypatch.setattr("dalsegno.engine.flow.PATIENCE", 60.0)
    begun = 0
    entered: list[str] = []
    all_here = asyncio.Event()

    @service("work", workers=crowd)
    async def work(item: Item) -> None:
        nonlocal begun
        begun += 1
        if begun == crowd:
            all_here.set()
        async with item.permit(SOURCE):
            entered.append(item.key)
            await all_here.wait()

    limit(store, SOURCE, ONE)
    job = submit(store, one_step(), items=keys(crowd)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job, timeout=15) == "completed"
    assert sorted(entered) == keys(crowd)
    assert begun == crowd, "nobody had to come twice"


def test_a_limit_also_stops_what_waits_inside_a_process(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long items fill the pool, so that it claims nothing for long: it must not be claims alone that tell it."""
    monkeypatch.setattr("dalsegno.engine.flow.PATIENCE", 0.0)
    crowd = Crowd()
    crowd.go_on.clear()
    work = service("work", workers=2)(crowd)
    job = submit(store, one_step(), items=keys(12)).job_id
    with Engine(store, [work], SWIFT) as engine:
        pool = engine.pools["work"]
        wait_until(lambda: crowd.inside == 2 and len(pool.waiting) == 10, "the pool to be full")
        limit(store, NAME, Limit(concurrent=0))
        wait_until(lambda: pool.guarded, "the pool to hear of it", 5)
        crowd.go_on.set()
        wait_until(lambda: settled_down(store, job), "the others to be given back")
        assert statuses_of(store, job) == {"succeeded": 2, "pending": 10}
    assert crowd.calls == 2


def test_a_database_that_is_away_when_a_permit_is_asked_for_costs_no_attempt(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the item's, which would fail for good after a few of them."""
    attempts: list[int] = []

    @service("work")
    def work(item: Item) -> None:
        attempts.append(item.attempt)
        with item.permit(SOURCE):
            return

    limit(store, SOURCE, Limit(concurrent=5))
    failed = fail_once(store, monkeypatch, "permit")
    job = submit(store, one_step(), items=keys(1)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
    assert failed.is_set()
    assert attempts == [0, 0]


def test_a_call_that_nobody_limits_writes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of songs a minute come from sources where all is well."""
    asked = fail_once(store, monkeypatch, "permit")

    @service("work")
    def work(item: Item) -> None:
        with item.permit(SOURCE):
            return

    job = submit(store, one_step(), items=keys(3)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
    assert not asked.is_set()


# --- lines ----------------------------------------------------------------------------------------


def test_a_held_service_does_not_stand_in_the_way_of_others_in_line(timed: Store, clock: ManualClock) -> None:
    """Whoever is called back and cannot be claimed would else be followed by one more of its own, again and again."""
    process, pulse = register(timed), Pulse(clock)
    limit(timed, SOURCE, ONE)
    timed.write("test", lambda tx: hold(tx, "service:first", "film night", "nas"))
    for name in ("first", "second"):
        submitted(timed, one_step(name), 5)
        stand_in_line(timed, claim(timed, process, 5, name), SOURCE)
    called = sa.select(waits.c.job_id).where(waits.c.offered_at.is_not(None)).distinct()
    for _ in range(3):
        timed.write("test", lambda tx: usher.call_back(tx, SOURCE, lambda tx, names: room(tx, names, 1.0, pulse)))
        clock.advance(31)  # who has not come by then is no longer waited for
    assert len(every(timed, called)) == 2


def test_who_is_called_back_and_takes_another_way_makes_room_for_the_next(timed: Store, clock: ManualClock) -> None:
    """It will never ask for the permit it was called for: the line must not wait for it, nor keep its row."""
    tries: Counter[str] = Counter()

    @service("work")
    def work(item: Item) -> None:
        tries[item.key] += 1
        if tries[item.key] == 1:
            with item.permit(SOURCE):
                return

    trip(timed, SOURCE, 60)
    job = submit(timed, one_step(), items=keys(3)).job_id
    with running(timed, clock, work) as time:
        wait_until(lambda: len(every(timed, sa.select(waits))) == 3, "all to wait")
        time.pass_by(60)
        wait_until(lambda: time.pass_by(0) or statuses_of(timed, job)["succeeded"] == 3, "all to be called", 10)
        wait_until(lambda: time.pass_by(0) or not every(timed, sa.select(waits)), "the line to be empty", 10)
        assert wait_for_job(timed, job) == "completed"
    assert set(tries.values()) == {2}
    assert_sound(timed, job)


def test_whoever_calls_back_locks_stages_in_the_order_everybody_does(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    """By priority instead, it and a settler would each hold what the other wants: the database ends one of them."""
    store = stores(postgres_url)
    process = register(store)
    for priority in (200, 100):
        submitted(store, one_step(), 2, priority=priority)
    claimed = claim(store, process, 4)
    stand_in_line(store, claimed, SOURCE)
    first, second = sorted({item.stage_id for item in claimed})
    tries: Counter[str] = Counter()
    locked, go_on = threading.Event(), threading.Event()

    def settle(tx: Any) -> None:
        tries["settle"] += 1
        tx.hot.adjust(tx, {first: Delta()})
        locked.set()
        assert go_on.wait(30)
        tx.hot.adjust(tx, {second: Delta()})

    def call(tx: Any) -> None:
        tries["call"] += 1
        usher.call_back(tx, SOURCE, lambda _tx, _names: Room(None))

    threads = [threading.Thread(target=store.write, args=("test", work)) for work in (settle, call)]
    threads[0].start()
    assert locked.wait(30)
    threads[1].start()
    wait_until(lambda: is_blocked(store), "the one to stand behind the other")
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert tries == {"settle": 1, "call": 1}
    assert len(every(store, sa.select(waits).where(waits.c.offered_at.is_not(None)))) == 4


# --- probes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_probe_that_takes_too_long_is_an_outage_and_another_one_follows(
    timed: Store, clock: ManualClock, kind: str
) -> None:
    """In a thread it may never come back and nobody else is let in; cut off, it says nothing good of the provider."""
    calls: list[str] = []
    never = threading.Event()

    def in_thread(item: Item) -> None:
        calls.append(item.key)
        if len(calls) == 1:
            never.wait(60)

    async def in_loop(item: Item) -> None:
        calls.append(item.key)
        if len(calls) == 1:
            await asyncio.Event().wait()

    handler: Callable[[Item], Any] = in_thread if kind == "thread" else in_loop
    work = service("work", breaker=Breaker())(handler)
    half_open(timed)
    job = submit(timed, one_step(timeout=5), items=keys(3)).job_id
    try:
        with running(timed, clock, work) as time:
            wait_until(lambda: calls, "the probe")
            time.pass_by(5)
            wait_until(lambda: state_of(timed) != "half_open", "the breaker to hear of it", 5)
            row = row_of(timed)
            assert row is not None
            assert (row["state"], row["kind"]) == ("open", "outage")
            assert row["resume_at"] == clock.now() + timedelta(seconds=30)
            wait_until(lambda: settled_down(timed, job), "the item to come back")
            assert len(calls) == 1
            wait_until(lambda: time.pass_by(30) or state_of(timed) == "closed", "another probe")

            def over() -> bool:
                if settled_down(timed, job):
                    time.pass_by(1)  # what was cut off comes back at a time of its own
                return status_of(timed, job) == "completed"

            wait_until(over, "the job to end")
    finally:
        never.set()


def test_a_probe_whose_job_is_canceled_says_nothing_and_the_next_call_is_the_probe(store: Store) -> None:
    """Taken for a success, it would let everybody in to a provider that never answered."""
    probing = threading.Event()

    @service("work", breaker=Breaker())
    async def work(item: Item) -> None:
        probing.set()
        await asyncio.Event().wait()

    half_open(store)
    job = submit(store, one_step(), items=keys(1)).job_id
    with Engine(store, [work], SWIFT):
        assert probing.wait(30)
        ask(store, "cancel", job_id=job)
        assert wait_for_job(store, job) == "canceled"
        row = row_of(store)
        assert row is not None
        assert (row["state"], row["probe_process_id"]) == ("half_open", None)


def test_the_watchdog_does_not_undo_a_trip_it_has_not_seen(postgres_url: str, stores: Callable[..., Store]) -> None:
    """It looks, somebody trips the breaker until tomorrow, and it acts on what it saw."""
    store = stores(postgres_url)
    trip(store, SOURCE, -1)
    tomorrow = store.clock.now() + timedelta(days=1)
    locked, go_on = threading.Event(), threading.Event()

    def trip_again(tx: Any) -> None:
        breakers.trip(tx, SOURCE, "quota", "nas", tomorrow)
        locked.set()
        assert go_on.wait(30)

    threads = [threading.Thread(target=store.write, args=("test", work)) for work in (trip_again, breakers.watch)]
    threads[0].start()
    assert locked.wait(30)
    threads[1].start()
    wait_until(lambda: is_blocked(store), "the watchdog to stand behind the trip")
    go_on.set()
    for thread in threads:
        thread.join(30)
    row = row_of(store, SOURCE)
    assert row is not None
    assert (row["state"], row["resume_at"]) == ("open", tomorrow)


# --- busy for nothing -----------------------------------------------------------------------------


def test_a_probe_that_finds_the_limit_full_waits_until_something_moves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If being refused counted as a move, whoever waits would ask again at once, as fast as the database answers."""
    monkeypatch.setattr("dalsegno.engine.flow.PATIENCE", 60.0)
    monkeypatch.setattr("dalsegno.engine.desk.LOOK", 60.0)
    inside, tripped, let_go = (threading.Event() for _ in range(3))

    @service("work", workers=2)
    def work(item: Item) -> None:
        if item.key == keys(1)[0]:
            with item.permit(SOURCE):
                inside.set()
                assert let_go.wait(30)
            return
        assert inside.wait(30)
        half_open(store, SOURCE)
        tripped.set()
        with item.permit(SOURCE):
            return

    limit(store, SOURCE, ONE)
    job = submit(store, one_step(), items=keys(2)).job_id
    asked = count_writes(store, monkeypatch)
    with Engine(store, [work], SWIFT) as engine:
        assert tripped.wait(30)
        wait_until(lambda: asked["permit"] >= 2, "the probe to ask")
        before = asked["permit"]
        for _ in range(50):
            engine._usher.tick()
        more = asked["permit"] - before
        let_go.set()
        assert wait_for_job(store, job) == "completed"
    assert more <= 5, "what was announced before may still be heard"


def test_the_last_second_before_a_breaker_resumes_is_waited_for_not_asked_away(
    timed: Store, clock: ManualClock
) -> None:
    """A claim that comes early for a permit finds nothing at a breaker: it would be repeated every millisecond."""

    @service("work", breaker=Breaker())
    def work(item: Item) -> None:
        return

    trip(timed, NAME, 3)
    engine = Engine(timed, [work], SWIFT)
    engine._heart.register({})
    job = submitted(timed, items=1).job_id
    looks = 0
    while statuses_of(timed, job)["pending"] and looks < 100:
        clock.advance(engine._claimer.tick() or 0.0)
        looks += 1
    assert statuses_of(timed, job) == {"claimed": 1}
    assert looks <= 10


# --- errors ---------------------------------------------------------------------------------------


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_that_cannot_be_told_is_one_failed_item(store: Store) -> None:
    """Not the end of the worker that met it, which would take the permit along."""

    @service("work", workers=1, limit=ONE, breaker=Breaker())
    def work(item: Item) -> None:
        if item.key == keys(1)[0]:
            raise Speechless

    job = submit(store, one_step(max_attempts=1), items=keys(2)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job, timeout=5) == "completed_with_errors"
    assert statuses_of(store, job) == {"failed": 1, "succeeded": 1}
    assert live(store) == 0


def test_a_reason_that_no_database_takes_still_trips(timed: Store, clock: ManualClock) -> None:
    """A classifier may quote what the provider sent, NUL and all; PostgreSQL would refuse the whole report."""
    banned = Trip(Kind.BAN, clock.now() + timedelta(seconds=60), "banned\x00")
    calls: list[str] = []

    @service("work", breaker=Breaker(classify=lambda _: banned))
    def work(item: Item) -> None:
        calls.append(item.key)
        if len(calls) == 1:
            raise ValueError("what it was does not matter")

    job = submit(timed, one_step(), items=keys(2)).job_id
    with running(timed, clock, work) as time:
        wait_until(lambda: state_of(timed) == "open" and settled_down(timed, job), "the breaker to open", 5)
        row = row_of(timed)
        assert row is not None
        assert row["reason"] == "banned\ufffd"
        time.pass_by(60)
        assert wait_for_job(timed, job) == "completed"
    assert {item["attempt"] for item in items_of(timed, job)} == {0}


def test_trouble_met_while_the_database_is_away_costs_nothing_and_trips_once_it_is_back(
    timed: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The breaker cannot be told at that moment: neither shall the item pay for it, nor the trouble be forgotten."""
    attempts: list[int] = []

    @service("work", breaker=Breaker())
    def work(item: Item) -> None:
        attempts.append(item.attempt)
        if len(attempts) == 1:
            raise ProviderError(429)

    failed = fail_once(timed, monkeypatch, "permit.return")
    job = submit(timed, one_step(), items=keys(1)).job_id
    with running(timed, clock, work) as time:
        wait_until(lambda: attempts and settled_down(timed, job), "the item to come back")
        assert failed.is_set()
        assert item_of(timed, job, *keys(1))["attempt"] == 0
        wait_until(lambda: state_of(timed) == "open", "the breaker to hear of it", 5)
        time.pass_by(120)
        assert wait_for_job(timed, job) == "completed"
    assert attempts == [0, 0]


def test_having_to_wait_inside_a_task_group_costs_no_attempt(timed: Store, clock: ManualClock) -> None:
    """The group wraps what says so; unseen, it would count as an error of the item's own."""
    attempts: list[int] = []

    async def pass_by(item: Item) -> None:
        async with item.permit(SOURCE):
            return

    @service("work")
    async def work(item: Item) -> None:
        attempts.append(item.attempt)
        async with asyncio.TaskGroup() as group:
            group.create_task(pass_by(item))

    trip(timed, SOURCE, 60)
    job = submit(timed, one_step(), items=keys(1)).job_id
    with running(timed, clock, work) as time:
        wait_until(lambda: attempts and settled_down(timed, job), "the item to come back")
        assert [row["name"] for row in every(timed, sa.select(waits))] == [SOURCE]
        time.pass_by(60)
        assert wait_for_job(timed, job) == "completed"
    assert attempts == [0, 0]


def test_an_error_is_read_outside_of_any_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its body may still have to come over the network; on SQLite every writer would wait for that."""
    here = threading.local()
    real = store.write

    def write(name: str, work: Callable[[Any], Any]) -> Any:
        def marked(tx: Any) -> Any:
            here.writing = True
            try:
                return work(tx)
            finally:
                here.writing = False

        return real(name, marked)

    monkeypatch.setattr(store, "write", write)
    read: list[bool] = []

    class Streamed(Exception):
        status = 503

        @property
        def body(self) -> str:
            read.append(getattr(here, "writing", False))
            return "overloaded"

    @service("work", breaker=Breaker(outage_after=1000))
    def work(item: Item) -> None:
        raise Streamed

    job = submit(store, one_step(max_interruptions=1), items=keys(1)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: read and settled_down(store, job), "the item to come back")
    assert set(read) == {False}
