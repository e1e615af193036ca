"""What the lists really execute, explained: no table is read from end to end, and none is sorted as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.find import ITEMS, matching
from dalsegno.engine.bulk import apply_bulk
from dalsegno.insight.audit import AUDIT, find_acts
from dalsegno.insight.events import EVENTS, find_events
from dalsegno.insight.finding import find_items
from dalsegno.insight.grammar import Grammar
from dalsegno.insight.groups import GROUPS, find_groups
from dalsegno.insight.jobs import JOBS, find_jobs, find_queued, list_waiting
from dalsegno.insight.logs import LOGS, find_logs
from dalsegno.insight.query import parse
from dalsegno.insight.waiting import why_queued
from dalsegno.store.schema import jobs, lanes, logs
from dalsegno.store.store import Tx
from tests.helpers import ask, begin, chain, claim, job_of, keys, one_step, register, settle, submitted

LARGE = ("items", "events", "logs", "songs", "bulk_items")
"""Tables that a page never reads as a whole."""

LISTS: list[tuple[Callable[..., Any], Grammar, str]] = [
    *((find_items, ITEMS, text) for text in (
        "", "state:failed", "state:running", "state:pending", "job:1 state:failed", "stage:a",
        "service:late key:k00001", "error:429", "group:abc", "song:17", "playlist:17", "source:demo", "age:>1d",
        "k0001", "bulk:1", "bulk:1 state:failed", "-bulk:1", "bulk:1,2 job:1",
    )),
    *((find_jobs, JOBS, text) for text in ("", "state:running", "state:failed", "lane:default", "bulk:1")),
    *((find_groups, GROUPS, text) for text in ("", "bulk:1", "-bulk:1")),
    *((find_logs, LOGS, text) for text in ("", "level:error", "job:1", "item:17", "worker:work-1", "line")),
    *((find_events, EVENTS, text) for text in ("", "kind:job_*", "kind:item_failed", "job:1", "item:17", "engine")),
    *((find_acts, AUDIT, text) for text in ("", "kind:limit_set", "by:console@*", "job:1", "disk")),
]  # fmt: skip


@pytest.fixture
def history(store: Store) -> Store:
    process = register(store)
    submitted(store, one_step(max_attempts=1), items=3_000)
    held = claim(store, process, 400)
    begin(store, held)
    settle(store, held[:380], "succeeded")
    settle(store, held[380:390], "failed", error_code="x", error_message="status 429", fingerprint="00000000000a")
    ask(store, "bulk_force_retry", payload={"query": "state:failed,succeeded"})
    while apply_bulk(store, matching):
        pass
    submitted(store, chain("work", "late"), items={"a": keys(1_000), "b": keys(1_000)})
    rows = [
        {"at": store.clock.now(), "level": "error" if n % 50 == 0 else "info", "logger": "x", "message": f"line {n}",
         "job_id": 1 + n % 2, "item_id": n % 100, "worker": "work-1"}
        for n in range(3_000)
    ]  # fmt: skip
    store.write("test", lambda tx: tx.conn.execute(sa.insert(logs), rows))
    if store.shared:
        store.write("test", lambda tx: tx.conn.execute(sa.text("ANALYZE")))
    return store


def test_every_page_goes_by_an_index(history: Store) -> None:
    """Up to a limit, in the order of the rows' own numbers, a table is not read as a whole, though SQLite says SCAN."""
    for find, among, text in LISTS:
        plans = history.read(lambda tx, f=find, a=among, t=text: plans_of(tx, f, a, t))  # type: ignore[misc]
        assert plans
        for plan in plans:
            lines = "\n".join(plan)
            for table in LARGE:
                assert f"Seq Scan on {table}" not in lines, f"{text}: {lines}"
                sorted_whole = re.search(rf"SCAN {table}$", lines, re.MULTILINE) and "TEMP B-TREE" in lines
                assert not sorted_whole, f"{text}: {lines}"


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "with statistics"])
def test_the_jobs_that_wait_are_read_in_their_turn_by_their_index(store: Store, analysed: bool) -> None:
    """However many there are: as many as a page has are read of each lane, and none is sorted but those."""
    first = job_of(store, submitted(store, one_step(), items=1).job_id)
    shared = {key: first[key] for key in ("workflow_id", "created_at", "updated_at")}
    rows = [
        {**shared, "lane": f"lane-{n % 3}", "order_seq": n + 10, "priority": n % 7 - 3, "pause_reason": None}
        for n in range(6_000)
    ]

    def fill(tx: Tx) -> None:
        tx.conn.execute(sa.insert(lanes), [{"name": f"lane-{n}", "max_active": 1} for n in range(3)])
        tx.conn.execute(sa.insert(jobs), rows)
        if analysed:
            tx.conn.execute(sa.text("ANALYZE"))

    store.write("test", fill)

    def read(tx: Tx) -> None:
        page = find_queued(tx, parse("state:queued", JOBS), limit=20)
        find_queued(tx, parse("state:queued template:w-*", JOBS), limit=20, cursor=page.next_cursor)
        list_waiting(tx, 9)
        why_queued(tx, (line.job for line in page.lines))

    def plans(tx: Tx) -> list[list[str]]:
        seen = remembered(tx, lambda: read(tx))
        assert len(seen) < 30, "a statement or two for each lane, none for each job"
        return [explained(tx, *each) for each in seen if "FROM jobs" in each[0]]

    found = store.read(plans)
    assert any("ix_jobs_waiting" in line for plan in found for line in plan)
    for plan in found:
        lines = "\n".join(plan)
        assert "Seq Scan on jobs" not in lines, lines
        assert not re.search(r"SCAN jobs(?! USING INDEX ix_jobs_paused)", lines), lines
        whole = "Sort" in lines or "TEMP B-TREE" in lines
        assert not whole or "ix_jobs_paused" in lines, f"only those that are paused are sorted: {lines}"


def plans_of(tx: Tx, find: Callable[..., Any], among: Grammar, text: str) -> list[list[str]]:
    """Of every statement of the first two pages."""

    def read() -> None:
        page = find(tx, parse(text, among), among=among, limit=20)
        if page.next_cursor is not None:
            find(tx, parse(text, among), among=among, limit=20, cursor=page.next_cursor)

    return [explained(tx, statement, params) for statement, params in remembered(tx, read)]


def remembered(tx: Tx, read: Callable[[], None]) -> list[tuple[str, Any]]:
    """The statements of a read."""
    seen: list[tuple[str, Any]] = []

    def remember(_conn: Any, _cursor: Any, statement: str, params: Any, *_: Any) -> None:
        if not statement.startswith("SET "):
            seen.append((statement, params))

    sa.event.listen(tx.conn, "before_cursor_execute", remember)
    read()
    sa.event.remove(tx.conn, "before_cursor_execute", remember)
    return seen


def explained(tx: Tx, statement: str, params: Any) -> list[str]:
    if tx.conn.dialect.name == "sqlite":
        return [str(row[3]) for row in tx.raw.execute(f"EXPLAIN QUERY PLAN {statement}", params).fetchall()]
    return [str(row[0]) for row in tx.raw.execute(f"EXPLAIN {statement}", params).fetchall()]
