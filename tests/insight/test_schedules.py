"""Reads of schedules go by indexes, however many there are: the engine's look at the clock, the list, the runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.engine.orders import as_stored
from dalsegno.engine.timekeeper import keep_time
from dalsegno.insight.query import parse
from dalsegno.insight.schedules import SCHEDULES, find_schedules, get_schedule, list_runs, schedule_of_job
from dalsegno.store.schema import schedule_runs, schedules
from dalsegno.store.store import Tx

LATER = datetime(2126, 1, 1, tzinfo=UTC)
COUNT = 2_000


@pytest.fixture
def many(store: Store) -> Store:
    now = store.clock.now()
    own = {"workflow": "full", "request": {}, "cron": "@daily", "created_at": now, "updated_at": now}
    rows = [{**own, "name": f"s{n:05}", "next_at": LATER + timedelta(minutes=n)} for n in range(COUNT)]
    runs = [
        {
            "schedule_id": 1 + n % 10,
            "due_at": now - timedelta(minutes=n),
            "outcome": "started",
            "job_id": n + 1,
            "at": now,
        }
        for n in range(COUNT)
    ]

    def fill(tx: Tx) -> None:
        tx.conn.execute(sa.insert(schedules), rows)
        tx.conn.execute(sa.insert(schedule_runs), runs)
        if store.shared:
            tx.conn.execute(sa.text("ANALYZE schedules, schedule_runs"))

    store.write("fill", fill)
    return store


def plans(store: Store, work: Callable[[Tx], Any]) -> str:
    """Of every statement that it executes."""
    seen: list[tuple[str, Any]] = []

    def look(tx: Tx) -> list[str]:
        def remember(_conn: Any, _cursor: Any, statement: str, params: Any, *_: Any) -> None:
            seen.append((statement, params))

        sa.event.listen(tx.conn, "before_cursor_execute", remember)
        work(tx)
        sa.event.remove(tx.conn, "before_cursor_execute", remember)
        explain = "EXPLAIN (COSTS OFF) " if store.shared else "EXPLAIN QUERY PLAN "
        found = [tx.conn.exec_driver_sql(explain + statement, params) for statement, params in seen]
        return [str(row[-1]) for rows in found for row in rows]

    return "\n".join(store.read(look))


def test_lists_go_by_indexes(many: Store) -> None:
    reads: list[Callable[[Tx], Any]] = [
        lambda tx: find_schedules(tx, parse("", SCHEDULES), cursor="s01000", limit=20),
        lambda tx: get_schedule(tx, 7),
        lambda tx: get_schedule(tx, "s00007"),
        lambda tx: list_runs(tx, 3, cursor=many.clock.now().isoformat(), limit=20),
        lambda tx: schedule_of_job(tx, 17),
    ]
    for read in reads:
        told = plans(many, read)
        assert "Seq Scan on schedule" not in told, told
        assert "SCAN schedule" not in told, told
        assert "TEMP B-TREE" not in told, told


def test_a_look_at_the_clock_goes_by_two_index_entries(many: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is due and nothing waits: the statements that are asked every second."""
    asked: list[str] = []
    read = many.read

    def told(work: Callable[[Tx], Any]) -> Any:
        asked.append(plans_of := _explained(read, work, many.shared))
        assert plans_of
        return read(work)

    monkeypatch.setattr(many, "read", told)
    assert keep_time(many, as_stored) == LATER
    assert len(asked) == 1
    assert "ix_schedules_next_at" in asked[0]
    assert "ix_schedule_runs_waiting" in asked[0]
    assert "Seq Scan" not in asked[0]


def _explained(read: Callable[..., Any], work: Callable[[Tx], Any], shared: bool) -> str:
    class Reader:
        def __init__(self) -> None:
            self.shared = shared
            self.read = read

    return plans(Reader(), work)  # type: ignore[arg-type]
