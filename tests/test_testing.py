"""The helpers for people who test their services: one item in a call, or a whole workflow on a real engine."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dalsegno import (
    Done,
    EngineOptions,
    Fail,
    Item,
    Outcome,
    PauseJob,
    Plan,
    Release,
    Retry,
    Service,
    Skip,
    Step,
    Throttled,
    Workflow,
    service,
)
from dalsegno.testing import Drained, Reported, drain, run_item

LATER = datetime(2999, 1, 1, tzinfo=UTC)
OUTCOMES = [
    Done({"x": 1}), Skip("there already", {"x": 1}), Retry("try later"), Fail("never", code="no"),
    Throttled(LATER, "429"), Release("not mine"), PauseJob("disk full", code="disk_full"),
]  # fmt: skip


def answering(answer: Any, *, is_async: bool = False) -> Service:
    """A service that returns this, or raises it."""

    def act() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    if is_async:

        @service("work")
        async def work(item: Item) -> Any:
            await asyncio.sleep(0)
            return act()

    else:

        @service("work")
        def work(item: Item) -> Any:
            return act()

    return work


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_run_item_gives_each_outcome_as_it_was_returned(outcome: Outcome, is_async: bool) -> None:
    ran = run_item(answering(outcome, is_async=is_async))
    assert ran.outcome == outcome
    assert ran.result == ({"x": 1} if isinstance(outcome, Done | Skip) else None)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_run_item_turns_what_is_raised_into_what_the_engine_would_make_of_it(is_async: bool) -> None:
    ran = run_item(answering(ValueError("odd"), is_async=is_async))
    assert isinstance(ran.outcome, Retry)
    assert ran.outcome.code == "ValueError"
    assert "odd" in ran.outcome.error


def test_run_item_hands_over_everything_a_service_can_ask_for(tmp_path: Path) -> None:
    @service("work")
    def work(item: Item) -> dict[str, Any]:
        path = tmp_path / "made.txt"
        path.write_text("hello")
        item.phase("writing")
        item.progress(0.5, "half")
        item.progress(2.0)
        item.artifact("output", path)
        item.log.warning("careful")
        logging.getLogger("my.module").info("also mine")
        return {
            "key": item.key, "params": item.params, "snapshot": item.snapshot, "input": item.input,
            "attempt": item.attempt, "forced": item.forced, "cancelled": item.cancelled,
        }  # fmt: skip

    ran = run_item(
        work, key="k", params={"n": 1}, snapshot={"ROOT": "/x"}, input={"from": "before"}, attempt=2, forced=True,
        cancelled=True,
    )  # fmt: skip
    assert ran.result == {
        "key": "k", "params": {"n": 1}, "snapshot": {"ROOT": "/x"}, "input": {"from": "before"}, "attempt": 2,
        "forced": True, "cancelled": True,
    }  # fmt: skip
    assert ran.progress == [Reported(0.5, "half"), Reported(1.0, None)]
    assert ran.phases == ["writing"]
    assert [Path(file.key).name for file in ran.artifacts] == ["made.txt"]
    assert [line.getMessage() for line in ran.logs] == ["careful", "also mine"]


def test_run_item_leaves_logging_as_it_was() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    run_item(answering(ValueError("odd")))
    assert (root.level, list(root.handlers)) == before


def once(outcome: Outcome, *, is_async: bool) -> tuple[Drained, list[int]]:
    """A job whose item answers like this the first time, and well the next."""
    calls: list[int] = []

    def act(item: Item) -> Any:
        calls.append(item.attempt)
        return outcome if len(calls) == 1 else {"second": True}

    if is_async:

        @service("work")
        async def work(item: Item) -> Any:
            return act(item)

    else:

        @service("work")
        def work(item: Item) -> Any:
            return act(item)

    workflow = Workflow(name="w", steps=(Step(key="only", service="work"),))
    return drain([work], workflow, items=["one"]), calls


SOON = Throttled(datetime.now(UTC) - timedelta(seconds=1), "429")


@pytest.mark.parametrize(
    ("outcome", "status", "item", "calls"),
    [
        (Done({"x": 1}), "completed", "succeeded", [0]),
        (Skip("there already"), "completed", "skipped", [0]),
        (Retry("try later"), "completed", "succeeded", [0, 1]),
        (Fail("never", code="no"), "completed_with_errors", "failed", [0]),
        (SOON, "completed", "succeeded", [0, 0]),
        (Release("not mine"), "completed", "succeeded", [0, 0]),
        (PauseJob("disk full"), "paused", "interrupted", [0]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Outcome) else None,
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_drain_brings_a_job_to_rest_whatever_the_outcome(
    outcome: Outcome, status: str, item: str, calls: list[int], is_async: bool
) -> None:
    drained, called = once(outcome, is_async=is_async)
    assert drained.job.status == status
    assert [each.status for each in drained.of("only")] == [item]
    assert called == calls
    assert drained.events[0].type == "job_submitted"


def test_drain_runs_every_shape_of_step() -> None:
    @service("fan")
    def fan(item: Item) -> dict[str, int]:
        return {"n": item.params["n"]}

    @fan.plan
    def three(plan: Plan) -> Any:
        for n in range(plan.params["count"]):
            yield f"n{n}", {"n": n}

    @service("twice")
    async def twice(item: Item) -> dict[str, int]:
        return {"n": 2 * item.input["n"]}

    @service("total")
    def total(item: Item) -> int:
        return item.params["sum"]

    @total.plan
    def one(plan: Plan) -> Any:
        yield "total", {"sum": sum(each.result["n"] for each in plan.upstream())}

    workflow = Workflow(
        name="w",
        steps=(
            Step(key="fan", service="fan"),
            Step(key="twice", service="twice", depends_on=("fan",), follow="each"),
            Step(key="total", service="total", depends_on=("twice",)),
        ),
    )
    drained = drain([fan, twice, total], workflow, params={"count": 4})
    assert drained.job.status == "completed"
    assert [item.key for item in drained.of("fan")] == ["n0", "n1", "n2", "n3"]
    assert drained.of("total")[0].result == 12


def test_drain_says_when_a_job_does_not_come_to_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workflow = Workflow(name="w", steps=(Step(key="only", service="nobody"),))
    with pytest.raises(TimeoutError, match=r"still (queued|running) after 0\.2 seconds"):
        drain([answering(None)], workflow, items=["one"], timeout=0.2, options=EngineOptions(drain_seconds=0.1))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
