"""A provider in every kind of trouble: the right resume time, no attempt lost, no call while open, one probe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from dalsegno import Breaker, Engine, Item, Phase, ProviderError, Service, Store, phased, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine import breakers
from dalsegno.engine.rescuer import rescue_all
from dalsegno.errors import CommandRefused, NotFound
from dalsegno.store.schema import breakers as breaker_rows
from dalsegno.store.schema import processes, waits
from tests.flow.provider import GOOD, PER_DAY, PER_MINUTE, Answer, Provider, google
from tests.helpers import (
    SWIFT,
    assert_sound,
    every,
    items_of,
    job_of,
    keys,
    one_step,
    register,
    status_of,
    statuses_of,
    types_of,
    wait_for_job,
    wait_until,
)  # fmt: skip

NAME = "service:work"
LOS_ANGELES = ZoneInfo("America/Los_Angeles")


def calling(provider: Provider, **options: object) -> Service:
    @service("work", workers=4, breaker=Breaker(), **options)  # type: ignore[arg-type]
    def work(item: Item) -> None:
        provider.call(item.key)

    return work


def row_of(store: Store, name: str = NAME) -> sa.RowMapping | None:
    return next(iter(every(store, sa.select(breaker_rows).where(breaker_rows.c.name == name))), None)


def state_of(store: Store, name: str = NAME) -> str | None:
    row = row_of(store, name)
    return None if row is None else row["state"]


class Time:
    """Moves the test's clock, and tells the engine to look."""

    def __init__(self, store: Store, clock: ManualClock, engine: Engine) -> None:
        self._store, self._clock, self._engine = store, clock, engine

    def pass_by(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self._engine._heart.tick()  # a real one beats while time goes by
        self._store.announce({"flow", "due", "closed"})


@contextmanager
def running(store: Store, clock: ManualClock, *services: Service) -> Iterator[Time]:
    with Engine(store, services, SWIFT) as engine:
        yield Time(store, clock, engine)


def assert_(truth: bool) -> None:
    assert truth


def settled_down(store: Store, job: int) -> bool:
    """Nothing is in anybody's hands."""
    return not {"claimed", "running"} & statuses_of(store, job).keys()


def after_trip(store: Store, job: int) -> sa.RowMapping:
    wait_until(lambda: state_of(store) == "open" and settled_down(store, job), "the breaker to open")
    row = row_of(store)
    assert row is not None
    return row


BAN = 86_400
TROUBLES: dict[str, tuple[Answer, str, float]] = {
    "a minute's limit": (google(PER_MINUTE, retry="34s"), "rate_limit", 34),
    "a minute's limit without a word how long": (google(PER_MINUTE), "rate_limit", 120),
    "a bare 429": ((429, {}, ""), "rate_limit", 120),
    "retry-after": ((429, {"Retry-After": "17"}, ""), "rate_limit", 17),
    "a ban": ((429, {"Retry-After": str(BAN)}, ""), "ban", BAN),
    "a ban in words": ((403, {}, "You are banned for 24 hours."), "ban", BAN),
    "an outage that says how long": ((503, {"Retry-After": "45"}, ""), "outage", 45),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_stops_calls_until_the_right_moment_and_costs_nothing(
    timed: Store, clock: ManualClock, provider: Provider, trouble: str
) -> None:
    answer, kind, seconds = TROUBLES[trouble]
    provider.otherwise = answer
    job = submit(timed, one_step(), items=keys(30)).job_id
    began = clock.now()
    with running(timed, clock, calling(provider)) as time:
        row = after_trip(timed, job)
        assert (row["kind"], row["resume_at"]) == (kind, began + timedelta(seconds=seconds))
        assert row["tripped_at"] == began
        assert row["error"]
        met = provider.calls
        assert 1 <= met <= 4
        assert all(item["attempt"] == 0 and item["status"] == "pending" for item in items_of(timed, job))
        time.pass_by(seconds - 0.001)
        assert timed.read(lambda tx: breakers.calls(tx, NAME))[0] == 0
        provider.otherwise = GOOD
        time.pass_by(0.001)
        assert wait_for_job(timed, job) == "completed"
    assert provider.calls == met + 30
    assert {item["attempt"] for item in items_of(timed, job)} == {0}
    closed = row_of(timed)
    assert closed is not None
    assert (closed["state"], closed["reason"], closed["resume_at"]) == ("closed", None, None)
    assert [kind for kind in types_of(timed) if kind.startswith("breaker")] == [
        "breaker_opened", "breaker_half_open", "breaker_closed",
    ]  # fmt: skip
    assert_sound(timed, job)


def at(year: int, month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=LOS_ANGELES).astimezone(UTC)


DAYS = {
    "an ordinary day": (at(2026, 6, 10, 15), at(2026, 6, 11, 0, 30)),
    "the day the clocks go forward": (at(2026, 3, 8, 1, 30), at(2026, 3, 9, 0, 30)),
    "the day the clocks go back": (at(2026, 11, 1, 0, 45), at(2026, 11, 2, 0, 30)),
    "the evening before": (at(2026, 10, 31, 23, 59), at(2026, 11, 1, 0, 30)),
}


@pytest.mark.parametrize("both", [False, True], ids=["day", "day and minute at once"])
@pytest.mark.parametrize("day", DAYS)
def test_a_daily_quota_ends_at_midnight_where_the_provider_is(
    timed: Store, clock: ManualClock, provider: Provider, day: str, both: bool
) -> None:
    now, resume = DAYS[day]
    clock.advance((now - clock.now()).total_seconds())
    provider.otherwise = google(PER_MINUTE, PER_DAY, retry="20s") if both else google(PER_DAY)
    job = submit(timed, one_step(), items=keys(5)).job_id
    with running(timed, clock, calling(provider)) as time:
        row = after_trip(timed, job)
        assert (row["kind"], row["resume_at"]) == ("quota", resume)
        met = provider.calls
        provider.otherwise = GOOD
        time.pass_by((resume - clock.now()).total_seconds() - 0.001)
        assert timed.read(lambda tx: breakers.calls(tx, NAME))[0] == 0
        time.pass_by(0.001)
        assert wait_for_job(timed, job) == "completed"
    assert provider.calls == met + 5
    assert {item["attempt"] for item in items_of(timed, job)} == {0}


def test_an_outage_trips_after_some_in_a_row_and_cools_down_longer_each_time(
    timed: Store, clock: ManualClock, provider: Provider
) -> None:
    provider.otherwise = (503, {}, "")
    job = submit(timed, one_step(), items=keys(20)).job_id
    with running(timed, clock, calling(provider)) as time:
        row = after_trip(timed, job)
        assert (row["kind"], row["resume_at"]) == ("outage", clock.now() + timedelta(seconds=30))
        met = provider.calls
        assert met >= 3
        for wait in (30, 60, 120):
            epoch = after_trip(timed, job)["epoch"]
            time.pass_by(wait)
            wait_until(lambda epoch=epoch: (row_of(timed) or {})["epoch"] > epoch, "the probe to fail")  # type: ignore[index]
            met += 1
            row = after_trip(timed, job)
            assert row["resume_at"] == clock.now() + timedelta(seconds=wait * 2)
            assert provider.calls == met, "one probe, and nobody else"
        provider.otherwise = GOOD
        time.pass_by(240)
        time.pass_by(10)
        wait_until(lambda: time.pass_by(5) or status_of(timed, job) == "completed", "the job to complete")
    assert {item["attempt"] for item in items_of(timed, job)} == {0}


def test_an_item_that_alone_meets_outages_does_not_come_back_for_ever(timed: Store, clock: ManualClock) -> None:
    @service("work", breaker=Breaker(outage_after=1000))
    def work(item: Item) -> None:
        if item.key == keys(3)[1]:
            raise ConnectionResetError("only for this one")

    job = submit(timed, one_step(max_interruptions=4), items=keys(3)).job_id
    with running(timed, clock, work) as time:
        wait_until(lambda: time.pass_by(6) or status_of(timed, job) == "completed_with_errors", "the job to end")
    assert statuses_of(timed, job) == {"succeeded": 2, "failed": 1}


def test_a_failure_of_the_items_own_costs_an_attempt_and_trips_nothing(
    timed: Store, clock: ManualClock, provider: Provider
) -> None:
    provider.otherwise = (404, {}, "no such song")
    job = submit(timed, one_step(max_attempts=1), items=keys(3)).job_id
    with running(timed, clock, calling(provider)):
        assert wait_for_job(timed, job) == "completed_with_errors"
    assert {item["attempt"] for item in items_of(timed, job)} == {1}
    assert state_of(timed) == "closed"


@pytest.mark.parametrize("late", [GOOD, google(PER_DAY)], ids=["success", "another trouble"])
def test_a_call_begun_before_the_trip_changes_nothing(
    timed: Store, clock: ManualClock, provider: Provider, late: Answer
) -> None:
    on_the_line, let_go = threading.Event(), threading.Event()
    first, second = keys(2)

    def gate(path: str) -> None:
        if path == f"/{first}":
            on_the_line.set()
            assert let_go.wait(30)
        else:
            assert on_the_line.wait(30)

    @service("work", workers=2, breaker=Breaker())
    def work(item: Item) -> None:
        if item.key == second:
            assert on_the_line.wait(30)
        provider.call(item.key)

    provider.script.extend([late, (429, {"Retry-After": "50"}, "")])
    provider.gate = gate
    job = submit(timed, one_step(), items=keys(2)).job_id
    with running(timed, clock, work) as time:
        wait_until(lambda: state_of(timed) == "open", "the trip")
        before = dict(row_of(timed) or {})
        clock.advance(5)
        let_go.set()
        wait_until(lambda: settled_down(timed, job), "the late call to come back")
        after = dict(row_of(timed) or {})
        assert after == before
        assert {item["attempt"] for item in items_of(timed, job)} == {0}
        provider.gate = None
        time.pass_by(45)
        assert wait_for_job(timed, job) == "completed"


def test_half_open_one_probe_goes_first_and_the_others_follow_its_success(
    timed: Store, clock: ManualClock, provider: Provider
) -> None:
    provider.otherwise = (429, {"Retry-After": "10"}, "")
    job = submit(timed, one_step(), items=keys(20)).job_id
    probing, answer = threading.Event(), threading.Event()

    def gate(_: str) -> None:
        probing.set()
        assert answer.wait(30)

    with running(timed, clock, calling(provider)) as time:
        after_trip(timed, job)
        provider.calls = provider.most = 0
        provider.otherwise, provider.gate = GOOD, gate
        time.pass_by(10)
        assert probing.wait(30)
        assert state_of(timed) == "half_open"
        for _ in range(20):
            timed.announce({"flow", "work"})
            assert provider.calls == 1
        answer.set()
        assert wait_for_job(timed, job) == "completed"
    assert provider.calls == 20


@pytest.mark.parametrize("state", ["open", "half open", "probing", "closed"])
def test_every_state_survives_a_restart(timed: Store, clock: ManualClock, provider: Provider, state: str) -> None:
    job = submit(timed, one_step(), items=keys(6)).job_id
    timed.write("test", lambda tx: breakers.trip(tx, NAME, "film night", "nas", clock.now() + timedelta(seconds=60)))
    ghost = register(timed)
    match state:
        case "half open":
            timed.write("test", lambda tx: breakers.probe(tx, NAME, "nas"))
        case "probing":
            timed.write("test", lambda tx: breakers.probe(tx, NAME, "nas"))
            timed.write("test", lambda tx: breakers.enter(tx, NAME, ghost, 1))
            timed.write("test", lambda tx: tx.conn.execute(sa.delete(processes).where(processes.c.id == ghost)))
        case "closed":
            timed.write("test", lambda tx: breakers.reset(tx, NAME, "nas"))
    with running(timed, clock, calling(provider)) as time:
        if state == "open":
            wait_until(lambda: job_of(timed, job)["status"] == "running", "the job to start")
            assert provider.calls == 0
            time.pass_by(59)
            assert (state_of(timed), provider.calls) == ("open", 0)
            time.pass_by(1)
        assert wait_for_job(timed, job) == "completed"
    assert provider.calls == 6
    assert state_of(timed) == "closed"


def test_a_probe_whose_process_dies_makes_room_for_another(timed: Store, clock: ManualClock) -> None:
    first, second = register(timed), register(timed)
    timed.write("test", lambda tx: breakers.trip(tx, NAME, "film night", "nas"))
    timed.write("test", lambda tx: breakers.probe(tx, NAME, "nas"))
    way = timed.write("test", lambda tx: breakers.enter(tx, NAME, first, 1))
    assert isinstance(way, breakers.Way)
    assert way.probe
    assert isinstance(timed.write("test", lambda tx: breakers.enter(tx, NAME, second, 2)), breakers.Shut)
    clock.advance(61)  # its lease is over
    timed.write("test", lambda tx: tx.hot.renew(tx, second, 60.0))
    rescue_all(timed, second)
    again = timed.write("test", lambda tx: breakers.enter(tx, NAME, second, 2))
    assert isinstance(again, breakers.Way)
    assert again.probe


def test_two_engines_probe_once(postgres_url: str, stores: Callable[..., Store], provider: Provider) -> None:
    store, other = stores(postgres_url), stores(postgres_url)
    job = submit(store, one_step(), items=keys(40)).job_id
    store.write("test", lambda tx: breakers.trip(tx, NAME, "film night", "nas"))
    answer = threading.Event()
    provider.gate = lambda _: assert_(answer.wait(30))
    with Engine(store, [calling(provider)], SWIFT), Engine(other, [calling(provider)], SWIFT):
        wait_until(lambda: job_of(store, job)["status"] == "running", "the job to start")
        assert provider.calls == 0
        store.write("test", lambda tx: breakers.probe(tx, NAME, "nas"))
        wait_until(lambda: provider.calls, "the probe")
        for _ in range(10):
            store.announce({"flow", "work"})
            other.announce({"flow", "work"})
            assert provider.calls == 1
        answer.set()
        assert wait_for_job(store, job) == "completed"
    assert provider.calls == 40


def test_by_hand_it_is_tripped_probed_and_reset(timed: Store, clock: ManualClock) -> None:
    with pytest.raises(NotFound):
        timed.write("test", lambda tx: breakers.reset(tx, "source:nobody", "nas"))
    until = clock.now() + timedelta(hours=2)
    timed.write("test", lambda tx: breakers.trip(tx, "source:qq", "film night", "nas", until))
    row = row_of(timed, "source:qq")
    assert row is not None
    assert (row["state"], row["kind"], row["tripped_by"], row["resume_at"]) == ("open", "manual", "nas", until)
    timed.write("test", lambda tx: breakers.probe(tx, "source:qq", "nas"))
    assert state_of(timed, "source:qq") == "half_open"
    timed.write("test", lambda tx: breakers.reset(tx, "source:qq", "nas"))
    assert state_of(timed, "source:qq") == "closed"
    with pytest.raises(CommandRefused, match="closed"):
        timed.write("test", lambda tx: breakers.probe(tx, "source:qq", "nas"))


def test_a_banned_source_stops_only_what_needs_it(timed: Store, clock: ManualClock) -> None:
    banned = threading.Event()
    banned.set()
    before: list[str] = []

    @service("work", workers=3)
    def work(item: Item) -> str:
        source = "qq" if int(item.key[-1]) % 2 else "kuwo"
        with item.permit(f"source:{source}"):
            before.append(source)
            if source == "qq" and banned.is_set():
                raise ProviderError(429, headers={"Retry-After": str(BAN)})
        return source

    job = submit(timed, one_step(), items=keys(20)).job_id
    with running(timed, clock, work) as time:
        wait_until(lambda: statuses_of(timed, job)["succeeded"] == 10 and settled_down(timed, job), "one source to end")
        assert state_of(timed, "source:qq") == "open"
        assert before.count("qq") <= 3
        waiting = every(timed, sa.select(waits))
        assert {row["name"] for row in waiting} == {"source:qq"}
        assert len(waiting) == 10
        assert all(item["attempt"] == 0 for item in items_of(timed, job))
        assert_sound(timed, job)
        banned.clear()
        time.pass_by(BAN)
        assert wait_for_job(timed, job) == "completed"
    assert not every(timed, sa.select(waits))
    assert_sound(timed, job)


def test_a_probe_made_of_phases_is_handed_on_and_speaks_only_at_its_end(store: Store) -> None:
    """While it resolves the breaker lets nobody in; that must not be taken for a reason to give the probe back."""
    resolving, resolved, downloading, downloaded = (threading.Event() for _ in range(4))

    def find(_: Item) -> str:
        resolving.set()
        assert resolved.wait(30)
        return "found"

    def fetch(_: Item, __: str) -> None:
        downloading.set()
        assert downloaded.wait(30)

    work = phased("work", [Phase("resolve", find), Phase("download", fetch)], workers=3, breaker=Breaker())
    store.write("test", lambda tx: breakers.trip(tx, NAME, "film night", "nas"))
    store.write("test", lambda tx: breakers.probe(tx, NAME, "nas"))
    job = submit(store, one_step(), items=keys(4)).job_id
    with Engine(store, [work], SWIFT) as engine:
        assert resolving.wait(30)
        for _ in range(5):
            engine._claimer._take_back_closed()
        resolved.set()
        assert downloading.wait(30)
        assert state_of(store) == "half_open"
        downloaded.set()
        assert wait_for_job(store, job) == "completed"
    assert "item_returned" not in types_of(store, job_id=job)
