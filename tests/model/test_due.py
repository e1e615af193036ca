"""Every due time is started exactly once or recorded as skipped, whatever the downtimes, under each policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.model.cron import parse_cron
from dalsegno.model.due import COUNTED, ON_TIME, Decision, decide, meet, room_to_wait

NOON = datetime(2026, 10, 24, 12, tzinfo=UTC)
POLICIES = [("skip", "skip"), ("skip", "queue"), ("skip", "allow"), ("one", "skip"), ("one", "queue"),
            ("one", "allow"), ("all", "queue"), ("all", "allow")]  # fmt: skip


def hourly(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 10, 24, hour, minute, tzinfo=UTC)


def decided(catch_up: Any, now: datetime, most: int = 10) -> tuple[list[Decision], datetime | None]:
    return decide(parse_cron("0 * * * *"), hourly(1), now, catch_up, most)


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_what_is_due_now_is_started(catch_up: str) -> None:
    decisions, next_at = decided(catch_up, hourly(1) + timedelta(seconds=3))
    assert decisions == [Decision(hourly(1), True)]
    assert next_at == hourly(2)


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_what_is_still_to_come_is_left_alone(catch_up: str) -> None:
    """So a clock that was put back repeats nothing."""
    assert decided(catch_up, hourly(0, 59)) == ([], hourly(1))


def test_skip_leaves_out_what_was_missed() -> None:
    assert decided("skip", hourly(4, 30)) == ([Decision(hourly(1), False, 4, hourly(4))], hourly(5))


def test_skip_still_starts_what_is_due_now() -> None:
    decisions, _ = decided("skip", hourly(4) + ON_TIME)
    assert decisions == [Decision(hourly(1), False, 3, hourly(3)), Decision(hourly(4), True)]


def test_one_makes_up_for_all_that_was_missed() -> None:
    decisions, next_at = decided("one", hourly(4, 30))
    assert decisions == [Decision(hourly(1), False, 3, hourly(3)), Decision(hourly(4), True)]
    assert next_at == hourly(5)


def test_all_starts_each_in_order() -> None:
    decisions, _ = decided("all", hourly(3, 30))
    assert decisions == [Decision(hourly(hour), True) for hour in (1, 2, 3)]


def test_all_starts_the_newest_up_to_its_number() -> None:
    decisions, _ = decided("all", hourly(5, 30), most=2)
    assert decisions == [Decision(hourly(1), False, 3, hourly(3)), *(Decision(hourly(hour), True) for hour in (4, 5))]


def test_what_is_due_now_is_not_counted_among_the_missed() -> None:
    decisions, _ = decided("all", hourly(5), most=2)
    assert [each.due_at for each in decisions if each.start] == [hourly(3), hourly(4), hourly(5)]


def test_years_away_are_decided_in_a_few_lines() -> None:
    decisions, _ = decide(parse_cron("* * * * *"), NOON, NOON + timedelta(days=800, seconds=30), "all", 3)
    skipped, *started = decisions
    assert (skipped.count, skipped.last_due_at) == (COUNTED, started[0].due_at - timedelta(minutes=1))
    assert len(started) == 4


@pytest.mark.parametrize(
    ("overlap", "busy", "waiting", "then"),
    [
        ("allow", True, 5, "start"), ("skip", False, 0, "start"), ("skip", True, 0, "overlap"),
        ("queue", False, 0, "start"), ("queue", True, 0, "wait"), ("queue", False, 1, "wait"),
        ("queue", True, 2, "full"),
    ],
)  # fmt: skip
def test_what_a_run_does_that_finds_another_at_work(overlap: Any, busy: bool, waiting: int, then: str) -> None:
    assert meet(overlap, busy=busy, waiting=waiting, room=2) == then


@dataclass
class History:
    """An engine that comes and goes, as it would keep a schedule; nothing but the model decides."""

    catch_up: Any
    overlap: Any
    most: int
    next_at: datetime | None
    started: list[datetime] = field(default_factory=list)
    skipped: list[Decision] = field(default_factory=list)
    waiting: list[datetime] = field(default_factory=list)
    busy: bool = False

    def look(self, cron: Any, now: datetime, crash_after: int) -> None:
        assert self.next_at is not None
        decisions, next_at = decide(cron, self.next_at, now, self.catch_up, self.most)
        if not decisions:
            assert next_at == self.next_at
        after = [*(each.due_at for each in decisions[1:]), next_at]
        for done, (decision, then) in enumerate(zip(decisions, after, strict=False)):
            if done == crash_after:
                return  # killed between two transactions
            self.next_at = then
            self._apply(decision)

    def _apply(self, decision: Decision) -> None:
        if not decision.start:
            self.skipped.append(decision)
            return
        room = room_to_wait(self.catch_up, self.most)
        match meet(self.overlap, busy=self.busy, waiting=len(self.waiting), room=room):
            case "start":
                self.started.append(decision.due_at)
                self.busy = True
            case "wait":
                self.waiting.append(decision.due_at)
            case _:
                self.skipped.append(decision)

    def end(self) -> None:
        self.busy = False
        if self.waiting:
            self.started.append(self.waiting.pop(0))
            self.busy = True


STEPS = st.lists(
    st.tuples(
        st.sampled_from([-7200, -61, 0, 1, 30, 60, 300, 3600, 86_400]),  # how far the clock moves
        st.sampled_from([99, 99, 0, 1, 2]),  # after how many transactions it is killed
        st.booleans(),  # whether the job that runs ends
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(POLICIES), st.integers(1, 4), STEPS,
    st.sampled_from(["*/10 * * * *", "30 2 * * *", "0,45 1-3 * * *", "17 */3 * * *"]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
)  # fmt: skip
def test_every_due_time_is_started_once_or_recorded_as_skipped(
    policy: tuple[str, str], most: int, steps: list[tuple[int, int, bool]], expression: str, zone: str
) -> None:
    cron = parse_cron(expression, zone)
    first = cron.next(NOON)
    assert first is not None
    history = History(*policy, most=most, next_at=first)
    now = NOON
    for seconds, crash_after, ends in steps:
        now += timedelta(seconds=seconds)
        history.look(cron, now, crash_after)
        if ends:
            history.end()
    told = [*history.started, *history.waiting]
    for decision in history.skipped:
        covered = list(cron.between(decision.due_at, decision.last_due_at or decision.due_at))
        assert len(covered) == decision.count
        told += covered
    assert history.next_at is not None
    assert sorted(told) == list(cron.between(first, history.next_at - timedelta(seconds=1)))
    assert len(set(told)) == len(told)
    assert history.started == sorted(history.started)
