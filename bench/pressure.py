"""Four kinds of pressure, each compared with the minutes before it in the same run.

    python -m bench.pressure [--scenario NAME …] [--seconds 300] [--window 30] [--json]

held     somebody begins a transaction, reads one row and goes away, for `--seconds`: nothing dead can be removed
high     nothing but work, for `--seconds`
readers  people read console pages and programs export, on another process
burst    100,000 items are submitted in one call

The speed is that of the last `--window` seconds under pressure over that of the `--window` seconds before it, on a
PostgreSQL 18 with its default settings; the console runs in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
from tests.outages import Server, own_postgres

from bench.chaos import looker
from bench.storm import JOB, ROOT, WORKFLOW, Crew, Feeder, Meter, audit, await_drained, opened
from dalsegno import Store, submit

WARM_UP = 5.0
BURST = 100_000
READERS = 4
PAUSE = 1.0
"""Seconds a reader looks at a page before the next."""
PAGES = ("/", "/jobs", "/logs", "/logs/events", "/limits", "/system", "/api/jobs", "/api/events?limit=200")
HOLDER = "report of last month"


@dataclass
class Site:
    server: Server
    url: str
    store: Store
    feeder: Feeder
    meter: Meter
    seconds: float
    folder: Path
    end: float = 0.0
    """When the pressure was over, where something else comes after it."""


def held(site: Site) -> dict[str, Any]:
    with psycopg.connect(site.url, application_name=HOLDER) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT count(*) FROM lanes")
        time.sleep(site.seconds)
        site.end = time.monotonic()
        with console(site) as url, httpx.Client(base_url=url, timeout=60) as client:
            named = HOLDER in client.get("/system").text
        found = {"console_names_the_holder": named, "dead_tuples": _dead(site)}
        conn.rollback()
    return found


def high(site: Site) -> dict[str, Any]:
    time.sleep(site.seconds)
    return {"dead_tuples": _dead(site)}


def readers(site: Site) -> dict[str, Any]:
    spent: list[float] = []
    over = threading.Event()

    def read(url: str, first: int) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            for path in itertools.islice(itertools.cycle(PAGES), first, None):
                began = time.perf_counter()
                client.get(path).raise_for_status()
                spent.append(time.perf_counter() - began)
                if over.wait(PAUSE):
                    return

    with console(site) as url:
        people = [threading.Thread(target=read, args=(url, number)) for number in range(READERS)]
        for each in people:
            each.start()
        time.sleep(site.seconds)
        over.set()
        for each in people:
            each.join()
    spent.sort()
    return {"pages_read": len(spent), "page_ms_p95": round(1000 * spent[int(0.95 * (len(spent) - 1))], 1)}


def burst(site: Site) -> dict[str, Any]:
    began = time.monotonic()
    submit(site.store, WORKFLOW, items=[f"burst-{number}" for number in range(BURST)])
    took = time.monotonic() - began
    site.feeder.given += BURST
    time.sleep(site.seconds)
    return {"submit_s": round(took, 2)}


SCENARIOS: dict[str, Callable[[Site], dict[str, Any]]] = {each.__name__: each for each in (held, high, readers, burst)}


def run(name: str, seconds: float, window: float) -> dict[str, Any]:
    with own_postgres(lazy=False) as server:
        url = server.create("storm")
        with tempfile.TemporaryDirectory(prefix="dalsegno-pressure-") as made, opened(url) as store:
            folder = Path(made)
            feeder = Feeder(store)
            feeder.give(2 * JOB)
            with Crew(url, folder) as crew, Meter(looker(url)) as meter:
                feeder.start()
                time.sleep(WARM_UP)
                before = time.monotonic()
                time.sleep(window)
                start = time.monotonic()
                site = Site(server, url, store, feeder, meter, seconds, folder)
                found = SCENARIOS[name](site)
                end = site.end or time.monotonic()
                feeder.stop()
                usual = meter.rate(before, start)
                pressed = meter.rate(max(start, end - window), end)
                minutes = [round(meter.rate(at, at + window)) for at in _steps(start, end, window)]
                await_drained(store)
                crew.stop()
            books = audit(store, feeder.given, folder / "journal")
    return {
        "scenario": name,
        "seconds": round(end - start),
        "before_per_s": round(usual),
        "pressed_per_s": round(pressed),
        "ratio": round(pressed / usual, 3) if usual else 0.0,
        "by_window": minutes,
        **found,
        **books,
    }


def _steps(start: float, end: float, width: float) -> Iterator[float]:
    at = start
    while at + width <= end + 1:
        yield at
        at += width


def _dead(site: Site) -> dict[str, int]:
    query = (
        "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 1000 ORDER BY n_dead_tup DESC LIMIT 5"
    )
    with psycopg.connect(site.url, autocommit=True) as conn:
        return {str(name): int(count) for name, count in conn.execute(query).fetchall()}


@contextlib.contextmanager
def console(site: Site) -> Iterator[str]:
    """A process of its own, as people run it; its engine offers none of what is worked on here."""
    words = [sys.executable, "-m", "dalsegno", "--database", site.url, "serve", "--port", "0"]
    env = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(ROOT / "src")}
    server = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=site.folder, env=env
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if found := re.search(r"http://[\w.:\[\]]+", line):
                yield found[0]
                break
        else:
            raise SystemExit("the console did not start")
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=300, help="of pressure")
    parser.add_argument("--window", type=float, default=30, help="seconds that are compared")
    parser.add_argument("--json", action="store_true", help="one line a scenario instead of indented text")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bad = False
    for name in options.scenario:
        result = run(name, options.seconds, options.window)
        print(json.dumps(result, indent=None if options.json else 2), flush=True)
        bad |= bool(result["problems"])
    if bad:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
