"""Commands that look: valid JSON with keys that stay, and words for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dalsegno.catalog.templates import TEMPLATES
from tests.cli.tool import STUDIO, say


@pytest.fixture
def played(here: str, folder: Path) -> str:
    """A job with two good items and a bad one, run to its end."""
    (folder / "items.txt").write_text('one\n{"key": "two", "params": {"n": 2}}\n\nbad [red]one\n')
    answer = say("run", "echoes", *STUDIO, "--items", "items.txt", "--json", fine=False)
    assert answer.code == 3
    return here


def test_run_answers_with_the_job_and_the_exit_code(here: str, folder: Path) -> None:
    (folder / "items.txt").write_text("one\ntwo\n")
    answer = say("run", "echoes", *STUDIO, "--items", "items.txt", "--json").data
    assert answer.keys() == {"job", "exit_code"}
    assert answer["exit_code"] == 0
    assert answer["job"].keys() == {"job_id", "status", "reason", "fraction", "stages", "cause"}
    assert answer["job"]["status"] == "completed"
    assert answer["job"]["stages"][0].keys() == {
        "key", "service", "status", "done", "expected", "failed", "fraction", "rate", "seconds_left", "last_error",
    }  # fmt: skip


def test_run_tells_a_person_how_it_ended(played: str, folder: Path) -> None:
    answer = say("run", "echoes", *STUDIO, "--items", "items.txt", "--fresh", fine=False)
    assert answer.code == 3
    assert answer.out == "Job 2 completed with errors: 1 item failed. See: dalsegno items 2 --state failed\n"
    assert "say: completed 3/3" in answer.err
    (folder / "good.txt").write_text("one\n")
    assert say("run", "echoes", *STUDIO, "--items", "good.txt").out == "Job 3 completed\n"


def test_jobs_are_listed_newest_first(played: str) -> None:
    say("submit", "echoes", *STUDIO, "--priority", 7)
    lines = say("jobs", "--json").data
    assert [line["job"]["id"] for line in lines] == [2, 1]
    assert lines[0].keys() == {"job", "workflow", "version", "counts"}
    assert lines[0]["job"]["priority"] == 7
    assert lines[1]["workflow"] == "echoes"
    assert (lines[1]["counts"]["total"], lines[1]["counts"]["succeeded"], lines[1]["counts"]["failed"]) == (3, 2, 1)
    table = say("jobs").out
    assert "completed_with_errors" in table
    assert "3/3" in table
    assert table.index("queued") < table.index("completed_with_errors")


def test_jobs_are_filtered_and_paged(played: str) -> None:
    for _ in range(3):
        say("submit", "echoes", *STUDIO)

    def ids(*words: object) -> list[int]:
        return [line["job"]["id"] for line in say("jobs", "--json", *words).data]

    assert ids("--status", "queued") == [4, 3, 2]
    assert ids("--status", "queued,completed_with_errors", "--limit", 2, "--before", 3) == [2, 1]
    assert ids("--workflow", "echoes", "--lane", "default") == [4, 3, 2, 1]
    assert ids("--workflow", "other") == ids("--lane", "other") == []
    assert "More: dalsegno jobs --before 3" in say("jobs", "--limit", 2).out
    assert "No jobs" in say("jobs", "--lane", "other").out


def test_a_job_is_shown_with_its_stages_and_what_was_asked_of_it(played: str) -> None:
    say("priority", 1, 5, fine=False)
    answer = say("job", 1, "--json").data
    assert answer.keys() == {"job", "progress", "commands"}
    assert answer["job"].keys() == {"job", "workflow", "version", "lane", "stages", "holds"}
    assert answer["job"]["stages"][0]["failed"] == 1
    assert [(each["type"], each["status"]) for each in answer["commands"]] == [("set_priority", "rejected")]
    text = say("job", 1).out
    assert "Job 1: echoes version 1, completed_with_errors, 100%" in text
    assert "bad [red]one is a bad one" in text, "what others wrote is no markup"


def test_a_queued_job_says_what_it_waits_for(here: str) -> None:
    say("submit", "echoes", *STUDIO, "--at", "2999-01-01T00:00+00:00")
    assert "scheduled for 2999-01-01 00:00:00 UTC" in say("job", 1).out
    assert say("job", 1, "--json").data["progress"]["reason"].startswith("scheduled for 2999")


def test_items_are_listed_filtered_and_paged(played: str) -> None:
    lines = say("items", 1, "--json").data
    assert [line["item"]["key"] for line in lines] == ["one", "two", "bad [red]one"]
    assert lines[0].keys() == {"item", "service", "stage"}
    assert {"id", "key", "status", "attempt", "params", "result", "error_code"} <= lines[0]["item"].keys()
    assert lines[1]["item"]["params"] == lines[1]["item"]["result"] == {"n": 2}
    failed = say("items", 1, "--state", "failed,interrupted", "--json").data
    assert [line["item"]["error_code"] for line in failed] == ["bad_key"]
    first = say("items", 1, "--limit", 2, "--json").data
    rest = say("items", 1, "--after", first[-1]["item"]["id"], "--stage", "say", "--json").data
    assert [line["item"]["key"] for line in first + rest] == ["one", "two", "bad [red]one"]
    text = say("items", 1).out
    assert "bad [red]one is a bad one" in text
    assert "More: --after" in say("items", 1, "--limit", 1).out
    assert say("items", 1, "--state", "canceled").out == "No such items.\n"


def test_an_item_is_shown_with_all_that_happened_to_it(played: str) -> None:
    answer = say("item", 2, "--json").data
    assert answer.keys() == {"item", "stage", "lease", "parent", "artifacts", "events"}
    assert [event["type"] for event in answer["events"]] == ["item_claimed", "item_started", "item_succeeded"]
    text = say("item", 2).out
    assert text.startswith("Item 2: two, stage say of job 1, succeeded")
    assert "item_succeeded" in text
    assert "bad_key: bad [red]one is a bad one" in say("item", 3).out


def test_events_are_one_document_a_line(played: str) -> None:
    lines = say("events", "--json", "--limit", 1000).lines
    assert {"id", "at", "type", "level", "source", "job_id", "stage_id", "item_id", "message", "data"} <= (
        lines[0].keys()
    )
    types = [line["type"] for line in lines]
    assert types[0] == "job_submitted"
    assert "job_completed_with_errors" in types
    assert types.count("item_succeeded") == 2
    mine = say("events", "--job", 1, "--item", 2, "--json").lines
    assert [line["type"] for line in mine] == ["item_claimed", "item_started", "item_succeeded"]
    assert len(say("events", "--limit", 3).out.splitlines()) == 3
    assert say("events", "--job", 99).out == ""


def test_logs_are_shown_by_item_and_level(played: str) -> None:
    lines = say("logs", "--json", "--job", 1).lines
    assert {line["message"] for line in lines} >= {"hello from one", "hello from two"}
    assert {"id", "at", "level", "logger", "message", "job_id", "item_id", "worker"} <= lines[0].keys()
    assert "hello from two" in say("logs", "--item", 2).out
    assert [line for line in say("logs", "--level", "error", "--json").lines if line["level"] != "error"] == []


def test_nobody_at_work_is_said(here: str) -> None:
    assert "Nobody is at work. Start an engine: dalsegno agent" in say("workers").out
    assert say("workers", "--json").data.keys() == {"processes", "nodes", "transfers"}


def test_workflows_are_stored_listed_and_shown(here: str, folder: Path) -> None:
    album = {"name": "album", "steps": [{"key": "fetch", "service": "echo"}]}
    (folder / "album.json").write_text(json.dumps(album))
    stored = say("workflow", "apply", "album.json", "--json").data
    assert stored == {"id": stored["id"], "name": "album", "version": 1, "created": True}
    assert say("workflow", "apply", "album.json").out == "album version 1: unchanged.\n"
    (folder / "album.json").write_text(json.dumps({**album, "version": 2}))
    assert say("workflow", "apply", "album.json").out == "album version 2: stored.\n"

    rows = say("workflow", "list", "--json").data
    assert all(row.keys() == {"name", "version", "origin", "active", "steps"} for row in rows)
    assert [(row["name"], row["version"], row["origin"]) for row in rows][:3] == [
        ("album", 2, "stored"), ("album", 1, "stored"), ("full", 1, "module"),
    ]  # fmt: skip
    assert {row["name"] for row in rows[2:]} == {"scale", *TEMPLATES}
    assert "render → verify → bind" in say("workflow", "list").out

    assert say("workflow", "show", "album", "--json").data["version"] == 2
    shown = say("workflow", "show", "album", "--version", 1).data
    assert shown["steps"][0]["service"] == "echo"
    (folder / "again.json").write_text(json.dumps({**shown, "name": "again"}))
    assert say("workflow", "apply", "again.json", "--json").data["created"], "what show prints, apply reads"
    assert say("workflow", "show", "scale", "--json").data["name"] == "scale"


def test_submit_answers_with_the_job_and_knows_its_twin(here: str) -> None:
    first = say("submit", "echoes", *STUDIO, "--dedupe", "nightly", "--requested-by", "desk", "--json")
    assert first.data == {"job_id": 1, "created": True}
    assert "No engine is at work" in first.err
    assert say("submit", "echoes", *STUDIO, "--dedupe", "nightly", "--json").data == {"job_id": 1, "created": False}
    assert say("submit", "echoes", *STUDIO, "--dedupe", "nightly").out == "Job 1 (it was there already)\n"
    assert say("job", 1, "--json").data["job"]["job"]["requested_by"] == "desk"


def test_parameters_are_json_where_they_read_as_json(here: str) -> None:
    say("submit", "echoes", *STUDIO, "-p", "notes=12", "-p", "name=do re", "-p", 'list=["a"]', "-p", "url=a=b")
    options = say("job", 1, "--json").data["job"]["job"]["options"]
    assert options["params"] == {"notes": 12, "name": "do re", "list": ["a"], "url": "a=b"}


def test_migrate_and_version_say_the_schema(empty_database_url: str) -> None:
    answer = say("migrate", "--database", empty_database_url, "--json").data
    assert answer.keys() == {"database", "revision"}
    assert say("migrate", "--database", empty_database_url).out.endswith(f"has schema {answer['revision']}.\n")
    version = say("version", "--json").data
    assert version.keys() == {"dalsegno", "schema", "python", "sqlite", "sqlalchemy", "psycopg"}
    assert version["schema"] == answer["revision"]
    assert version["dalsegno"] in say("version").out


def test_common_options_may_stand_before_the_command_too(sqlite_url: str) -> None:
    assert say("--database", sqlite_url, "--json", "jobs").data == []
    assert say("--json", "jobs", "--database", sqlite_url).data == []


@pytest.mark.parametrize("kind", ["engine", "claim"])
def test_bench_prints_the_documented_figures(
    kind: str, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dalsegno.bench import claim, engine

    monkeypatch.setattr(engine, "PICKUPS", 5)
    monkeypatch.setattr(claim, "ROUNDS", 10)
    if kind == "engine":
        figures = say("bench", "engine", "--items", 200, "--database", empty_database_url, "--json").data
        assert figures.keys() == {"enqueue_per_s", "drain_per_s", "pickup_ms"}
        assert figures["pickup_ms"].keys() == {"p50", "p99"}
        assert min(figures["enqueue_per_s"], figures["drain_per_s"], figures["pickup_ms"]["p50"]) > 0
    else:
        figures = say("bench", "claim", "--pending", 2000, "--database", empty_database_url, "--json").data
        assert {"claim_ms"} <= figures.keys()
        assert figures["claim_ms"].keys() == {"1000", "2000"}
        assert all(spent > 0 for spent in figures["claim_ms"].values())


def test_bench_speaks_to_people_too(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dalsegno.bench import engine

    monkeypatch.setattr(engine, "PICKUPS", 2)
    text = say("bench", "engine", "--items", 20, "--workers", 2, "--database", sqlite_url).out
    assert [line.split()[0] for line in text.splitlines()] == ["enqueue", "drain", "pickup"]
