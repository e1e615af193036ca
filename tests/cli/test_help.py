"""Help is there for every command, names every option, and loads no database driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from dalsegno.cli.app import app
from tests.cli.tool import environment, say


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


EVERY = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: " ".join(path) or "dalsegno")
def test_help_names_every_option(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    text = say(*path, "--help").out
    assert "Usage:" in text
    for parameter in EVERY[path].params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("-"):
                assert name in text, name
        assert getattr(parameter, "help", None) or parameter.name == "help", f"{parameter.name} is not explained"
    for name, child in getattr(EVERY[path], "commands", {}).items():
        assert name in text
        assert child.help, f"{name} is not explained"


def test_the_commands_are_those_that_are_documented() -> None:
    assert {" ".join(path) for path, command in EVERY.items() if not hasattr(command, "commands")} == {
        "run", "collect", "sync", "download", "upload", "pools", "playlists", "songs",
        "song", "serve", "demo", "agent",
        "submit", "jobs", "job", "items", "item", "pause", "resume", "holds", "cancel", "priority",
        "retry", "force-retry", "explain", "events", "logs", "workers", "migrate", "version", "workflow apply",
        "workflow list", "workflow show", "config show", "config check", "config revisions",
        "config diff", "config apply", "config edit", "config hash-password", "config token",
        "bench engine", "bench claim",
        "bench limits", "bench pools",
        "schedules", "schedule add", "schedule show", "schedule set", "schedule pause", "schedule resume",
        "schedule run", "schedule remove", "schedule preview",
        "bulk retry", "bulk force-retry", "bulk skip", "bulk cancel", "bulk priority", "bulk list",
        "bulk show", "bulk stop",
        "backup", "restore", "check", "doctor", "prune", "archive list", "archive restore",
        "limits", "limit", "breakers", "breaker show", "breaker trip", "breaker probe", "breaker reset", "settings",
    }  # fmt: skip


def test_exit_codes_are_part_of_the_help() -> None:
    text = " ".join(say("--help").out.split())
    for code in ("0 done", "2 bad usage or input", "3 completed with errors", "4 failed", "5 canceled", "6 paused"):
        assert code in text


def test_without_a_command_the_help_is_shown() -> None:
    answer = say(fine=False)
    assert answer.code == 2
    assert "Usage:" in answer.out + answer.err


def test_help_loads_no_database_driver() -> None:
    program = (
        "import sys; sys.argv = ['dalsegno', 'run', '--help']\n"
        "from dalsegno.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'sqlalchemy', 'psycopg', 'sqlite3'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
