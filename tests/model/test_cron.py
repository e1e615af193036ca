"""Cron expressions: what they mean in a zone, on the days when clocks are changed, and what is wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.errors import CronInvalid, InputInvalid
from dalsegno.model.cron import SHORT, check_zone, parse_cron, zones

BERLIN = "Europe/Berlin"
MOMENTS = st.integers(0, 4 * 365 * 86_400).map(
    lambda seconds: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)
EXPRESSIONS = st.sampled_from(
    [
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "0,30 1-3 * * *",
        "15 */5 * * *",
        "0 0 L * *",
        "5 4 * * MON#2",
        "@weekly",
    ]
)
ZONES = st.sampled_from(
    ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "America/Sao_Paulo"]
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(expression: str, zone: str, after: str, count: int) -> list[str]:
    found = parse_cron(expression, zone).upcoming(utc(after), count)
    return [f"{at:%Y-%m-%d %H:%M}" for at in found]


def test_an_expression_goes_by_the_clock_of_its_zone() -> None:
    assert due("30 2 * * *", "UTC", "2026-01-10 12:00", 2) == ["2026-01-11 02:30", "2026-01-12 02:30"]
    assert due("30 2 * * *", "Asia/Shanghai", "2026-01-10 12:00", 2) == ["2026-01-10 18:30", "2026-01-11 18:30"]
    assert due("30 2 * * *", BERLIN, "2026-07-10 12:00", 1) == ["2026-07-11 00:30"]


def test_a_time_that_spring_leaves_out_is_due_at_the_end_of_the_gap() -> None:
    # In Berlin 02:00 was followed by 03:00 on 29 March 2026, which is 01:00 UTC.
    assert due("30 2 * * *", BERLIN, "2026-03-28 00:00", 3) == [
        "2026-03-28 01:30",
        "2026-03-29 01:00",
        "2026-03-30 00:30",
    ]


def test_times_that_all_fall_into_the_gap_are_due_once() -> None:
    assert due("0,20,40 2 * * *", BERLIN, "2026-03-29 00:00", 2) == ["2026-03-29 01:00", "2026-03-30 00:00"]


def test_a_time_that_autumn_has_twice_is_due_once() -> None:
    # In Berlin 03:00 was followed by 02:00 on 25 October 2026: 02:30 is 00:30 and 01:30 UTC.
    assert due("30 2 * * *", BERLIN, "2026-10-24 12:00", 2) == ["2026-10-25 00:30", "2026-10-26 01:30"]


def test_after_the_first_of_two_such_times_the_second_is_not_due() -> None:
    """Whoever looks in between must not be told a time that has passed, nor the second one."""
    assert due("30 2 * * *", BERLIN, "2026-10-25 00:45", 1) == ["2026-10-26 01:30"]
    assert due("30 2 * * *", BERLIN, "2026-10-25 01:10", 1) == ["2026-10-26 01:30"]


def test_every_so_many_minutes_goes_on_through_both_changes() -> None:
    spring = parse_cron("*/30 * * * *", BERLIN).upcoming(utc("2026-03-29 00:00"), 6)
    autumn = parse_cron("*/30 * * * *", BERLIN).upcoming(utc("2026-10-25 00:00"), 6)
    for found in (spring, autumn):
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=30)}


def test_short_words_are_expressions() -> None:
    for word, meant in SHORT.items():
        assert parse_cron(word).upcoming(utc("2026-01-01"), 3) == parse_cron(meant).upcoming(utc("2026-01-01"), 3)
    assert parse_cron("  @Daily ").expression == "@daily"


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("61 * * * *", 'its minute, "61", is wrong'),
        ("0 24 * * *", 'its hour, "24", is wrong'),
        ("0 0 0 * *", 'its day of month, "0", is wrong'),
        ("0 0 1 FOO *", 'its month, "FOO", is wrong'),
        ("0 0 * * 8", 'its day of week, "8", is wrong'),
        ("*/0 * * * *", 'its minute, "*/0", is wrong'),
        ("5-1 * * * *", 'its minute, "5-1", is wrong'),
        ("0 0 30 2 *", 'its day of month, "30", is wrong: its month has no such day.'),
        ("0 0 32 2 *", 'its day of month, "32", is wrong. It may be 1 to 31'),
        ("0 0 1 JUNE *", 'Did you mean "JUN"? It may be 1 to 12'),
        ("0 0 * * MON-FRY", 'Did you mean "FRI"? It may be 0 to 7'),
        ("* * * *", "it has 4 fields and not five"),
        ("0 0 * * * *", "it has 6 fields and not five"),
        ("", "it has 0 fields"),
        ("@dayly", "Did you mean"),
        ("1#2/3 * * * *", "its minute"),
        ("* * * * 1L/2", "its day of week"),
        ("²  * * * *", "its minute"),
    ],
)
def test_what_is_wrong_is_said_with_its_field(expression: str, says: str) -> None:
    with pytest.raises(CronInvalid, match=r"cannot be used") as caught:
        parse_cron(expression)
    assert says in str(caught.value)


def test_an_unknown_zone_comes_with_the_likely_one() -> None:
    with pytest.raises(InputInvalid, match="Europe/Berlin"):
        check_zone("Europe/Berln")
    for name in ("", "../../etc/passwd", "/etc/passwd", "Europe", "x" * 300, "a\0b"):
        with pytest.raises(InputInvalid, match="no time zone"):
            check_zone(name)
    assert {"UTC", "Asia/Shanghai"} <= set(zones())


def test_an_expression_in_words() -> None:
    assert "02:30" in parse_cron("30 2 * * *").says()


@settings(deadline=None, max_examples=60)
@given(EXPRESSIONS, ZONES, MOMENTS, st.integers(0, 400))
def test_what_is_due_does_not_depend_on_when_one_looks(
    expression: str, zone: str, moment: datetime, minutes: int
) -> None:
    """Asked from any moment in between, the times that follow are the same."""
    cron = parse_cron(expression, zone)
    later = moment + timedelta(minutes=minutes)
    seen = islice((at for at in cron.after(moment) if at > later), 3)
    assert cron.upcoming(later, 3) == list(seen)


@settings(deadline=None, max_examples=60)
@given(EXPRESSIONS, ZONES, MOMENTS, st.integers(1, 200))
def test_due_times_are_whole_minutes_in_order(expression: str, zone: str, moment: datetime, count: int) -> None:
    found = parse_cron(expression, zone).upcoming(moment, count)
    assert len(found) == count
    assert all(at > moment and at.second == at.microsecond == 0 and at.tzinfo is UTC for at in found)
    assert sorted(set(found)) == found


@settings(deadline=None, max_examples=60)
@given(EXPRESSIONS, ZONES, MOMENTS, st.integers(0, 3000), st.integers(1, 30))
def test_the_newest_are_the_last_of_all(expression: str, zone: str, first: datetime, minutes: int, count: int) -> None:
    cron = parse_cron(expression, zone)
    last = first + timedelta(minutes=minutes)
    assert cron.newest(first, last, count) == list(cron.between(first, last))[-count:]
