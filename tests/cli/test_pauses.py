"""`pause`, `resume` and `holds`: one thing at a time, at every level, with who, why and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dalsegno import Engine, Step, Store, Workflow, submit
from dalsegno.cli.ask import whoami
from dalsegno.cli.inputs import end_from
from dalsegno.engine.holds import Held, held
from dalsegno.errors import InputInvalid
from tests.cli import studio
from tests.cli.tool import say
from tests.helpers import SWIFT, job_of, stage_of, status_of, statuses_of, wait_for_job, wait_until

BOTH = Workflow(name="both", steps=(Step(key="say", service="echo"), Step(key="wait", service="gate")))


@pytest.fixture
def store(here: str, stores: Callable[..., Store]) -> Store:
    return stores(here)


@pytest.fixture
def job(store: Store) -> int:
    return submit(store, BOTH, items={"say": ["one"], "wait": ["two"]}).job_id


def held_now(store: Store) -> Held:
    return store.read(held)


# --- holds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "spoken", "expected"),
    [
        (("--all",), "Everything", Held(True, frozenset(), frozenset())),
        (("--service", "echo"), 'Service "echo"', Held(False, frozenset({"echo"}), frozenset())),
        (("--lane", "default"), 'Lane "default"', Held(False, frozenset(), frozenset({"default"}))),
    ],
)
def test_a_hold_is_set_listed_and_released(
    store: Store, job: int, target: tuple[str, ...], spoken: str, expected: Held
) -> None:
    answer = say("pause", *target, "--reason", "film night")
    assert (answer.out, answer.err) == (f"{spoken} is held.\n", "")
    assert held_now(store) == expected
    (line,) = say("holds", "--json").data
    assert (line["status"], line["reason"], line["by"], line["until"]) == ("held", "film night", whoami(), None)
    shown = say("holds").out
    assert "film night" in shown
    assert f"dalsegno resume {' '.join(target)}" in shown
    assert "film night" in say("job", job).out or target[0] == "--service"
    assert say("resume", *target).out == f"{spoken} goes on.\n"
    assert held_now(store) == Held(False, frozenset(), frozenset())
    assert say("holds").out == "Nothing is paused.\n"
    again = say("resume", *target, fine=False)
    assert (again.code, again.err) == (2, f"dalsegno: {spoken} is not held. To see what is: dalsegno holds\n")


def test_a_hold_says_until_when_and_pausing_again_changes_it(store: Store, job: int) -> None:
    said = say("pause", "--all", "--for", "2h", "--json").data["hold"]
    assert said.keys() == {"name", "reason", "by", "until"}
    (line,) = say("holds", "--json").data
    assert line["until"] == said["until"]
    until = datetime.fromisoformat(said["until"])
    assert f"is held until {until.astimezone():%Y}" in say("pause", "--all", "--until", said["until"]).out
    assert f"until {until:%Y-%m-%d %H:%M:%S} UTC" in say("job", job).out
    say("pause", "--all", "--reason", "for good")
    (line,) = say("holds", "--json").data
    assert (line["reason"], line["until"]) == ("for good", None)
    assert say("resume", "--all", "--json").data == {"released": "all"}


def test_a_service_nobody_knows_is_held_with_a_remark(store: Store, job: int) -> None:
    answer = say("pause", "--service", "ecko")
    assert 'No workflow needs a service "ecko", no process offers one. Did you mean "echo"?' in answer.err
    assert held_now(store).services == {"ecko"}


def test_a_running_engine_obeys(store: Store) -> None:
    say("pause", "--all")
    with Engine(store, [studio.echo], SWIFT):
        job = submit(store, studio.ECHOES, items=["one"]).job_id
        assert "everything is held" in say("job", job).out
        say("resume", "--all")
        assert wait_for_job(store, job) == "completed"


# --- jobs and stages ----------------------------------------------------------------------------


def test_a_job_says_who_paused_it_why_and_until_when(store: Store, job: int) -> None:
    say("pause", job, "--reason", "film night", "--for", "90m")
    row = job_of(store, job)
    assert (row["status"], row["paused_by"]) == ("paused", whoami())
    assert row["pause_until"] - row["paused_at"] <= timedelta(minutes=90)
    for shown in (say("jobs").out, say("job", job).out):
        assert f"film night (by {whoami()}) until {row['pause_until'].astimezone():%Y}" in shown
    (line,) = say("holds", "--json").data
    assert (line["level"], line["job_id"], line["status"]) == ("job", job, "paused")


def test_a_stage_is_paused_by_name_and_stays_so_when_its_job_is_resumed(store: Store, job: int) -> None:
    assert say("pause", job, "--stage", "wait", "--reason", "film night").out == f'Stage "wait" of job {job} pauses.\n'
    assert stage_of(store, job, "wait")["pause_reason"] == "film night"
    say("pause", job)
    assert [line["level"] for line in say("holds", "--json").data] == ["job", "stage"]
    answer = say("resume", job)
    assert answer.out == (
        f"Job {job} goes on.\n"
        f'But stage "wait" of job {job} is paused: film night (by {whoami()}). '
        f"To go on: dalsegno resume {job} --stage wait\n"
    )
    say("pause", job)
    left = say("resume", job, "--json").data
    assert left["command"]["status"] == "applied"
    assert [(line["level"], line["name"]) for line in left["holds"]] == [("stage", "wait")]
    with Engine(store, [studio.echo, studio.gate], SWIFT):
        wait_until(lambda: statuses_of(store, job, "say") == {"succeeded": 1}, "the other stage")
        assert (status_of(store, job), statuses_of(store, job, "wait")) == ("running", {"pending": 1})
    assert 'stage "wait" of job' in say("job", job).out
    assert say("resume", job, "--stage", "wait").out == f'Stage "wait" of job {job} goes on.\n'
    assert stage_of(store, job, "wait")["status"] == "running"


def test_a_stage_that_is_not_there_is_said(store: Store, job: int) -> None:
    for verb in ("pause", "resume"):
        answer = say(verb, job, "--stage", "wiat", fine=False)
        assert (answer.code, answer.err) == (2, f'dalsegno: Job {job} has no stage "wiat". Did you mean "wait"?\n')


# --- what is meant ------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "JOB, JOB --stage STEP, --service NAME, --lane NAME or --all."),
        (("--stage", "wait"), "JOB --stage wait."),
        ((1, "--lane", "default"), "One thing at a time: JOB and --lane"),
        (("--service", "echo", "--all"), "One thing at a time: --service and --all"),
        (("--stage", "wait", "--all"), "A stage is part of a job"),
        (("--lane", "defualt"), 'There is no lane "defualt". Did you mean "default"?'),
        (("--service", ""), "have a name"),
    ],
)
def test_exactly_one_thing_is_meant(store: Store, job: int, verb: str, words: tuple[Any, ...], says: str) -> None:
    answer = say(verb, *words, fine=False)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert held_now(store) == Held(False, frozenset(), frozenset())


def test_settings_are_a_whole_jobs(store: Store, job: int) -> None:
    for words in (("--all",), (job, "--stage", "wait")):
        answer = say("resume", *words, "--set", "A=1", fine=False)
        assert (answer.code, answer.err.count("--set changes the settings of a whole job")) == (2, 1)


# --- when ---------------------------------------------------------------------------------------

NOW = datetime(2026, 3, 14, 22, 0, tzinfo=UTC)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock shows 23:00 when it is 22:00 UTC."""
    import time

    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("23:30", "2026-03-14T22:30"),
        ("08:00", "2026-03-15T07:00"),
        ("8:00", "2026-03-15T07:00"),
        ("23:00", "2026-03-15T22:00"),
        ("23:30:15", "2026-03-14T22:30:15"),
        ("23:30+00:00", "2026-03-14T23:30"),
        ("21:30Z", "2026-03-15T21:30"),
        ("2026-12-01T08:00", "2026-12-01T07:00"),
        ("2026-07-01T08:00", "2026-07-01T06:00"),
        ("2026-12-01 08:00+05:00", "2026-12-01T03:00"),
        ("2026-03-15", "2026-03-14T23:00"),
    ],
)
def test_until_is_a_moment_to_come_in_the_zone_of_the_machine(berlin: None, until: str, expected: str) -> None:
    assert end_from(until, None, NOW) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("lasts", "seconds"),
    [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("45s", 45), ("3d", 259_200), ("1D2H3M4S", 93_784), (" 5m ", 300)],
)
def test_for_is_a_length_of_time(lasts: str, seconds: int) -> None:
    assert end_from(None, lasts, NOW) == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("until", "lasts", "says"),
    [
        ("2020-01-01", None, "in the past"),
        ("2026-03-14T22:00+00:00", None, "in the past"),
        ("25:00", None, "not a time of day"),
        ("12:99", None, "not a time of day"),
        ("soon", None, "is not a time"),
        ("", None, "is not a time"),
        (None, "90", "not a length of time"),
        (None, "", "not a length of time"),
        (None, "0m", "not a length of time"),
        (None, "-5m", "not a length of time"),
        (None, "30m1h", "not a length of time"),
        (None, "1.5h", "not a length of time"),
        (None, "999999999d", "longer than the calendar"),
        ("23:30", "2h", "give one of them"),
    ],
)
def test_what_is_no_moment_to_come_is_explained(until: str | None, lasts: str | None, says: str) -> None:
    with pytest.raises(InputInvalid, match=says):
        end_from(until, lasts, NOW)


def test_neither_means_until_somebody_resumes() -> None:
    assert end_from(None, None, NOW) is None
