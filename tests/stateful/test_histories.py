"""Histories that once went wrong, told step by step with the machine's own moves."""

from __future__ import annotations

import pytest

from dalsegno import Step, Store, Workflow, submit
from dalsegno.engine.commander import retry_item
from dalsegno.engine.scheduler import admit
from tests.stateful.machine import EngineMachine, Process


class Story(EngineMachine):
    """The machine, driven by hand: every move is followed by the invariants."""

    def tell(self, *steps: Step, items: dict[str, list[str]]) -> int:
        job_id = submit(self.store, Workflow(name="story", steps=steps), items=items).job_id
        self.expected |= {(job_id, step, key) for step, keys in items.items() for key in keys}
        admit(self.store)
        self.all_is_well()
        return job_id

    def end(self, process: Process, name: str, kind: str) -> None:
        (item,) = [item for item in process.hand if f"{item.stage.key}/{item.key}" == name]
        self.finish(process, [item], kind, follow_up=True)
        self.all_is_well()

    def again(self, name: str, *, force: bool = False) -> None:
        (item_id,) = [key for key, item in self.picture.items.items() if self.name(item) == name]
        self.store.write("command", lambda tx: retry_item(tx, item_id, "desk", force=force))
        self.all_is_well()

    def status(self, name: str) -> str:
        self.all_is_well()
        return next(item["status"] for item in self.picture.items.values() if self.name(item) == name)

    def name(self, item: dict[str, object]) -> str:
        return f"{self.picture.stages[item['stage_id']]['key']}/{item['key']}"  # type: ignore[index]


@pytest.fixture
def story(still: Store) -> Story:
    class This(Story):
        pass

    This.store = still
    return This()


def test_a_failed_follower_that_starts_over_opens_its_stage_again(story: Story) -> None:
    """Policy stop closed the follower's stage; what it followed was done again with another result."""
    process = story.start_process()
    story.tell(
        Step(key="a", service="collect"),
        Step(key="b", service="download", depends_on=("a",), follow="each", on_failure="stop"),
        items={"a": ["x", "y"]},
    )
    story.take(process, "collect", 2)
    story.end(process, "a/x", "done")
    story.end(process, "a/y", "done")
    story.take(process, "download", 2)
    story.end(process, "b/x", "fail")
    story.again("a/x", force=True)
    story.take(process, "collect", 1)
    story.end(process, "a/x", "result")
    assert story.status("b/x") == "pending"
    story.teardown()
    assert story.status("b/x") == "succeeded"


def two_failures(story: Story) -> None:
    process = story.start_process()
    story.tell(Step(key="a", service="collect", on_failure="stop"), items={"a": ["x", "y", "z"]})
    story.take(process, "collect", 2)
    story.end(process, "a/x", "fail")
    story.end(process, "a/y", "fail")
    story.again("a/x")


def test_both_failed_items_of_a_stage_that_stops_can_be_retried(story: Story) -> None:
    two_failures(story)
    story.again("a/y")
    story.teardown()
    assert story.status("a/x") == story.status("a/y") == "succeeded"


def test_one_of_two_failed_items_of_a_stage_that_stops_can_be_retried(story: Story) -> None:
    two_failures(story)
    story.teardown()
    assert story.status("a/x") == "succeeded"
