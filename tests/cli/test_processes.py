"""Real processes: exit codes, signals, kills, terminals, and two at once on one database."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import wave
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno import Store
from tests.cli.tool import STUDIO, Process, environment, say
from tests.helpers import assert_sound, events_of, items_of, statuses_of, wait_until

Start = Callable[..., Process]


def rendered(folder: Path) -> list[Path]:
    return sorted((folder / "library/scale").glob("*.wav"))


def begun(folder: Path, name: str) -> None:
    wait_until((folder / f"gate.{name}").exists, f"{name} to begin")


def given_back(url: str) -> None:
    """Until a process that stops has returned what it had prefetched."""
    words = ("events", "--json", "--limit", 100, "--database", url)
    wait_until(lambda: "item_returned" in {line["type"] for line in say(*words).lines}, "the prefetched to return")


def test_run_scale_makes_real_files(database_url: str, folder: Path, process: Start) -> None:
    answer = process(
        "run", "scale", "-p", "notes=4", "-p", "seconds=0.1", "-p", "pace=0", DATABASE_URL=database_url
    ).end()  # fmt: skip
    assert (answer.code, answer.out) == (0, "Job 1 completed\n")
    assert [path.name for path in rendered(folder)] == ["01-C3.wav", "02-Cs3.wav", "03-D3.wav", "04-Ds3.wav"]
    for path in rendered(folder):
        with wave.open(str(path)) as file:
            assert (file.getnframes(), file.getframerate(), file.getnchannels()) == (2205, 22_050, 1)
    playlist = (folder / "library/scale/scale.m3u8").read_text().splitlines()
    assert playlist[0] == "#EXTM3U"
    assert [line for line in playlist if not line.startswith("#")] == [path.name for path in rendered(folder)]
    assert list((folder / "library").rglob("*.part")) == []


def test_killed_in_the_middle_the_next_run_goes_on_and_nothing_is_done_twice(
    database_url: str, folder: Path, process: Start, stores: Callable[..., Store]
) -> None:
    words = ("run", "scale", "-p", "notes=8", "-p", "seconds=0.05", "-p", "pace=0.4", "--json")
    first = process(*words, DATABASE_URL=database_url)
    store = stores(database_url)
    # A process that died keeps its leases on PostgreSQL until they end; here the next run need not wait so long.
    wait_until(lambda: statuses_of(store, 1, "render")["succeeded"] >= 2, "two notes to be rendered")
    first.kill()
    done = {item["id"] for item in items_of(store, 1) if item["status"] == "succeeded"}
    assert 0 < len(done) < 17
    if not database_url.startswith("sqlite"):
        expire_leases(store)
    again = process(*words, DATABASE_URL=database_url).end()
    assert again.code == 0
    assert "Job 1: scale, continued from the mark" in again.err
    assert json.loads(again.out)["job"]["status"] == "completed"
    ended = Counter(
        event["item_id"] for event in events_of(store) if event["type"] in {"item_succeeded", "item_skipped"}
    )
    assert len(ended) == 17
    assert set(ended.values()) == {1}, "each item ended well exactly once"
    assert all(item["attempt"] == 0 for item in items_of(store, 1)), "a kill costs no attempt"
    assert_sound(store, 1)
    assert len(rendered(folder)) == 8


def expire_leases(store: Store) -> None:
    """As if the time of the dead process's lease were over."""
    import sqlalchemy as sa

    from dalsegno.store.schema import processes

    past = sa.text("now() - interval '1 hour'")
    store.write("test", lambda tx: tx.conn.execute(sa.update(processes).values(lease_until=past)) and None)


def test_a_second_run_hands_its_job_to_the_engine_that_runs(sqlite_url: str, folder: Path, process: Start) -> None:
    (folder / "one.txt").write_text("one\n")
    (folder / "two.txt").write_text("two\n")
    words = ("run", "gated", *STUDIO, "-p", f"gate={folder}/gate")
    first = process(*words, "--items", "one.txt", DATABASE_URL=sqlite_url)
    begun(folder, "one")
    second = process(*words, "--items", "two.txt", DATABASE_URL=sqlite_url)
    second.wait_for(f"Handed to the engine that runs already (process {first.process.pid}).")
    refusal = process("agent", DATABASE_URL=sqlite_url).end()
    assert refusal.code == 7
    assert "Another engine" in refusal.err
    (folder / "gate").touch()
    assert first.end().code == 0
    assert second.end().code == 0, "done by the first, or taken over once that one had ended"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_what_runs_finish_and_the_next_run_goes_on(
    sqlite_url: str, folder: Path, process: Start, number: int, code: int
) -> None:
    (folder / "items.txt").write_text("one\ntwo\n")
    words = ("run", "gated", *STUDIO, "-p", f"gate={folder}/gate", "--items", "items.txt")
    running = process(*words, DATABASE_URL=sqlite_url)
    begun(folder, "one")
    running.signal(number)
    running.wait_for("Stopping; what runs may finish")
    given_back(sqlite_url)
    (folder / "gate").touch()
    answer = running.end()
    assert answer.code == code
    assert "run the same command to go on from the mark" in answer.out
    states = [line["item"]["status"] for line in say("items", 1, "--json", "--database", sqlite_url).data]
    assert states == ["succeeded", "pending"]
    assert say(*words, "--database", sqlite_url).out == "Job 1 completed\n"


def test_a_second_signal_leaves_at_once_and_loses_nothing(sqlite_url: str, folder: Path, process: Start) -> None:
    (folder / "items.txt").write_text("one\n")
    words = ("run", "gated", *STUDIO, "-p", f"gate={folder}/gate", "--items", "items.txt")
    running = process(*words, DATABASE_URL=sqlite_url)
    begun(folder, "one")
    running.signal(signal.SIGTERM)
    running.wait_for("Stopping; what runs may finish")
    running.signal(signal.SIGTERM)
    answer = running.end()
    assert answer.code == 143
    assert "Leaving at once. The next start continues from the mark." in answer.err
    (folder / "gate").touch()
    assert say(*words, "--database", sqlite_url).out == "Job 1 completed\n"


def test_each_end_of_a_job_has_its_exit_code(sqlite_url: str, folder: Path, process: Start) -> None:
    (folder / "bad.txt").write_text("bad\n")
    (folder / "one.txt").write_text("one\n")
    running = process(
        "run", "gated", *STUDIO, "-p", f"gate={folder}/gate", "--items", "one.txt", "--json", DATABASE_URL=sqlite_url
    )  # fmt: skip
    begun(folder, "one")
    say("cancel", 1, "--database", sqlite_url)
    canceled = running.end()
    assert (canceled.code, canceled.data["exit_code"], canceled.data["job"]["status"]) == (5, 5, "canceled")

    for workflow, code, text in (("echoes", 3, "completed with errors"), ("strict", 4, "failed")):
        answer = say("run", workflow, *STUDIO, "--items", "bad.txt", "--database", sqlite_url, fine=False)
        assert answer.code == code
        assert f"{text}: 1 item failed" in answer.out


def test_a_paused_job_ends_the_run_and_the_next_run_resumes_it(database_url: str, folder: Path, process: Start) -> None:
    (folder / "items.txt").write_text("one\ntwo\n")
    words = ("run", "careful", *STUDIO, "-p", f"gate={folder}/gate", "--items", "items.txt")
    running = process(*words, DATABASE_URL=database_url)
    begun(folder, "one")
    say("pause", 1, "--reason", "film night", "--database", database_url)
    (folder / "gate").touch()
    answer = running.end()
    assert answer.code == 6
    assert "film night" in answer.out
    assert "Run the same command to go on." in answer.out
    assert say(*words, "--database", database_url).out == "Job 1 completed\n"


def test_a_lane_that_pauses_after_a_crash_is_resumed_by_running_again(
    sqlite_url: str, folder: Path, process: Start
) -> None:
    (folder / "items.txt").write_text("one\ntwo\n")
    words = ("run", "careful", *STUDIO, "-p", f"gate={folder}/gate", "--items", "items.txt")
    running = process(*words, DATABASE_URL=sqlite_url)
    begun(folder, "one")
    running.kill()
    (folder / "gate").touch()
    assert say(*words, "--database", sqlite_url).out == "Job 1 completed\n"


def test_after_a_kill_commands_are_applied_although_items_were_under_lease(
    sqlite_url: str, folder: Path, process: Start
) -> None:
    (folder / "items.txt").write_text("one\ntwo\n")
    words = ("run", "gated", *STUDIO, "-p", f"gate={folder}/gate", "--items", "items.txt")
    running = process(*words, DATABASE_URL=sqlite_url)
    begun(folder, "one")
    running.kill()
    say("cancel", 1, "--database", sqlite_url)
    assert say("job", 1, "--json", "--database", sqlite_url).data["job"]["job"]["status"] == "canceled"


def test_an_agent_logs_json_works_and_drains_on_sigterm(
    database_url: str, folder: Path, process: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    agent = process("agent", *STUDIO, DATABASE_URL=database_url)
    agent.wait_for("at work on")
    (folder / "items.txt").write_text("one\ntwo\n")
    say("submit", "gated", *STUDIO, "-p", f"gate={folder}/gate", "--items", "items.txt")
    begun(folder, "one")
    follower = process("events", "--follow", "--json", "--job", 1, DATABASE_URL=database_url)
    follower.wait_for("item_started")
    agent.signal(signal.SIGTERM)
    agent.wait_for("stopping; running items may finish")
    given_back(database_url)
    (folder / "gate").touch()
    answer = agent.end()
    assert answer.code == 0
    assert answer.err == ""
    assert all({"at", "level", "message"} <= line.keys() for line in answer.lines), answer.lines[0]
    assert answer.lines[-1]["message"] == "stopped"
    states = [line["item"]["status"] for line in say("items", 1, "--json").data]
    assert states == ["succeeded", "pending"]
    assert "Nobody is at work" in say("workers").out

    follower.wait_for("item_succeeded")
    follower.signal(signal.SIGINT)
    assert follower.end().code == 130
    seen = [json.loads(line)["id"] for line in follower.out.splitlines()]
    kept = [line["id"] for line in say("events", "--job", 1, "--json", "--limit", 1000).lines]
    assert seen == kept[: len(seen)], "followed in order, none missed, none twice"
    assert len(seen) >= len(kept) - 1


def test_a_reader_who_has_seen_enough_is_no_error(sqlite_url: str, folder: Path) -> None:
    for number in range(3):
        say("submit", "echoes", *STUDIO, "--dedupe", number, "--database", sqlite_url)
    with subprocess.Popen(
        [sys.executable, "-m", "dalsegno", "events", "--database", sqlite_url],
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.wait(30) == 0
        assert running.stderr.read() == b""


def test_on_a_terminal_progress_is_drawn_in_bars(sqlite_url: str, folder: Path) -> None:
    leader, follower = pty.openpty()
    words = ("run", "scale", "-p", "notes=2", "-p", "seconds=0.05", "-p", "pace=0", "--database", sqlite_url)
    with subprocess.Popen(
        [sys.executable, "-m", "dalsegno", *words],
        cwd=folder, env=environment(TERM="xterm", COLUMNS=120), stdin=follower, stdout=follower, stderr=follower,
    ) as running:  # fmt: skip
        os.close(follower)
        said = b""
        while True:
            try:
                some = os.read(leader, 4096)
            except OSError:  # the other side is gone
                break
            if not some:
                break
            said += some
        assert running.wait(30) == 0
    os.close(leader)
    text = said.decode()
    assert "━" in text
    assert "2/2" in text
    assert "Job 1 completed" in text
    assert "Traceback" not in text
