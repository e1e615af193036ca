"""Commands about many items: found bit by bit, guarded where they change, with progress and a stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Fail, Item, Store, service, submit
from dalsegno.engine import bulk, retry, scheduler
from dalsegno.engine.bulk import apply_bulk, stop_bulk
from dalsegno.engine.submit import active_twin
from dalsegno.errors import CommandRefused, DatabaseUnavailable, InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.bulk import Preview, matching, preview
from dalsegno.insight.facets import Facet, Facets, item_facets
from dalsegno.insight.finding import ITEMS, find_items
from dalsegno.insight.groups import GROUPS, find_groups
from dalsegno.insight.jobs import JOBS, find_jobs
from dalsegno.insight.operations import find_operations, get_operation
from dalsegno.insight.query import parse
from dalsegno.store.schema import commands, jobs, stages
from dalsegno.store.store import Tx
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
    every,
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
    wait_for_job,
    work_off,
)


@pytest.fixture
def two_jobs(store: Store) -> Store:
    """In the first, three of six failed; the second has failed as a whole but for one that is done."""
    process = register(store)
    for failed in (3, 5):
        submitted(store, one_step(max_attempts=1), items=6)
        held = claim(store, process, 6)
        begin(store, held)
        settle(store, held[failed:], "succeeded")
        settle(store, held[:failed], "failed", error_code="Timeout", error_message="no answer")
    return store


def looked(store: Store, action: Any, text: str) -> Preview:
    return store.read(lambda tx: preview(tx, action, parse(text, ITEMS)))


def row_of(store: Store, number: int) -> sa.RowMapping:
    return one(store, sa.select(commands).where(commands.c.id == number))


def finish(store: Store) -> None:
    while apply_bulk(store, matching):
        pass


def test_a_retry_of_everything_that_failed(two_jobs: Store) -> None:
    number = ask(two_jobs, "bulk_retry", payload={"query": "error:timeout"}, requested_by="the shelf")
    finish(two_jobs)
    row = row_of(two_jobs, number)
    assert row["status"] == "applied"
    assert row["progress"] == {"seen": 8, "done": 8, "refused": {}, "cursor": None, "stopped": False}
    assert statuses_of(two_jobs, 1) == {"succeeded": 3, "pending": 3}
    assert statuses_of(two_jobs, 2) == {"succeeded": 1, "pending": 5}
    assert status_of(two_jobs, 1) == status_of(two_jobs, 2) == "queued"
    assert {event["source"] for event in events_of(two_jobs, type="item_retried")} == {"the shelf"}
    (told,) = events_of(two_jobs, type="bulk_retry_applied")
    assert told["data"]["done"] == 8
    assert_sound(two_jobs, 1, 2)

    @service("work")
    def work(item: Item) -> None:
        return None

    assert run_job(two_jobs, [work], 1) == "completed"
    assert run_job(two_jobs, [work], 2) == "completed"


def test_what_may_not_be_retried_is_counted_by_why(two_jobs: Store) -> None:
    number = ask(two_jobs, "bulk_retry", payload={"query": "job:1"})
    finish(two_jobs)
    assert row_of(two_jobs, number)["progress"]["refused"] == {"succeeded": 3}
    again = ask(two_jobs, "bulk_force_retry", payload={"query": "job:1"})
    finish(two_jobs)
    progress = row_of(two_jobs, again)["progress"]
    assert (progress["done"], progress["refused"]) == (3, {"pending": 3})
    assert statuses_of(two_jobs, 1) == {"pending": 6}
    assert_sound(two_jobs, 1)


def test_items_can_be_named_and_kept_to_a_job(two_jobs: Store) -> None:
    number = ask(two_jobs, "bulk_retry", job_id=1, payload={"items": [1, 2, 4, 7, 8, 999]})
    finish(two_jobs)
    progress = row_of(two_jobs, number)["progress"]
    assert (progress["done"], progress["refused"]) == (2, {"another_job": 2, "succeeded": 1})


def test_a_cancel_takes_what_waits_and_the_job_goes_on_without_it(store: Store) -> None:
    process = register(store)
    submitted(store, one_step(), items=10)
    held = claim(store, process, 3)
    begin(store, held[:1])
    settle(store, held[1:2], "pending")  # one comes back, one is running, one is claimed
    number = ask(store, "bulk_cancel", payload={"query": "-key:k00010"})
    finish(store)
    progress = row_of(store, number)["progress"]
    assert (progress["done"], progress["refused"]) == (7, {"claimed": 1, "running": 1})
    assert_sound(store, 1)
    assert stage_of(store, 1)["ready"] == 1
    assert [item.key for item in claim(store, process, 10)] == ["k00010"]


def test_a_job_whose_last_items_are_canceled_is_over(store: Store) -> None:
    submitted(store, chain("work", "late"), items={"a": keys(3), "b": keys(2)})
    ask(store, "bulk_cancel", payload={"query": "job:1"})
    finish(store)
    assert statuses_of(store, 1) == {"canceled": 5}
    assert_sound(store, 1)


def test_it_goes_on_bit_by_bit_and_can_be_stopped(two_jobs: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    number = ask(two_jobs, "bulk_retry", payload={"query": "state:failed"})
    assert apply_bulk(two_jobs, matching)
    assert row_of(two_jobs, number)["progress"]["done"] == 2
    assert row_of(two_jobs, number)["status"] == "pending"
    two_jobs.write("stop", lambda tx: stop_bulk(tx, number))
    assert not apply_bulk(two_jobs, matching)
    row = row_of(two_jobs, number)
    assert (row["status"], row["progress"]["done"], row["progress"]["stopped"]) == ("applied", 2, True)
    with pytest.raises(CommandRefused, match="What it did stays done"):
        two_jobs.write("stop", lambda tx: stop_bulk(tx, number))
    with pytest.raises(NotFound):
        two_jobs.write("stop", lambda tx: stop_bulk(tx, 999))
    assert_sound(two_jobs, 1, 2)


def test_an_item_that_fails_again_is_not_met_twice(two_jobs: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 1)
    number = ask(two_jobs, "bulk_retry", payload={"query": "state:failed"})
    process = register(two_jobs)
    for _ in range(50):
        left = apply_bulk(two_jobs, matching)
        held = claim(two_jobs, process, 10)
        begin(two_jobs, held)
        settle(two_jobs, held, "failed", error_message="again")
        if not left:
            break
    assert row_of(two_jobs, number)["progress"]["done"] == 8


def test_a_running_engine_applies_it(two_jobs: Store) -> None:
    @service("work")
    def work(item: Item) -> None:
        return None

    ask(two_jobs, "bulk_retry", payload={"query": "error:timeout"})
    with Engine(two_jobs, [work], replace(SWIFT, find=matching)):
        wait_for_job(two_jobs, 1, ["completed"])
        wait_for_job(two_jobs, 2, ["completed"])


def test_a_query_that_makes_no_sense_is_rejected(two_jobs: Store) -> None:
    number = ask(two_jobs, "bulk_retry", payload={"query": "sate:failed"})
    assert not apply_bulk(two_jobs, matching)
    row = row_of(two_jobs, number)
    assert (row["status"], row["error_code"]) == ("rejected", "query_invalid")
    assert 'Did you mean "state"' in row["error_message"]


def test_an_item_is_changed_once_however_often_it_is_found(two_jobs: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is kept with every bit. Were it lost, what was changed is known all the same."""
    monkeypatch.setattr(bulk, "BATCH", 3)
    number = ask(two_jobs, "bulk_force_retry", payload={"query": ""})
    assert apply_bulk(two_jobs, matching)
    progress = {**row_of(two_jobs, number)["progress"], "cursor": None}
    process = register(two_jobs)
    work_off(two_jobs, process)
    update = sa.update(commands).where(commands.c.id == number).values(progress=progress)
    two_jobs.write("forget", lambda tx: tx.conn.execute(update))
    finish(two_jobs)
    told = Counter(event["item_id"] for event in events_of(two_jobs, type="item_force_retried"))
    assert set(told.values()) == {1}
    assert len(told) == 12
    assert row_of(two_jobs, number)["progress"]["done"] == 12


def test_what_a_command_changed_is_found_again(two_jobs: Store) -> None:
    first = ask(two_jobs, "bulk_retry", payload={"query": "job:1"})
    second = ask(two_jobs, "bulk_retry", payload={"query": "state:failed"})
    finish(two_jobs)
    process = register(two_jobs)
    admit(two_jobs)
    held = claim(two_jobs, process, 8)
    begin(two_jobs, held)
    settle(two_jobs, held[:1], "failed", error_code="Again", error_message="once more", fingerprint="00000000000a")
    settle(two_jobs, held[1:], "succeeded")

    def found(text: str) -> list[int]:
        query = parse(text, ITEMS)
        return [line.item.id for line in two_jobs.read(lambda tx: find_items(tx, query)).lines]

    assert found(f"bulk:{first}") == [3, 2, 1]
    assert found(f"bulk:{second}") == [11, 10, 9, 8, 7]
    assert found(f"bulk:{first},{second} job:2") == [11, 10, 9, 8, 7]
    assert found(f"bulk:{first} state:failed") == [held[0].id]
    assert found(f"bulk:{first} -bulk:{second} stage:a service:work") == [3, 2, 1]
    assert found(f"-bulk:{first} -bulk:{second}") == [12, 6, 5, 4]
    assert found("bulk:99") == []
    pages = [two_jobs.read(lambda tx, c=c: find_items(tx, parse(f"bulk:{second}", ITEMS), cursor=c, limit=2))
             for c in (None, "2.4", "2.2")]  # fmt: skip
    assert [[line.item.id for line in page.lines] for page in pages] == [[11, 10], [9, 8], [7]]
    assert [page.next_cursor for page in pages] == ["2.4", "2.2", None]

    def jobs_of(text: str) -> list[int]:
        return [line.job.id for line in two_jobs.read(lambda tx: find_jobs(tx, parse(text, JOBS))).lines]

    assert (jobs_of(f"bulk:{first}"), jobs_of(f"bulk:{second}"), jobs_of("bulk:99")) == ([1], [2], [])
    assert jobs_of(f"bulk:{first},{second} -bulk:{first}") == [2]
    seen = looked(two_jobs, "bulk_retry", f"bulk:{first}")
    assert (seen.eligible, seen.refused, seen.more) == (1, {"succeeded": 2}, False)


def test_the_errors_of_what_failed_again_are_found(two_jobs: Store) -> None:
    @service("work", workers=1)
    def work(item: Item) -> Fail:
        return Fail("the line is broken", code="broken")

    number = ask(two_jobs, "bulk_retry", payload={"query": "job:1 state:failed"})
    finish(two_jobs)
    assert run_job(two_jobs, [work], 1) == "completed_with_errors"

    def groups(text: str) -> list[str]:
        return [line.group.code for line in two_jobs.read(lambda tx: find_groups(tx, parse(text, GROUPS))).lines]

    assert groups(f"bulk:{number}") == ["broken"]
    assert groups(f"bulk:{number} code:other") == groups("bulk:99") == []
    assert groups("bulk:98,99") == []
    assert groups("-bulk:99") == ["broken"]


@pytest.mark.parametrize("text", ["bulk:>3", "bulk:x"])
def test_an_operation_is_named_by_its_number(text: str) -> None:
    for grammar in (ITEMS, JOBS, GROUPS):
        with pytest.raises(QueryInvalid, match="bulk"):
            parse(text, grammar)


def test_a_priority_is_the_jobs_that_own_the_items(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 2)
    process = register(store)
    for count in (5, 3, 4, 2):
        submitted(store, chain("work", "late"), items={"a": keys(count), "b": keys(1)})
    settle(store, claim(store, process, 5))
    command(store, "set_priority", job_id=3, payload={"priority": 7})
    command(store, "cancel", job_id=4)
    while scheduler.cancel_some(store):
        pass
    assert status_of(store, 4) == "canceled"
    seen = store.read(lambda tx: preview(tx, "bulk_priority", parse("job:<9", ITEMS), priority=7))
    assert (seen.unit, seen.eligible, seen.refused, seen.more) == ("jobs", 2, {"same_priority": 1}, False)
    assert seen.waiting == 1 + 3 + 1
    assert [name.partition(":")[0] for name in seen.names] == ["2", "1"]
    number = ask(store, "bulk_priority", payload={"query": "job:<9", "priority": 7}, requested_by="the shelf")
    finish(store)
    progress = row_of(store, number)["progress"]
    assert (progress["seen"], progress["done"], progress["refused"]) == (2, 2, {})
    rows = every(store, sa.select(jobs.c.id, jobs.c.priority).order_by(jobs.c.id))
    assert [(row["id"], row["priority"]) for row in rows] == [(1, 7), (2, 7), (3, 7), (4, 100)]
    assert {row["priority"] for row in every(store, sa.select(stages.c.priority).where(stages.c.job_id < 4))} == {7}
    told = events_of(store, type="job_priority_changed", source="the shelf")
    assert sorted((event["job_id"], event["data"]["from"], event["data"]["to"]) for event in told) == [
        (1, 100, 7),
        (2, 100, 7),
    ]
    lines = store.read(lambda tx: find_jobs(tx, parse(f"bulk:{number}", JOBS))).lines
    assert [line.job.id for line in lines] == [2, 1]
    named = ask(store, "bulk_priority", payload={"items": [1, 6, 7], "priority": 9}, job_id=2)
    finish(store)
    progress = row_of(store, named)["progress"]
    assert (progress["seen"], progress["done"], progress["refused"]) == (1, 1, {}), "it was kept to job 2"
    assert_sound(store, 1, 2, 3, 4)


def test_a_job_that_has_no_items_yet_gets_a_priority_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits for its lane, when a priority matters most."""
    monkeypatch.setattr(bulk, "BATCH", 2)
    waiting = [submit(store, one_step()).job_id for _ in range(5)]
    planned = submitted(store).job_id
    for text, found in {"job:>2": 4, "service:work -job:3": 5, "": 6, "state:pending": 1, "service:other": 0}.items():
        seen = store.read(lambda tx, text=text: preview(tx, "bulk_priority", parse(text, ITEMS), priority=7))
        assert (seen.eligible, seen.more) == (found, False), text
    number = ask(store, "bulk_priority", payload={"query": "job:>2", "priority": 7})
    finish(store)
    progress = row_of(store, number)["progress"]
    assert (progress["seen"], progress["done"], progress["refused"]) == (4, 4, {})
    rows = every(store, sa.select(jobs.c.id, jobs.c.priority).order_by(jobs.c.id))
    assert [row["priority"] for row in rows] == [100, 100, 7, 7, 7, 7]
    assert_sound(store, *waiting, planned)


@pytest.mark.parametrize("priority", [None, "7", True, 10**7])
def test_a_priority_must_be_a_number(store: Store, priority: Any) -> None:
    with pytest.raises(InputInvalid, match="priority"):
        ask(store, "bulk_priority", payload={"query": "", "priority": priority})


def test_a_database_that_is_away_does_not_end_an_operation(two_jobs: Store) -> None:
    number = ask(two_jobs, "bulk_retry", payload={"query": "state:failed"})

    def away(*_args: Any, **_more: Any) -> bulk.Found:
        raise DatabaseUnavailable(problem="nobody answers")

    with pytest.raises(DatabaseUnavailable):
        apply_bulk(two_jobs, away)
    assert row_of(two_jobs, number)["status"] == "pending"
    finish(two_jobs)
    assert row_of(two_jobs, number)["progress"]["done"] == 8


def test_an_operation_tells_how_far_it_is(two_jobs: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BATCH", 5)

    def state() -> tuple[str, int, str | None]:
        found = two_jobs.read(lambda tx: get_operation(tx, number))
        return found.state, found.done, found.result

    number = ask(two_jobs, "bulk_retry", payload={"query": "state:failed"})
    assert state() == ("waiting", 0, None)
    apply_bulk(two_jobs, matching)
    assert state() == ("running", 5, f"bulk:{number}")
    two_jobs.write("stop", lambda tx: stop_bulk(tx, number))
    assert state()[0] == "stopping"
    apply_bulk(two_jobs, matching)
    assert state() == ("stopped", 5, f"bulk:{number}")
    wrong = ask(two_jobs, "bulk_skip", payload={"query": "sate:failed"})
    command(two_jobs, "pause", job_id=1)
    finish(two_jobs)
    lines = two_jobs.read(find_operations).lines
    assert [(line.id, line.verb, line.state) for line in lines] == [
        (wrong, "skip", "rejected"), (number, "retry", "stopped"),
    ]  # fmt: skip
    with pytest.raises(NotFound):
        two_jobs.read(lambda tx: get_operation(tx, wrong + 1))


@pytest.mark.parametrize(
    "payload", [None, {}, {"query": 3}, {"items": []}, {"items": ["x"]}, {"query": "", "items": [1]}]
)
def test_a_command_must_say_which_items(store: Store, payload: Any) -> None:
    with pytest.raises(InputInvalid, match="Say which items"):
        ask(store, "bulk_retry", payload=payload)


def test_a_preview_says_what_would_be_done(two_jobs: Store) -> None:
    seen = looked(two_jobs, "bulk_retry", "job:1")
    assert (seen.eligible, seen.refused, seen.more) == (3, {"succeeded": 3}, False)
    assert seen.names == ["k00003", "k00002", "k00001"]
    seen = looked(two_jobs, "bulk_force_retry", "key:k00001,k00004 -error:other")
    assert (seen.eligible, seen.refused, seen.more, seen.found) == (4, {}, False, 4)
    seen = looked(two_jobs, "bulk_cancel", "")
    assert (seen.eligible, seen.refused, seen.names) == (0, {"failed": 8, "succeeded": 4}, [])


@pytest.mark.parametrize("text", ["attempt:0", "stage:a attempt:0 -error:other", "bulk:1"])
def test_a_preview_says_at_least_when_its_time_is_up(store: Store, text: str) -> None:
    submitted(store, one_step(), items=2_500)
    ask(store, "bulk_skip", payload={"query": ""})
    finish(store)
    short = store.read(lambda tx: preview(tx, "bulk_force_retry", parse(text, ITEMS), seconds=1e-9))
    assert (short.eligible, short.more) == (2_000, True), "the first stretch is counted, whatever the time"
    long = store.read(lambda tx: preview(tx, "bulk_force_retry", parse(text, ITEMS), seconds=30.0))
    assert (long.eligible, long.more, len(long.names)) == (2_500, False, 10)
    some = store.read(lambda tx: preview(tx, "bulk_force_retry", parse(f"{text} key:k000*", ITEMS), seconds=30.0))
    assert (some.eligible, some.more) == (99, False)


def test_a_preview_knows_of_jobs_that_are_being_canceled(store: Store) -> None:
    process = register(store)
    submitted(store, one_step(max_attempts=1), items=2)
    held = claim(store, process, 2)
    begin(store, held)
    settle(store, held[:1], "failed", error_message="no")
    command(store, "cancel", job_id=1)
    seen = looked(store, "bulk_retry", "state:failed")
    assert (seen.eligible, seen.refused) == (0, {"being_canceled": 1})


def test_facets_count_what_else_could_be_asked(two_jobs: Store) -> None:
    def facets(text: str) -> Facets:
        return two_jobs.read(lambda tx: item_facets(tx, parse(text, ITEMS)))

    found = facets("state:failed")
    assert {(facet.value, facet.count) for facet in found.state} == {("failed", 8), ("succeeded", 4)}
    assert found.stage == [Facet("a", 8)]
    assert found.service == [Facet("work", 8)]
    assert facets("job:1 state:failed").stage == [Facet("a", 3)]
    assert {(facet.value, facet.count) for facet in facets("key:k00001,k00004").state} == {
        ("failed", 3),
        ("succeeded", 1),
    }
    assert facets("nothing such").state == []


@pytest.fixture
def resubmitted(postgres_url: str, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch) -> Store:
    """Job 1 is over, and its key is submitted again just after a retry has looked for a twin."""
    store, client = stores(postgres_url), stores(postgres_url)
    workflow = one_step(max_attempts=1)
    job = submitted(store, workflow, items=1, dedupe="same").job_id
    settle(store, claim(store, register(store)), "failed")
    assert status_of(store, job) == "completed_with_errors"
    twins: list[int] = []

    def look(tx: Tx, key: str) -> int | None:
        found = active_twin(tx, key)
        if not twins:
            twins.append(submit(client, workflow, items=keys(1), dedupe="same").job_id)
        return found

    monkeypatch.setattr(retry, "active_twin", look)
    return store


def test_a_retry_in_bulk_counts_a_twin_that_was_submitted_at_that_moment(resubmitted: Store) -> None:
    number = ask(resubmitted, "bulk_retry", payload={"query": "job:1"})
    finish(resubmitted)
    row = row_of(resubmitted, number)
    assert (row["status"], row["progress"]["refused"]) == ("applied", {"twin_active": 1}), row["error_message"]
    assert statuses_of(resubmitted, 1) == {"failed": 1}
    assert_sound(resubmitted, 1, 2)


def test_a_retry_names_a_twin_that_was_submitted_at_that_moment(resubmitted: Store) -> None:
    refused = command(resubmitted, "retry_item", item_id=1)
    assert (refused["status"], refused["error_code"]) == ("rejected", "twin_active"), refused["error_message"]
    assert_sound(resubmitted, 1, 2)
