"""kill -9 in the middle of something done to many items: it goes on, and every item is touched once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa
from bench import bulk as bench

from dalsegno import Store, open_store
from dalsegno.insight.finding import ITEMS, find_items
from dalsegno.insight.operations import get_operation
from dalsegno.insight.query import parse
from dalsegno.store.schema import bulk_items, events, items
from tests.crash.harness import KILLED
from tests.helpers import assert_counters, every, one, wait_until

PROGRAM = Path(bench.__file__)
COUNT = 3_000


def engine(url: str, fault: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), "--database", url, "--engine"], env={**os.environ, "DALSEGNO_FAULT": fault}
    )


def assert_touched_once(store: Store, number: int, count: int) -> None:
    told = every(store, sa.select(events.c.item_id, events.c.data).where(events.c.type == "item_retried"))
    assert Counter(event["item_id"] for event in told) == Counter(range(1, count + 1))
    assert {event["data"]["bulk"] for event in told} == {number}
    assert one(store, sa.select(sa.func.count().label("n")).select_from(bulk_items))["n"] == count
    found = store.read(lambda tx: get_operation(tx, number))
    assert (found.state, found.seen, found.done, found.refused) == ("done", count, count, {})
    assert {row["status"] for row in every(store, sa.select(items.c.status).distinct())} == {"pending"}
    page = store.read(lambda tx: find_items(tx, parse(f"bulk:{number}", ITEMS), limit=5))
    assert [line.item.seq for line in page.lines] == [count, count - 1, count - 2, count - 3, count - 4]
    assert_counters(store)


def test_killed_before_and_after_a_commit_it_goes_on_from_there(database_url: str) -> None:
    store = open_store(database_url)
    try:
        bench.broken(store, COUNT)
        number = bench.ask(store, "state:failed")
        for fault, done in (("bulk.commit.before:3", 1_000), ("bulk.commit.after:2", 2_000)):
            assert engine(database_url, fault).wait(60) == KILLED
            found = store.read(lambda tx: get_operation(tx, number))
            assert (found.state, found.done) == ("running", done)
        child = engine(database_url)
        try:
            wait_until(lambda: store.read(lambda tx: get_operation(tx, number)).over, "the retry to be through", 60)
        finally:
            child.kill()
            child.wait()
        assert_touched_once(store, number, COUNT)
    finally:
        store.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_hundred_thousand_are_touched_once_whenever_it_is_killed(database_url: str) -> None:
    store = open_store(database_url)
    try:
        found = bench.killed(store, database_url, 200_000, kills=5)
        assert found["items_by_times_touched"] == {1: 200_000}
        assert len(set(found["killed_at"])) == 5
        assert_touched_once(store, 1, 200_000)
    finally:
        store.close()
