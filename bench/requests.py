"""Parse requests beside a hundred thousand others: races, round trips, how soon they are begun, and what a count costs.

    python -m bench.requests [--databases sqlite postgres] [--stored 100000] [--rounds 50] [--samples 200]

Each database is filled twice, once with requests that are done and once with requests that wait, and a `dalsegno serve`
of its own (console and engine in one process, as people run it) is asked over HTTP. Prints JSON; milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import psycopg
import sqlalchemy as sa

from bench import servers
from dalsegno import Store, open_store
from dalsegno.engine.submit import apply_workflow
from dalsegno.requests.content import keep
from dalsegno.requests.links import Made, keep_decoded
from dalsegno.requests.schema import parse_requests, request_counts, variants
from dalsegno.requests.upstream import Offer, Work
from dalsegno.requests.workflow import DECODE, ITEM, PARSE, SEARCH
from dalsegno.store.schema import items, jobs, lanes, stages
from dalsegno.store.store import Tx

PATH = "/api/v1/parse/requests"
CROWD = 64
SOME = 500
"""Rows in one transaction."""


def fill(store: Store, count: int, *, done: bool) -> None:
    """As so many requests would have left the tables behind, or as they wait; after the jobs that are there."""

    def work(tx: Tx) -> None:
        now, postgres = tx.now, tx.conn.dialect.name == "postgresql"
        first = int(tx.conn.execute(sa.select(sa.func.max(jobs.c.id))).scalar() or 0)
        numbers = sa.select(sa.literal(first + 1).label("i")).cte("numbers", recursive=True)
        numbers = numbers.union_all(sa.select(numbers.c.i + 1).where(numbers.c.i < first + count))
        i = numbers.c.i
        digest = _padded(i) if postgres else sa.func.printf("%064d", i)
        end = now if done else None
        one = 0 if done else 1
        stage = {
            "job_id": i, "priority": 100, "order_seq": i, "status": "completed" if done else "pending",
            "finished_at": end, "followed_by": [],
        }  # fmt: skip
        job = {
            "id": i, "workflow_id": apply_workflow(tx, PARSE)[0], "lane": "parse", "order_seq": i,
            "status": "completed" if done else "queued", "dedupe_key": "parse:" + digest, "created_at": now,
            "updated_at": now, "started_at": end, "finished_at": end,
        }  # fmt: skip
        search = {
            "seq": 0, "key": "search", "service": SEARCH, "depends_on": [], "given": True, "planned": True,
            "high_seq": 1, "low_seq": 1 - one, "total": 1, "pending": one, "ready": one, "succeeded": 1 - one,
        }  # fmt: skip
        decode = {"seq": 1, "key": "decode", "service": DECODE, "depends_on": ["search"], "planned": done}
        request = {
            "job_id": i, "hash": digest, "body": {"title": "x", "decodeLinks": False},
            "state": "DONE" if done else "PENDING", "created_at": now,
        }  # fmt: skip
        item = {
            "stage_id": stages.c.id, "job_id": stages.c.job_id, "seq": 1, "key": ITEM,
            "status": "succeeded" if done else "pending", "finished_at": end,
        }  # fmt: skip
        if postgres:  # versions of a count that one transaction makes cannot be cleared away before it ends
            tx.conn.execute(sa.text("ALTER TABLE parse_requests DISABLE TRIGGER USER"))
            tx.conn.execute(sa.update(request_counts).where(request_counts.c.slot == 0).values(
                {"done" if done else "pending": count}))  # fmt: skip
        for table, row in ((jobs, job), (stages, stage | search), (stages, stage | decode), (parse_requests, request)):
            tx.conn.execute(_all(table, row, numbers, postgres))
        found = sa.select(*_values(items, item, postgres)).where(stages.c.key == "search", stages.c.job_id > first)
        tx.conn.execute(sa.insert(items).from_select(list(item), found))
        if postgres:
            tx.conn.execute(sa.text("ALTER TABLE parse_requests ENABLE TRIGGER USER"))
            tx.conn.execute(sa.select(sa.func.setval(sa.func.pg_get_serial_sequence("jobs", "id"), first + count)))

    store.write("fill", work)


def fill_contents(store: Store, count: int) -> None:
    """So many serials, and a long one before them, all decoded; the newest request has found the long one."""
    newest = store.read(lambda tx: tx.rows(sa.select(sa.func.max(parse_requests.c.job_id).label("id")))[0]["id"])
    sizes = [(220, 5), *((12, 2) for _ in range(count))]
    works = [_serial(f"serial-{number}", *size) for number, size in enumerate(sizes)]
    for start in range(0, len(works), SOME):
        part = works[start : start + SOME]
        store.write("fill", lambda tx, part=part: keep(tx.conn, newest, {"kodik": part}, tx.now, ready=False))  # type: ignore[misc]
    links = store.read(lambda tx: [(row["id"], row["link"]) for row in tx.rows(sa.select(variants))])
    for start in range(0, len(links), SOME):
        some = links[start : start + SOME]
        store.write("fill", lambda tx, some=some: keep_decoded(tx.conn, [_made(tx, *pair) for pair in some]))  # type: ignore[misc]
    store.write("fill", lambda tx: _decoded_by(tx, newest, [number for number, _ in links[: 220 * 5]]))


def _serial(name: str, episodes: int, translations: int) -> Work:
    offers = tuple(
        Offer(link=f"https://player.test/{name}/{voice}/{at}", season=1, episode=at, translation_id=str(voice),
              translation_title=f"Studio {voice}", translation_type="voice", quality="720p")
        for voice in range(translations) for at in range(1, episodes + 1)
    )  # fmt: skip
    return Work(id=name, type="anime-serial", title=f"Title of {name}", title_orig=name, year=2026, offers=offers)


def _made(tx: Tx, number: int, link: str) -> Made:
    return Made(number, link, f"https://files.test/{number}.mp4", "720p", tx.now, None)


def _decoded_by(tx: Tx, job_id: int, ids: list[int]) -> None:
    """One item for each, all succeeded."""
    stage = tx.rows(sa.select(stages).where(stages.c.job_id == job_id, stages.c.key == "decode"))[0]["id"]
    row = {"stage_id": stage, "job_id": job_id, "status": "succeeded", "started_at": tx.now, "finished_at": tx.now}
    rows = [{**row, "seq": seq, "key": f"variant:{number}"} for seq, number in enumerate(ids, 1)]
    tx.conn.execute(sa.insert(items), rows)
    counts = {"total": len(ids), "succeeded": len(ids), "high_seq": len(ids), "low_seq": len(ids)}
    tx.conn.execute(sa.update(stages).where(stages.c.id == stage).values(**counts))


def _all(table: sa.Table, row: dict[str, Any], numbers: sa.CTE, postgres: bool) -> sa.Insert:
    return sa.insert(table).from_select(list(row), sa.select(*_values(table, row, postgres)).select_from(numbers))


def _values(table: sa.Table, row: dict[str, Any], postgres: bool) -> list[Any]:
    """PostgreSQL does not guess the type of a value in a SELECT; SQLite would change the value."""
    found = []
    for name, each in row.items():
        kind = table.c[name].type
        value = each if isinstance(each, sa.ColumnElement) else sa.literal(each, kind)
        found.append(sa.cast(value, kind) if postgres and value is not each else value)
    return found


def _padded(number: sa.ColumnElement[int]) -> sa.ColumnElement[str]:
    return sa.func.lpad(sa.cast(number, sa.Text), 64, "0")


def settle(url: str) -> None:
    """What filling a database leaves to be done behind its back is not part of any round trip."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("VACUUM (ANALYZE)")
        conn.execute("CHECKPOINT")


@contextmanager
def serving(url: str, folder: Path) -> Iterator[str]:
    words = [sys.executable, "-m", "dalsegno", "--database", url, "serve", "--port", "0"]
    server = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if found := re.search(r"http://[\w.:\[\]]+", line):
                yield found[0]
                break
        else:
            raise SystemExit("the server did not start")
    finally:
        server.terminate()
        server.wait(60)


async def race(url: str, rounds: int) -> dict[str, Any]:
    """The same asked by a crowd at once, over and over; nobody works on it meanwhile."""
    limits = httpx.Limits(max_connections=CROWD, max_keepalive_connections=CROWD)
    good, slowest = 0, 0.0
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        spelled = ("{} at  once", " {} AT ONCE ", "\t{} At Once")
        for number in range(rounds):
            bodies = [{"title": spelled[each % 3].format(f"Round {number}")} for each in range(CROWD)]
            begun = time.perf_counter()
            answers = await asyncio.gather(*(client.post(PATH, json=body) for body in bodies))
            slowest = max(slowest, time.perf_counter() - begun)
            created = sum(answer.status_code == 201 for answer in answers)
            found = sum(answer.status_code == 200 for answer in answers)
            same = len({answer.json()["id"] for answer in answers}) == 1
            good += created == 1 and found == CROWD - 1 and same
    return {"crowd": CROWD, "rounds": rounds, "rounds_with_one_201_and_one_id": good, "slowest_round_ms": _ms(slowest)}


def timed(client: httpx.Client, samples: int, method: str, path: str, body: Any = None) -> dict[str, float]:
    spent = []
    for number in range(samples + 5):
        sent = None if body is None else {name: text.format(number) for name, text in body.items()}
        begun = time.perf_counter()
        answer = client.request(method, path, json=sent)
        spent.append(time.perf_counter() - begun)
        answer.raise_for_status()
    return _spread(spent[5:])


def pickup(store: Store, after: int) -> dict[str, float]:
    """From the commit of a request to the begin of its search."""
    query = (
        sa.select(jobs.c.created_at, items.c.started_at)
        .join(stages, sa.and_(stages.c.job_id == jobs.c.id, stages.c.key == "search"))
        .join(items, items.c.stage_id == stages.c.id)
        .where(jobs.c.id > after, items.c.started_at.is_not(None))
    )
    rows = store.read(lambda tx: tx.rows(query))
    return {"count": len(rows), **_spread([(row["started_at"] - row["created_at"]).total_seconds() for row in rows])}


def measure(url: str, folder: Path, count: int, rounds: int, samples: int, *, done: bool) -> dict[str, Any]:
    store = open_store(url)
    try:
        fill(store, count, done=done)
        if not url.startswith("sqlite"):
            settle(url)
        held = {"held_at": store.clock.now(), "held_by": "bench", "held_reason": "bench"}
        hold = sa.update(lanes).where(lanes.c.name == PARSE.lane.name).values(**held)
        store.write("hold", lambda tx: tx.conn.execute(hold))
        with serving(url, folder) as address, httpx.Client(base_url=address, timeout=60) as client:
            told: dict[str, Any] = {"stored": count, "state": "DONE" if done else "PENDING"}
            told["race"] = asyncio.run(race(address, rounds))
            if done:
                client.post("/api/resume", json={"lane": "parse"}).raise_for_status()
                _until_quiet(client)
            newest = client.get(PATH, params={"limit": 1}).json()[0]["id"]
            told["submit_new"] = timed(client, samples, "POST", PATH, {"title": "Round trip {}"})
            if not done:
                told["submit_known"] = timed(client, samples, "POST", PATH, {"title": "Round trip 0"})
            for status in ("PENDING", "DONE"):
                told[f"count_{status.lower()}"] = timed(client, samples, "GET", f"{PATH}?status={status}&limit=0")
            told["count_all"] = timed(client, samples, "GET", f"{PATH}?limit=0")
            told["list_first"] = timed(client, samples, "GET", f"{PATH}?limit=50")
            for where, offset in (("middle", count // 2), ("last", count - 50)):
                told[f"list_{where}"] = timed(client, samples, "GET", f"{PATH}?limit=50&offset={offset}")
            told["list_state"] = timed(client, samples, "GET", f"{PATH}?status={told['state']}&limit=50")
            told["get_one"] = timed(client, samples, "GET", f"{PATH}/{newest}")
            if done:
                _until_quiet(client)
                told["pending_to_searching"] = pickup(store, newest)
            return told
    finally:
        store.close()


def _until_quiet(client: httpx.Client) -> None:
    for status in ("PENDING", "RUNNING"):
        while int(client.get(PATH, params={"status": status, "limit": 0}).headers["X-Total-Count"]):
            time.sleep(0.1)


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100)
    return {"p50": _ms(cuts[49]), "p95": _ms(cuts[94]), "max": _ms(max(seconds))}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgres"], choices=["sqlite", "postgres"])
    parser.add_argument("--states", nargs="+", default=["done", "pending"], choices=["done", "pending"])
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--samples", type=int, default=200)
    asked = parser.parse_args()
    told: dict[str, list[Any]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(servers.postgres()) if "postgres" in asked.databases else None
        for kind in asked.databases:
            for state in asked.states:
                with ExitStack() as own:
                    if kind == "sqlite" or server is None:
                        url = f"sqlite:///{folder}/{state}.db"
                    else:
                        url = own.enter_context(server.database())
                    found = measure(url, folder, asked.stored, asked.rounds, asked.samples, done=state == "done")
                    told.setdefault(kind, []).append(found)
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
