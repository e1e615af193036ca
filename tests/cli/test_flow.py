"""Limits, breakers and system settings from the command line: shown, changed, and refused with the reason."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Limit, Store, submit
from dalsegno.engine import breakers, limits
from dalsegno.engine.limits import Pulse
from dalsegno.model.breaker import Breaker
from dalsegno.model.signal import ProviderError
from dalsegno.store.schema import waits
from tests.cli import studio
from tests.cli.tool import say
from tests.helpers import events_of, register


@pytest.fixture
def store(here: str, stores: Callable[..., Store]) -> Store:
    return stores(here)


def limit_said(*words: object) -> dict[str, Any]:
    answer = say("limit", *words, "--json").data
    assert answer.keys() == {"limit", "warning"}
    return answer["limit"]


def settings_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["concurrent"], line["rate"], line["window"]


# --- limits ---------------------------------------------------------------------------------------


def test_a_limit_is_set_shown_changed_and_lifted(store: Store) -> None:
    assert "No limits. Set one: dalsegno limit" in say("limits").out
    done = say("limit", "source:qq", "--concurrent", 2, "--rate", "30/min")
    assert (done.out, done.err) == ("Limit source:qq: 2 at once, 30/min.\n", "")
    assert settings_of(limit_said("source:qq")) == (2, 30, 60.0)
    assert settings_of(limit_said("source:qq", "--concurrent", 5)) == (5, 30, 60.0), "the rate stays"
    assert settings_of(limit_said("source:qq", "--rate", "100/15s")) == (5, 100, 15.0), "so does the other"
    assert settings_of(limit_said("source:qq", "--concurrent", "none")) == (None, 100, 15.0)
    assert say("limit", "source:qq", "--rate", "none").out == "Limit source:qq: no limit.\n"
    say("limit", "source:qq", "--rate", "1000/day")
    assert say("limit", "source:qq", "--clear").out == "Limit source:qq is lifted.\n"
    assert say("limits", "--json").data == []
    assert "no limit" in say("limit", "source:qq").out
    again = say("limit", "source:qq", "--clear", fine=False)
    assert (again.code, again.err) == (2, 'dalsegno: There is no limit "source:qq": it is lifted already.\n')
    assert {event["source"] for event in events_of(store, type="limit_set")} == {getpass.getuser()}
    assert len(events_of(store, type="limit_cleared")) == 1


def test_limits_are_listed_with_what_is_in_use(store: Store) -> None:
    process, pulse = register(store), Pulse(store.clock)
    say("limit", "source:qq", "--concurrent", 3, "--rate", "2/h")
    for _ in range(2):
        store.write("take", lambda tx: limits.take(tx, pulse, ["source:qq"], process))
    row = {"name": "source:qq", "stage_id": 1, "job_id": 1, "since": store.clock.now()}
    rows = [{"item_id": number, "seq": number, **row} for number in range(1, 1003)]
    store.write("wait", lambda tx: tx.conn.execute(sa.insert(waits), rows))
    (line,) = say("limits", "--json").data
    assert line.keys() == {
        "name", "concurrent", "rate", "window", "concurrent_setting", "rate_setting", "origin", "updated_by",
        "updated_at", "in_use", "used", "free", "next_at", "line",
    }  # fmt: skip
    assert (line["in_use"], line["used"], line["free"], line["updated_by"]) == (2, 2, 0, getpass.getuser())
    assert line["line"] == {"waiting": 1000, "more": True, "held_back": 0}
    assert timedelta(minutes=59) < datetime.fromisoformat(line["next_at"]) - datetime.now(UTC) < timedelta(minutes=61)
    text = say("limits").out
    for part in ("source:qq", "2 of 3", "2 of 2/h", "1,000+", getpass.getuser()):
        assert part in text
    assert "1,000+ in line" in say("limit", "source:qq").out


def test_zero_is_allowed_and_comes_with_a_warning(store: Store) -> None:
    done = say("limit", "source:qq", "--concurrent", 0)
    assert "0 means nothing: no call of source:qq begins until this is changed." in done.out
    answer = say("limit", "source:qq", "--concurrent", "none", "--rate", "0/min", "--json").data
    assert answer["warning"].startswith("0 means nothing")
    assert say("limit", "source:qq", "--rate", "1/min", "--json").data["warning"] is None


def test_what_a_service_declares_is_told_apart_and_may_be_overruled(store: Store) -> None:
    declared = Limit(concurrent="queue_concurrency", rate="queue_rate_limit_max")
    store.write("declare", lambda tx: limits.set_limit(tx, "service:echo", declared, "service", origin="service"))
    assert "its service" in say("limits").out
    assert "0 of 1 (queue_concurrency)" in say("limits").out
    line = limit_said("service:echo", "--concurrent", 4)
    assert (line["origin"], line["concurrent"], line["concurrent_setting"]) == ("operator", 4, None)
    assert (line["rate"], line["rate_setting"]) == (2, "queue_rate_limit_max"), "what stays goes on following"
    line = limit_said("service:echo", "--concurrent", "queue_concurrency", "--rate", "queue_rate_limit_max/h")
    assert (line["concurrent_setting"], line["rate_setting"], line["window"]) == (
        "queue_concurrency",
        "queue_rate_limit_max",
        3600.0,
    )


def test_a_service_without_its_prefix_is_asked_about(store: Store) -> None:
    submit(store, studio.ECHOES, items=["one"])
    register(store)  # on node "test"
    for words in (("limit", "echo", "--concurrent", 1), ("limit", "echo"), ("breaker", "echo")):
        answer = say(*words, fine=False)
        assert (answer.code, answer.err) == (2, 'dalsegno: "echo" is a service. Did you mean "service:echo"?\n')
    answer = say("limit", "test", "--concurrent", 1, fine=False)
    assert 'Did you mean "node:test"?' in answer.err
    assert say("limit", "service:echo", "--concurrent", 1).err == ""
    remark = say("limit", "service:ecoh", "--concurrent", 1)
    assert 'No service "ecoh" is known here yet. Did you mean "echo"?' in remark.err


def test_names_with_colons_are_no_pictures(file_here: str) -> None:
    assert say("limit", "tenant:cat", "--concurrent", 1).out == "Limit tenant:cat: 1 at once.\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("limit", "source:qq"), 'There is no limit "source:qq"'),
        (("limit", "source:qq", "--clear"), 'There is no limit "source:qq"'),
        (("limit", "source:qq", "--clear", "--concurrent", 1), "--clear lifts the whole limit"),
        (("limit", "source qq", "--concurrent", 1), "no spaces"),
        (("limit", "", "--concurrent", 1), "1 to 200 characters"),
        (("limit", "x" * 201, "--concurrent", 1), "1 to 200 characters"),
        (("limit", "source:qq", "--concurrent", "five"), "--concurrent takes a whole number"),
        (("limit", "source:qq", "--concurrent", "-1"), "--concurrent takes a whole number"),
        (("limit", "source:qq", "--concurrent", "9" * 5000), "--concurrent takes a whole number"),
        (("limit", "source:qq", "--rate", "2"), "is not a rate"),
        (("limit", "source:qq", "--rate", "2/parsec"), "is not a rate"),
        (("limit", "source:qq", "--rate", "2/0s"), "window"),
        (("limit", "source:qq", "--rate", "2/32days"), "at most 31 days"),
        (("limit", "source:qq", "--rate", "9" * 5000 + "/min"), "up to 1,000,000 calls"),
        (("limit", "source:qq", "--rate", "queue_rate_limit_max"), "is not a rate"),
        (("limit",), "NAME"),
        (("breaker", "source:qq"), 'There is no breaker "source:qq"'),
        (("breaker", "probe", "source:qq"), "There is no breaker source:qq"),
        (("breaker", "reset", "source:qq"), "There is no breaker source:qq"),
        (("breaker", "tripp", "source:qq"), "tripp"),
        (("breaker", "trip", "source:qq"), "--reason"),
        (("breaker", "trip", "source:qq", "--reason", " "), "--reason has 1 to 1,000 characters"),
        (("breaker", "trip", "source:qq", "--reason", "x", "--for", "soon"), "is not a length of time"),
        (("breaker", "trip", "source:qq", "--reason", "x", "--until", "2001-01-01"), "is in the past"),
        (("breaker", "trip", "source:qq", "--reason", "x", "--for", "1h", "--until", "23:30"), "give one of them"),
        (("breaker", "trip", "source qq", "--reason", "x"), "no spaces"),
        (("breaker", "trip", "node:nas", "--reason", "x"), "dalsegno limit node:nas --concurrent 0"),
        (("settings", "queue_sise"), "There is no system setting"),
        (("settings", "queue_concurency", 3), 'Did you mean "queue_concurrency"'),
        (("settings", "", 3), "There is no system setting"),
        (("settings", "queue_concurrency", "many"), "whole number"),
        (("settings", "queue_concurrency", -3), "whole number"),
        (("settings", "queue_concurrency", "9" * 5000), "whole number"),
        (("settings", "queue_batch_size", 0), "from 1 to 1,000,000"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as json"])
def test_bad_input_is_explained_and_changes_nothing(
    file_here: str, words: tuple[object, ...], says: str, as_json: bool
) -> None:
    answer = say(*words, *(("--json",) if as_json else ()), fine=False)
    assert (answer.code, answer.out) == (2, "")
    assert says in (answer.error["message"] if as_json else answer.err)
    assert say("limits", "--json").data == say("breakers", "--json").data == []
    assert all(line["updated_at"] is None for line in say("settings", "--json").data)


# --- breakers -------------------------------------------------------------------------------------


def test_a_breaker_is_tripped_probed_and_reset(store: Store) -> None:
    assert say("breakers").out == "No breakers: no guarded service has been called yet.\n"
    tripped = say("breaker", "trip", "source:qq", "--reason", "they asked us to stop")
    assert tripped.out == "Breaker source:qq is open until you probe or reset it: they asked us to stop\n"
    (line,) = say("breakers", "--json").data
    assert line.keys() == {"breaker", "opens", "line"}
    assert (line["breaker"]["state"], line["breaker"]["kind"]) == ("open", "manual")
    assert (line["breaker"]["tripped_by"], line["breaker"]["resume_at"]) == (getpass.getuser(), None)
    assert "when you say so" in say("breaker", "source:qq").out

    assert "half-open: the next call is the probe" in say("breaker", "probe", "source:qq").out
    assert "half-open" in say("breakers").out
    assert say("breaker", "source:qq", "--json").data["breaker"]["state"] == "half_open"
    assert say("breaker", "reset", "source:qq").out == "Breaker source:qq is closed: calls go through.\n"
    assert "Breaker source:qq, closed" in say("breaker", "show", "source:qq").out
    assert say("breaker", "reset", "source:qq", "--json").data["opens"] is None, "again is no error"

    refused = say("breaker", "probe", "source:qq", "--json", fine=False)
    assert (refused.code, refused.error["code"]) == (2, "command_refused")
    types = [event["type"] for event in events_of(store, source=getpass.getuser())]
    assert types == ["breaker_opened", "breaker_half_open", "breaker_closed"]


@pytest.mark.parametrize("option", ["--for", "--until"])
def test_a_trip_may_end_by_itself(file_here: str, option: str) -> None:
    when = "2h" if option == "--for" else (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    line = say("breaker", "trip", "source:qq", "--reason", "lunch", option, when, "--json").data
    left = datetime.fromisoformat(line["breaker"]["resume_at"]) - datetime.now(UTC)
    assert timedelta(hours=1, minutes=50) < left < timedelta(hours=2, minutes=1)
    assert line["opens"].startswith("by itself at ")
    assert say("breaker", "--json", "source:qq").data["breaker"] == line["breaker"], "options may stand before the name"


def test_the_error_that_tripped_it_is_shown(store: Store) -> None:
    process = register(store)
    error = ProviderError(429, '{"error": "[red]slow\tdown"}', {"retry-after": "600"})

    def fail(tx: Any) -> None:
        way = breakers.enter(tx, "service:echo", process, None)
        assert isinstance(way, breakers.Way)
        trouble = Breaker().judge(error, store.clock.now())
        assert trouble is not None
        breakers.went_badly(
            tx, "service:echo", way, Breaker(), trouble, store.clock.now(), f"ProviderError: {error}\nsecond line"
        )

    store.write("fail", fail)
    text = say("breaker", "service:echo").out
    assert "Breaker service:echo, open" in text
    assert '[red]slow down"}' in text, "what others wrote is no markup"
    assert "\n             second line" in text
    assert "rate_limit" in say("breakers").out
    submit(store, studio.ECHOES, items=["one"])
    assert say("breaker", "service:echo", "--json").data["line"]["held_back"] == 0, "the job has not been admitted"


def test_a_breaker_that_is_called_like_a_verb_can_be_shown(file_here: str) -> None:
    say("breaker", "trip", "trip", "--reason", "why not")
    assert "Breaker trip, open" in say("breaker", "show", "trip").out


# --- system settings ------------------------------------------------------------------------------


def test_settings_are_shown_and_changed_and_limits_follow(store: Store) -> None:
    lines = say("settings", "--json").data
    assert [line["key"] for line in lines] == ["queue_concurrency", "queue_rate_limit_max", "queue_batch_size"]
    assert lines[0].keys() == {"key", "meaning", "value", "default", "updated_by", "updated_at", "followers"}
    say("limit", "service:metadata", "--rate", "queue_rate_limit_max/min")
    (line,) = say("settings", "queue_rate_limit_max", 15, "--json").data
    assert (line["value"], line["default"], line["updated_by"]) == (15, 2, getpass.getuser())
    assert line["followers"] == ["service:metadata"]
    assert limit_said("service:metadata")["rate"] == 15
    text = say("settings").out
    assert "service:metadata" in text
    assert "items that share one call" in text
    assert say("settings", "queue_rate_limit_max").out.count("queue_") == 1
    assert "dalsegno config show" in say("settings", "--help").out


@pytest.mark.parametrize(
    "text", ["2/min", "100/15s", "1000/day", "7/s", "3/2min", "5/0.5s", "9/90s", "4/2h", "1/31day"]
)
def test_a_rate_is_said_as_it_is_read(file_here: str, text: str) -> None:
    assert say("limit", "source:qq", "--rate", text).out == f"Limit source:qq: {text}.\n"
