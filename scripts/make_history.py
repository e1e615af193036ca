"""Fill a database with a long history, to measure the console on: songs, jobs, items, events, logs, errors in groups.

    python scripts/make_history.py --database sqlite:///big.db --items 1000000 --songs 200000 --events 10000000

Rows are made by the database itself. Two runs over the whole catalog come from make_catalog.py; beside them stands one
large job and thousands of small ones, in which three of a hundred items failed, for a dozen reasons; then parse
requests that are done, and contents.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dalsegno import open_store
from dalsegno.catalog.schema import metadata
from dalsegno.engine.grouping import fingerprint, template_of
from dalsegno.store.schema import COUNTERS, error_groups, error_hours, events, items, jobs, logs, stages
from dalsegno.store.store import Store, Tx

if __package__ in (None, ""):
    import sys

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.requests import fill as fill_requests
from bench.requests import fill_contents
from scripts.make_catalog import fill, numbers

SMALL = 100
"""Items of a small job."""
SLICE = 100_000
"""Rows in one transaction."""
SERVICE = "work"
REASONS = [
    (f"code_{number}", f"HTTP {400 + number} from shelf {name} after ")
    for number, name in enumerate(("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"))
]
KINDS = ("item_claimed", "item_started", "item_returned", "item_claimed", "item_started", "item_succeeded")


def make(store: Store, *, item_count: int, song_count: int, event_count: int, log_count: int, asked: int) -> None:
    timed("catalog", lambda: fill(store, song_count=song_count, playlist_count=max(50, song_count // 40)))
    have = store.read(lambda tx: _max(tx, items.c.id))
    left = max(0, item_count - have)
    large = left // 2
    timed("one large job", lambda: store.write("make", lambda tx: _jobs(tx, 1, large)))
    timed("small jobs", lambda: store.write("make", lambda tx: _jobs(tx, (left - large) // SMALL, SMALL)))
    if store.shared:
        timed("numbers", lambda: store.write("make", _settle_down))
    timed("parse requests", lambda: fill_requests(store, asked, done=True))
    timed("contents", lambda: fill_contents(store, asked // 100))
    timed("groups", lambda: store.write("make", _groups))
    timed("events", lambda: _events(store, event_count))
    timed("logs", lambda: _logs(store, log_count))
    if store.shared:
        timed("analyze", lambda: store.write("make", _settle_down))


def timed(what: str, work: Any) -> None:
    began = time.monotonic()
    work()
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


# --- jobs ---------------------------------------------------------------------------------------------


def _jobs(tx: Tx, count: int, size: int) -> None:
    """So many finished jobs of one stage with so many items each."""
    if not count or not size:
        return
    first_job, first_stage = _max(tx, jobs.c.id), _max(tx, stages.c.id)
    job = numbers(count)
    at = tx.now - timedelta(days=3)
    moment = sa.literal(at, jobs.c.created_at.type)
    _insert(tx, jobs, sa.select(
        (job + first_job).label("id"), sa.literal(1).label("workflow_id"), sa.literal("default").label("lane"),
        (job + first_job).label("order_seq"), sa.literal("completed_with_errors").label("status"),
        sa.literal("the script").label("requested_by"), moment.label("created_at"), moment.label("updated_at"),
        moment.label("started_at"), moment.label("finished_at"),
    ))  # fmt: skip
    per_job = numbers(size)
    which = numbers(count, "jobs_made")
    status = _status(per_job)
    failed = status == "failed"
    reason = (per_job + which) % len(REASONS)
    code = sa.case(*((reason == n, each[0]) for n, each in enumerate(REASONS)))
    said = sa.case(*((reason == n, each[1]) for n, each in enumerate(REASONS)))
    mark = sa.case(*((reason == n, fingerprint(SERVICE, each[0], f"{each[1]}7 s")) for n, each in enumerate(REASONS)))
    moment = sa.literal(at, items.c.finished_at.type)
    _insert(tx, items, sa.select(
        (which + first_stage).label("stage_id"), (which + first_job).label("job_id"), per_job.label("seq"),
        sa.literal("thing:").concat(sa.cast(per_job, sa.Text)).label("key"), status.label("status"),
        sa.literal(2).label("lease"), sa.case((failed, 3), else_=0).label("attempt"),
        sa.case((failed, code)).label("error_code"),
        sa.case((failed, said.concat(sa.cast(per_job % 977, sa.Text)).concat(" s"))).label("error_message"),
        sa.case((failed, mark)).label("fingerprint"),
        moment.label("started_at"), moment.label("finished_at"),
    ).order_by(which, per_job))  # fmt: skip
    tally = [_status_of(number) for number in range(1, size + 1)]
    row = {"seq": 0, "key": "a", "service": SERVICE, "depends_on": [], "followed_by": [], "priority": 100,
           "status": "completed", "high_seq": size, "low_seq": size, "total": size, "started_at": at,
           "finished_at": at, **{str(name): tally.count(str(name)) for name in COUNTERS}}  # fmt: skip
    tx.conn.execute(stages.insert(), [
        {**row, "id": first_stage + n, "job_id": first_job + n, "order_seq": first_job + n} for n in range(1, count + 1)
    ])  # fmt: skip


def _status(number: Any) -> Any:
    part = number % 100
    return sa.case((part < 3, "failed"), (part == 3, "skipped"), (part == 4, "canceled"), else_="succeeded")


def _status_of(number: int) -> str:
    part = number % 100
    return "failed" if part < 3 else "skipped" if part == 3 else "canceled" if part == 4 else "succeeded"


def _groups(tx: Tx) -> None:
    hour = int(tx.now.timestamp()) // 3600
    for number, (code, said) in enumerate(REASONS):
        name = fingerprint(SERVICE, code, f"{said}7 s")
        found = sa.select(items.c.id).where(items.c.fingerprint == name, items.c.error_code.is_not(None)).limit(1)
        item = tx.conn.execute(found).scalar()
        if item is None:
            continue
        tx.conn.execute(error_groups.insert(), [{
            "fingerprint": name, "service": SERVICE, "code": code, "template": template_of(f"{said}7 s"),
            "count": 1000 + number, "first_at": tx.now - timedelta(days=3), "last_at": tx.now - timedelta(hours=number),
            "sample_item_id": item, "sample_error": f"{said}7 s",
        }])  # fmt: skip
        trend = [{"fingerprint": name, "hour": hour - ago, "count": (ago * 7 + number) % 50} for ago in range(48)]
        tx.conn.execute(error_hours.insert(), trend)


# --- events and logs ----------------------------------------------------------------------------------


def _events(store: Store, count: int) -> None:
    """Each job's first, then those of all items, as many for each as are needed, then each job's last."""
    store.write("make", lambda tx: _job_events(tx, "job_submitted"))
    have = store.read(lambda tx: _max(tx, items.c.id))
    each = math.ceil(count / max(1, have))
    for start in range(0, have, SLICE):
        part = sa.and_(items.c.id > start, items.c.id <= start + SLICE)
        store.write("make", lambda tx, part=part, start=start: _item_events(tx, part, each, start / have))  # type: ignore[misc]
    store.write("make", lambda tx: _job_events(tx, "job_completed"))


def _job_events(tx: Tx, kind: str) -> None:
    at = sa.literal(tx.now - timedelta(days=3), events.c.at.type)
    _insert(tx, events, sa.select(at.label("at"), sa.literal(kind).label("type"),
                                  sa.literal("engine").label("source"), jobs.c.id.label("job_id")))  # fmt: skip


def _item_events(tx: Tx, part: Any, each: int, done: float) -> None:
    at = sa.literal(tx.now - timedelta(days=3 * (1 - done)), events.c.at.type)
    turn = numbers(each)
    kind = sa.case(*((turn % len(KINDS) == n, name) for n, name in enumerate(KINDS)))
    _insert(tx, events, sa.select(
        at.label("at"), kind.label("type"), sa.literal("engine").label("source"), items.c.job_id, items.c.stage_id,
        items.c.id.label("item_id"),
    ).where(part).order_by(items.c.id, turn))  # fmt: skip


def _logs(store: Store, count: int) -> None:
    have = max(1, store.read(lambda tx: _max(tx, items.c.id)))
    for start in range(0, count, SLICE):
        store.write("make", lambda tx, start=start: _some_logs(tx, start, min(SLICE, count - start), have))  # type: ignore[misc]


def _some_logs(tx: Tx, start: int, count: int, have: int) -> None:
    number = numbers(count) + start
    part = number % 40
    level = sa.case((part == 0, "error"), (part < 3, "warn"), (part < 10, "debug"), else_="info")
    own = sa.select(items.c.job_id).where(items.c.id == number * 7919 % have + 1).scalar_subquery()
    _insert(tx, logs, sa.select(
        sa.literal(tx.now - timedelta(hours=2), logs.c.at.type).label("at"), level.label("level"),
        sa.literal("dalsegno.work").label("logger"),
        sa.literal("looked at thing ").concat(sa.cast(number, sa.Text)).label("message"),
        own.label("job_id"), (number * 7919 % have + 1).label("item_id"), sa.literal("work-1").label("worker"),
    ))  # fmt: skip


def _settle_down(tx: Tx) -> None:
    """PostgreSQL: numbers go on after those that were given by hand, and statistics are what they will be soon."""
    for table in metadata.sorted_tables:
        if "id" in table.primary_key.columns and table.name not in ("events", "logs", "items"):
            sequence = sa.func.pg_get_serial_sequence(table.name, "id")
            highest = sa.select(sa.func.setval(sequence, sa.func.max(table.c.id))).having(sa.func.count() > 0)
            tx.conn.execute(highest)
    tx.conn.execute(sa.text("ANALYZE"))


def _max(tx: Tx, column: Any) -> int:
    return int(tx.conn.execute(sa.select(sa.func.max(column))).scalar() or 0)


def _insert(tx: Tx, table: sa.Table, rows: sa.Select[Any]) -> None:
    tx.conn.execute(sa.insert(table).from_select([column.name for column in rows.selected_columns], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--songs", type=int, default=200_000)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--logs", type=int, default=500_000)
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="SELECT statement has a cartesian product")  # it is meant to
    store = open_store(options.database)
    try:
        make(
            store,
            item_count=options.items,
            song_count=options.songs,
            event_count=options.events,
            log_count=options.logs,
            asked=options.requests,
        )
    finally:
        store.close()


if __name__ == "__main__":
    main()
