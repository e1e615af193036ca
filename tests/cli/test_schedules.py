"""Schedules from the command line: added with a preview, shown, changed, paused, run, removed; and what is refused."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.store.schema import jobs
from tests.cli.tool import STUDIO, Process, say
from tests.helpers import events_of, every, wait_until


@pytest.fixture
def store(here: str, stores: Callable[..., Store]) -> Store:
    return stores(here)


def added(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = say("schedule", "add", *words, "--json").data
    return found


def test_a_schedule_from_its_first_to_its_last_day(store: Store) -> None:
    assert "No schedules. Add one: dalsegno schedule add" in say("schedules").out
    done = say("schedule", "add", "nightly", "full", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin")
    first, says, *times = done.out.splitlines()
    assert (first, says) == ('Schedule "nightly" is added.', "At 02:30 every day (Europe/Berlin):")
    assert len(times) == 5
    assert all("02:30 CE" in time for time in times)
    listed = say("schedules").out
    assert "nightly" in listed
    assert "none yet" in listed
    assert "30 2 * * * (Europe/Berlin)" in listed
    shown = say("schedule", "nightly").out
    assert "made up for by one run" in shown
    assert "It has not run yet." in shown
    say("schedule", "set", "nightly", "--cron", "@daily", "--overlap", "queue", "--catch-up", "all", "--playlist", "9")
    after = say("schedule", "show", 1, "--json").data
    assert {key: after["schedule"][key] for key in ("cron", "overlap", "catch_up", "time_zone", "request")} == {
        "cron": "@daily", "overlap": "queue", "catch_up": "all", "time_zone": "Europe/Berlin",
        "request": {"scope": {"playlists": ["9"]}},
    }  # fmt: skip
    assert len(after["upcoming"]) == 5
    say("schedule", "set", "nightly", "--everything", "--rename", "daily")
    assert "is paused" in say("schedule", "pause", "daily", "--reason", "film night").out
    assert f"paused by {getpass.getuser()}: film night" in say("schedules").out
    assert [
        line["schedule"]["name"] for line in say("schedules", "-q", "state:paused", "--json").data["schedules"]
    ] == ["daily"]
    resumed = say("schedule", "resume", "daily", "--json").data
    assert (resumed["schedule"]["paused_at"], resumed["schedule"]["request"]) == (None, {})
    assert say("schedule", "remove", "daily").out == 'Schedule "daily" is removed.\n'
    assert say("schedules", "--json").data == {"schedules": [], "next_cursor": None}
    kinds = [event["type"] for event in events_of(store) if event["type"].startswith("schedule_")]
    assert kinds == ["schedule_added", "schedule_changed", "schedule_changed", "schedule_paused", "schedule_resumed",
                     "schedule_removed"]  # fmt: skip


def test_what_is_refused_says_why(store: Store) -> None:
    added("nightly", "full", "--cron", "@daily")
    wrong = [
        (("add", "b", "full", "--cron", "61 * * * *"), 'its minute, "61", is wrong'),
        (("add", "b", "ful", "--cron", "@daily"), 'Did you mean "full"?'),
        (("add", "b", "parse", "--cron", "@daily"), "asked for, not scheduled"),
        (("add", "b", "full", "--cron", "@daily", "--time-zone", "Europe/Berln"), "Europe/Berlin"),
        (("add", "b", "full", "--cron", "@daily", "--overlap", "maybe"), "Known: allow, queue, skip"),
        (("add", "b", "full", "--cron", "@daily", "--catch-up", "all"), "let them queue, or allow them"),
        (("add", "b", "full", "--cron", "@daily", "-p", "x=1"), "takes a scope"),
        (("add", "b", "scale", "--cron", "@daily", "--download-source", "demo"), "Only templates"),
        (("add", "nightly", "full", "--cron", "@daily"), "already"),
        (("show", "nightley"), 'Did you mean "nightly"?'),
        (("show", "nightley"), '"nightly"?\n'),
        (("remove", "7"), "no schedule 7"),
    ]
    for words, said in wrong:
        answer = say("schedule", *words, fine=False)
        assert answer.code == 2
        assert said in answer.err, answer.err


def test_a_preview_stores_nothing(store: Store) -> None:
    shown = say("schedule", "preview", "0 9 * * MON", "--time-zone", "Asia/Shanghai", "--json").data
    assert len(shown["runs"]) == 5
    assert all(moment.endswith("01:00:00Z") for moment in shown["runs"])
    assert "Mon" in say("schedule", "preview", "0 9 * * MON", "--time-zone", "Asia/Shanghai").out


def test_a_run_that_was_asked_for_is_taken_up_by_an_agent(
    store: Store, here: str, process: Callable[..., Process]
) -> None:
    added("echo", "echoes", "--cron", "@yearly", *STUDIO)
    asked = say("schedule", "run", "echo")
    assert "will run as soon as" in asked.out
    assert "No engine is at work" in asked.err
    assert "waiting" in say("schedule", "echo").out
    process("agent", *STUDIO, "--database", here)
    wait_until(lambda: every(store, sa.select(jobs)), "the job", timeout=120)
    (job,) = every(store, sa.select(jobs))
    assert job["requested_by"] == f"{getpass.getuser()} via schedule echo"
    assert "started" in say("schedule", "echo").out
