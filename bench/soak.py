"""Full load for a long time: what grows, and what stays as it is.

    python -m bench.soak sqlite   [--minutes 30] [--keep 3] [--rate N] [--out docs/images]
    python -m bench.soak postgres [--minutes 30] [--keep 3] [--rate N] [--out docs/images]

An engine in a process of its own works as fast as it can while another process submits. Every ten seconds this writes
down the engine's memory, the size of the database and of its write-ahead log, the time of a claim (the engine's own
measure), dead rows and the speed. What is done is forgotten after `--keep` minutes, as retention does it after months:
so the database has to give up as much as it gets. For that a "month" of events on PostgreSQL is two minutes here.
Leaves `soak-DATABASE.json` and a chart, `soak-DATABASE.svg`, in the folder; prints a summary as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import psycopg
from tests.outages import own_postgres

from bench.chart import Panel, draw
from bench.storm import JOB, Crew, Feeder, Meter, audit_ran, await_drained, opened
from bench.worker import LINE
from dalsegno.store.months import KEYS, add_month, drop_month, month_of, months, next_month
from dalsegno.store.store import Store, Tx

EVERY = 10.0
MONTH = timedelta(minutes=2)
"""Events and logs go a table at a time."""
MIB = 1 << 20
ACTIVITY = """
SELECT (SELECT sum(n_dead_tup) FROM pg_stat_user_tables),
       (SELECT sum(pg_relation_size(relid)) FROM pg_stat_user_tables WHERE relname IN ('leases', 'stages', 'jobs')),
       (SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'items'),
       pg_database_size(current_database())
"""


def soak(kind: str, minutes: float, keep: float, rate: float | None, out: Path) -> dict[str, Any]:
    with database(kind) as (url, folder), opened(url) as store:
        feeder = Feeder(store, rate)
        if store.shared:
            _shorten_months(store, timedelta(minutes=minutes))
        if rate is None:
            feeder.give(2 * JOB)
        with Crew(url, folder, keep=keep) as crew, Meter(lambda: crew.journal.stat().st_size // LINE.size) as meter:
            feeder.start()
            samples = _watch(kind, url, crew, meter, folder, minutes * 60)
            feeder.stop()
            await_drained(store)
        books = audit_ran(store, feeder.given, crew.journal)
    summary = {"database": kind, "minutes": minutes, "keep_minutes": keep, "rate": rate, **_trends(samples), **books}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"soak-{kind}.json").write_text(json.dumps({**summary, "series": samples}, indent=1) + "\n")
    (out / f"soak-{kind}.svg").write_text(draw(_title(kind, minutes), _panels(kind, samples)))
    return summary


def _shorten_months(store: Store, lapse: timedelta) -> None:
    """In place of the month that is not over when this is."""

    def work(tx: Tx) -> None:
        now = tx.now.replace(microsecond=0)
        for table in KEYS:
            for month in months(tx, table):
                if month.until is not None and month.until <= next_month(next_month(month_of(now))):
                    drop_month(tx, month)
            first = month_of(now)
            for number, until in enumerate(_ends(now, lapse)):
                add_month(tx, table, first, until, f"{table}_part_{number:03}")
                first = until

    store.write("soak", work)


def _ends(now: datetime, lapse: timedelta) -> Iterator[datetime]:
    """Of the short months, and of what is left of the real ones."""
    yield from (now + MONTH * number for number in range(1, lapse // MONTH + 4))
    yield next_month(next_month(month_of(now)))


def _watch(kind: str, url: str, crew: Crew, meter: Meter, folder: Path, seconds: float) -> list[dict[str, float]]:
    look = _on_postgres(url) if kind == "postgres" else _on_sqlite(folder)
    began = time.monotonic()
    samples: list[dict[str, float]] = []
    told, claims = Path(f"{crew.journal}.claims"), (0, 0.0)
    while (at := time.monotonic()) - began < seconds:
        time.sleep(max(0.0, EVERY - (at - began) % EVERY))
        now = time.monotonic()
        memory = sum(psutil.Process(process.pid).memory_info().rss for process in crew.members)
        now_claims = _claims(told)
        samples.append(
            {
                "minute": round((now - began) / 60, 3),
                "per_s": round(meter.rate(now - EVERY, now), 1),
                "claim_ms": round(1000 * (now_claims[1] - claims[1]) / max(1, now_claims[0] - claims[0]), 2),
                "rss_mib": round(memory / MIB, 1),
                **look(),
            }
        )
        claims = now_claims if now_claims[0] else claims
        print(json.dumps(samples[-1]), file=sys.stderr, flush=True)
    return samples


def _claims(told: Path) -> tuple[int, float]:
    """How many there were so far, and what they took."""
    try:
        count, seconds = told.read_text().split()
    except OSError:  # not yet
        return 0, 0.0
    return int(count), float(seconds)


def _on_sqlite(folder: Path) -> Callable[[], dict[str, float]]:
    def look() -> dict[str, float]:
        sizes = {name: _size(folder / f"soak.db{suffix}") for name, suffix in (("file_mib", ""), ("wal_mib", "-wal"))}
        return {name: round(size / MIB, 1) for name, size in sizes.items()}

    return look


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _on_postgres(url: str) -> Callable[[], dict[str, float]]:
    conn = psycopg.connect(url, autocommit=True, application_name="soak")

    def look() -> dict[str, float]:
        row = conn.execute(ACTIVITY).fetchone()
        wal = conn.execute("SELECT coalesce(sum(size), 0) FROM pg_ls_waldir()").fetchone()
        assert row is not None
        assert wal is not None
        return {
            "dead_rows": float(row[0] or 0),
            "hot_mib": round(float(row[1] or 0) / MIB, 1),
            "file_mib": round(float(row[3]) / MIB, 1),
            "wal_mib": round(float(wal[0]) / MIB, 1),
        }

    return look


def _trends(samples: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The median of the second quarter and of the last, and their ratio: flat is 1."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    trends = {}
    for name in samples[0].keys() - {"minute"} if samples else ():
        before, after = median(each[name] for each in early), median(each[name] for each in late)
        trends[name] = {"early": before, "late": after, "ratio": round(after / before, 3) if before else None}
    return {"trends": dict(sorted(trends.items()))}


def _title(kind: str, minutes: float) -> str:
    return f"{minutes:g} minutes of full load on {'PostgreSQL' if kind == 'postgres' else 'SQLite'}"


def _panels(kind: str, samples: Sequence[dict[str, float]]) -> list[Panel]:
    def line(name: str) -> list[tuple[float, float]]:
        return [(each["minute"], each[name]) for each in samples]

    panels = [
        Panel("Items done a second", "", {"items": line("per_s")}),
        Panel("A claim", "ms", {"claim": line("claim_ms")}),
        Panel("Memory of the engine's process", "MiB", {"memory": line("rss_mib")}),
        Panel("Database and write-ahead log", "MiB", {"database": line("file_mib"), "log": line("wal_mib")}),
    ]
    if kind == "postgres":
        panels.append(Panel("Dead rows", "", {"dead": line("dead_rows")}))
    return panels


@contextlib.contextmanager
def database(kind: str) -> Iterator[tuple[str, Path]]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dalsegno-soak-")))
        if kind == "sqlite":
            yield f"sqlite:///{folder}/soak.db", folder
        else:
            yield stack.enter_context(own_postgres(lazy=False)).create("soak"), folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("database", choices=("sqlite", "postgres"))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--keep", type=float, default=3, help="minutes for which what is done is kept")
    parser.add_argument("--rate", type=float, help="items a second; unless said, as many as go")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result = soak(options.database, options.minutes, options.keep, options.rate, options.out)
    print(json.dumps(result, indent=2))
    if result["problems"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
