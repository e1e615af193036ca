"""Limits through a whole engine: one permit a call, shared by every process, changed while everything runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, EngineOptions, Item, Limit, Store, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine.holds import hold, release
from dalsegno.engine.limits import (
    Denied,
    Pulse,
    clear_limit,
    give_back,
    room,
    set_limit,
    set_setting,
    setting,
    take,
    take_some,
)
from dalsegno.errors import InputInvalid
from dalsegno.model.limit import SYSTEM_SETTINGS, parse_rate
from dalsegno.store.schema import limits, permits, waits
from tests.helpers import (
    SWIFT,
    ask,
    assert_counters,
    assert_sound,
    every,
    item_of,
    items_of,
    keys,
    one,
    one_step,
    register,
    statuses_of,
    wait_for_job,
    wait_until,
)


class Crowd:
    """Counts who is inside at once, and can keep them there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = self.calls = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, *_: object) -> None:
        with self._lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.go_on.wait(30)
        time.sleep(0.02)
        with self._lock:
            self.inside -= 1


def limit_of(store: Store, name: str) -> sa.RowMapping:
    return one(store, sa.select(limits).where(limits.c.name == name))


def live(store: Store) -> int:
    return len(every(store, sa.select(permits).where(permits.c.released.is_(False))))


# --- permits by hand ------------------------------------------------------------------------------


def test_a_sliding_window_frees_each_place_exactly_a_window_later(timed: Store, clock: ManualClock) -> None:
    process, pulse = register(timed), Pulse(clock)
    timed.write("test", lambda tx: set_limit(tx, "source:qq", Limit(rate=2, window=60), "test"))

    def ask() -> float | None:
        """0 if granted, else the seconds to wait."""
        taken = timed.write("test", lambda tx: take(tx, pulse, ["source:qq"], process))
        return taken.delay if isinstance(taken, Denied) else 0.0

    assert ask() == 0
    clock.advance(20)
    assert ask() == 0
    assert ask() == pytest.approx(40)
    clock.advance(39.999)
    assert ask() == pytest.approx(0.001)
    clock.advance(0.001)
    assert ask() == 0
    assert ask() == pytest.approx(20)
    assert timed.read(lambda tx: room(tx, ["source:qq"])).calls == 0
    assert timed.read(lambda tx: room(tx, ["source:qq"], ahead=30)).calls == 1


@pytest.mark.parametrize("hours", [2, -2])
def test_a_clock_that_is_set_changes_neither_what_is_granted_nor_what_is_claimed(
    timed: Store, clock: ManualClock, hours: int
) -> None:
    process, pulse = register(timed), Pulse(clock)
    timed.write("test", lambda tx: set_limit(tx, "source:qq", Limit(rate=2, window=60), "test"))
    for _ in range(2):
        assert not isinstance(timed.write("test", lambda tx: take(tx, pulse, ["source:qq"], process)), Denied)
    clock.advance(20)
    clock._now += timedelta(hours=hours)
    denied = timed.write("test", lambda tx: take(tx, pulse, ["source:qq"], process))
    assert isinstance(denied, Denied)
    assert denied.delay == pytest.approx(40)
    assert timed.read(lambda tx: room(tx, ["source:qq"], pulse=pulse)) == (0, pytest.approx(40))
    clock.advance(40)
    assert timed.read(lambda tx: room(tx, ["source:qq"], pulse=pulse)).calls == 2
    assert not isinstance(timed.write("test", lambda tx: take(tx, pulse, ["source:qq"], process)), Denied)


def test_all_limits_or_none(timed: Store, clock: ManualClock) -> None:
    process, pulse = register(timed), Pulse(clock)
    timed.write("test", lambda tx: set_limit(tx, "a", Limit(concurrent=5), "test"))
    timed.write("test", lambda tx: set_limit(tx, "b", Limit(concurrent=1), "test"))
    first = timed.write("test", lambda tx: take(tx, pulse, ["b", "a", "free"], process))
    assert [permit.name for permit in first] == ["a", "b"]  # type: ignore[union-attr]
    assert isinstance(timed.write("test", lambda tx: take(tx, pulse, ["a", "b"], process)), Denied)
    assert live(timed) == 2
    timed.write("test", lambda tx: give_back(tx, first))  # type: ignore[arg-type]
    assert live(timed) == 0


def test_a_change_counts_what_was_granted_before(timed: Store, clock: ManualClock) -> None:
    """Also what was pruned under the old limit, and what was granted before the limit was lifted for a while."""
    process, pulse = register(timed), Pulse(clock)

    def ask() -> bool:
        taken = timed.write("test", lambda tx: take(tx, pulse, ["source:qq"], process))
        if isinstance(taken, Denied):
            return False
        timed.write("test", lambda tx: give_back(tx, taken))
        return True

    timed.write("test", lambda tx: set_limit(tx, "source:qq", Limit(rate=1000, window=1), "test"))
    for _ in range(260):
        assert ask()
        clock.advance(0.1)
    assert len(every(timed, sa.select(permits))) < 200, "old ones are pruned"
    timed.write("test", lambda tx: set_limit(tx, "source:qq", Limit(rate=250, window=60), "test"))
    assert not ask(), "26 s ago there were 260 in 26 s"
    timed.write("test", lambda tx: clear_limit(tx, "source:qq", "test"))
    assert ask()
    timed.write("test", lambda tx: set_limit(tx, "source:qq", Limit(rate=1, window=60), "test"))
    assert not ask()
    clock.advance(60)
    assert ask()
    assert not ask()


def test_nothing_means_nothing(timed: Store, clock: ManualClock) -> None:
    process, pulse = register(timed), Pulse(clock)
    for limit in (Limit(rate=0), Limit(concurrent=0)):
        timed.write("test", lambda tx, limit=limit: set_limit(tx, "source:qq", limit, "test"))  # type: ignore[misc]
        taken = timed.write("test", lambda tx: take(tx, pulse, ["source:qq"], process))
        assert isinstance(taken, Denied)
        assert taken.delay is None
        assert timed.read(lambda tx: room(tx, ["source:qq"])).calls == 0


@pytest.mark.parametrize(
    ("text", "rate"), [("2/min", (2, 60)), ("100/15s", (100, 15)), ("1000 per day", (1000, 86400))]
)
def test_a_rate_is_written_as_people_say_it(text: str, rate: tuple[int, float]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "2", "2/", "2/fortnight", "-1/min", "1/0s", "2/99d", "2/ms", "9" * 5000 + "/s", "2 min"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InputInvalid):
        parse_rate(text)


# --- system settings ------------------------------------------------------------------------------


def test_system_settings_have_defaults_and_limits_follow_them(store: Store) -> None:
    followed = Limit(concurrent="queue_concurrency", rate="queue_rate_limit_max")
    store.write("test", lambda tx: set_limit(tx, "service:metadata", followed, "service", origin="service"))
    row = limit_of(store, "service:metadata")
    assert (row["concurrent"], row["rate"], row["window"]) == (1, 2, 60)
    store.write("test", lambda tx: set_setting(tx, "queue_rate_limit_max", 7, "nas"))
    store.write("test", lambda tx: set_setting(tx, "queue_concurrency", 3, "nas"))
    row = limit_of(store, "service:metadata")
    assert (row["concurrent"], row["rate"]) == (3, 7)
    assert store.read(lambda tx: setting(tx, "queue_batch_size")) == SYSTEM_SETTINGS["queue_batch_size"] == 10
    for key, value in (
        ("queue_speed", 1),
        ("queue_concurrency", -1),
        ("queue_batch_size", 0),
        ("queue_concurrency", True),
    ):
        with pytest.raises(InputInvalid):
            store.write("test", lambda tx, key=key, value=value: set_setting(tx, key, value, "nas"))  # type: ignore[misc]


def test_an_operators_limit_is_not_overruled_by_what_a_service_declares(store: Store) -> None:
    @service("work", limit=Limit(concurrent=2))
    def work(item: Item) -> None:
        return None

    store.write("test", lambda tx: set_limit(tx, "service:work", Limit(concurrent=9), "nas"))
    with Engine(store, [work], SWIFT):
        assert limit_of(store, "service:work")["concurrent"] == 9


# --- through an engine ----------------------------------------------------------------------------


def test_calls_at_once_never_exceed_the_limit_and_all_get_done(store: Store) -> None:
    crowd = Crowd()
    work = service("work", workers=8, limit=Limit(concurrent=2))(crowd)
    job = submit(store, one_step(), items=keys(60)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
    assert (crowd.most, crowd.calls) == (2, 60)
    assert live(store) == 0
    assert {item["attempt"] for item in items_of(store, job)} == {0}
    assert_sound(store, job)


def test_claims_are_held_back_while_no_permit_is_free(store: Store) -> None:
    crowd = Crowd()
    crowd.go_on.clear()
    work = service("work", workers=8, limit=Limit(concurrent=2))(crowd)
    job = submit(store, one_step(), items=keys(50)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: crowd.inside == 2, "two to be inside")
        for _ in range(10):
            store.announce({"work", "flow"})
        assert statuses_of(store, job)["running"] == 2
        assert statuses_of(store, job)["pending"] >= 46
        crowd.go_on.set()
        assert wait_for_job(store, job) == "completed"


def test_a_limit_is_changed_while_it_runs(store: Store) -> None:
    crowd = Crowd()
    crowd.go_on.clear()
    work = service("work", workers=8, limit=Limit(concurrent=1))(crowd)
    job = submit(store, one_step(), items=keys(30)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: crowd.inside == 1, "one to be inside")
        store.write("test", lambda tx: set_limit(tx, "service:work", Limit(concurrent=5), "nas"))
        wait_until(lambda: crowd.inside == 5, "five to be inside")
        store.write("test", lambda tx: clear_limit(tx, "service:work", "nas"))
        wait_until(lambda: crowd.inside == 8, "all to be inside")
        crowd.go_on.set()
        assert wait_for_job(store, job) == "completed"


def test_two_engines_share_one_limit(postgres_url: str, stores: Callable[..., Store]) -> None:
    store, other = stores(postgres_url), stores(postgres_url)
    crowd = Crowd()
    work = service("work", workers=6, limit=Limit(concurrent=3))(crowd)
    job = submit(store, one_step(), items=keys(120)).job_id
    with Engine(store, [work], SWIFT), Engine(other, [work], SWIFT):
        assert wait_for_job(store, job, timeout=60) == "completed"
    assert (crowd.most, crowd.calls) == (3, 120)


def test_a_node_has_a_limit_for_all_its_services(store: Store) -> None:
    crowd = Crowd()
    one_kind, other_kind = service("work", workers=4)(crowd), service("other", workers=4)(crowd)
    store.write("test", lambda tx: set_limit(tx, "node:nas", Limit(concurrent=3), "test"))
    first = submit(store, one_step(), items=keys(20)).job_id
    second = submit(store, one_step("other"), items=keys(20)).job_id
    crowd.go_on.clear()
    with Engine(store, [one_kind, other_kind], EngineOptions(node="nas", lease_seconds=30)):
        wait_until(lambda: crowd.inside == 3, "three to be inside")
        crowd.go_on.set()
        assert wait_for_job(store, first) == wait_for_job(store, second) == "completed"
    assert (crowd.most, crowd.calls) == (3, 40)


def test_a_batch_is_one_call(store: Store) -> None:
    crowd = Crowd()

    @service("work", workers=4, batch_size=10, limit=Limit(rate=3, window=86_400))
    def work(batch: list[Item]) -> None:
        crowd()

    job = submit(store, one_step(), items=keys(30)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
    assert crowd.calls == limit_of(store, "service:work")["granted"] == 3


def test_the_size_of_batches_follows_its_setting(store: Store) -> None:
    sizes: list[int] = []

    @service("work", batch_size="queue_batch_size", linger=0)
    def work(batch: list[Item]) -> None:
        sizes.append(len(batch))

    store.write("test", lambda tx: set_setting(tx, "queue_batch_size", 4, "nas"))
    job = submit(store, one_step(), items=keys(20)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
        assert max(sizes) == 4
        store.write("test", lambda tx: set_setting(tx, "queue_batch_size", 1, "nas"))
        sizes.clear()
        assert wait_for_job(store, submit(store, one_step(), items=keys(5)).job_id) == "completed"
    assert set(sizes) == {1}


def test_whoever_finds_no_permit_in_the_middle_of_its_work_waits_in_line(timed: Store, clock: ManualClock) -> None:
    """In order, at no cost, and without being tried again and again."""
    entered: list[str] = []
    begun: list[str] = []

    @service("work", workers=4)
    def work(item: Item) -> None:
        begun.append(item.key)
        with item.permit("source:qq"):
            entered.append(item.key)

    timed.write("test", lambda tx: set_limit(tx, "source:qq", Limit(rate=3, window=600), "test"))
    job = submit(timed, one_step(), items=keys(15)).job_id
    with Engine(timed, [work], SWIFT) as engine:
        for rounds in range(1, 6):
            wait_until(
                lambda rounds=rounds: (
                    statuses_of(timed, job)["succeeded"] == 3 * rounds
                    and len(every(timed, sa.select(waits).where(waits.c.offered_at.is_(None)))) == 15 - 3 * rounds
                ),
                f"round {rounds}",
            )
            assert_counters(timed)
            assert len(begun) <= 15 + 5 * rounds, "nobody is tried again before there is room"
            clock.advance(600)
            engine._heart.tick()
            timed.announce({"flow"})
        assert wait_for_job(timed, job) == "completed"
    assert_sound(timed, job)
    assert sorted(entered) == keys(15)
    assert {item["attempt"] for item in items_of(timed, job)} == {0}
    assert not every(timed, sa.select(waits))


def test_an_async_service_takes_permits_too(store: Store) -> None:
    inside = most = 0

    @service("work", workers=6)
    async def work(item: Item) -> None:
        nonlocal inside, most
        async with item.permit("source:qq"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.005)
            inside -= 1

    store.write("test", lambda tx: set_limit(tx, "source:qq", Limit(concurrent=2), "test"))
    job = submit(store, one_step(), items=keys(20)).job_id
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
    assert most == 2


def test_who_waits_for_a_permit_goes_back_when_the_engine_stops(store: Store) -> None:
    crowd = Crowd()
    crowd.go_on.clear()
    asked = threading.Event()

    @service("work", workers=2)
    def work(item: Item) -> None:
        asked.set()
        with item.permit("source:qq"):
            crowd()

    store.write("test", lambda tx: set_limit(tx, "source:qq", Limit(concurrent=1), "test"))
    job = submit(store, one_step(), items=keys(4)).job_id
    engine = Engine(store, [work], SWIFT).start()
    wait_until(lambda: crowd.inside == 1, "one to be inside")
    threading.Timer(0.1, crowd.go_on.set).start()
    assert engine.stop()
    assert {item["attempt"] for item in items_of(store, job)} == {0}
    assert live(store) == 0
    with Engine(store, [work], SWIFT):
        assert wait_for_job(store, job) == "completed"
    assert_sound(store, job)


def test_a_canceled_item_leaves_the_line(timed: Store, clock: ManualClock) -> None:
    @service("work", workers=2)
    def work(item: Item) -> None:
        with item.permit("source:qq"):
            return

    timed.write("test", lambda tx: set_limit(tx, "source:qq", Limit(rate=1, window=600), "test"))
    job = submit(timed, one_step(), items=keys(5)).job_id
    with Engine(timed, [work], SWIFT):
        wait_until(lambda: len(every(timed, sa.select(waits))) == 4, "four to wait")
        ask(timed, "cancel", job_id=job)
        assert wait_for_job(timed, job) == "canceled"
        clock.advance(600)
        timed.announce({"flow"})
        wait_until(lambda: not every(timed, sa.select(waits)), "the line to be empty")
    assert statuses_of(timed, job) == {"succeeded": 1, "canceled": 4}


def test_a_held_service_and_a_held_lane_claim_nothing_and_go_on(store: Store) -> None:
    crowd = Crowd()
    work = service("work", workers=2)(crowd)
    for name in ("service:work", "lane:default", "all"):
        store.write("test", lambda tx, name=name: hold(tx, name, "film night", "nas"))  # type: ignore[misc]
        job = submit(store, one_step(), items=keys(3)).job_id
        with Engine(store, [work], SWIFT):
            for _ in range(20):
                store.announce({"work", "jobs"})
            assert item_of(store, job, keys(1)[0])["status"] == "pending"
            store.write("test", lambda tx, name=name: release(tx, name, "nas"))  # type: ignore[misc]
            assert wait_for_job(store, job) == "completed"
    assert crowd.calls == 9


def test_a_permit_is_granted_without_a_walk_over_those_already_granted(
    sqlite_url: str, stores: Callable[..., Store]
) -> None:
    """Counted in steps of SQLite's machine: the same with a hundred and with ten thousand in the window."""
    store = stores(sqlite_url)
    process, pulse = register(store), Pulse(store.clock)
    steps: dict[int, int] = {}
    store.write("test", lambda tx: set_limit(tx, "a", Limit(rate=1_000_000, window=3600, concurrent=50_000), "test"))

    def fill(tx: Any, count: int) -> None:
        taken, _ = take_some(tx, pulse, ["a"], process, [None] * count)
        tx.conn.execute(sa.update(permits).values(released=True))
        assert len(taken) == count

    def count_steps(tx: Any) -> int:
        ticks = 0

        def tick() -> None:
            nonlocal ticks
            ticks += 1

        tx.raw.set_progress_handler(tick, 10)
        try:
            assert not isinstance(take(tx, pulse, ["a"], process), Denied)
            assert room(tx, ["a"], pulse=pulse).calls
        finally:
            tx.raw.set_progress_handler(None, 10)
        return ticks

    for size in (100, 10_000):
        store.write("test", lambda tx, size=size: fill(tx, size))  # type: ignore[misc]
        steps[size] = store.write("test", count_steps)
    assert steps[10_000] < steps[100] * 2, steps
