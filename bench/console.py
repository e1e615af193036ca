"""How long every list behind the console takes on a large database while an engine works on it.

    python scripts/make_history.py --database sqlite:///big.db
    python bench/console.py --database sqlite:///big.db [--rounds 40] [--url http://127.0.0.1:8787] [--json]

Each list is asked once, then `rounds` times, all lists in turn so that drift hits all of them alike. An engine in this
process works off a job of short items meanwhile, as it does in `dalsegno serve`. With --url the pages of a console
that is already running are asked too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

from dalsegno import Engine, EngineOptions, Item, Step, Store, Workflow, open_store, service, submit
from dalsegno.catalog.find import ITEMS, matching, source_facet
from dalsegno.catalog.status import list_playlists, list_pools
from dalsegno.insight.bulk import preview
from dalsegno.insight.commands import COMMANDS, find_commands
from dalsegno.insight.events import EVENTS, find_events
from dalsegno.insight.facets import item_facets
from dalsegno.insight.finding import find_items
from dalsegno.insight.groups import GROUPS, find_groups
from dalsegno.insight.jobs import JOBS, find_jobs
from dalsegno.insight.logs import LOGS, count_levels, find_logs
from dalsegno.insight.query import parse
from dalsegno.store.store import Tx

LIMIT_MS = 100.0
"""What a page may take, 95 times of 100."""
QUERIES: dict[str, tuple[Callable[..., Any], Any, tuple[str, ...]]] = {
    "items": (find_items, ITEMS, (
        "", "state:failed", "state:running", "state:pending", "state:skipped", "state:succeeded job:1", "job:1",
        "job:3 state:failed", "job:3 state:canceled", "stage:download state:failed", "service:upload",
        "error:404", "-error:404 state:failed", "source:demo state:failed", "playlist:17", "playlist:17 state:failed",
        "song:17", "key:thing:17", "attempt:>=3", "age:>1h state:failed", "worker:work-1", "number", "nothing-such",
    )),
    "jobs": (find_jobs, JOBS, ("", "state:running", "state:failed", "by:nobody", "template:full", "script")),
    "logs": (find_logs, LOGS, (
        "", "level:error", "level:warn,error job:3", "job:3", "item:17", "worker:work-1 age:<1d", "thing",
        "nothing-such",
    )),
    "events": (find_events, EVENTS, (
        "", "kind:job_*", "kind:item_failed", "job:3", "job:3 kind:job_*", "item:17", "by:engine level:info",
        "nothing-such",
    )),
    "commands": (find_commands, COMMANDS, ("", "state:rejected")),
    "groups": (find_groups, GROUPS, ("", "code:code_3", "shelf")),
}  # fmt: skip


def reads() -> Iterator[tuple[str, bool, Callable[[Tx], Any]]]:
    """Every list, by name; whether it looks for a text, which may take longer; and how it is read."""
    for name, (find, among, texts) in QUERIES.items():
        how = {"among": among}
        for text in texts:
            query = parse(text, among)
            free = bool(query.of("") or query.of("error"))
            yield f"{name} {text}".strip(), free, lambda tx, f=find, q=query, h=how: f(tx, q, **h)  # type: ignore[misc]
    for text in ("", "state:failed", "source:demo state:failed"):
        query = parse(text, ITEMS)
        yield (
            f"facets {text}".strip(),
            False,
            lambda tx, q=query: (item_facets(tx, q, among=ITEMS), source_facet(tx, q)),
        )  # type: ignore[misc]
    for text in ("state:failed", "job:3", "playlist:17"):
        query = parse(text, ITEMS)
        yield f"preview {text}", True, lambda tx, q=query: preview(tx, "bulk_retry", q, among=ITEMS)  # type: ignore[misc]
    yield "levels", False, lambda tx: count_levels(tx, parse("", LOGS))
    yield "pools", False, list_pools
    yield "playlists", False, list_playlists


@service("bench", workers=4)
def bench(item: Item) -> None:
    time.sleep(0.005)


@contextmanager
def working(store: Store) -> Iterator[Callable[[], int]]:
    """An engine that has always something to do; yields how many items it has done."""
    workflow = Workflow(name="bench-console", steps=(Step(key="a", service="bench"),))
    submit(store, workflow, items=[f"b{number}" for number in range(100_000)])
    with Engine(store, [bench], EngineOptions(node="bench", keep_logs=False, drain_seconds=2, find=matching)) as engine:
        yield lambda: engine.pools["bench"].processed


def measure(store: Store, rounds: int, url: str | None, paths: list[str]) -> list[dict[str, Any]]:
    asked: list[tuple[str, bool, Callable[[], Any]]] = [
        (name, free, lambda read=read: store.read(read))  # type: ignore[misc]
        for name, free, read in reads()
    ]
    asked += [(path, False, lambda path=path: _get(f"{url}{path}")) for path in (paths if url else ())]  # type: ignore[misc]
    times: dict[str, list[float]] = {name: [] for name, _, _ in asked}
    partial: set[str] = set()
    for turn in range(rounds + 1):
        for name, _, ask in asked:
            began = time.perf_counter()
            found = ask()
            if turn:  # the first time warms the caches
                times[name].append((time.perf_counter() - began) * 1000)
            if getattr(found, "partial", False):
                partial.add(name)
    lines = []
    for name, free, _ in asked:
        cuts = quantiles(times[name], n=20)
        lines.append({"what": name, "p50_ms": round(cuts[9], 2), "p95_ms": round(cuts[18], 2), "text": free,
                      "partial": name in partial})  # fmt: skip
    return lines


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--url", help="A running console whose pages are asked too.")
    parser.add_argument("--path", action="append", default=[], help="A page of it; may be given often.")
    parser.add_argument("--idle", action="store_true", help="Without an engine at work.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    store = open_store(options.database)
    try:
        if options.idle:
            done, lines = 0, measure(store, options.rounds, options.url, options.path)
        else:
            with working(store) as processed:
                began = time.monotonic()
                lines = measure(store, options.rounds, options.url, options.path)
                done = round(processed() / (time.monotonic() - began))
    finally:
        store.close()
    slow = [line for line in lines if line["p95_ms"] > LIMIT_MS and not line["text"]]
    if options.json:
        print(json.dumps({"items_per_s": done, "lists": lines}, indent=2))
    else:
        for line in lines:
            mark = "!" if line in slow else "~" if line["partial"] else " "
            print(f"{mark} {line['p50_ms']:9.2f} {line['p95_ms']:9.2f}  {line['what']}")
        print(f"the engine did {done} items/s meanwhile; ! slower than {LIMIT_MS:g} ms, ~ a partial answer")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
