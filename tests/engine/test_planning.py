"""From stage to stage: fan-out by plan, `all` after everything, `each` item by item."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dalsegno import Engine, Fail, Item, Plan, Skip, Step, Store, Workflow, service, submit
from dalsegno.engine.service import Services, services_in
from dalsegno.errors import InputInvalid, ServiceUnknown
from tests.helpers import (
    SWIFT,
    ask,
    assert_sound,
    chain,
    command,
    events_of,
    item_of,
    items_of,
    job_of,
    keys,
    named,
    one_step,
    run_job,
    stage_of,
    status_of,
    statuses_of,
    types_of,
    wait_for_job,
    wait_until,
)


@service("work", workers=2)
def work(item: Item) -> dict[str, Any]:
    return {"made": item.key}


def test_a_services_plan_lists_the_items_of_its_stage(store: Store) -> None:
    @service("fan", workers=2)
    def fan(item: Item) -> Any:
        return item.params["n"]

    seen: dict[str, Any] = {}

    @fan.plan
    def plan(plan: Plan) -> Iterator[Any]:
        seen.update(params=plan.params, scope=plan.scope, options=plan.options, snapshot=plan.snapshot)
        for number in range(2500):  # more than one chunk
            yield f"n{number}", {"n": number}

    job = submit(store, one_step("fan"), params={"p": 1}, scope="all", snapshot={"root": "/"}).job_id
    assert run_job(store, [fan], job) == "completed"
    assert seen == {"params": {"p": 1}, "scope": "all", "options": {"params": {"p": 1}}, "snapshot": {"root": "/"}}
    found = items_of(store, job)
    assert [row["result"] for row in found] == list(range(2500))
    planned = events_of(store, job_id=job, type="stage_planned")
    assert [event["data"] for event in planned] == [{"added": 2500}]
    assert_sound(store, job)


def test_a_stage_without_items_or_plan_is_one_item_named_after_the_step(store: Store) -> None:
    job = submit(store, one_step()).job_id
    assert run_job(store, [work], job) == "completed"
    assert [row["key"] for row in items_of(store, job)] == ["a"]


def test_a_plan_sees_what_the_stages_before_it_made(store: Store) -> None:
    @service("split", workers=2)
    def split(item: Item) -> Any:
        return None

    @split.plan
    def plan(plan: Plan) -> Iterator[str]:
        for up in plan.upstream():
            yield f"{up.step}:{up.key}:{up.result['made']}"

    job = submit(store, chain("work", "split"), items=keys(1200)).job_id
    assert run_job(store, [work, split], job) == "completed"
    assert [row["key"] for row in items_of(store, job, "b")] == [f"a:{key}:{key}" for key in keys(1200)]
    assert_sound(store, job)


def test_a_plan_that_names_a_key_twice_makes_one_item_of_it(store: Store) -> None:
    @work_with_plan
    def plan(plan: Plan) -> list[str]:
        return ["x", "y", "x"]

    job = submit(store, one_step("planned")).job_id
    assert run_job(store, [plan], job) == "completed"
    assert [row["key"] for row in items_of(store, job)] == ["x", "y"]


def work_with_plan(planner: Any) -> Any:
    @service("planned")
    def planned(item: Item) -> None:
        return None

    planned.plan(planner)
    return planned


def test_a_plan_that_fails_is_tried_again_and_keeps_what_it_had(store: Store) -> None:
    tries: list[int] = []

    @work_with_plan
    def planned(plan: Plan) -> Iterator[str]:
        tries.append(1)
        for number in range(1500):
            if number == 1200 and len(tries) == 1:
                raise ConnectionError("the source is away")
            yield f"n{number}"

    job = submit(store, one_step("planned")).job_id
    assert run_job(store, [planned], job) == "completed"
    assert len(tries) == 2
    assert len(items_of(store, job)) == 1500
    assert_sound(store, job)


@pytest.mark.parametrize("bad", [["ok", 5], [("a", "b", "c")], [("k", {"x": object()})]])
def test_a_plan_that_always_fails_fails_its_stage_with_the_reason(store: Store, bad: list[Any]) -> None:
    planned = work_with_plan(lambda plan: bad)
    job = submit(store, chain("planned", "work")).job_id
    assert run_job(store, [planned, work], job) == "failed"
    row = job_of(store, job)
    assert row["error_code"] == "plan_failed"
    assert row["error_message"]
    assert (stage_of(store, job)["status"], stage_of(store, job, "b")["status"]) == ("failed", "skipped")
    assert stage_of(store, job)["last_error"]


# --- all ----------------------------------------------------------------------------------------


def test_all_starts_only_when_everything_before_is_done(store: Store) -> None:
    order: list[str] = []

    @service("first", workers=3)
    def first(item: Item) -> None:
        order.append("first")

    @service("second")
    def second(item: Item) -> None:
        order.append("second")

    job = submit(store, chain("first", "second"), items={"a": keys(30), "b": keys(3)}).job_id
    assert run_job(store, [first, second], job) == "completed"
    assert order == ["first"] * 30 + ["second"] * 3
    assert_sound(store, job)


def test_a_diamond_waits_for_both_sides(store: Store) -> None:
    done: list[str] = []

    @service("note", workers=4)
    def note(item: Item) -> None:
        done.append(item.stage.key)

    diamond = named(
        Step(key="top", service="note"),
        Step(key="left", service="note", depends_on=("top",)),
        Step(key="right", service="note", depends_on=("top",)),
        Step(key="end", service="note", depends_on=("left", "right")),
    )
    job = submit(store, diamond).job_id
    assert run_job(store, [note], job) == "completed"
    assert (done[0], done[-1], sorted(done)) == ("top", "end", ["end", "left", "right", "top"])
    assert_sound(store, job)


# --- each ---------------------------------------------------------------------------------------


def test_each_really_overlaps(store: Store) -> None:
    """The first follower has run while the last of what it follows has not."""
    streamed = threading.Event()

    @service("slow")
    def slow(item: Item) -> str:
        if item.key == keys(5)[-1]:
            assert streamed.wait(20), "no follower ran before the stage ahead was done"
        return item.key.upper()

    inputs: list[Any] = []

    @service("follow")
    def follow(item: Item) -> None:
        inputs.append(item.input)
        streamed.set()

    job = submit(store, chain("slow", "follow", follow="each"), items=keys(5)).job_id
    assert run_job(store, [slow, follow], job) == "completed"
    assert sorted(inputs) == [key.upper() for key in keys(5)]
    assert_sound(store, job)


def test_a_chain_of_followers_streams_every_item_through(store: Store) -> None:
    job = submit(store, chain("work", "work", "work", "work", follow="each"), items=keys(50)).job_id
    assert run_job(store, [work], job) == "completed"
    for step in "abcd":
        assert statuses_of(store, job, step) == {"succeeded": 50}
    assert_sound(store, job)


def test_a_skipped_item_streams_on_and_a_failed_one_does_not(store: Store) -> None:
    @service("some")
    def some(item: Item) -> Any:
        return {"s": Skip("there already"), "f": Fail("broken"), "d": None}[item.key]

    job = submit(store, chain("some", "work", follow="each"), items=["s", "f", "d"]).job_id
    assert run_job(store, [some, work], job) == "completed_with_errors"
    assert [row["key"] for row in items_of(store, job, "b")] == ["s", "d"]
    assert_sound(store, job)


def test_skip_satisfies_a_dependency_on_all(store: Store) -> None:
    @service("skipper")
    def skipper(item: Item) -> Any:
        return Skip("there already", result=1)

    job = submit(store, chain("skipper", "work"), items=keys(2)).job_id
    assert run_job(store, [skipper, work], job) == "completed"
    assert statuses_of(store, job, "a") == {"skipped": 2}
    assert statuses_of(store, job, "b") == {"succeeded": 1}
    data = [event["data"] for event in events_of(store, job_id=job, type="item_skipped")]
    assert data == [{"reason": "there already"}] * 2
    assert_sound(store, job)


def test_each_with_a_changed_result_resets_its_follower(store: Store) -> None:
    version = ["one"]
    ran: list[Any] = []

    @service("make")
    def make(item: Item) -> str:
        return version[0]

    @service("use")
    def use(item: Item) -> None:
        ran.append((item.key, item.input))

    job = submit(store, chain("make", "use", follow="each"), items=keys(2)).job_id
    first, second = keys(2)
    assert run_job(store, [make, use], job) == "completed"
    assert sorted(ran) == [(first, "one"), (second, "one")]
    with Engine(store, [make, use], SWIFT):
        ask(store, "force_retry_item", item_id=item_of(store, job, first)["id"])
        wait_until(lambda: len(types_of(store, job_id=job, type="job_completed")) == 2, "the second completion")
        assert len(ran) == 2, "the same result must not run the follower again"
        version[0] = "two"
        ask(store, "force_retry_item", item_id=item_of(store, job, first)["id"])
        wait_until(lambda: len(types_of(store, job_id=job, type="job_completed")) == 3, "the third completion")
    assert ran[2:] == [(first, "two")]
    follower = item_of(store, job, first, "b")
    assert types_of(store, item_id=follower["id"]).count("item_reset") == 1
    assert_sound(store, job)


def test_a_retried_item_that_now_succeeds_brings_forth_its_follower(store: Store) -> None:
    broken = [True]

    @service("make")
    def make(item: Item) -> Any:
        return Fail("broken") if broken[0] else 1

    job = submit(store, chain("make", "work", follow="each"), items=keys(1)).job_id
    assert run_job(store, [make, work], job) == "completed_with_errors"
    assert items_of(store, job, "b") == []
    broken[0] = False
    command(store, "retry_item", item_id=items_of(store, job)[0]["id"])
    assert status_of(store, job) == "queued"
    assert run_job(store, [make, work], job) == "completed"
    assert statuses_of(store, job, "b") == {"succeeded": 1}
    assert_sound(store, job)


def test_replanning_after_a_retry_adds_missing_keys_only(store: Store) -> None:
    broken = [True]
    ran: list[str] = []

    @service("make")
    def make(item: Item) -> Any:
        return Fail("broken") if broken[0] and item.key == "x" else 1

    @service("gather")
    def gather(item: Item) -> None:
        ran.append(item.key)

    gather.plan(lambda plan: [up.key for up in plan.upstream()])
    job = submit(store, chain("make", "gather"), items=["x", "y"]).job_id
    assert run_job(store, [make, gather], job) == "completed_with_errors"
    assert ran == ["y"]
    broken[0] = False
    command(store, "retry_item", item_id=item_of(store, job, "x")["id"])
    assert run_job(store, [make, gather], job) == "completed"
    assert ran == ["y", "x"]
    assert_sound(store, job)


# --- policies -----------------------------------------------------------------------------------


@service("picky", workers=1)
def picky(item: Item) -> Any:
    return Fail("bad apple") if item.key == keys(9)[2] else None


def test_continue_goes_on_past_a_failed_item(store: Store) -> None:
    job = submit(store, chain("picky", "work", on_failure="continue"), items=keys(9)).job_id
    assert run_job(store, [picky, work], job) == "completed_with_errors"
    assert statuses_of(store, job, "a") == {"succeeded": 8, "failed": 1}
    assert (stage_of(store, job)["status"], stage_of(store, job)["failed"]) == ("completed", 1)
    assert statuses_of(store, job, "b") == {"succeeded": 1}
    assert_sound(store, job)


@pytest.mark.parametrize("follow", ["all", "each"])
def test_stop_ends_the_stage_skips_what_depends_on_it_and_fails_the_job(store: Store, follow: str) -> None:
    job = submit(store, chain("picky", "work", follow=follow, on_failure="stop"), items=keys(9)).job_id
    assert run_job(store, [picky, work], job) == "failed"
    assert statuses_of(store, job, "a")["failed"] == 1
    assert (stage_of(store, job)["status"], stage_of(store, job, "b")["status"]) == ("failed", "skipped")
    assert_sound(store, job)


def test_stop_admits_no_claim_after_the_failure(store: Store) -> None:
    from tests.helpers import claim, register, settle, submitted

    me = register(store)
    job = submitted(store, one_step(on_failure="stop"), items=5).job_id
    first, second = claim(store, me, 2)
    settle(store, [first], "failed")
    assert claim(store, me, 5) == []
    assert status_of(store, job) == "running", "what had begun may finish"
    settle(store, [second])
    assert status_of(store, job) == "failed"
    assert statuses_of(store, job) == {"failed": 1, "succeeded": 1, "pending": 3}
    assert_sound(store, job)


# --- services -----------------------------------------------------------------------------------


def test_a_service_in_five_lines_is_called_like_the_function_it_wraps() -> None:
    assert (work.name, work.workers, work.is_async) == ("work", 2, False)

    class Fake:
        key = "k"

    assert work(Fake()) == {"made": "k"}  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "workers"), [("", 1), ("two words", 1), ("a/b", 1), ("ok", 0), ("ok", -1)])
def test_a_service_with_a_bad_name_or_no_workers_is_refused(name: str, workers: int) -> None:
    with pytest.raises(InputInvalid):
        service(name, workers=workers)(lambda item: None)


def test_two_services_of_one_name_are_refused(store: Store) -> None:
    other = service("work")(lambda item: None)
    with pytest.raises(InputInvalid, match="Two services"):
        Engine(store, [work, other])
    Engine(store, [work, work])


def test_an_unknown_service_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(ServiceUnknown, match='Did you mean "work"'):
        Services([work]).get("wrok")


def test_the_services_of_a_module_are_found() -> None:
    import sys

    assert {found.name for found in services_in(sys.modules[__name__])} == {"work", "picky"}


def test_items_of_a_service_nobody_offers_wait(store: Store) -> None:
    ready = submit(store, one_step(), items=keys(1)).job_id
    waiting = submit(store, Workflow(name="x", steps=[Step(key="a", service="absent")]), items=keys(1)).job_id
    with Engine(store, [work], SWIFT):
        wait_for_job(store, ready)
    assert statuses_of(store, waiting) == {"pending": 1}
    assert status_of(store, waiting) == "running"
