"""`dalsegno prune` and `dalsegno archive`: what would go and why, what went, and what comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from dalsegno import Store, open_store
from dalsegno.clock import ManualClock
from dalsegno.store.schema import events, items, jobs, processes, prunings, stages
from tests.cli.tool import say
from tests.engine.test_pruner import done, there
from tests.helpers import every

LONG_AGO = timedelta(days=200)


@pytest.fixture
def old(here: str) -> Store:
    """Jobs of long ago: one that is done, one with something to retry, one larger than a step; and a new one."""
    past = open_store(here, ManualClock(datetime.now(UTC) - LONG_AGO))
    try:
        for count, last in ((3, None), (2, "failed"), (2500, None)):
            done(past, count, last=last)
    finally:
        past.close()
    store = open_store(here)
    done(store)
    store.write("test", lambda tx: tx.conn.execute(sa.delete(processes)))  # nobody waits a minute for those to be dead
    store.close()
    return open_store(here)


def test_a_dry_run_says_what_would_go_and_why_and_changes_nothing(here: str, old: Store) -> None:
    before = there(old)
    answer = say("prune", "--dry-run").out
    assert (
        "default: 2 jobs with 2,503 items, finished more than 90 days ago, with nothing to retry (job 1, job 3)"
        in answer
    )
    assert "default: 1 jobs with 2 items, items of them failed and could be retried (job 2)" in answer
    told = say("prune", "--dry-run", "--json").data
    assert [(each["lane"], each["what"], each["count"], each["items"]) for each in told["goes"]][:1] == [
        ("default", "jobs", 2, 2503)
    ]
    assert there(old) == before
    old.close()


def test_prune_takes_what_the_settings_say(here: str, old: Store, folder: Path) -> None:
    (folder / "dalsegno.env").write_text("RETENTION_LANE_DEFAULT_FAILED_DAYS=100\nRETENTION_EVENTS_DAYS=0\n")
    answer = say("prune", "--json").data
    assert answer["removed"] == {"jobs": 3, "items": 2505}
    assert there(old) == [4]
    assert say("prune").out == "Removed: nothing.\n"
    old.close()


def test_a_job_that_was_kept_for_its_failures_goes_once_they_are_skipped(here: str, old: Store) -> None:
    say("prune")
    assert there(old) == [2, 4]
    say("bulk", "skip", "state:failed", "--yes")
    (goes,) = [each for each in say("prune", "--dry-run", "--json").data["goes"] if each["what"] == "jobs"]
    assert goes["names"] == ["job 2"]
    assert say("prune", "--json").data["removed"]["jobs"] == 1
    assert there(old) == [4]
    old.close()


def test_what_a_lane_keeps_shorter_is_in_the_dry_run_as_it_goes(here: str, folder: Path) -> None:
    past = open_store(here, ManualClock(datetime.now(UTC) - timedelta(days=20)))
    for lane, count in (("brief", 30), ("brief", 2), ("long", 3)):
        done(past, count, lane=lane)
    past.close()
    store = open_store(here)
    done(store)
    store.close()
    (folder / "dalsegno.env").write_text("RETENTION_LANE_BRIEF_EVENTS_DAYS=7\n")
    goes = {(each["lane"], each["what"]): each["count"] for each in say("prune", "--dry-run", "--json").data["goes"]}
    assert goes.keys() == {("brief", "events")}
    assert say("prune", "--json").data["removed"] == {"events": goes["brief", "events"]}
    assert say("prune", "--dry-run").out == "Nothing would go.\n"


def test_a_kill_in_the_middle_leaves_whole_jobs_and_the_next_goes_on(here: str, old: Store) -> None:
    command = [sys.executable, "-m", "dalsegno", "prune"]
    died = subprocess.run(
        command, env={**os.environ, "DALSEGNO_FAULT": "prune.commit.after:2"}, timeout=60, check=False
    )
    assert died.returncode == -9
    assert [row["job_id"] for row in every(old, sa.select(prunings))] == [3]
    left = every(old, sa.select(stages.c.job_id, stages.c.total))
    for stage in left:
        count = sa.select(sa.func.count().label("n")).where(items.c.job_id == stage["job_id"])
        assert every(old, count)[0]["n"] == stage["total"] or stage["job_id"] == 3
    say("prune")
    assert there(old) == [2, 4]
    assert every(old, sa.select(prunings)) == []
    orphans = sa.select(items.c.id).where(items.c.job_id.not_in(sa.select(jobs.c.id)))
    assert every(old, orphans) == []
    assert every(old, sa.select(events.c.id).where(events.c.type == "pruned"))
    old.close()


def test_there_is_nothing_in_the_archive_of_a_new_database(here: str) -> None:
    assert say("archive", "list", "--json").data == {"archives": []}
    answer = say("archive", "restore", "2026-05", "--json", fine=False)
    assert answer.error["code"] == "not_found"
