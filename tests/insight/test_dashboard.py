"""Pools and their verdicts, minutes and their quantiles, rates and what they are based on."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store
from dalsegno.clock import ManualClock
from dalsegno.engine.item import Transfer
from dalsegno.engine.minutes import EDGES, KEPT, Minutes
from dalsegno.engine.service import Phase as ServicePhase
from dalsegno.engine.service import phased
from dalsegno.insight.charts import quantile, rate_of, read_charts
from dalsegno.insight.dashboard import PARTS, Part, active_job, read_dashboard
from dalsegno.insight.pools import Phase, phases_of, verdict
from dalsegno.insight.workers import list_processes
from dalsegno.store.schema import minutes, stages
from dalsegno.store.store import Tx
from tests.helpers import SWIFT, one_step, submitted, wait_until


@pytest.mark.parametrize(
    ("resolve", "download", "code", "says"),
    [
        ((40, 40, 0, 0, 77.0), (1, 10, 0, 14, 1.0), "resolve_bound",
         "download starved: resolve is the bottleneck (77 s vs 1.0 s)"),
        ((2, 40, 0, 0, 0.2), (10, 10, 14, 14, 9.0), "transfer_bound",
         "resolve waits: download is the bottleneck (0.2 s vs 9.0 s)"),
        ((3, 40, 0, 0, 2.0), (8, 10, 3, 14, 4.0), "balanced", "resolve and download keep pace (2.0 s vs 4.0 s)"),
        ((3, 40, 0, 0, 2.0), (0, 10, 0, 14, 0.0), "balanced", "download: not measured yet."),
        ((0, 40, 0, 0, 2.0), (0, 10, 0, 14, 3.0), "idle", "download: nothing in hand."),
    ],
)  # fmt: skip
def test_the_pools_say_who_holds_up_whom(resolve: Any, download: Any, code: str, says: str) -> None:
    found = verdict("download", [Phase("resolve", *resolve), Phase("download", *download)])
    assert (found.code, found.says) == (code, says)


def test_a_quantile_lies_within_its_bucket() -> None:
    counts = [0] * (len(EDGES) + 1)
    assert quantile(counts, 0.5) is None
    counts[10] = 100
    half, most = quantile(counts, 0.5), quantile(counts, 0.95)
    assert half is not None
    assert most is not None
    assert EDGES[9] < half < most < EDGES[10]
    counts[-1] = 1000
    assert quantile(counts, 0.95) == EDGES[-1]


def test_bytes_count_once_and_what_was_there_before_does_not() -> None:
    moved = Transfer(1000, 0.0)
    moved.moved(1500, 5000, 1.0)
    assert (moved.news(), moved.news()) == (500, 0)
    moved.moved(200, 5000, 2.0)  # it started over
    moved.moved(700, 5000, 3.0)
    assert moved.news() == 500


def test_rows_of_minutes_are_written_once_a_change_and_old_ones_go(still: Store, clock: ManualClock) -> None:
    def add(service: str, minute: int) -> None:
        row = {"minute": minute, "process_id": 1, "service": service, "durations": [1], "succeeded": 2}
        still.write("minute", lambda tx: tx.conn.execute(sa.insert(minutes).values(**row)))

    now = int(clock.now().timestamp()) // 60
    add("old", now - KEPT - 1)
    add("new", now - 1)
    kept = Minutes()
    kept._minute(now, "work").counts["succeeded"] = 3
    rows = kept.to_write(7)
    assert [(row["minute"], row["process_id"], row["succeeded"]) for row in rows] == [(now, 7, 3)]
    still.write("store", lambda tx: kept.store(tx, rows))
    still.write("store", lambda tx: kept.store(tx, rows))  # again, as after a lost connection
    kept.written()
    assert kept.to_write(7) == []
    found = still.read(lambda tx: tx.rows(sa.select(minutes).order_by(minutes.c.minute)))
    assert [(row["service"], row["succeeded"]) for row in found] == [("new", 2), ("work", 3)]


def test_a_rate_is_that_of_the_last_minutes(still: Store, clock: ManualClock) -> None:
    clock.advance((60 - clock.now().timestamp() % 60) + 30)  # half a minute past
    now = int(clock.now().timestamp()) // 60

    def add(tx: Tx) -> None:
        for minute, count in ((now - 6, 999), (now - 1, 60), (now, 30)):
            row = {"minute": minute, "process_id": 1, "service": "work", "durations": [], "succeeded": count}
            tx.conn.execute(sa.insert(minutes).values(**row))

    still.write("minutes", add)
    rate = still.read(lambda tx: rate_of(tx, "work"))
    assert rate == pytest.approx(1.0, rel=0.05)
    assert still.read(lambda tx: rate_of(tx, "other")) is None
    charts = still.read(read_charts)
    (line,) = charts.series
    assert line.outcomes["succeeded"][-2:] == [60, 30]
    assert charts.minutes[-1] == datetime.fromtimestamp(now * 60, UTC)
    assert charts.minutes[0] == charts.minutes[-1] - timedelta(minutes=59)


def test_what_is_left_is_told_from_a_stage_s_own_life_until_it_is_as_old_as_the_last_minutes(
    still: Store, clock: ManualClock
) -> None:
    job_id, _ = submitted(still, one_step(), 100)
    now = int(clock.now().timestamp()) // 60
    before = {"minute": now, "process_id": 1, "service": "work", "durations": [], "succeeded": 9_000}
    still.write("minutes", lambda tx: tx.conn.execute(sa.insert(minutes).values(**before)))

    def go_on(done: int) -> Any:
        mine = sa.update(stages).where(stages.c.job_id == job_id)
        at = {"status": "running", "started_at": began, "succeeded": done, "pending": 100 - done,
              "ready": 100 - done}  # fmt: skip
        still.write("stage", lambda tx: tx.conn.execute(mine.values(**at)))
        return still.read(lambda tx: active_job(tx, job_id, [])).eta

    began = clock.now()
    clock.advance(10)
    assert go_on(0) is None, "nothing has ended yet, whatever others did before"
    eta = go_on(20)
    assert (eta.basis, eta.rate, eta.seconds) == ("since_start", 2.0, 40.0)
    clock.advance(280)
    assert go_on(29).basis == "since_start"
    clock.advance(20)
    recent = {"minute": int(clock.now().timestamp()) // 60 - 1, "process_id": 1, "service": "work", "durations": []}
    still.write("minutes", lambda tx: tx.conn.execute(sa.insert(minutes).values(**recent, succeeded=12)))
    assert go_on(31).basis == "last_5_minutes"


def test_phases_tell_how_they_stand(store: Store) -> None:
    opened = threading.Event()
    service = phased(
        "work",
        [ServicePhase("resolve", lambda item: item.key), ServicePhase("fetch", lambda item, _: opened.wait(30))],
        workers=4,
    )
    with Engine(store, [service], SWIFT):
        submitted(store, one_step(), 9)

        def busy() -> Any:
            lines = store.read(list_processes)
            return next((found for found in phases_of(lines).values() if found[-1].busy), None)

        resolve, fetch = wait_until(busy, "a phase at work")
        assert (resolve.name, fetch.name) == ("resolve", "fetch")
        assert fetch.most == 4
        assert fetch.capacity > 0
        board = store.read(read_dashboard)
        assert [pool.name for pool in board.pools] == ["resolve", "fetch"]
        assert board.verdicts[0].service == "work"
        opened.set()


def test_a_part_alone_is_as_in_the_whole(store: Store) -> None:
    submitted(store, one_step(), 3)
    submitted(store, one_step(), 2)
    fields: dict[Part, tuple[str, ...]] = {
        "attention": ("attention",), "job": ("job",), "jobs": ("active", "waiting", "finished"),
        "pools": ("pools", "verdicts", "transfer"), "counters": ("counters",), "exceptions": ("exceptions",),
    }  # fmt: skip
    assert set(fields) == PARTS
    whole = store.read(read_dashboard)
    assert whole.attention
    assert whole.job
    assert whole.active
    assert whole.counters.pending == 5
    for part, names in fields.items():
        alone = store.read(lambda tx, part=part: read_dashboard(tx, None, {part}))
        for name in names:
            assert getattr(alone, name) == getattr(whole, name), name
    nothing = store.read(lambda tx: read_dashboard(tx, None, ()))
    assert (nothing.attention, nothing.job, nothing.active, nothing.exceptions) == ([], None, [], [])
