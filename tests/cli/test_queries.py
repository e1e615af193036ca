"""The query language on the command line: the same words as in the console."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.tool import STUDIO, say


@pytest.fixture
def played(here: str, folder: Path) -> str:
    """Two jobs with a good item and a bad one each, run to their end."""
    (folder / "items.txt").write_text("one\nbad two\n")
    for _ in range(2):
        assert say("run", "echoes", *STUDIO, "--items", "items.txt", "--fresh", "--json", fine=False).code == 3
    return here


def keys(*words: object) -> list[tuple[int, str]]:
    return [(line["item"]["job_id"], line["item"]["key"]) for line in say("items", *words, "--json").data]


def test_items_of_all_jobs(played: str) -> None:
    assert keys("-q", "state:failed") == [(2, "bad two"), (1, "bad two")]
    assert keys(1, "-q", "state:failed") == [(1, "bad two")]
    assert keys("--query", "-state:failed", "--state", "succeeded") == [(2, "one"), (1, "one")]
    told = say("items", "-q", "state:failed", "--limit", 1).out
    cursor = told.split("--cursor ")[1].split()[0]
    assert keys("-q", "state:failed", "--cursor", cursor) == [(1, "bad two")]


def test_jobs_events_and_logs(played: str) -> None:
    jobs = say("jobs", "-q", "state:completed_with_errors job:<2", "--json").data
    assert [line["job"]["id"] for line in jobs] == [1]
    assert say("jobs", "-q", "state:completed_with_errors", "--limit", 1).out.count("More: --cursor 2") == 1
    kinds = [line.split()[1] for line in say("events", "-q", "kind:job_*", "--job", 2).out.splitlines()]
    assert kinds[0] == "job_submitted"
    assert all(kind.startswith("job_") for kind in kinds)
    assert say("logs", "-q", "level:error", "--item", 99).out == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("items", "-q", "sate:failed"), 'Did you mean "state"?'),
        (("jobs", "-q", "state:runing"), 'Did you mean "running"?'),
        (("logs", "-q", "age:soon"), "an age such as"),
        (("events", "-q", "kind:", "--json"), "missing"),
        (("events", "-q", "kind:job_*", "--follow"), "--follow goes with"),
        (("items",), "dalsegno items JOB"),
    ],
)
def test_what_makes_no_sense_is_said(here: str, words: tuple[str, ...], says: str) -> None:
    answer = say(*words, fine=False)
    assert answer.code != 0
    assert says in answer.err
