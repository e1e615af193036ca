"""Five disasters in the middle of full work: how long until the old speed is back, and whether the books are right.

    python -m bench.chaos [--scenario NAME …] [--through direct pgbouncer] [--seconds 15] [--engines 1] [--json]

Each runs on a fresh database of a PostgreSQL 18 with its default settings. The speed is the median second of a stretch
of `--seconds` before the fault and of another after it, in one run. The scenario `nothing` shows by how much two
stretches of an undisturbed run differ. Afterwards every item must have succeeded once, every event must be a legal
step, and no run may have begun after its item was finished.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from tests.outages import BOUNCED, BOUNCER, NO_BOUNCER, Server, own_postgres, pgbouncer

from bench.storm import JOB, Crew, Feeder, Meter, audit, await_drained, opened

SLOTS = 60
"""Connections the server takes in all."""
WARM_UP = 4.0
KILLS = 5
BETWEEN_KILLS = 3.0
STARVED = 12.0
"""Seconds without a free connection: longer than the engine waits for one before it says so."""
ENOUGH = 0.95


@dataclass
class Site:
    server: Server
    crew: Crew
    url: str
    """As the engine has it: of the server, or of PgBouncer."""
    through: str


def nothing(_: Site) -> None:
    time.sleep(2)


def postgres_restart(site: Site) -> None:
    """As an administrator would."""
    site.server.restart()


def pg_backend_kill(site: Site) -> None:
    """Every connection, three times."""
    for _ in range(3):
        site.server.cut()
        time.sleep(1)


def pool_exhaustion(site: Site) -> None:
    """Somebody else has every connection there is, and ours are cut."""
    with contextlib.ExitStack() as stack:
        if site.through == "direct":
            admin = stack.enter_context(site.server.admin())
            _take_slots(site.server, stack)
            site.server.cut(by=admin)
            end = time.monotonic() + STARVED
            while time.monotonic() < end:
                _take_slots(site.server, stack)
                time.sleep(0.2)
        else:
            for _ in range(2 * int(BOUNCED["default_pool_size"])):
                conn = psycopg.connect(site.url, autocommit=True, prepare_threshold=None, application_name="hog")
                stack.callback(conn.close)
                conn.pgconn.send_query(b"BEGIN; SELECT 1")  # whoever finds none free waits in line for it
            time.sleep(STARVED)


def _take_slots(server: Server, stack: contextlib.ExitStack) -> None:
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            stack.enter_context(contextlib.closing(psycopg.connect(server.url(), application_name="hog")))


def crash_recovery(site: Site) -> None:
    """kill -9, and a new process in its place."""
    site.crew.kill()


def repeated_kills(site: Site) -> None:
    for _ in range(KILLS):
        site.crew.kill()
        time.sleep(BETWEEN_KILLS)


SCENARIOS: dict[str, Callable[[Site], None]] = {
    each.__name__: each
    for each in (postgres_restart, pg_backend_kill, pool_exhaustion, crash_recovery, repeated_kills, nothing)
}


def run(name: str, through: str, seconds: float, engines: int) -> dict[str, Any]:
    with own_postgres(lazy=False, max_connections=str(SLOTS)) as server, _way(server, through) as port:
        direct = server.create("storm")
        url = server.url("storm", port=port)
        with tempfile.TemporaryDirectory(prefix="dalsegno-chaos-") as folder, opened(direct) as store:
            feeder = Feeder(store)
            feeder.give(4 * JOB)
            with Crew(url, Path(folder), engines) as crew, Meter(looker(direct)) as meter:
                feeder.start()
                time.sleep(WARM_UP)
                before = time.monotonic()
                time.sleep(seconds)
                fault = time.monotonic()
                SCENARIOS[name](Site(server, crew, url, through))
                over = time.monotonic()
                usual = meter.usual(before, fault)
                recovered = _await_recovery(meter, over, ENOUGH * usual)
                settled = time.monotonic()
                time.sleep(seconds)
                end = time.monotonic()
                feeder.stop()
                after = meter.usual(settled, end)
                await_drained(store)
            books = audit(store, feeder.given, Path(folder) / "journal")
            said = (Path(folder) / "engine.log").read_text(errors="replace")
    return {
        "scenario": name,
        "through": through,
        "before_per_s": round(usual),
        "after_per_s": round(after),
        "ratio": round(after / usual, 3) if usual else 0.0,
        "fault_s": round(over - fault, 1),
        "recovered_s": None if recovered is None else round(recovered - over, 1),
        **books,
        "per_s": [round(rate) for _, rate in meter.rates(before, end, 2.0)[::4]],
        "tracebacks": said.count("Traceback"),
        "said": sorted({line for line in said.splitlines() if line.strip()})[:10],
    }


def _await_recovery(meter: Meter, over: float, wanted: float, patience: float = 60) -> float | None:
    """When the first second as good as the usual one ended."""
    while time.monotonic() < over + patience:
        for at, rate in meter.rates(over, time.monotonic()):
            if rate >= wanted:
                return at
        time.sleep(0.1)
    return None


def looker(url: str) -> Callable[[], int]:
    """On a connection of its own, which is made again when it was lost."""
    held: list[psycopg.Connection[Any]] = []

    def look() -> int:
        if not held or held[0].closed:
            held[:] = [psycopg.connect(url, autocommit=True, application_name="meter", connect_timeout=5)]
        try:
            row = held[0].execute("SELECT coalesce(sum(succeeded), 0) FROM stages").fetchone()
        except psycopg.Error:
            held[0].close()
            raise
        assert row is not None
        return int(row[0])

    return look


@contextlib.contextmanager
def _way(server: Server, through: str) -> Iterator[int | None]:
    if through == "direct":
        yield None
        return
    with pgbouncer(server) as port:
        yield port


def table(results: list[dict[str, Any]]) -> Table:
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for title in ("scenario", "through", "before/s", "after/s", "ratio", "back after", "ran again", "problems"):
        shown.add_column(title, justify="left" if title in ("scenario", "through") else "right")
    for one in results:
        back = "never" if one["recovered_s"] is None else f"{one['recovered_s']:.1f} s"
        shown.add_row(one["scenario"], one["through"], f"{one['before_per_s']:,}", f"{one['after_per_s']:,}",
                      f"{one['ratio']:.2f}", back, f"{one['ran_again']:,}", str(len(one["problems"])))  # fmt: skip
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS)[:5])
    parser.add_argument("--through", nargs="+", choices=("direct", "pgbouncer"), default=["direct", "pgbouncer"])
    parser.add_argument("--seconds", type=float, default=15, help="of each measured stretch")
    parser.add_argument("--engines", type=int, default=1, help="processes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if "pgbouncer" in options.through and BOUNCER is None:
        raise SystemExit(NO_BOUNCER)
    results = []
    for through in options.through:
        for name in options.scenario:
            results.append(run(name, through, options.seconds, options.engines))
            if options.json:
                print(json.dumps(results[-1]), flush=True)
            else:
                Console().print(table(results[-1:]))
    if any(one["problems"] for one in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
