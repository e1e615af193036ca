"""Something done to everything that a query finds: looked at first, followed, stopped, found again."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno import Store
from tests.cli.tool import STUDIO, environment, say
from tests.helpers import statuses_of, wait_until


@pytest.fixture
def played(here: str, folder: Path) -> str:
    """Two jobs with a good item and two bad ones each, run to their end."""
    (folder / "items.txt").write_text("one\nbad two\nbad three\n")
    for _ in range(2):
        assert say("run", "echoes", *STUDIO, "--items", "items.txt", "--fresh", "--json", fine=False).code == 3
    return here


@pytest.fixture
def store(played: str, stores: Callable[..., Store]) -> Store:
    return stores(played)


def test_it_says_what_it_would_do_and_does_nothing(store: Store) -> None:
    told = say("bulk", "retry", "service:echo", "--preview").out
    assert told.splitlines()[:2] == ["retry: 4 items", "  not 2: succeeded"]
    assert told.count("bad three") == 2
    seen = say("bulk", "retry", "-state:succeeded", "--job", 1, "--preview", "--json").data["preview"]
    assert (seen["eligible"], seen["more"], seen["query"]) == (2, False, "-state:succeeded job:1")
    asked = say("bulk", "retry", "state:failed", fine=False)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert statuses_of(store, 1) == {"succeeded": 1, "failed": 2}
    assert say("bulk", "list").out.startswith("No operations yet")


def test_where_no_engine_runs_it_is_done_here(store: Store) -> None:
    told = say("bulk", "retry", "state:failed key:*two", "--yes").out
    assert told.startswith("Operation 1 (retry, state:failed key:*two): done, 2 items changed.")
    assert 'dalsegno items -q "bulk:1 state:failed"' in told
    assert statuses_of(store, 1) == statuses_of(store, 2) == {"succeeded": 1, "failed": 1, "pending": 1}
    keys = [line["item"]["key"] for line in say("items", "-q", "bulk:1", "--json").data]
    assert keys == ["bad two", "bad two"]
    assert [line["job"]["id"] for line in say("jobs", "-q", "bulk:1", "--json").data] == [2, 1]
    none = say("bulk", "cancel", "state:failed", "--yes", "--json").data
    assert (none["operation"], none["preview"]["refused"]) == (None, {"failed": 2})


def test_items_are_skipped_and_jobs_put_first(store: Store) -> None:
    done = say("bulk", "skip", "state:failed", "--yes", "--json").data["operation"]
    assert (done["state"], done["done"], done["result"]) == ("done", 4, "bulk:1")
    assert statuses_of(store, 2) == {"succeeded": 1, "skipped": 2}
    assert say("jobs", "-q", "bulk:1 state:completed", "--json").data
    assert say("bulk", "force-retry", "key:one", "--job", 2, "--yes", "--json").data["operation"]["done"] == 1
    seen = say("bulk", "priority", "key:one", -3, "--preview").out
    assert seen.splitlines()[:2] == ["priority: 1 job", "  1 item of theirs wait"]
    moved = say("bulk", "priority", "key:one", -3, "--yes").out
    assert "1 job changed" in moved
    assert say("jobs", "-q", "bulk:3", "--json").data[0]["job"]["priority"] == -3


def test_operations_are_listed_shown_and_stopped(store: Store) -> None:
    say("bulk", "retry", "state:failed", "--yes")
    waits = say("bulk", "cancel", "state:pending", "--yes", "--no-wait", "--json").data["operation"]
    assert waits["state"] == "waiting"
    assert say("bulk", "stop", 2, "--json").data["state"] == "stopping"
    lines = say("bulk", "list", "--json").data["operations"]
    assert [(line["id"], line["verb"], line["state"]) for line in lines] == [
        (2, "cancel", "stopping"), (1, "retry", "done"),
    ]  # fmt: skip
    assert "state:failed" in say("bulk", "list").out
    assert say("bulk", "show", 1).out.startswith("Operation 1 (retry, state:failed): done, 4 items changed.")
    assert say("bulk", "stop", 1, fine=False).code == 2
    assert say("bulk", "show", 9, fine=False).code == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("retry", "sate:failed"), 'Did you mean "state"?'),
        (("priority", "state:failed", "soon"), "PRIORITY"),
        (("priority", "state:succeeded", 10**7, "--yes"), "whole number"),
        (("burn", ""), "burn"),
    ],
)
def test_what_makes_no_sense_is_refused(here: str, words: tuple[object, ...], says: str) -> None:
    refused = say("bulk", *words, "--json", fine=False)
    assert (refused.code, says in refused.error["message"]) == (2, True)


def test_ctrl_c_asks_whether_to_stop_it_or_leave_it(
    sqlite_url: str, folder: Path, stores: Callable[..., Store]
) -> None:
    (folder / "items.txt").write_text("bad one\nbad two\n")
    words = ("run", "echoes", *STUDIO, "--items", "items.txt", "--json", "--database", sqlite_url)
    assert say(*words, fine=False).code == 3
    store = stores(sqlite_url)
    release = store.hold_engine()  # an engine that has other things to do
    leader, follower = pty.openpty()
    said = b""

    def told(text: bytes) -> bool:
        nonlocal said
        said += os.read(leader, 4096)
        return text in said

    try:
        with subprocess.Popen(
            [sys.executable, "-m", "dalsegno", "bulk", "retry", "state:failed", "--database", sqlite_url],
            cwd=folder, env=environment(TERM="xterm", COLUMNS=120), stdin=follower, stdout=follower, stderr=follower,
        ) as running:  # fmt: skip
            os.close(follower)
            wait_until(lambda: told(b"Do it?"), "the question")
            os.write(leader, b"y\n")
            wait_until(lambda: told(b"waits for an engine"), "a bar")
            running.send_signal(signal.SIGINT)
            wait_until(lambda: told(b"go on watching"), "the question")
            os.write(leader, b"s\n")
            wait_until(lambda: told(b"stopping"), "the bar to say so")
            running.send_signal(signal.SIGINT)
            wait_until(lambda: said.count(b"go on watching") == 2 or told(b"\0"), "the question again")
            os.write(leader, b"l\n")
            wait_until(lambda: told(b"It goes on"), "what is left")
            assert running.wait(30) == 130
    finally:
        release()
        os.close(leader)
    assert say("bulk", "show", 1, "--json", "--database", sqlite_url).data["state"] == "stopping"
    assert statuses_of(store, 1) == {"failed": 2}
