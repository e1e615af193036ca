"""What an operator asks for is applied, whether an engine runs or not, and refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno import Engine, Store, submit
from dalsegno.catalog.templates import order
from dalsegno.settings import Settings
from tests.cli import studio
from tests.cli.tool import STUDIO, say
from tests.helpers import SWIFT, job_of, status_of, statuses_of, wait_for_job, wait_until


@pytest.fixture
def store(here: str, stores: Callable[..., Store]) -> Store:
    return stores(here)


def gated(store: Store, folder: Path, keys: tuple[str, ...] = ("one", "two")) -> int:
    """A job whose items wait until the gate is opened."""
    return submit(store, studio.GATED, items=keys, params={"gate": str(folder / "gate")}).job_id


def status_said(*words: object) -> str:
    """The command's own status, as `--json` tells it."""
    answer = say(*words, "--json").data
    assert answer.keys() == {"command"}
    assert {"id", "type", "status", "job_id", "item_id", "payload", "requested_by"} <= answer["command"].keys()
    return answer["command"]["status"]


def test_without_an_engine_commands_are_applied_at_once(store: Store, folder: Path) -> None:
    job = gated(store, folder)
    assert say("pause", job, "--reason", "film night").out == f"Job {job} pauses.\n"
    assert status_of(store, job) == "paused"
    assert "film night" in say("job", job).out
    assert status_said("priority", job, 3) == "applied"
    assert say("priority", job, -3).out == f"Job {job} has priority -3.\n"
    assert job_of(store, job)["priority"] == -3

    resumed = say("resume", job, "--set", "LEVEL=11", "--set", "LIBRARY_ROOT=/mnt/bigger")
    assert resumed.out == f"Job {job} goes on.\n"
    assert "No engine is at work" in resumed.err
    assert status_of(store, job) == "queued"
    assert job_of(store, job)["overrides"] == {"LEVEL": 11, "LIBRARY_ROOT": "/mnt/bigger"}

    assert say("cancel", job).out == f"Job {job} is being canceled.\n"
    assert status_of(store, job) == "canceled"
    assert statuses_of(store, job) == {"canceled": 2}


def test_a_resume_reads_what_it_sets_like_settings(store: Store, folder: Path) -> None:
    job = order(store, Settings(library_root=folder / "library", folder_roots=(str(folder),)), "full").job_id
    say("pause", job)
    for words, says in (
        ("LIBARY_ROOT=/mnt", 'Did you mean "LIBRARY_ROOT"?'),
        ("S3_SECRET_KEY=abc", "write it into dalsegno.env"),
        ("MIN_FREE_SPACE=plenty", "is not a size"),
    ):
        answer = say("resume", job, "--set", words, fine=False)
        assert answer.code == 2
        assert says in " ".join(answer.err.split())
    assert status_of(store, job) == "paused"

    say("resume", job, "--set", "LIBRARY_ROOT=bigger", "--set", "MIN_FREE_SPACE=1GB")

    kept = {"LIBRARY_ROOT": str(Path.cwd() / "bigger"), "MIN_FREE_SPACE": 1_000_000_000}
    assert job_of(store, job)["overrides"] == kept


def test_without_an_engine_a_finished_item_is_run_again_by_the_next_run(store: Store, folder: Path) -> None:
    (folder / "items.txt").write_text("good\nbad\n")
    words = ("run", "echoes", *STUDIO, "--items", "items.txt", "--json")
    assert say(*words, fine=False).code == 3
    assert status_said("retry", 2) == "applied"
    assert status_of(store, 1) in {"queued", "running"}
    again = say(*words, fine=False)
    assert (again.code, again.data["job"]["job_id"]) == (3, 1), "it goes on with the same job"
    assert say("force-retry", 1).out == "Item 1 will run again.\n"
    assert say(*words, fine=False).data["job"]["job_id"] == 1
    types = [event["type"] for event in say("events", "--item", 1, "--json").lines]
    assert types.count("item_succeeded") == 2
    assert types.count("item_force_retried") == 1


def test_a_live_engine_applies_them(store: Store, folder: Path) -> None:
    job = gated(store, folder)
    with Engine(store, [studio.gate, studio.echo], SWIFT):
        wait_until((folder / "gate.one").exists, "the first item to begin")
        assert status_said("priority", job, 5) == "applied"
        assert status_said("pause", job) == "applied"
        assert status_of(store, job) == "pause_requested"
        pending = say("resume", job, "--wait", 0, "--set", "LEVEL=11")
        assert pending.out == "Asked for; the engine has not applied it yet, and will.\n"
        (folder / "gate").touch()
        assert wait_for_job(store, job) == "completed"
        results = [line["item"]["result"] for line in say("items", job, "--json").data]
        assert results == [{"level": None}, {"level": 11}]
        assert status_said("force-retry", 1) == "applied"
        assert wait_for_job(store, job) == "completed"
        wait_until(lambda: say("item", 1, "--json").data["item"]["result"] == {"level": 11}, "its new result")

        (folder / "gate").unlink()
        other = gated(store, folder, ("three",))
        wait_until((folder / "gate.three").exists, "the item to begin")
        assert status_said("cancel", other) == "applied"
        assert wait_for_job(store, other) == "canceled"

        third = submit(store, studio.ECHOES, items=["bad"]).job_id
        assert wait_for_job(store, third) == "completed_with_errors"
        (item,) = say("items", third, "--json").data
        assert say("retry", item["item"]["id"]).out == f"Item {item['item']['id']} will run again.\n"
        assert wait_for_job(store, third) == "completed_with_errors"

        def listed() -> set[str]:
            (process,) = say("workers", "--json").data["processes"]
            assert process["alive"]
            return {worker["name"] for worker in process["workers"]}

        wait_until(lambda: listed() >= {"gate-1", "echo-1"}, "the workers to be listed")
        assert "gate-1" in say("workers").out


@pytest.mark.parametrize("as_json", [False, True])
def test_what_cannot_be_done_is_refused_with_the_reason(store: Store, as_json: bool) -> None:
    submit(store, studio.ECHOES, items=["one"])
    more = ("--json",) if as_json else ()
    refused: dict[tuple[Any, ...], str] = {
        ("resume", 1): "Only a paused job can be resumed",
        ("retry", 1): "pending",
        ("priority", 1, 10_000_000): "priority",
    }
    for words, reason in refused.items():
        answer = say(*words, *more, fine=False)
        assert (answer.code, answer.out) == (2, "")
        assert reason in (answer.error["message"] if as_json else answer.err)
    say("cancel", 1)
    for words in (("pause", 1), ("cancel", 1), ("resume", 1)):
        assert say(*words, *more, fine=False).code == 2


def test_a_job_or_item_that_is_not_there_is_said(store: Store) -> None:
    for words in (
        ("job", 7), ("items", 7), ("pause", 7), ("resume", 7), ("cancel", 7), ("priority", 7, 1),
        ("item", 7), ("retry", 7), ("force-retry", 7),
    ):  # fmt: skip
        answer = say(*words, fine=False)
        assert answer.code == 2, words
        what = "item" if words[0] in {"item", "retry", "force-retry"} else "job"
        assert answer.err == f"dalsegno: There is no {what} 7.\n"
        assert say(*words, "--json", fine=False).error["code"] == "not_found"


def test_a_number_no_database_can_hold_is_not_there_either(store: Store) -> None:
    for words in (("job", 2**70), ("item", 2**70), ("pause", 2**70), ("retry", 2**70), ("items", 2**70)):
        assert say(*words, fine=False).code == 2, words
