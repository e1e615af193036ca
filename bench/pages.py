"""How long every page of the console takes, each region of it, and every list of the API, on a large database.

    python scripts/make_history.py --database sqlite:///big.db
    python -m bench.pages --database sqlite:///big.db [--rounds 40] [--only /songs] [--json]

The console and an engine at work are processes of their own, so that the CPU time of the console is its own: on a
machine that others use too it says more than the clock does. On PostgreSQL the server's part is in the clock's only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import re
import sys
import time
from collections.abc import Iterator
from statistics import quantiles
from typing import Any
from urllib.parse import quote

import psutil

from bench.streams import console, engine

LIMIT_MS = 100.0
"""What a page may take, 95 times of 100."""
REGION = re.compile(r'<[^>]*\bdata-live="[^>]*>')
ID = re.compile(r'\bid="([\w-]+)"')
TABS = ("overview", "items", "workers", "workflow", "logs", "events", "commands", "config")
PAGES = (
    "/", "/?job=3",
    "/jobs", "/jobs?q=state:failed", "/jobs?q=script", "/jobs/new", *(f"/jobs/3?tab={tab}" for tab in TABS),
    "/jobs/3?tab=items&q=state:failed", "/jobs/1",
    "/playlists", "/playlists?q=status:incomplete", "/playlists?q=shelf", "/playlists/17",
    "/playlists/plan?id=17&template=sync",
    "/songs", "/songs?view=failed", "/songs?view=waiting", "/songs?view=interrupted", "/songs?view=all",
    "/songs?q=source:demo state:failed", "/songs?q=playlist:17", "/songs?q=error:404", "/songs?q=nothing-such",
    "/bulk/new?act=retry&q=state:failed", "/bulk", "/items/17", "/items/500000",
    "/logs", "/logs/lines", "/logs/lines?q=level:error", "/logs/lines?q=job:3", "/logs/lines?q=nothing-such",
    "/logs/events", "/logs/events?q=kind:job_*", "/logs/events?q=nothing-such", "/logs/audit",
    "/schedules", "/schedules/new", "/workflows", "/workflows/full", "/limits", "/system",
    "/config", "/config/raw", "/config/revisions",
    "/explain/item/17", "/explain/job/3", "/docs",
    "/requests", "/requests?q=state:done", "/requests?q=hits:>0", "/requests?q=nothing-such", "/requests/new",
    "/requests/new?title=Long+serial&decodeLinks=on", "/requests/{request}", "/requests/{request}?state=succeeded",
    "/requests/contents/1", "/jobs/{request}",
)  # fmt: skip
LISTS = (
    "/api/dashboard", "/api/jobs", "/api/jobs?q=state:failed", "/api/jobs/3", "/api/jobs/3/items",
    "/api/jobs/3/items?q=state:failed", "/api/jobs/3/commands", "/api/jobs/3/events", "/api/jobs/3/config",
    "/api/items", "/api/items?q=state:failed", "/api/items?q=attempt:>=3", "/api/items?q=state:skipped",
    "/api/items?q=error:404", "/api/items?q=nothing-such", "/api/job-items/17",
    "/api/facets", "/api/facets?q=state:failed", "/api/exceptions", "/api/pools", "/api/playlists",
    "/api/playlists/17", "/api/songs", "/api/songs?q=nothing-such", "/api/songs/17", "/api/workers", "/api/logs",
    "/api/logs?q=level:error", "/api/logs?q=nothing-such", "/api/events", "/api/events?q=kind:item_failed",
    "/api/events?q=nothing-such", "/api/commands", "/api/audit", "/api/config/env", "/api/config/revisions",
    "/api/holds", "/api/limits", "/api/breakers", "/api/search?q=number", "/api/explain/item/17", "/api/workflows",
    "/api/workflows/full", "/api/schedules", "/api/artifacts", "/api/system", "/api/openapi.json",
    "/healthz", "/readyz", "/metrics",
    "/api/v1/parse/requests", "/api/v1/parse/requests?limit=200", "/api/v1/parse/requests?status=PENDING&limit=0",
    "/api/v1/parse/requests?offset=50000", "/api/v1/parse/requests?status=DONE&offset=99000",
    "/api/v1/parse/requests/{request}", "/api/v1/export/ready?cursor=", "/api/v1/export/ready?page=10",
    "/api/v1/export/ready?size=10&cursor=", "/api/v1/export/1",
)  # fmt: skip
TEXT = ("script", "shelf", "nothing-such", "error:", "search?", "bulk")
"""In addresses that look for a text, or count what matches: they may take longer, and say when they stop."""
TEXT_ROUNDS = 10


class Asking:
    """A connection that stays open, as a browser's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, address: str) -> tuple[int, str]:
        try:
            self._connection.request("GET", quote(address, safe="/?&=:,*"), headers={"Host": "localhost"})
            answer = self._connection.getresponse()
        except (http.client.HTTPException, OSError):
            self._connection.close()
            return 0, ""
        return answer.status, answer.read().decode("utf-8", "replace")


def regions(page: str) -> list[str]:
    """The regions of a page that stay live, as fragments are asked for."""
    found = (ID.search(match[0]) for match in REGION.finditer(page))
    return [match[1].replace("-", "_") for match in found if match]


def addresses(asking: Asking, only: str) -> list[str]:
    found = []
    _, newest = asking.get("/api/v1/parse/requests?limit=1")
    for form in (*PAGES, *LISTS):
        address = form.replace("{request}", str(json.loads(newest)[0]["id"])) if "{request}" in form else form
        if not address.startswith(only):
            continue
        _, text = asking.get(address)
        found.append(address)
        if form in PAGES:
            mark = "&" if "?" in address else "?"
            found += [f"{address}{mark}fragment={name}" for name in regions(text)]
    return found


def measure(asking: Asking, server: psutil.Process, address: str, rounds: int, *, text: bool) -> dict[str, Any]:
    status, _ = asking.get(address)
    times = []
    before = server.cpu_times()
    for _ in range(rounds):
        began = time.perf_counter()
        asking.get(address)
        times.append((time.perf_counter() - began) * 1000)
    after = server.cpu_times()
    spent = (after.user + after.system - before.user - before.system) * 1000 / rounds
    cuts = quantiles(times, n=20, method="inclusive")
    return {"what": address, "status": status, "cpu_ms": round(spent, 1), "p50_ms": round(cuts[9], 1),
            "p95_ms": round(cuts[18], 1), "text": text}  # fmt: skip


def run(database: str, rounds: int, only: str, pace: float) -> Iterator[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    serving = context.Process(target=console, args=(database, theirs, stop))
    working = context.Process(target=engine, args=(database, pace, stop))
    serving.start()
    try:
        asking = Asking(ours.recv())
        working.start()
        server = psutil.Process(serving.pid)
        for address in addresses(asking, only):
            text = any(part in address for part in TEXT)
            yield measure(asking, server, address, min(rounds, TEXT_ROUNDS) if text else rounds, text=text)
    finally:
        stop.set()
        for process in (serving, working):
            if process.pid is not None:
                process.join(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="/", help="Addresses that begin so.")
    parser.add_argument("--pace", type=float, default=20.0, help="items a second that the engine does meanwhile")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = []
    for line in run(options.database, options.rounds, options.only, options.pace):
        lines.append(line)
        mark = "~" if line["text"] else "!" if line["p95_ms"] > LIMIT_MS else " "
        figures = f"{line['cpu_ms']:6.1f} {line['p50_ms']:6.1f} {line['p95_ms']:6.1f}"
        if not options.json:
            print(f"{mark} {line['status']:3} {figures}  {line['what']}", flush=True)
    if options.json:
        print(json.dumps(lines, indent=2))
    else:
        print(
            f"  status, CPU, p50, p95 in ms; ! slower than {LIMIT_MS:g}; ~ looks for a text, within a time of its own"
        )
    slow = [line for line in lines if line["p95_ms"] > LIMIT_MS and not line["text"]]
    return 1 if slow or any(line["status"] != 200 for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
