"""Events of a job: listed whole, whatever waited for whom, and at the price of its own among however many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from dalsegno import Store, submit
from dalsegno.clock import ManualClock
from dalsegno.engine import scheduler
from dalsegno.engine.planner import advance
from dalsegno.engine.rows import lock_job
from dalsegno.insight import events as reading
from dalsegno.insight.events import EVENTS, find_events
from dalsegno.insight.query import parse
from dalsegno.model.records import EventRecord
from dalsegno.store.hot import Event
from dalsegno.store.schema import events
from dalsegno.store.store import Tx
from tests.helpers import claim, keys, one_step, register, settle, submitted


def pages(store: Store, text: str) -> list[EventRecord]:
    """All of a list of events."""
    found: list[EventRecord] = []
    cursor = None
    while True:
        page = store.read(lambda tx, at=cursor: find_events(tx, parse(text, EVENTS), cursor=at, limit=2))  # type: ignore[misc]
        found += page.lines
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("far", [False, True])
def test_events_of_a_job_are_told_whatever_waited_for_whom(
    postgres_url: str, stores: Callable[..., Store], clock: ManualClock, monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    """Who admits may be older than the submit, and who ends a job older than the settle it waited for."""
    if far:
        monkeypatch.setattr(reading, "STRIDE", 1)
    store, other = stores(postgres_url, clock), stores(postgres_url, clock)

    def say(kind: str) -> None:
        other.write("test", lambda tx: tx.hot.insert_events(tx, [Event(kind, "test", job_id=99)]))

    def admit_it(tx: Tx) -> int:
        tx.raw.execute("SELECT pg_current_xact_id()")
        number = submit(other, one_step(), items=keys(1)).job_id
        assert scheduler._admit(tx, "default") == 1
        return number

    say("before")
    clock.advance(120.0)
    job = store.write("admit", admit_it)
    held = claim(store, register(store))

    def end_it(tx: Tx) -> None:
        lock_job(tx, job)
        settle(other, held, then=False)
        advance(tx, [job])

    store.write("advance", end_it)
    clock.advance(120.0)
    say("after")
    bounds = store.read(lambda tx: reading._bounds(tx, job, reading._order(tx)))
    assert bounds is not None
    assert (bounds.newest is not None, bounds.oldest is not None) == (far, far)
    there = store.read(lambda tx: list(tx.conn.execute(sa.select(events.c.id).filter_by(job_id=job)).scalars()))
    told = pages(store, f"job:{job}")
    assert sorted(event.id for event in told) == sorted(there)
    assert {"job_submitted", "job_running", "item_claimed", "item_succeeded", "job_completed"} <= {
        event.type for event in told
    }
    assert told[0].type == "item_succeeded", "the youngest transaction was not the one that was waited for"


def test_what_happened_to_others_is_passed_over_within_the_index(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    store = stores(postgres_url)
    job = submitted(store, one_step(), items=3).job_id
    process = register(store)
    settle(store, claim(store, process, 3))
    submitted(store, one_step(), items=3_000, scope=2)
    settle(store, claim(store, process, 3_000))
    seen: list[tuple[str, object]] = []

    def read(tx: Tx) -> list[str]:
        sa.event.listen(tx.conn, "before_cursor_execute", lambda _c, _k, text, given, *_: seen.append((text, given)))
        find_events(tx, parse(f"job:{job}", EVENTS))
        (asked,) = [each for each in seen if "LIMIT" in each[0] and "events.message" in each[0]]
        return [str(row[0]) for row in tx.raw.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {asked[0]}", asked[1])]

    plan = store.read(read)
    assert not [line for line in plan if "Removed by Filter" in line], "\n".join(plan)
