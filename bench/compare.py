"""Dal Segno, a peer and a bare loop of the same writes, side by side in one run.

    python bench/compare.py [--items 20000] [--pairs 5] [--json] [--only postgres|sqlite]

Two runs minutes apart can differ by a factor of two on a shared machine. So every round runs all three
sides, each in a process and a fresh database of its own, and what counts is the median of the rounds'
ratios. Dal Segno runs between the other two and the order turns round each time, so drift cancels out.
"""

import argparse
import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # started as a file, Python looks in bench/ and not beside it

from bench.servers import postgres  # noqa: E402

SIDE_TIMEOUT = 900
RATIOS = {
    "drain ours/peer": ("ours", "drain_per_s", "peer", "drain_per_s"),
    "enqueue ours/peer": ("ours", "enqueue_per_s", "peer", "enqueue_per_s"),
    "drain ours/bare": ("ours", "drain_per_s", "bare", "drain_per_s"),
    "enqueue ours/copy": ("ours", "enqueue_per_s", "bare", "copy_per_s"),
}
FIGURES = {
    "ours": ("enqueue_per_s", "drain_per_s"),
    "peer": ("enqueue_per_s", "drain_per_s"),
    "bare": ("copy_per_s", "drain_per_s"),
}

Round = dict[str, dict[str, Any]]
FreshDatabase = Callable[[], AbstractContextManager[str]]


def commands(url: str, items: int) -> dict[str, list[str]]:
    """What each side runs, as arguments to Python."""
    if url.startswith("postgresql:"):
        peer = ["bench.peer_pgqueuer", "--dsn", url]
    else:
        peer = ["bench.peer_huey", "--file", url.removeprefix("sqlite:///")]
    sides = {
        "ours": ["dalsegno", "bench", "engine", "--database", url],
        "peer": peer,
        "bare": ["bench.bare", "--database", url],
    }
    return {side: ["-m", *words, "--items", str(items), "--json"] for side, words in sides.items()}


def run_side(side: str, url: str, items: int) -> dict[str, Any]:
    command = [sys.executable, *commands(url, items)[side]]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SIDE_TIMEOUT, check=True)
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        # A side that lacks a figure has failed, now and not in the middle of the table.
        return {**figures, **{name: float(figures[name]) for name in FIGURES[side]}}
    except subprocess.TimeoutExpired as error:
        fail(side, command, f"still running after {SIDE_TIMEOUT} s", error.stderr)
    except subprocess.CalledProcessError as error:
        fail(side, command, f"exit code {error.returncode}", error.stderr or error.stdout)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        fail(side, command, f"unusable output ({error!r})", done.stdout + done.stderr)


def fail(side: str, command: list[str], reason: str, shown: str | bytes | None) -> NoReturn:
    text = shown.decode(errors="replace") if isinstance(shown, bytes) else shown or "(no output)"
    sys.exit(f"\nThe side '{side}' failed: {reason}\n  {' '.join(command)}\n\n{text.rstrip()}")


def run_rounds(database: FreshDatabase, items: int, pairs: int, say: Callable[[str], None]) -> list[Round]:
    rounds: list[Round] = []
    for number in range(pairs):
        order = ["peer", "ours", "bare"] if number % 2 == 0 else ["bare", "ours", "peer"]
        found: Round = {}
        for side in order:
            with database() as url:
                found[side] = run_side(side, url, items)
            say(f"  round {number + 1}/{pairs}  {side}  drained {found[side]['drain_per_s']:,.0f}/s")
        rounds.append(found)
    return rounds


def summarize(rounds: list[Round]) -> dict[str, Any]:
    ratios = [{name: one[a][x] / one[b][y] for name, (a, x, b, y) in RATIOS.items()} for one in rounds]
    return {
        "rounds": [{**one, "ratios": ratio} for one, ratio in zip(rounds, ratios, strict=True)],
        "medians": {
            side: {name: median(one[side][name] for one in rounds) for name in names} for side, names in FIGURES.items()
        },
        "median_ratios": {name: median(ratio[name] for ratio in ratios) for name in RATIOS},
        "pickup_ms": median_pickup(rounds),
    }


def median_pickup(rounds: list[Round]) -> dict[str, float] | None:
    found = [one["ours"]["pickup_ms"] for one in rounds if one["ours"].get("pickup_ms")]
    return {name: median(one[name] for one in found) for name in ("p50", "p99")} if found else None


def on_postgres(items: int, pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    with postgres() as server:
        settings = server.settings()
        say(f"PostgreSQL {settings['server_version']}")
        rounds = run_rounds(server.database, items, pairs, say)
    return {"peer": f"PgQueuer {version('pgqueuer')}", "server": settings, **summarize(rounds)}


def on_sqlite(items: int, pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"SQLite {sqlite3.sqlite_version}")
    rounds = run_rounds(sqlite_file, items, pairs, say)
    server = {"server_version": sqlite3.sqlite_version}
    return {"peer": f"Huey {version('huey')}", "server": server, **summarize(rounds)}


@contextmanager
def sqlite_file() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dalsegno-bench-sqlite-") as folder:
        yield f"sqlite:///{folder}/bench.db"


def table(name: str, result: dict[str, Any]) -> Table:
    """A row for each figure and ratio, a column for each round: fits 80 columns with five rounds."""
    titles = {"ours": "Dal Segno", "peer": result["peer"].split()[0], "bare": "bare loop"}
    rounds, medians, ratios = result["rounds"], result["medians"], result["median_ratios"]
    shown = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=f"{name} {result['server']['server_version']}, {result['peer']}: items per second, and ratios",
    )
    shown.add_column(no_wrap=True)
    for number in range(len(rounds)):
        shown.add_column(str(number + 1), justify="right")
    shown.add_column("median", justify="right", style="bold")
    for side, figures in FIGURES.items():
        for figure in figures:
            label = f"{titles[side]} {figure.removesuffix('_per_s')}"
            row = [*(one[side][figure] for one in rounds), medians[side][figure]]
            shown.add_row(label, *(f"{value:,.0f}" for value in row))
    shown.add_section()
    for ratio in RATIOS:
        row = [*(one["ratios"][ratio] for one in rounds), ratios[ratio]]
        shown.add_row(ratio, *(f"{value:.2f}" for value in row))
    if pickup := result["pickup_ms"]:
        shown.caption = f"Dal Segno picks up an item in {pickup['p50']:.1f} ms (p50), {pickup['p99']:.1f} ms (p99)"
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=5, help="rounds; each runs every side once")
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    parser.add_argument("--json", action="store_true", help="everything as JSON instead of tables")
    options = parser.parse_args()
    # Without this a terminated run would leave its PostgreSQL behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    progress = Console(stderr=True, highlight=False)
    runners = {"postgres": on_postgres, "sqlite": on_sqlite}
    chosen = [options.only] if options.only else list(runners)
    results = {name: runners[name](options.items, options.pairs, progress.print) for name in chosen}
    if options.json:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        }
        print(json.dumps({"items": options.items, "machine": machine, **results}, indent=2))
    else:
        for name, result in results.items():
            Console().print(table({"postgres": "PostgreSQL", "sqlite": "SQLite"}[name], result))


if __name__ == "__main__":
    main()
