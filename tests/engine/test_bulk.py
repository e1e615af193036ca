"""Commands about many items: found bit by bit, guarded where they change, with progress and a stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, Store, service
from dalsegno.engine import bulk
from dalsegno.engine.bulk import apply_bulk, stop_bulk
from dalsegno.errors import CommandRefused, InputInvalid, NotFound
from dalsegno.insight.bulk import Preview, matching, preview
from dalsegno.insight.facets import Facet, Facets, item_facets
from dalsegno.insight.finding import ITEMS
from dalsegno.insight.query import parse
from dalsegno.store.schema import commands
from tests.helpers import (
    SWIFT,
    ask,
    assert_sound,
    begin,
    chain,
    claim,
    command,
    events_of,
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
