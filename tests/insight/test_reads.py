"""Reads for people: pages that miss and repeat nothing, tails that wait for the slowest writer, honest progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, Store, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine.holds import hold, release
from dalsegno.engine.pauses import pause_job, pause_stage
from dalsegno.errors import InputInvalid, NotFound, WorkflowUnknown
from dalsegno.insight import events as reading
from dalsegno.insight.events import Cursor, latest, tail
from dalsegno.insight.holds import list_holds
from dalsegno.insight.items import item_detail, list_items
from dalsegno.insight.jobs import job_detail, list_jobs
from dalsegno.insight.logs import LogTail, list_logs
from dalsegno.insight.progress import job_progress
from dalsegno.insight.workers import engine_alive, list_processes
from dalsegno.insight.workflows import find_workflow, get_workflow
from dalsegno.store.schema import events, items, logs, stages
from tests.helpers import (
    SWIFT,
    admit,
    begin,
    chain,
    claim,
    command,
    keys,
    one_step,
    register,
    settle,
    stage_of,
    submitted,
    wait_until,
    work_off,
)


def test_no_item_is_shown_twice_or_missed_while_items_are_added(store: Store) -> None:
    """A stage that follows item by item grows between two pages."""
    permits = threading.Semaphore(3)

    @service("work", workers=1)
    def work(item: Item) -> None:
        permits.acquire()

    job = submit(store, chain("work", "next", follow="each"), items=keys(7)).job_id
    seen: list[int] = []

    def page() -> list[int]:
        after = seen[-1] if seen else None
        return [line.item.id for line in store.read(lambda tx: list_items(tx, job, after=after, limit=3))]

    def grown(total: int) -> None:
        wait_until(lambda: stage_of(store, job, "b")["total"] >= total, f"{total} that follow")

    with Engine(store, [work], SWIFT):
        for total in range(3, 8):
            grown(total)
            seen += page()
            permits.release()
        while some := page():
            seen += some
    everything = store.read(lambda tx: [line.item.id for line in list_items(tx, job, limit=1000)])
    assert seen == everything
    assert len(seen) == len(set(seen)) == 14


def test_items_are_found_by_stage_and_state(store: Store) -> None:
    job = submitted(store, chain("work", "next"), items={"a": keys(6), "b": keys(2)}).job_id
    process = register(store)
    settle(store, claim(store, process, 2), "failed")
    settle(store, claim(store, process, 2))

    def found(**where: Any) -> list[tuple[str, str, str]]:
        lines = store.read(lambda tx: list_items(tx, job, **where))
        return [(line.stage, line.item.key, line.item.status) for line in lines]

    assert found(state=["failed"]) == [("a", "k00001", "failed"), ("a", "k00002", "failed")]
    assert found(stage="b") == [("b", "k00001", "pending"), ("b", "k00002", "pending")]
    assert [line[1] for line in found(stage="a", state=["pending", "succeeded"])] == keys(6)[2:]
    assert [line[0] for line in found(state=["pending"])] == ["a", "a", "b", "b"]
    assert found(state=["interrupted"]) == []
    with pytest.raises(InputInvalid, match='has no stage "c"'):
        found(stage="c")
    with pytest.raises(NotFound, match="no item 999"):
        found(after=999)
    with pytest.raises(NotFound, match="no job 999"):
        store.read(lambda tx: list_items(tx, 999))


def test_no_job_is_shown_twice_or_missed_while_jobs_are_submitted(store: Store) -> None:
    there = [submit(store, one_step(), items=["x"]).job_id for _ in range(7)]
    seen: list[int] = []

    def page() -> list[int]:
        before = seen[-1] if seen else None
        return [line.job.id for line in store.read(lambda tx: list_jobs(tx, before=before, limit=3))]

    while some := page():
        seen += some
        submit(store, one_step(), items=["x"])
    assert seen == there[::-1]


def test_an_item_tells_whom_it_follows_and_who_has_it(store: Store) -> None:
    @service("work")
    def work(item: Item) -> None:
        return None

    job = submit(store, chain("work", "next", follow="each"), items=keys(1)).job_id
    with Engine(store, [work], SWIFT):
        wait_until(lambda: stage_of(store, job, "b")["total"], "the item that follows")
    process = register(store)
    (held,) = claim(store, process, service="next")
    begin(store, [held], "next-1")
    detail = store.read(lambda tx: item_detail(tx, held.id))
    assert detail.parent is not None
    assert (detail.parent.key, detail.parent.status) == ("k00001", "succeeded")
    assert detail.lease is not None
    assert detail.lease.worker == "next-1"
    assert [event.type for event in detail.events] == ["item_claimed", "item_started"]
    with pytest.raises(NotFound):
        store.read(lambda tx: item_detail(tx, 999))
    with pytest.raises(NotFound):
        store.read(lambda tx: job_detail(tx, 999))


# --- events -------------------------------------------------------------------------------------


def followed(store: Store, after: Cursor, **about: Any) -> tuple[list[int], Cursor]:
    page = store.read(lambda tx: tail(tx, after, **about))
    return [event.id for event in page.events], page.cursor


def test_a_tail_sees_every_event_once_page_by_page(store: Store) -> None:
    submitted(store, items=20)
    work_off(store, register(store))
    seen: list[tuple[int, int]] = []
    cursor = Cursor()
    while True:
        page = store.read(lambda tx, after=cursor: tail(tx, after, limit=7))
        if not page.events:
            break
        seen += [(event.tx, event.id) for event in page.events]
        cursor = page.cursor
    kept = store.read(lambda tx: [tuple(row) for row in tx.conn.execute(sa.select(events.c.tx, events.c.id))])
    assert seen == sorted(kept)


def test_a_tail_goes_on_where_the_latest_ended(store: Store) -> None:
    first = submitted(store, items=2).job_id
    page = store.read(lambda tx: latest(tx, limit=2))
    assert len(page.events) == 2
    assert followed(store, page.cursor)[0] == []
    second = submitted(store, items=2).job_id
    assert followed(store, page.cursor, job_id=first)[0] == []
    ids, cursor = followed(store, page.cursor, job_id=second)
    assert len(ids) >= 2
    assert followed(store, cursor) == ([], cursor)


def test_a_tail_waits_for_the_oldest_writer_and_then_misses_nothing(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    store = stores(postgres_url)
    submitted(store, items=1)
    _, cursor = followed(store, Cursor())
    insert = "INSERT INTO events (at, type, level, source) VALUES (now(), 'slow', 'info', 'test') RETURNING id"
    with psycopg.connect(postgres_url) as slow:
        row = slow.execute(insert).fetchone()
        assert row is not None
        submitted(store, items=1)
        ids, cursor = followed(store, cursor)
        assert ids == [], "what was written later waits behind what is still open"
        slow.commit()
    ids, cursor = followed(store, cursor)
    assert ids[0] == row[0]
    assert len(ids) > 1
    assert followed(store, cursor)[0] == []


def test_what_happened_to_an_item_is_told_in_order(store: Store) -> None:
    """On PostgreSQL connections take their ids in advance, so ids say nothing about who came first."""
    job = submitted(store, one_step(max_attempts=1), items=1).job_id
    process = register(store)
    (held,) = claim(store, process)
    settle(store, [held], "failed")
    assert command(store, "retry_item", item_id=held.id)["status"] == "applied"
    admit(store)
    settle(store, claim(store, process))
    wanted = [
        "item_claimed",
        "item_started",
        "item_failed",
        "item_retried",
        "item_claimed",
        "item_started",
        "item_succeeded",
    ]
    detail = store.read(lambda tx: item_detail(tx, held.id))
    assert [event.type for event in detail.events] == wanted
    page = store.read(lambda tx: latest(tx, job_id=job, item_id=held.id))
    assert [event.type for event in page.events] == wanted


def test_no_page_of_events_sorts_the_table(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = reading._records
    monkeypatch.setattr(reading, "_records", lambda tx, query: asked.append(query) or real(tx, query))
    store.read(lambda tx: (latest(tx), latest(tx, job_id=1), tail(tx, Cursor(5, 5)), tail(tx, Cursor(5, 5), job_id=1)))
    assert len(asked) == 4
    explain = "EXPLAIN QUERY PLAN " if not store.shared else "EXPLAIN "

    def plan(tx: Any, query: Any) -> str:
        if store.shared:
            tx.conn.execute(sa.text("SET LOCAL enable_seqscan = off"))  # a small table is cheaper to sort
            tx.conn.execute(sa.text("SET LOCAL enable_bitmapscan = off"))
        text = str(query.compile(tx.conn, compile_kwargs={"literal_binds": True}))
        return "\n".join(str(row) for row in tx.conn.exec_driver_sql(explain + text.replace("%", "%%")))

    for query in asked:
        told = store.read(lambda tx, query=query: plan(tx, query))
        assert "Sort  (" not in told, told
        assert "TEMP B-TREE" not in told, told


# --- logs, progress, workers, workflows ---------------------------------------------------------


def log(store: Store, clock: ManualClock, message: str, level: str = "info") -> int:
    values = {"at": clock.now(), "level": level, "logger": "test", "message": message}
    return store.write(
        "test", lambda tx: tx.conn.execute(sa.insert(logs).values(**values).returning(logs.c.id)).scalar()
    )


def test_a_followed_log_repeats_and_misses_nothing(store: Store, clock: ManualClock) -> None:
    for number in range(3):
        log(store, clock, f"old {number}", "error" if number == 1 else "info")
    shown = store.read(lambda tx: list_logs(tx, limit=2))
    assert [line.message for line in shown] == ["old 1", "old 2"]
    assert [line.message for line in store.read(lambda tx: list_logs(tx, level="warn"))] == ["old 1"]
    tailing = LogTail()
    tailing.start(store, shown)
    assert list(tailing.look(store)) == []
    log(store, clock, "new")
    assert [line.message for line in tailing.look(store)] == ["new"]
    assert list(tailing.look(store)) == []


def test_progress_counts_what_is_expected_and_left(still: Store, clock: ManualClock) -> None:
    job = submitted(still, chain("work", "next", follow="each"), items=4).job_id
    process = register(still)
    (first, second) = claim(still, process, 2)
    clock.advance(10)
    settle(still, [first])
    settle(still, [second], "failed")
    progress = still.read(lambda tx: job_progress(tx, job))
    a, b = progress.stages
    assert (a.done, a.expected, a.failed, a.fraction) == (2, 4, 1, 0.5)
    assert (a.rate, a.seconds_left) == (pytest.approx(0.2), pytest.approx(10.0))
    assert (b.done, b.expected) == (0, 3), "what failed will not follow"
    assert progress.fraction == pytest.approx(0.25)
    command(still, "pause", job_id=job, payload={"reason": "film night"}, requested_by="desk")
    assert "film night (by desk)" in (still.read(lambda tx: job_progress(tx, job)).reason or "")


def test_what_does_not_run_says_which_hold_or_pause_is_in_its_way(still: Store, clock: ManualClock) -> None:
    def reason() -> str:
        return still.read(lambda tx: job_progress(tx, job)).reason or ""

    until = clock.now() + timedelta(hours=2)
    ends = f"until {until:%Y-%m-%d %H:%M:%S} UTC"
    job = submit(still, chain("work", "next"), items=keys(1)).job_id
    still.write("hold", lambda tx: hold(tx, "service:next", "no quota", "desk"))
    assert reason() == "", "a service is nothing that a queued job waits for"
    for name, says in (("lane:default", 'lane "default" is held'), ("all", "everything is held")):
        still.write("hold", lambda tx, name=name: hold(tx, name, "film night", "desk", until))
        assert f"{says}: film night (by desk) {ends}" in reason()
        still.write("release", lambda tx, name=name: release(tx, name, "desk"))
    admit(still)
    assert 'service "next" is held: no quota (by desk) (to go on: dalsegno resume --service next)' in reason()
    still.write("release", lambda tx: release(tx, "service:next", "desk"))
    still.write("pause", lambda tx: pause_stage(tx, job, "b", "no disk", "shelf", until))
    assert f'stage "b" of job {job} is paused: no disk (by shelf) {ends}' in reason()
    still.write("pause", lambda tx: pause_job(tx, job, "film night", "desk", until))
    assert reason() == f"film night (by desk) {ends}"
    assert [line.level for line in still.read(lambda tx: job_detail(tx, job)).holds] == ["job", "stage"]
    clock.advance(7200)
    assert [line.level for line in still.read(list_holds)] == ["job", "stage"], "until the clock ends them"


def test_a_hold_that_is_over_and_one_a_job_does_not_meet_are_not_listed(still: Store, clock: ManualClock) -> None:
    job = submitted(still, items=1).job_id
    still.write("hold", lambda tx: hold(tx, "all", "film night", "desk", clock.now() + timedelta(minutes=1)))
    still.write("hold", lambda tx: hold(tx, "service:other", "film night", "desk"))
    clock.advance(60)
    assert [line.what for line in still.read(list_holds)] == ['service "other"']
    assert still.read(lambda tx: job_detail(tx, job)).holds == []


def test_a_process_is_alive_as_long_as_its_lease(store: Store) -> None:
    assert not store.read(engine_alive)
    register(store)
    assert store.read(engine_alive)
    assert [line.alive for line in store.read(list_processes)] == [True]


def test_the_newest_active_workflow_is_found(store: Store) -> None:
    workflow = one_step()
    submit(store, workflow, items=["x"])
    assert store.read(lambda tx: get_workflow(tx, workflow.name)).version == 1
    assert store.read(lambda tx: find_workflow(tx, "other")) is None
    with pytest.raises(WorkflowUnknown, match="version 2"):
        store.read(lambda tx: get_workflow(tx, workflow.name, 2))
    with pytest.raises(WorkflowUnknown, match="Did you mean"):
        store.read(lambda tx: get_workflow(tx, workflow.name + "x"))


def test_reading_writes_nothing(store: Store) -> None:
    job = submitted(store, items=3).job_id

    def rows(tx: Any) -> list[Any]:
        return [tx.rows(sa.select(table).order_by(table.c.id)) for table in (items, stages, events)]

    before = store.read(rows)
    store.read(lambda tx: (list_jobs(tx), list_items(tx, job), latest(tx), job_progress(tx, job), list_processes(tx)))
    assert store.read(rows) == before
