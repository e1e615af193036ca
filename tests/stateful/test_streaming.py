"""Streaming `each` on both databases: streaming.py says what happens and what must hold."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from dalsegno import Step, Store
from dalsegno.engine.commander import cancel_job
from dalsegno.engine.scheduler import cancel_some
from tests.stateful.streaming import StreamingMachine
from tests.stateful.test_histories import Story
from tests.stateful.test_machine import COMMON

# What is found is told as it was found: making it small would outlast the test's time, and hide it behind a timeout.
BOUNDED = settings(max_examples=14, stateful_step_count=40, derandomize=True, phases=[Phase.generate], **COMMON)  # type: ignore[arg-type]
DEEP = settings(max_examples=1000, stateful_step_count=80, **COMMON)  # type: ignore[arg-type]


def run(store: Store, profile: settings) -> None:
    class Machine(StreamingMachine):
        pass

    Machine.store = store
    run_state_machine_as_test(Machine, settings=profile)


def test_every_history_of_a_stream_keeps_its_promises(still: Store) -> None:
    run(still, BOUNDED)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_long_history_of_a_stream_keeps_its_promises(still: Store) -> None:
    run(still, DEEP)


# --- histories that went wrong ------------------------------------------------------------------


class StreamStory(Story, StreamingMachine):
    """A stream, told step by step: every move is followed by the invariants."""

    def stage(self, key: str) -> str:
        self.all_is_well()
        return next(stage["status"] for stage in self.picture.stages.values() if stage["key"] == key)

    def made_of(self, name: str) -> object:
        return next(self.made_from[key] for key, item in self.picture.items.items() if self.name(item) == name)


@pytest.fixture
def story(still: Store) -> StreamStory:
    class This(StreamStory):
        pass

    This.store = still
    return This()


def two_steps(stops: str = "") -> tuple[Step, Step]:
    def policy(key: str) -> str:
        return "stop" if key == stops else "continue"

    return (
        Step(key="a", service="collect", on_failure=policy("a")),
        Step(key="b", service="download", depends_on=("a",), follow="each", on_failure=policy("b")),
    )


def test_a_stage_that_stopped_at_a_failure_is_not_opened_by_the_next_follower(story: StreamStory) -> None:
    """Policy stop: what arrives after the failure waits with the rest, until somebody retries what failed."""
    process = story.start_process()
    story.tell(*two_steps(stops="b"), items={"a": ["x", "y"]})
    story.take(process, "collect", 2)
    story.end(process, "a/x", "done")
    story.take(process, "download", 1)
    story.end(process, "b/x", "fail")
    assert story.stage("b") == "failed"
    story.end(process, "a/y", "done")
    assert (story.stage("b"), story.status("b/y")) == ("failed", "pending")
    assert story.take(process, "download", 1) == 0
    story.again("b/x")
    story.teardown()
    assert story.status("b/x") == story.status("b/y") == "succeeded"


def test_nothing_follows_from_what_finishes_while_its_job_is_canceled(story: StreamStory) -> None:
    """Neither a new follower nor a fresh start of one that exists; and a retry afterwards makes up for it."""
    process = story.start_process()
    job_id = story.tell(*two_steps(), items={"a": ["x", "y"]})
    story.take(process, "collect", 2)
    story.end(process, "a/x", "done")
    story.take(process, "download", 1)
    story.end(process, "b/x", "done")
    story.again("a/x", force=True)
    story.take(process, "collect", 1)
    story.store.write("command", lambda tx: cancel_job(tx, job_id, "operator"))
    story.end(process, "a/x", "result")
    story.end(process, "a/y", "done")
    cancel_some(story.store)
    assert (story.status("b/x"), story.picture.jobs[job_id]["status"]) == ("succeeded", "canceled")
    assert [story.name(item) for item in story.picture.items.values()] == ["a/x", "a/y", "b/x"]
    story.again("a/y", force=True)
    story.teardown()
    assert story.status("b/y") == "succeeded"


def test_a_follower_in_a_canceled_job_can_be_retried(story: StreamStory) -> None:
    """What it followed was canceled as a stage; the retried one runs, what was canceled stays so."""
    process = story.start_process()
    job_id = story.tell(*two_steps(), items={"a": ["x", "y"]})
    story.take(process, "collect", 1)
    story.end(process, "a/x", "done")
    story.take(process, "download", 1)
    story.end(process, "b/x", "fail")
    story.store.write("command", lambda tx: cancel_job(tx, job_id, "operator"))
    cancel_some(story.store)
    assert (story.stage("a"), story.stage("b")) == ("canceled", "canceled")
    story.again("b/x")
    story.teardown()
    assert (story.status("b/x"), story.status("a/y")) == ("succeeded", "canceled")
    assert story.picture.jobs[job_id]["status"] == "completed"


def test_a_stage_that_waits_for_a_canceled_one_does_not_wait_for_ever(story: StreamStory) -> None:
    """The join of two branches, one of them canceled before it began: a retry in the other still comes to an end."""
    process = story.start_process()
    a, b = two_steps()
    c = Step(key="c", service="upload", depends_on=("a",))
    d = Step(key="d", service="upload", depends_on=("b", "c"))
    job_id = story.tell(a, b, c, d, items={"a": ["x", "y"], "c": ["z"], "d": ["w"]})
    story.take(process, "collect", 1)
    story.end(process, "a/x", "done")
    story.take(process, "download", 1)
    story.end(process, "b/x", "fail")
    story.store.write("command", lambda tx: cancel_job(tx, job_id, "operator"))
    cancel_some(story.store)
    story.again("b/x")
    story.teardown()
    assert (story.status("b/x"), story.status("c/z"), story.status("d/w")) == ("succeeded", "canceled", "canceled")


@pytest.mark.parametrize("end", ["release", "retry", "stopped", "fail"])
def test_a_follower_that_runs_while_its_parent_is_done_again_gets_the_last_result(story: StreamStory, end: str) -> None:
    """The parent then makes the same as before: its follower is left alone, so what it made must be right."""
    process = story.start_process()
    story.tell(*two_steps(), items={"a": ["x"]})
    story.take(process, "collect", 1)
    story.end(process, "a/x", "done")
    story.again("a/x", force=True)
    story.take(process, "collect", 1)
    story.end(process, "a/x", end)
    story.take(process, "download", 1)
    story.end(process, "b/x", "done")
    assert story.made_of("b/x") == {"of": None}


def test_a_follower_can_be_retried_although_another_item_failed_the_stage_it_follows(
    story: StreamStory,
) -> None:
    """Its own parent is done. Left pending in a finished job, nobody would ever run it."""
    process = story.start_process()
    story.tell(*two_steps(stops="a"), items={"a": ["x", "y"]})
    story.take(process, "collect", 2)
    story.end(process, "a/x", "done")
    story.take(process, "download", 1)
    story.end(process, "b/x", "fail")
    story.end(process, "a/y", "fail")
    assert (story.stage("a"), story.stage("b")) == ("failed", "skipped")
    story.again("b/x")
    story.teardown()
    assert story.status("b/x") == "succeeded"
