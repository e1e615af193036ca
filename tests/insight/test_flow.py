"""Limits, breakers and system settings as they are right now: figures that agree with what the engine would grant."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from dalsegno import Limit, Store
from dalsegno.clock import ManualClock
from dalsegno.engine import breakers, limits
from dalsegno.engine.breakers import Way
from dalsegno.engine.limits import Denied, Permit, Pulse
from dalsegno.errors import NotFound
from dalsegno.insight.flow import (
    CAP,
    BreakerLine,
    LimitLine,
    SettingLine,
    get_breaker,
    get_limit,
    list_breakers,
    list_limits,
    list_settings,
)
from dalsegno.model.breaker import Breaker
from dalsegno.model.signal import ProviderError
from dalsegno.store.schema import limits as limit_rows
from dalsegno.store.schema import waits
from tests.helpers import one_step, register, submitted

NAME = "service:work"


class Flow:
    """The engine's side of it, by hand: one process, with the time of the store's clock."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.process = register(store, seconds=3600)
        self.pulse = Pulse(store.clock)

    def set(self, name: str = NAME, by: str = "desk", origin: str = "operator", **limit: object) -> None:
        new = Limit(**limit)  # type: ignore[arg-type]
        self.store.write("set", lambda tx: limits.set_limit(tx, name, new, by, origin=origin))

    def take(self, *names: str) -> list[Permit] | Denied:
        return self.store.write("take", lambda tx: limits.take(tx, self.pulse, names or (NAME,), self.process))

    def give_back(self, held: list[Permit] | Denied) -> None:
        assert isinstance(held, list)
        self.store.write("give", lambda tx: limits.give_back(tx, held))

    def limit(self, name: str = NAME) -> LimitLine:
        return self.store.read(lambda tx: get_limit(tx, name))

    def breaker(self, name: str = NAME) -> BreakerLine:
        return self.store.read(lambda tx: get_breaker(tx, name))

    def enter(self, item_id: int | None = None) -> Way | breakers.Shut:
        return self.store.write("enter", lambda tx: breakers.enter(tx, NAME, self.process, item_id))

    def report(self, way: Way | breakers.Shut, error: Exception) -> None:
        assert isinstance(way, Way)
        trouble = Breaker().judge(error, self.store.clock.now())
        assert trouble is not None
        self.store.write(
            "bad", lambda tx: breakers.went_badly(tx, NAME, way, Breaker(), trouble, self.store.clock.now(), str(error))
        )

    def wait_in_line(self, name: str, count: int, offered: int = 0) -> None:
        now = self.store.clock.now()
        rows = [
            {"item_id": number, "name": name, "stage_id": 1, "job_id": 1, "seq": number, "since": now,
             "offered_at": now if number <= offered else None}
            for number in range(1, count + 1)
        ]  # fmt: skip
        self.store.write("wait", lambda tx: tx.conn.execute(sa.insert(waits), rows))


@pytest.fixture
def flow(still: Store) -> Flow:
    return Flow(still)


# --- limits ---------------------------------------------------------------------------------------


def test_places_are_counted_while_calls_are_out(flow: Flow) -> None:
    flow.set(concurrent=2)
    assert flow.limit().free == 2
    first = flow.take()
    assert (flow.limit().in_use, flow.limit().free, flow.limit().used) == (1, 1, None)
    flow.take()
    full = flow.limit()
    assert (full.in_use, full.free, full.next_at) == (2, 0, None), "no clock says when a call ends"
    assert isinstance(flow.take(), Denied)
    flow.give_back(first)
    assert (flow.limit().in_use, flow.limit().free) == (1, 1)


def test_a_rate_is_counted_within_its_sliding_window(flow: Flow, clock: ManualClock) -> None:
    flow.set(rate=3, window=60.0)
    flow.give_back(flow.take())
    flow.give_back(flow.take())
    line = flow.limit()
    assert (line.in_use, line.used, line.free, line.next_at) == (0, 2, 1, None), "a call that has ended stays used"
    clock.advance(40)
    flow.give_back(flow.take())
    line = flow.limit()
    assert (line.used, line.free) == (3, 0)
    assert line.next_at is not None
    now = flow.store.read(lambda tx: tx.hot.database_now(tx))
    assert abs((line.next_at - now).total_seconds() - 20) < 5
    clock.advance(30)
    flow.give_back(flow.take())
    line = flow.limit()
    assert (line.used, line.free, line.next_at) == (2, 1, None), "the first two have left the window"


def test_what_is_free_is_the_less_of_both(flow: Flow) -> None:
    flow.set(concurrent=5, rate=2, window=3600)
    flow.take()
    assert (flow.limit().in_use, flow.limit().used, flow.limit().free) == (1, 1, 1)
    flow.set(concurrent=1, rate=100, window=3600)
    line = flow.limit()
    assert (line.used, line.free, line.next_at) == (1, 0, None), "the rate has room, but a call is out"


@pytest.mark.parametrize("nothing", [{"concurrent": 0}, {"rate": 0}, {"concurrent": 0, "rate": 5}])
def test_zero_is_nothing_at_any_time(flow: Flow, nothing: dict[str, int]) -> None:
    flow.set(**nothing)
    line = flow.limit()
    assert (line.free, line.next_at, line.blocked) == (0, None, True)


def test_a_lowered_rate_is_used_up_and_says_until_when(flow: Flow) -> None:
    flow.set(rate=100, window=600.0)
    for _ in range(5):
        flow.take()
    flow.set(rate=2, window=600.0)
    line = flow.limit()
    assert (line.used, line.free) == (2, 0)
    assert line.next_at is not None


def test_settings_of_a_limit_come_with_who_and_when(flow: Flow) -> None:
    flow.set("service:declared", "service", "service", rate="queue_rate_limit_max")
    flow.set("source:qq", "desk", concurrent=1)
    flow.set("node:lifted", "desk", concurrent=1)
    flow.store.write("clear", lambda tx: limits.clear_limit(tx, "node:lifted", "shelf"))
    first, second = flow.store.read(list_limits)
    assert (first.name, first.origin, first.rate, first.rate_setting) == (
        "service:declared",
        "service",
        2,
        "queue_rate_limit_max",
    )
    assert (second.name, second.origin, second.updated_by, second.updated_at) == (
        "source:qq",
        "operator",
        "desk",
        flow.store.clock.now(),
    )
    lifted = flow.limit("node:lifted")
    assert (lifted.limited, lifted.free, lifted.updated_by) == (False, None, "shelf")


def test_who_waits_in_line_is_counted_but_never_a_million(flow: Flow) -> None:
    flow.set("source:qq", concurrent=0)
    flow.wait_in_line("source:qq", CAP + 5, offered=4)
    line = flow.limit("source:qq").line
    assert (line.waiting, line.more, line.held_back) == (CAP, True, 0)
    flow.store.write("less", lambda tx: tx.conn.execute(sa.delete(waits).where(waits.c.item_id <= 6)))
    assert (flow.limit("source:qq").line.waiting, flow.limit("source:qq").line.more) == (CAP - 1, False)
    assert flow.store.read(list_limits)[0].line.waiting == CAP - 1


def test_ready_items_are_held_back_only_while_there_is_no_room(flow: Flow) -> None:
    submitted(flow.store, one_step("work"), items=7)
    flow.set(concurrent=1)
    assert flow.limit().line.held_back == 0
    held = flow.take()
    assert flow.limit().line.held_back == 7
    flow.give_back(held)
    assert flow.limit().line.held_back == 0


def test_one_that_is_not_there_comes_with_the_likely_one(flow: Flow) -> None:
    with pytest.raises(NotFound, match=r'There is no limit "service:work"\.'):
        flow.limit()
    flow.set(concurrent=1)
    with pytest.raises(NotFound, match='did you mean "service:work"'):
        flow.limit("service:wrok")
    with pytest.raises(NotFound, match="There is no breaker"):
        flow.breaker()


# --- breakers -------------------------------------------------------------------------------------


def test_a_closed_breaker_lets_calls_through(flow: Flow) -> None:
    flow.enter()
    line = flow.breaker()
    assert (line.breaker.state, line.opens, line.line.held_back) == ("closed", None, 0)


def test_an_open_breaker_says_why_and_until_when(flow: Flow) -> None:
    submitted(flow.store, one_step("work"), items=3)
    flow.report(flow.enter(), ProviderError(429, "slow down", {"retry-after": "600"}))
    line = flow.breaker()
    assert (line.breaker.state, line.breaker.kind, line.breaker.tripped_by) == ("open", "rate_limit", "engine")
    assert line.breaker.error is not None
    assert "slow down" in line.breaker.error
    assert line.opens is not None
    assert line.opens.startswith("by itself at ")
    assert line.opens.endswith("or now: dalsegno breaker probe service:work")
    assert line.line.held_back == 3


def test_one_tripped_by_hand_waits_for_the_hand(flow: Flow) -> None:
    flow.store.write("trip", lambda tx: breakers.trip(tx, NAME, "enough", "desk"))
    line = flow.breaker()
    assert (line.breaker.state, line.breaker.kind, line.breaker.reason) == ("open", "manual", "enough")
    assert line.opens is not None
    assert line.opens.startswith("when you say so")


def test_a_half_open_breaker_says_who_is_the_probe(flow: Flow) -> None:
    flow.store.write("trip", lambda tx: breakers.trip(tx, NAME, "enough", "desk"))
    flow.store.write("probe", lambda tx: breakers.probe(tx, NAME, "desk"))
    assert flow.breaker().breaker.state == "half_open"
    assert (flow.breaker().opens or "").startswith("with the next call")
    flow.enter(item_id=12)
    line = flow.breaker()
    assert line.breaker.probe_item_id == 12
    assert (line.opens or "").startswith("when the probe that is on its way (item 12) succeeds")


def test_one_whose_time_has_come_waits_for_a_call(flow: Flow) -> None:
    past = flow.store.clock.now() - timedelta(seconds=1)
    flow.store.write("trip", lambda tx: breakers.trip(tx, NAME, "enough", "desk", past))
    assert flow.breaker().breaker.state == "open", "nobody has looked yet"
    assert (flow.breaker().opens or "").startswith("with the next call")


def test_those_that_stop_something_are_listed_first(flow: Flow) -> None:
    flow.enter()
    flow.store.write("trip", lambda tx: breakers.trip(tx, "source:qq", "enough", "desk"))
    flow.wait_in_line("source:qq", 3)
    found = flow.store.read(list_breakers)
    assert [(line.breaker.name, line.breaker.state, line.line.waiting) for line in found] == [
        ("source:qq", "open", 3),
        ("service:work", "closed", 0),
    ]


# --- system settings ------------------------------------------------------------------------------


def setting(flow: Flow, key: str) -> SettingLine:
    return next(line for line in flow.store.read(list_settings) if line.key == key)


def test_settings_have_their_defaults_until_somebody_changes_them(flow: Flow) -> None:
    found = flow.store.read(list_settings)
    assert {line.key: (line.value, line.default) for line in found} == {
        "queue_concurrency": (1, 1), "queue_rate_limit_max": (2, 2), "queue_batch_size": (10, 10),
    }  # fmt: skip
    assert all(line.updated_at is None and line.meaning and not line.followers for line in found)


def test_a_changed_setting_reaches_the_limits_that_follow_it(flow: Flow) -> None:
    flow.set("service:a", concurrent="queue_concurrency", rate="queue_rate_limit_max")
    flow.set("service:b", rate="queue_rate_limit_max", window=1.0)
    flow.set("service:c", rate=2)
    flow.store.write("set", lambda tx: limits.set_setting(tx, "queue_rate_limit_max", 15, "shelf"))
    line = setting(flow, "queue_rate_limit_max")
    assert (line.value, line.default, line.updated_by) == (15, 2, "shelf")
    assert line.updated_at == flow.store.clock.now()
    assert line.followers == ["service:a", "service:b"]
    assert setting(flow, "queue_concurrency").followers == ["service:a"]
    assert [flow.limit(f"service:{name}").rate for name in "abc"] == [15, 15, 2]
    assert flow.limit("service:a").concurrent == 1


# --- figures agree with the engine ----------------------------------------------------------------


def test_what_is_free_can_be_taken_and_no_more(flow: Flow, clock: ManualClock) -> None:
    flow.set(concurrent=4, rate=6, window=60.0)
    for _ in range(3):
        clock.advance(61)
        flow.give_back(flow.take())  # brings the limit's time up to the clock's
        free = flow.limit().free
        assert free is not None
        held = [flow.take() for _ in range(free)]
        assert all(isinstance(each, list) for each in held)
        assert isinstance(flow.take(), Denied)
        assert flow.limit().free == 0
        for each in held:
            flow.give_back(each)
    rows = flow.store.read(lambda tx: tx.rows(sa.select(limit_rows.c.granted)))
    assert rows[0]["granted"] == 3 * 5
