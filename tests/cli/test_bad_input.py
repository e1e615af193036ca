"""Whatever people type or have lying around: one clear sentence, an exit code, nothing stored, no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.tool import STUDIO, say

STEP = {"key": "fetch", "service": "echo"}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a filesystem of a chosen size needs root")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{not json", "is not JSON"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "the workflow"),
        ("null", "the workflow"),
        ({"name": "x"}, "steps"),
        ({"name": "x", "steps": []}, "steps"),
        ({"name": "x", "steps": ["fetch"]}, "step"),
        ({"name": "x", "steps": [STEP, STEP]}, 'step "fetch" is defined 2 times'),
        ({"name": "x", "steps": [STEP], "version": 0}, "version"),
        ({"name": "x", "steps": [{**STEP, "depends_on": ["fetch"]}]}, "depends on itself"),
        ({"name": "x", "steps": [STEP, {"key": "b", "service": "s", "depends_on": ["fecth"]}]}, 'Did you mean "fetch"'),
        ({"name": "x", "steps": [{**STEP, "depends": []}]}, 'unknown key "depends"'),
        ({"name": "x", "steps": [{**STEP, "max_atempts": 2}]}, 'Did you mean "max_attempts"'),
        ({"name": "x", "stepz": [STEP], "steps": [STEP]}, 'Did you mean "steps"'),
        ({"name": "x", "steps": [STEP], "lane": {"max_activ": 1}}, 'Did you mean "max_active"'),
        (
            {
                "name": "x",
                "steps": [
                    {"key": "a", "service": "s", "depends_on": ["c"]},
                    {"key": "b", "service": "s", "depends_on": ["a"]},
                    {"key": "c", "service": "s", "depends_on": ["b"]},
                ],
            },
            "go in a circle: ",
        ),
    ],
)
def test_a_malformed_workflow_is_refused_and_nothing_is_stored(
    file_here: str, folder: Path, content: Any, says: str
) -> None:
    (folder / "x.json").write_text(content if isinstance(content, str) else json.dumps(content))
    answer = say("workflow", "apply", "x.json", fine=False)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert say("workflow", "apply", "x.json", "--json", fine=False).error["code"] == "workflow_invalid"
    assert {row["origin"] for row in say("workflow", "list", "--json").data} == {"module"}


def test_a_workflow_file_that_cannot_be_read_is_named(file_here: str, folder: Path) -> None:
    (folder / "x.json").write_bytes(b'{"name": "\xff"}')
    for file in ("x.json", "missing.json", "."):
        answer = say("workflow", "apply", file, fine=False)
        assert answer.code == 2
        assert f"{file} cannot be read" in answer.err


def test_unknown_services_are_refused_where_that_is_asked_for(file_here: str, folder: Path) -> None:
    (folder / "x.json").write_text(json.dumps({"name": "x", "steps": [{"key": "a", "service": "ecoh"}]}))
    for words in (("--check-services",), STUDIO):
        answer = say("workflow", "apply", "x.json", *words, fine=False)
        assert answer.code == 2
        assert 'unknown service "ecoh"' in answer.err
    assert 'Did you mean "echo"' in answer.err
    say("workflow", "apply", "x.json")
    ran = say("run", "x", *STUDIO, fine=False)
    assert ran.code == 2
    assert 'No service "ecoh" is registered here. Did you mean "echo"?' in ran.err
    assert say("jobs", "--json").data == []


def test_a_changed_workflow_needs_a_new_version(here: str, folder: Path) -> None:
    (folder / "x.json").write_text(json.dumps({"name": "x", "steps": [STEP]}))
    say("workflow", "apply", "x.json")
    (folder / "x.json").write_text(json.dumps({"name": "x", "steps": [{**STEP, "service": "other"}]}))
    answer = say("workflow", "apply", "x.json", fine=False)
    assert answer.code == 2
    assert "version" in answer.err
    assert say("workflow", "show", "x", "--json").data["steps"][0]["service"] == "echo"


def test_unknown_names_come_with_the_likely_one(here: str) -> None:
    for words, says in (
        (("run", "scael"), 'There is no workflow "scael". Did you mean "scale"?'),
        (("submit", "scael"), 'There is no workflow "scael". Did you mean "scale"?'),
        (("workflow", "show", "scael"), 'There is no workflow "scael". Did you mean "scale"?'),
        (("workflow", "show", "scale", "--version", 9), "There is no workflow"),
        (("jobs", "--status", "runing"), 'There is no job status "runing". Did you mean "running"?'),
        (("logs", "--level", "warning"), 'There is no level "warning". Did you mean "warn"?'),
        (("agent", "--level", "inof"), 'There is no level "inof". Did you mean "info"?'),
    ):
        answer = say(*words, fine=False)
        assert answer.code == 2, words
        assert says in answer.err, words
    say("submit", "scale")
    assert (
        'There is no item state "faild". Did you mean "failed"?' in say("items", 1, "--state", "faild", fine=False).err
    )
    assert 'Job 1 has no stage "rendr". Did you mean "render"?' in say("items", 1, "--stage", "rendr", fine=False).err
    assert "There is no item 99" in say("items", 1, "--after", 99, fine=False).err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("submit", "scale", "-p", "notes"), '--param takes key=value, not "notes"'),
        (("run", "scale", "-p", "=3"), '--param takes key=value, not "=3"'),
        (("resume", 1, "--set", "X"), '--set takes key=value, not "X"'),
        (("submit", "scale", "--at", "tomorrow"), '"tomorrow" is not a time'),
        (("submit", "scale", "--priority", 10**9), "priority must be a whole number"),
        (("submit", "scale", "--items", "missing.txt"), "missing.txt cannot be read"),
        (("submit", "scale", "--items", "empty.txt"), "empty.txt holds no items"),
        (("submit", "scale", "--items", "broken.txt"), "broken.txt, line 2: not JSON"),
        (("submit", "scale", "--items", "twice.txt"), "one"),
        (("submit", "scale", "--items", "keyless.txt"), "key"),
        (("run", "scale", "--services", "no.such.module"), 'there is no module "no" here'),
        (("run", "scale", "--services", "explodes"), "ZeroDivisionError: division by zero"),
        (("run", "scale", "--services", "garbled"), "SyntaxError"),
        (("agent", "--no-builtin"), "No services to offer"),
        (("jobs", "--limit", 0), "greater than or equal to 1"),
        (("job", "one"), "one"),
        (("job",), "JOB"),
        (("pause", 1, "--wait", -1), "greater than or equal to 0"),
        (("nonsense",), "nonsense"),
        (("jobs", "--nonsense"), "nonsense"),
        (("bench", "engine"), "--database"),
        (("bench", "engine", "--database", "sqlite:///x.db", "--items", 0), "greater than or equal to 1"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as json"])
def test_bad_input_is_explained(
    file_here: str, folder: Path, words: tuple[object, ...], says: str, as_json: bool
) -> None:
    (folder / "empty.txt").write_text("\n\n")
    (folder / "broken.txt").write_text('one\n{"key": \n')
    (folder / "twice.txt").write_text("one\none\n")
    (folder / "keyless.txt").write_text('{"params": {}}\n')
    (folder / "explodes.py").write_text("1 / 0\n")
    (folder / "garbled.py").write_text("def\n")
    answer = say(*words, *(("--json",) if as_json else ()), fine=False)
    assert (answer.code, answer.out) == (2, "")
    assert says in (answer.error["message"] if as_json else answer.err)
    assert say("jobs", "--json").data == []


def test_too_large_a_payload_is_refused_with_the_limit(here: str, folder: Path) -> None:
    (folder / "items.txt").write_text(json.dumps({"key": "big", "params": {"x": "y" * 1_000_001}}))
    for words in (("--items", "items.txt"), ("-p", "x=" + "y" * 1_000_001)):
        answer = say("submit", "echoes", *STUDIO, *words, "--json", fine=False)
        assert answer.code == 2
        assert answer.error["code"] == "payload_too_large"
        assert "the limit is 1,000,000" in answer.error["message"]
    assert say("jobs", "--json").data == []


def test_parameters_a_service_cannot_plan_with_fail_the_job_with_the_reason(here: str) -> None:
    answer = say("run", "scale", "-p", "notes=900", fine=False)
    assert answer.code == 4
    assert "notes must be a whole number from 1 to 61, not 900" in answer.out


# --- the database -------------------------------------------------------------------------------


def refused(url: str, code: int, *says: str) -> None:
    """Whoever comes with this URL gets this answer."""
    for words in (("jobs",), ("run", "scale"), ("submit", "scale"), ("pause", 1), ("config", "check"), ("agent",)):
        answer = say(*words, "--database", url, fine=False)
        assert answer.code == code, (words, answer)
        assert answer.out == ""
        for text in says:
            assert text in answer.err, words
        assert "hunter2" not in answer.err
    assert say("jobs", "--database", url, "--json", fine=False).error["code"].startswith(("database_", "schema_"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://root:hunter2@host/db", "mysql"),
        ("not a url", "not a URL"),
        ("sqlite://", "names no file"),
        pytest.param(
            "postgresql://user:hunter2@host:port/db",
            "sqlite:///path",
        ),
    ],
)
def test_a_url_that_cannot_be_used_is_bad_input(url: str, says: str) -> None:
    refused(url, 2, says, "postgresql://user:password@host")


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    refused("postgresql://someone:hunter2@127.0.0.1:1/nowhere", 7, "does not answer", "DATABASE_URL")


def test_a_corrupt_file_is_unavailable_and_left_alone(folder: Path) -> None:
    content = b"SQLite format 3\x00" + b"\xff" * 5000
    (folder / "x.db").write_bytes(content)
    refused("sqlite:///x.db", 7, "not a healthy SQLite database", ".recover")
    assert (folder / "x.db").read_bytes() == content


def test_a_newer_schema_is_refused_and_left_alone(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        import sqlite3

        connection: Any = sqlite3.connect(database_url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(database_url)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    refused(database_url, 7, "schema 9999", "Nothing was changed")
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)
    connection.close()


@pytest.fixture
def read_only(folder: Path, sqlite_template: Path) -> Iterator[Path]:
    """A disk that cannot be written to, with a database on it."""
    point = folder / "disk"
    point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(point)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount")
    try:
        shutil.copy(sqlite_template, point / "x.db")
        subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


@as_root
def test_a_read_only_disk_is_refused_with_what_to_do(read_only: Path) -> None:
    refused(f"sqlite:///{read_only}/x.db", 7, "write access")


@as_root
def test_a_library_that_cannot_be_written_is_found_by_the_check_and_fails_the_job(
    read_only: Path, file_here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBRARY_ROOT", str(read_only / "library"))
    answer = say("config", "check", fine=False)
    assert answer.code == 2
    assert f"LIBRARY_ROOT: {read_only} cannot be written to by this user" in answer.err
    ran = say("run", "scale", "-p", "notes=1", "-p", "seconds=0.01", "-p", "pace=0", fine=False)
    assert ran.code == 3
    failed = say("items", 1, "--state", "failed", "--stage", "render", "--json").data[0]
    assert failed["item"]["error_code"] == "not_writable"
    assert "cannot be written: Read-only file system" in failed["item"]["error_message"]


def test_a_folder_in_place_of_the_file_is_bad_input(folder: Path) -> None:
    refused(f"sqlite:///{folder}", 2, "it is a folder")


# --- what nobody foresaw ------------------------------------------------------------------------


@pytest.fixture
def broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("the unforeseen")

    monkeypatch.setattr("dalsegno.insight.jobs.list_jobs", explode)


def test_an_unexpected_error_is_one_message_and_a_file_for_the_report(file_here: str, broken: None) -> None:
    answer = say("jobs", fine=False)
    assert answer.code == 1
    assert "Something unexpected went wrong (RuntimeError: the unforeseen)" in answer.err
    error = say("jobs", "--json", fine=False).error
    assert error["code"] == "unexpected"
    kept = Path(error["details"]["log"])
    assert "Traceback" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0, "only its user may read it"


def test_debug_shows_the_traceback(file_here: str, broken: None) -> None:
    with pytest.raises(AssertionError, match="Traceback"):
        say("jobs", "--debug", fine=False)
