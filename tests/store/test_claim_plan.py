"""The claim's cost does not grow. What it really executes is recorded, then explained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dalsegno import Store, submit
from dalsegno.engine.skip import skip_items
from dalsegno.store.postgres_sql import LEFT_BEHIND
from dalsegno.store.store import Tx
from tests.helpers import admit, chain, claim, item_of, keys, named, one_step, register, settle

FEW, MANY, BLOCKED, WANT = 1_000, 100_000, 100_000, 50
BESIDE = 50
"""Other active jobs of the same service."""

Statements = list[tuple[str, Any]]


class Undo(Exception):
    pass


class Recorder:
    """Passes everything on to the driver's connection and remembers what was executed."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.seen: Statements = []

    def execute(self, statement: str, params: Any = ()) -> Any:
        self.seen.append((statement, params))
        return self._raw.execute(statement, params)

    def executemany(self, statement: str, rows: Any) -> Any:
        rows = list(rows)
        if rows:
            self.seen.append((statement, rows[0]))
        return self._raw.executemany(statement, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def recorded(store: Store, process: int) -> Statements:
    """What a claim of WANT items executes; nothing of it stays."""
    seen: Statements = []

    def work(tx: Tx) -> None:
        tx.raw = recorder = Recorder(tx.raw)
        assert len(tx.hot.claim(tx, "work", process, WANT)) == WANT
        seen.extend(recorder.seen)
        raise Undo

    with pytest.raises(Undo):
        store.write("test", work)
    return seen


def filled(store: Store, pending: int, *, skipped: bool = True) -> int:
    """A job with this many pending items and 100,000 that wait for them, and other jobs beside it."""
    workflow = chain("work", "work")
    process = register(store)
    job = submit(store, workflow, items={"a": keys(pending), "b": keys(BLOCKED)}, priority=1).job_id
    for _ in range(BESIDE):
        submit(store, one_step(), items=keys(3))
    admit(store)
    settle(store, claim(store, process, 20), "pending")  # some come back: their path is explained too
    if skipped:  # and so is the second look of a claim that passes a number by
        item = item_of(store, job, keys(30)[-1])["id"]
        store.write("test", lambda tx: skip_items(tx, job, [item], "test", {}))
    return process


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def explained(store: Store, process: int) -> tuple[list[dict[str, Any]], int, int]:
    """The plan's nodes, the rows they visited and the buffers they touched."""
    statements = recorded(store, process)
    found: list[dict[str, Any]] = []
    buffers = 0

    def work(tx: Tx) -> None:
        nonlocal buffers
        for statement, params in statements:
            if not re.match(r"\s*(WITH|SELECT|UPDATE|INSERT|DELETE)", statement):
                tx.raw.execute(statement, params)
                continue
            answer = tx.raw.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params).fetchone()
            plan = answer[0][0]["Plan"]
            found.extend(nodes(plan))
            buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        raise Undo

    with pytest.raises(Undo):
        store.write("test", work)
    rows = sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in found
        if "Scan" in node["Node Type"] and ("Relation Name" in node or "Index Name" in node)
    )
    return found, rows, buffers


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "with statistics"])
def test_on_postgresql_a_claim_visits_as_much_with_100_000_pending_as_with_1_000(
    fresh_database: Callable[..., str], stores: Callable[..., Store], analysed: bool
) -> None:
    visited = {}
    for pending in (FEW, MANY):
        store = stores(fresh_database("postgres"))
        process = filled(store, pending)
        if analysed:
            store.write("test", lambda tx: tx.raw.execute("ANALYZE items; ANALYZE stages; ANALYZE leases"))
        explained(store, process)  # the first one after a load also sets hint bits
        found, rows, buffers = explained(store, process)
        scans = {(node["Node Type"], node["Relation Name"]) for node in found if "Relation Name" in node}
        wrong = {scan for scan in scans if scan[0] == "Seq Scan"}
        assert not wrong, f"{pending} pending: {wrong}"
        visited[pending] = (rows, buffers)
    assert visited[MANY][0] <= visited[FEW][0] * 1.05, visited
    assert visited[MANY][1] <= visited[FEW][1] * 1.3 + 20, visited  # an index of 100,000 may be a level deeper


def steps_of(store: Store, process: int) -> int:
    """How many instructions of SQLite's machine a claim takes, in tens."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    def work(tx: Tx) -> None:
        tx.raw.set_progress_handler(tick, 10)
        try:
            assert len(tx.hot.claim(tx, "work", process, WANT)) == WANT
        finally:
            tx.raw.set_progress_handler(None, 0)
        raise Undo

    with pytest.raises(Undo):
        store.write("test", work)
    return count


def test_on_sqlite_a_claim_takes_as_many_steps_with_100_000_pending_as_with_1_000(
    fresh_database: Callable[..., str], stores: Callable[..., Store]
) -> None:
    steps = {}
    for pending in (FEW, MANY):
        store = stores(fresh_database("sqlite"))
        process = filled(store, pending)
        steps[pending] = steps_of(store, process)
    assert steps[MANY] <= steps[FEW] * 1.1, steps


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "with statistics"])
def test_on_sqlite_every_statement_of_a_claim_searches_an_index(
    fresh_database: Callable[..., str], stores: Callable[..., Store], analysed: bool
) -> None:
    store = stores(fresh_database("sqlite"))
    process = filled(store, FEW)
    if analysed:
        store.write("test", lambda tx: tx.raw.execute("ANALYZE") and None)
    details = []

    def work(tx: Tx) -> None:
        for statement, params in statements:
            if re.match(r"\s*(WITH|SELECT|UPDATE|INSERT|DELETE)", statement):
                details.extend(row[3] for row in tx.raw.execute(f"EXPLAIN QUERY PLAN {statement}", params))

    statements = recorded(store, process)
    store.write("test", work)
    assert not [detail for detail in details if re.match(r"SCAN (items|stages|leases)", detail)], details
    assert any("ix_stages_claim" in detail for detail in details), details
    assert any("ix_items_returned" in detail for detail in details), details
    assert any(re.search(r"SEARCH items USING .*\(stage_id=\? AND seq>\? AND seq<\?\)", d) for d in details), details
    assert not any("TEMP B-TREE" in detail for detail in details), details


def test_a_wide_stage_does_not_hide_a_more_urgent_one(store: Store) -> None:
    """Flat, but not at the price of the order."""
    process = register(store)
    submit(store, one_step(), items=keys(2_000), priority=50)
    urgent = submit(store, named(*one_step().steps), items=keys(2), priority=1).job_id
    admit(store)
    assert [item.job_id for item in claim(store, process, 2)] == [urgent, urgent]


@pytest.mark.parametrize("skipped", [False, True])
def test_on_postgresql_only_a_claim_that_passes_a_number_by_looks_at_its_range_again(
    postgres_url: str, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, skipped: bool
) -> None:
    monkeypatch.setattr("tests.store.test_claim_plan.BLOCKED", 1)
    store = stores(postgres_url)
    process = filled(store, FEW, skipped=skipped)
    looks = [statement for statement, _ in recorded(store, process) if statement == LEFT_BEHIND]
    assert len(looks) == skipped
