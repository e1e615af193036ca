"""`dalsegno explain`: the same answer for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.tool import STUDIO, say

GATE = {"code", "state", "says", "since", "until", "opens", "data"}


@pytest.fixture
def played(here: str, folder: Path) -> str:
    """Job 1 is done but for a bad item; job 2 waits for an engine."""
    (folder / "items.txt").write_text("one\nbad [red]one\n")
    assert say("run", "echoes", *STUDIO, "--items", "items.txt", fine=False).code == 3
    say("submit", "echoes", *STUDIO, "--items", "items.txt")
    return here


def test_the_document_keeps_its_keys(played: str) -> None:
    for words in (("job", 2), ("stage", "2/say"), ("stage", 1), ("item", 3), ("service", "echo")):
        answer = say("explain", *words, "--json").data
        assert answer.keys() == {"what", "id", "status", "answer", "gates", "first_closed", "at"}
        assert answer["what"] == words[0]
        assert all(gate.keys() == GATE for gate in answer["gates"])
        assert {gate["state"] for gate in answer["gates"]} <= {"open", "closed"}
        assert answer["first_closed"] == next(gate for gate in answer["gates"] if gate["state"] == "closed")


def test_a_person_gets_the_headline_and_the_gates(played: str) -> None:
    lines = say("explain", "job", 2).out.splitlines()
    assert lines[0].startswith(
        "Job 2, queued: It waits to be admitted, and no engine is at work on this database, since "
    )
    assert lines[0].endswith(" UTC).")
    assert "  ✓ all_held      No hold on everything." in lines
    closed = lines.index("  ✗ lane_turn     It waits to be admitted, and no engine is at work on this database.")
    assert lines[closed + 1].strip().startswith("since ")
    assert lines[closed + 2].strip() == "opens: dalsegno agent"


def test_a_failed_item_is_told_as_it_failed(played: str) -> None:
    text = say("explain", "item", 2).out
    assert "Item 2, failed: It failed: bad [red]one is a bad one, since " in text, "what others wrote is no markup"
    assert "opens: dalsegno retry 2" in text


def test_a_paused_job_is_told_with_the_command_that_helps(played: str) -> None:
    say("pause", 2, "--reason", "film night")
    gate = say("explain", "job", 2, "--json").data["first_closed"]
    assert (gate["code"], gate["opens"]) == ("job_paused", "dalsegno resume 2")
    assert "film night" in gate["says"]
    say("resume", 2)
    assert say("explain", "job", 2, "--json").data["first_closed"]["code"] == "lane_turn"


def test_a_narrow_terminal_loses_nothing(played: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from rich.console import Console

    from dalsegno.cli import explain as module
    from dalsegno.insight.explain import explain_job
    from dalsegno.store.open import open_store

    store = open_store(played)
    found = store.read(lambda tx: explain_job(tx, 2))
    store.close()
    written = StringIO()
    module._show(Console(file=written, width=40, force_terminal=False), found)
    assert all(len(line) <= 40 for line in written.getvalue().splitlines())
    words = " ".join(written.getvalue().split())
    assert "It waits to be admitted, and no engine is at work on this database" in words
    assert "opens: dalsegno agent" in words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("job", 99), "There is no job 99."),
        (("stage", "2/sya"), 'There is no stage "sya" of job 2 (did you mean "say"?).'),
        (("service", "ecko"), 'There is no service "ecko" (did you mean "echo"?).'),
        (("node", "nowhere"), 'There is no node "nowhere"'),
        (("jobs", 1), 'There is nothing to explain about a "jobs". Did you mean "job"?'),
        (("item", "first"), 'An item is named by a number, not "first".'),
    ],
)
def test_what_is_not_there(played: str, words: tuple[object, ...], says: str) -> None:
    answer = say("explain", *words, fine=False)
    assert answer.code == 2
    assert says in answer.err
    assert says in say("explain", *words, "--json", fine=False).error["message"]
