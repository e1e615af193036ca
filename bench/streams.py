"""What open streams and dashboards cost the console: `python -m bench.streams --database URL --streams 200 --json`.

The console and the engine are processes of their own, so that the CPU time of the console is its own. Three looks of
the same length: nobody there; so many streams that only listen; so many dashboards that fetch what was said to have
changed, as a browser does: each region about as often as it says, those that are due soon along with those that are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from dalsegno import Engine, open_store, service, submit
from dalsegno.engine.item import Item
from dalsegno.model.workflow import Step, Workflow
from dalsegno.settings import Settings
from dalsegno.web.app import create_app
from dalsegno.web.server import ConsoleServer, bind

LIVE = re.compile(r"<[^>]*\bdata-live=[^>]*>")
SOON = 1.0


def console(database: str, port: Any, stop: Any) -> None:
    store = open_store(database)
    app = create_app(store, Settings(_env_file=None))
    app.openapi()  # or it makes it while it is measured
    with bind("127.0.0.1", 0) as listening, ConsoleServer(app, listening):
        port.send(listening.getsockname()[1])
        stop.wait()
    store.close()


def engine(database: str, pace: float, stop: Any) -> None:
    store = open_store(database)

    @service("work", workers=4)
    def work(item: Item) -> None:
        time.sleep(4 / pace)
        item.progress(1.0, "done")

    with Engine(store, [work]):
        while not stop.is_set():
            job = submit(
                store, Workflow(name="bench", steps=(Step(key="a", service="work"),)), items=map(str, range(2000))
            )
            while not stop.wait(0.2) and store.read(lambda tx, j=job.job_id: _running(tx, j)):
                pass
    store.close()


def _running(tx: Any, job_id: int) -> bool:
    from dalsegno.insight.jobs import job_detail

    return job_detail(tx, job_id).job.finished_at is None


async def listen(url: str, stop: asyncio.Event, heard: list[int]) -> None:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while not stop.is_set():
        try:
            async with asyncio.timeout(1):
                text = await reader.read(65536)
        except TimeoutError:
            continue
        heard[0] += text.count(b"event: ")
    writer.close()


async def dashboard(url: str, stop: asyncio.Event, fetched: list[int]) -> None:
    """A tab: it listens, and fetches the regions whose topics changed."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        page = (await client.get("/")).text
        regions = {_said(tag, "id"): tag for tag in LIVE.findall(page)}
        topics = {name: set(_said(tag, "data-live").split()) for name, tag in regions.items()}
        every = {name: float(_said(tag, "data-every") or 1000) / 1000 for name, tag in regions.items()}
        dirty: set[str] = set()
        asked = dict.fromkeys(regions, 0.0)

        async def follow() -> None:
            async with client.stream("GET", "/api/events/stream") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("event: "):
                        dirty.update(name for name in regions if line[7:] in topics[name])

        following = asyncio.create_task(follow())
        while not stop.is_set():
            now = time.monotonic()
            if any(now >= asked[name] + every[name] for name in dirty):
                due = [name for name in dirty if now + SOON >= asked[name] + every[name]]
                dirty.difference_update(due)
                asked.update(dict.fromkeys(due, now))
                await client.get("/", params={"fragment": ",".join(name.replace("-", "_") for name in due)})
                fetched[0] += 1
            await asyncio.sleep(0.05)
        following.cancel()


def _said(tag: str, name: str) -> str:
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    return found[1] if found else ""


async def measured(
    server: psutil.Process, seconds: float, visitors: list[Any], stop: asyncio.Event
) -> dict[str, float]:
    tasks = [asyncio.create_task(visitor) for visitor in visitors]
    await asyncio.sleep(2)
    before, began = server.cpu_times(), time.monotonic()
    memory = server.memory_info().rss
    await asyncio.sleep(seconds)
    after, took = server.cpu_times(), time.monotonic() - began
    stop.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    spent = after.user + after.system - before.user - before.system
    return {"cpu": spent / took, "rss_mb": memory / 1e6}


async def run(database: str, streams: int, tabs: int, seconds: float, pace: float) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    processes = [context.Process(target=console, args=(database, theirs, stop)),
                 context.Process(target=engine, args=(database, pace, stop))]  # fmt: skip
    processes[0].start()
    url = f"http://127.0.0.1:{ours.recv()}"
    processes[1].start()
    server = psutil.Process(processes[0].pid)
    heard, fetched = [0], [0]
    try:
        await asyncio.sleep(2)
        idle = await measured(server, seconds, [], asyncio.Event())
        end = asyncio.Event()
        listening = await measured(server, seconds, [listen(url, end, heard) for _ in range(streams)], end)
        end = asyncio.Event()
        open_tabs = await measured(server, seconds, [dashboard(url, end, fetched) for _ in range(tabs)], end)
    finally:
        stop.set()
        for process in processes:
            process.join(30)
    return {
        "streams": streams,
        "messages_heard": heard[0],
        "cpu_idle_percent": round(idle["cpu"] * 100, 2),
        "cpu_streams_percent": round(listening["cpu"] * 100, 2),
        "cpu_per_stream_percent": round((listening["cpu"] - idle["cpu"]) * 100 / streams, 4),
        "kb_per_stream": round((listening["rss_mb"] - idle["rss_mb"]) * 1000 / streams, 1),
        "dashboards": tabs,
        "fetches_per_dashboard_per_s": round(fetched[0] / tabs / (seconds + 2), 2),
        "cpu_per_dashboard_percent": round((open_tabs["cpu"] - idle["cpu"]) * 100 / tabs, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", help="a fresh SQLite file unless said")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--dashboards", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--pace", type=float, default=20.0, help="items a second")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = args.database or f"sqlite:///{Path(folder) / 'streams.db'}"
        found = asyncio.run(run(database, args.streams, args.dashboards, args.seconds, args.pace))
    print(json.dumps(found) if args.json else "\n".join(f"{key}: {value}" for key, value in found.items()))


if __name__ == "__main__":
    main()
