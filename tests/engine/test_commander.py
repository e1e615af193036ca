"""What operators ask for: pause, resume, cancel, retry, priority."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Fail, Item, Store, service, submit
from dalsegno.engine.commander import apply_pending, request
from dalsegno.engine.scheduler import cancel_some
from dalsegno.errors import InputInvalid, NotFound
from dalsegno.store.schema import commands
from tests.helpers import (
    SWIFT,
    admit,
    ask,
    assert_sound,
    begin,
    chain,
    claim,
    command,
    events_of,
    item_of,
    items_of,
    job_of,
    keys,
    one,
    one_step,
    register,
    run_job,
    settle,
    stage_of,
    status_of,
    statuses_of,
    submitted,
    types_of,
    wait_for_job,
    wait_until,
    work_off,
)


@service("work", workers=2)
def work(item: Item) -> None:
    return None


class Gate:
    """A service whose items wait inside until the test lets them go."""

    def __init__(self, workers: int = 1) -> None:
        self.inside: list[Item] = []
        self.open = threading.Event()
        self.service = service("work", workers=workers)(self._work)

    def _work(self, item: Item) -> str:
        self.inside.append(item)
        assert self.open.wait(30)
        return "cancelled" if item.cancelled else "done"


# --- pause and resume ---------------------------------------------------------------------------


def test_a_pause_lets_what_has_begun_finish_and_gives_the_claimed_back(store: Store) -> None:
    gate = Gate(workers=2)
    job = submit(store, one_step(max_attempts=1), items=keys(10)).job_id
    with Engine(store, [gate.service], SWIFT):
        wait_until(lambda: len(gate.inside) == 2, "two items to begin")
        number = ask(store, "pause", job_id=job, payload={"reason": "film night"}, requested_by="olga")
        wait_until(lambda: statuses_of(store, job) == {"running": 2, "pending": 8}, "the claimed to come back")
        row = job_of(store, job)
        assert (row["status"], row["pause_reason"], row["paused_by"]) == ("pause_requested", "film night", "olga")
        assert one(store, sa.select(commands).where(commands.c.id == number))["status"] == "applied"
        gate.open.set()
        wait_for_job(store, job, ["paused"])
        assert statuses_of(store, job) == {"succeeded": 2, "pending": 8}
    assert {(row["attempt"], row["interruptions"]) for row in items_of(store, job)} == {(0, 0)}
    assert len(gate.inside) == 2
    assert_sound(store, job)


def test_while_paused_nothing_is_claimed_and_after_resume_everything_is(store: Store) -> None:
    me = register(store)
    job = submitted(store, items=5).job_id
    (held,) = claim(store, me)
    command(store, "pause", job_id=job)
    assert claim(store, me, 10) == []
    assert status_of(store, job) == "pause_requested"
    settle(store, [held])
    assert status_of(store, job) == "paused"
    assert (stage_of(store, job)["status"], stage_of(store, job)["open"]) == ("paused", False)
    command(store, "resume", job_id=job)
    assert status_of(store, job) == "queued"
    assert claim(store, me, 10) == []
    admit(store)
    assert len(work_off(store, me)) == 4
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_a_queued_job_is_paused_at_once(store: Store) -> None:
    job = submit(store, one_step(), items=keys(1)).job_id
    command(store, "pause", job_id=job)
    assert status_of(store, job) == "paused"
    admit(store)
    assert status_of(store, job) == "paused"
    command(store, "resume", job_id=job)
    assert run_job(store, [work], job) == "completed"
    assert_sound(store, job)


def test_pausing_twice_is_the_same_as_once(store: Store) -> None:
    job = submitted(store).job_id
    assert [command(store, "pause", job_id=job)["status"] for _ in range(2)] == ["applied", "applied"]
    assert types_of(store, job_id=job).count("job_paused") == 1


def test_a_resume_waits_until_its_job_has_drained(store: Store) -> None:
    me = register(store)
    job = submitted(store, items=2).job_id
    held = claim(store, me)
    command(store, "pause", job_id=job)
    asked = command(store, "resume", job_id=job)
    assert asked["status"] == "pending"
    settle(store, held)
    apply_pending(store)
    assert status_of(store, job) == "queued"
    assert_sound(store, job)


def test_a_resume_with_overrides_is_seen_by_the_items_and_recorded(store: Store) -> None:
    seen: list[Any] = []

    @service("work")
    def look(item: Item) -> None:
        seen.append(dict(item.snapshot))

    job = submit(store, one_step(), items=keys(1), snapshot={"quality": "flac", "root": "/m"}).job_id
    command(store, "pause", job_id=job)
    command(store, "resume", job_id=job, payload={"overrides": {"quality": "mp3"}}, requested_by="olga")
    assert run_job(store, [look], job) == "completed"
    assert seen == [{"quality": "mp3", "root": "/m"}]
    resumed = next(event for event in events_of(store, job_id=job, type="job_queued"))
    assert (resumed["source"], resumed["data"]) == ("olga", {"overrides": {"quality": "mp3"}})
    assert job_of(store, job)["snapshot"] == {"quality": "flac", "root": "/m"}


def test_overrides_reach_a_stage_that_this_engine_has_already_worked_on(store: Store) -> None:
    seen: list[Any] = []
    gate = threading.Event()

    @service("work", workers=1)
    def look(item: Item) -> None:
        seen.append(item.snapshot["quality"])
        if len(seen) == 1:
            assert gate.wait(30)

    job = submit(store, one_step(), items=keys(3), snapshot={"quality": "flac"}).job_id
    with Engine(store, [look], SWIFT):
        wait_until(lambda: seen, "the first item")
        ask(store, "pause", job_id=job)
        wait_until(lambda: status_of(store, job) == "pause_requested", "the pause")
        wait_until(lambda: statuses_of(store, job)["claimed"] == 0, "the claimed to come back")
        gate.set()
        wait_for_job(store, job, ["paused"])
        ask(store, "resume", job_id=job, payload={"overrides": {"quality": "mp3"}})
        wait_for_job(store, job)
    assert seen == ["flac", "mp3", "mp3"]


@pytest.mark.parametrize("kind", ["pause", "resume", "cancel", "set_priority"])
def test_a_finished_job_refuses_commands_with_a_clear_message(store: Store, kind: str) -> None:
    job = submitted(store, items=1).job_id
    work_off(store, register(store))
    refused = command(store, kind, job_id=job, payload={"priority": 1})
    assert (refused["status"], refused["error_code"]) == ("rejected", "command_refused")
    assert f"Job {job} cannot be" in refused["error_message"]
    assert "completed" in refused["error_message"]
    assert types_of(store, job_id=job)[-1] == "command_rejected"
    assert status_of(store, job) == "completed"


def test_resuming_a_running_job_is_refused(store: Store) -> None:
    job = submitted(store).job_id
    assert command(store, "resume", job_id=job)["error_code"] == "command_refused"


def test_commands_for_what_does_not_exist_are_refused_at_once(store: Store) -> None:
    for target in ({"job_id": 999}, {"item_id": 999}):
        with pytest.raises(NotFound, match="999"):
            store.write("test", lambda tx, target=target: request(tx, "pause", **target))
    job = submitted(store).job_id
    with pytest.raises(InputInvalid, match="explode"):
        store.write("test", lambda tx: request(tx, "explode", job_id=job))


# --- cancel -------------------------------------------------------------------------------------


def test_cancel_tells_running_items_counts_their_finish_and_lets_nothing_follow(store: Store) -> None:
    gate = Gate(workers=1)
    job = submit(store, chain("work", "next", follow="each"), items=keys(5)).job_id
    after = service("next")(lambda item: None)
    with Engine(store, [gate.service, after], SWIFT):
        wait_until(lambda: gate.inside, "an item to begin")
        ask(store, "cancel", job_id=job, requested_by="olga")
        wait_until(lambda: gate.inside[0].cancelled, "the item to be told")
        assert status_of(store, job) == "running", "until its last lease has ended"
        gate.open.set()
        assert wait_for_job(store, job) == "canceled"
    first, *rest = items_of(store, job, "a")
    assert (first["status"], first["result"]) == ("succeeded", "cancelled")
    assert {row["status"] for row in rest} == {"canceled"}
    assert {row["status"] for row in items_of(store, job, "b")} <= {"canceled"}
    assert len(gate.inside) == 1
    assert [stage_of(store, job, key)["status"] for key in "ab"] == ["canceled", "canceled"]
    assert_sound(store, job)


@pytest.mark.parametrize("before", ["queued", "running", "paused"])
def test_cancel_works_from_every_unfinished_state(store: Store, before: str) -> None:
    job = submit(store, one_step(), items=keys(3)).job_id
    if before != "queued":
        admit(store)
    if before == "paused":
        command(store, "pause", job_id=job)
    assert status_of(store, job) == before
    command(store, "cancel", job_id=job)
    while cancel_some(store):
        pass
    assert status_of(store, job) == "canceled"
    assert statuses_of(store, job) == {"canceled": 3}
    assert_sound(store, job)


def test_a_failure_while_being_canceled_is_canceled_too(store: Store) -> None:
    me = register(store)
    job = submitted(store, items=2).job_id
    held = claim(store, me)
    begin(store, held)
    command(store, "cancel", job_id=job)
    cancel_some(store)
    assert status_of(store, job) == "running"
    settle(store, held, "pending", due_at=store.clock.now(), attempt=1)
    cancel_some(store)
    assert status_of(store, job) == "canceled"
    assert statuses_of(store, job) == {"canceled": 2}
    assert_sound(store, job)


def test_canceling_many_items_goes_bit_by_bit_and_ends(store: Store) -> None:
    job = submitted(store, items=5000).job_id
    command(store, "cancel", job_id=job)
    rounds = 1
    while cancel_some(store):
        rounds += 1
    assert rounds > 1
    assert statuses_of(store, job) == {"canceled": 5000}
    assert status_of(store, job) == "canceled"
    assert_sound(store, job)


# --- retry --------------------------------------------------------------------------------------


def failed_job(store: Store, **options: Any) -> int:
    """A finished job: its first item failed, its second succeeded."""
    me = register(store)
    job = submitted(store, one_step(max_attempts=2), items=2, **options).job_id
    bad, good = claim(store, me, 2)
    settle(store, [bad], "failed", attempt=2)
    settle(store, [good], result='{"n":1}')
    assert status_of(store, job) == "completed_with_errors"
    return job


def test_retrying_a_failed_item_reopens_its_job_with_a_fresh_budget(store: Store) -> None:
    job = failed_job(store)
    bad, good = items_of(store, job)
    assert command(store, "retry_item", item_id=bad["id"], requested_by="olga")["status"] == "applied"
    again = item_of(store, job, bad["key"])
    assert (again["status"], again["attempt"], again["error_code"]) == ("pending", 0, None)
    assert status_of(store, job) == "queued"
    assert job_of(store, job)["finished_at"] is None
    attempts: list[int] = []

    @service("work")
    def work_again(item: Item) -> None:
        attempts.append(item.attempt)
        if len(attempts) == 1:
            raise OSError("once more")

    assert run_job(store, [work_again], job) == "completed"
    assert attempts == [0, 1]
    assert item_of(store, job, good["key"])["finished_at"] == good["finished_at"], "the other was not touched"
    assert_sound(store, job)


def test_what_succeeded_is_only_run_again_by_force(store: Store) -> None:
    job = failed_job(store)
    good = items_of(store, job)[1]
    refused = command(store, "retry_item", item_id=good["id"])
    assert (refused["status"], refused["error_code"]) == ("rejected", "command_refused")
    assert "force-retry" in refused["error_message"]
    assert status_of(store, job) == "completed_with_errors"
    assert command(store, "force_retry_item", item_id=good["id"])["status"] == "applied"
    forced: list[bool] = []

    @service("work")
    def look(item: Item) -> str:
        forced.append(item.forced)
        return "anew"

    assert run_job(store, [look], job) == "completed_with_errors"
    assert forced == [True]
    again = item_of(store, job, good["key"])
    assert (again["result"], again["forced"]) == ("anew", False)
    assert_sound(store, job)


def test_an_item_that_waits_or_runs_needs_no_retry(store: Store) -> None:
    me = register(store)
    job = submitted(store, items=2).job_id
    (held,) = claim(store, me)
    for item in items_of(store, job):
        refused = command(store, "retry_item", item_id=item["id"])
        assert refused["error_code"] == "command_refused"
        assert "by itself" in refused["error_message"]
    assert len(settle(store, [held]).accepted) == 1


def test_reopening_is_refused_while_a_twin_is_active(store: Store) -> None:
    job = failed_job(store, dedupe="same")
    twin = submit(store, one_step(), items=keys(1), dedupe="same").job_id
    bad = items_of(store, job)[0]
    refused = command(store, "retry_item", item_id=bad["id"])
    assert (refused["status"], refused["error_code"]) == ("rejected", "twin_active")
    assert f"job {twin}" in refused["error_message"]
    assert items_of(store, job)[0] == bad
    command(store, "cancel", job_id=twin)
    cancel_some(store)
    assert command(store, "retry_item", item_id=bad["id"])["status"] == "applied"
    taken = submit(store, one_step(), items=keys(1), dedupe="same")
    assert (taken.job_id, taken.created) == (job, False), "the reopened job holds its key again"


def test_an_item_of_a_running_job_can_be_retried_without_reopening(store: Store) -> None:
    me = register(store)
    job = submitted(store, one_step(max_attempts=1), items=3).job_id
    (bad,) = claim(store, me)
    settle(store, [bad], "failed")
    command(store, "retry_item", item_id=bad.id)
    assert status_of(store, job) == "running"
    assert [item.key for item in work_off(store, me)] == keys(3)
    assert status_of(store, job) == "completed"
    assert_sound(store, job)


def test_retrying_in_a_stage_that_stopped_lets_the_job_go_on(store: Store) -> None:
    broken = [True]

    @service("work", workers=1)
    def picky(item: Item) -> Any:
        return Fail("bad") if broken[0] and item.key == keys(3)[1] else None

    job = submit(store, chain("work", "work", on_failure="stop"), items=keys(3)).job_id
    assert run_job(store, [picky], job) == "failed"
    broken[0] = False
    command(store, "retry_item", item_id=item_of(store, job, keys(3)[1])["id"])
    assert run_job(store, [picky], job) == "completed"
    assert statuses_of(store, job, "a") == {"succeeded": 3}
    assert_sound(store, job)


def test_of_two_failed_items_in_a_stage_that_stopped_each_can_be_retried(store: Store) -> None:
    me = register(store)
    job = submitted(store, one_step(on_failure="stop", max_attempts=1), items=3).job_id
    settle(store, claim(store, me, 2), "failed")
    assert status_of(store, job) == "failed"
    command(store, "retry_item", item_id=items_of(store, job)[0]["id"])
    admit(store)
    again = claim(store, me, 5)
    assert keys(3)[0] in [item.key for item in again], "the retried item must run although another one failed"
    settle(store, again)
    assert items_of(store, job)[0]["status"] == "succeeded"
    assert_sound(store, job)


def test_a_retry_in_a_paused_job_waits_for_the_resume(store: Store) -> None:
    me = register(store)
    job = submitted(store, one_step(max_attempts=1), items=2).job_id
    (bad,) = claim(store, me)
    settle(store, [bad], "failed")
    command(store, "pause", job_id=job)
    command(store, "retry_item", item_id=bad.id)
    assert status_of(store, job) == "paused"
    assert claim(store, me, 5) == []
    command(store, "resume", job_id=job)
    admit(store)
    assert len(work_off(store, me)) == 2
    assert_sound(store, job)


def test_an_item_of_a_job_being_canceled_cannot_be_retried(store: Store) -> None:
    me = register(store)
    job = submitted(store, one_step(max_attempts=1), items=3).job_id
    bad, _held = claim(store, me, 2)
    settle(store, [bad], "failed")
    command(store, "cancel", job_id=job)
    assert command(store, "retry_item", item_id=bad.id)["status"] == "rejected"


# --- priority -----------------------------------------------------------------------------------


def test_a_changed_priority_reorders_jobs_and_is_recorded(store: Store) -> None:
    me = register(store)
    first, second = (submit(store, one_step(), items=keys(2)).job_id for _ in range(2))
    admit(store)
    command(store, "set_priority", job_id=second, payload={"priority": 5}, requested_by="olga")
    assert [item.job_id for item in claim(store, me, 4)] == [second, second, first, first]
    (event,) = events_of(store, job_id=second, type="job_priority_changed")
    assert (event["source"], event["data"]) == ("olga", {"from": 100, "to": 5})
    assert (job_of(store, second)["priority"], stage_of(store, second)["priority"]) == (5, 5)


@pytest.mark.parametrize("priority", [None, "high", 1.5, True, 10_000_000])
def test_a_priority_that_is_none_is_rejected(store: Store, priority: Any) -> None:
    job = submitted(store).job_id
    refused = command(store, "set_priority", job_id=job, payload={"priority": priority})
    assert (refused["status"], refused["error_code"]) == ("rejected", "input_invalid")
    assert job_of(store, job)["priority"] == 100


def test_commands_are_applied_in_the_order_they_were_asked(store: Store) -> None:
    job = submitted(store).job_id
    for kind in ("pause", "resume", "pause"):
        ask(store, kind, job_id=job)
    apply_pending(store)
    assert status_of(store, job) == "paused"
    states = [row["status"] for row in store.read(lambda tx: tx.rows(sa.select(commands.c.status)))]
    assert states == ["applied"] * 3
