"""The dashboard: what needs somebody, what runs, who works, how fast, and how long the disk lasts."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from dalsegno.catalog.overview import overview
from dalsegno.catalog.subjects import keys_of
from dalsegno.errors import NotFound
from dalsegno.insight.attention import in_order
from dalsegno.insight.charts import Charts, read_charts
from dalsegno.insight.dashboard import Dashboard, Part, read_dashboard
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.dashboard import attention_of
from dalsegno.web.console.frame import render, wanted, words_of
from dalsegno.web.console.pages import pages
from dalsegno.web.console.told import telling
from dalsegno.web.console.words import Words, size
from dalsegno.web.moments import Moments
from dalsegno.web.room import Here

T = TypeVar("T")
router = pages()

LIVE = ("jobs", "items", "workers", "holds", "breakers", "limits", "exceptions", "config", "commands")
NEEDS: tuple[tuple[str, Part], ...] = (
    ("attention", "attention"), ("figures", "counters"), ("active", "job"), ("pools", "pools"),
    ("exceptions", "exceptions"), ("queue", "jobs"),
)  # fmt: skip
"""Regions, and what each is made of."""
OUTCOMES = {"succeeded": "done", "failed": "failed", "skipped": "canceled", "retried": "held"}
"""Outcomes on the chart and their colours."""
BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
LINES = ("running", "done", "held", "failed", "accent", "canceled")


@router.get("/")
def dashboard(request: Request, here: Here, job: Annotated[int | None, Query(ge=1, lt=2**63)] = None) -> HTMLResponse:
    """The job named, else the one that matters most right now."""
    words = words_of(request, here)

    parts = frozenset(part for region, part in NEEDS if wanted(request, region))

    def read(tx: Tx) -> dict[str, Any]:
        try:
            board = read_dashboard(tx, job, parts)
        except NotFound:
            board = read_dashboard(tx, None, parts)
        keys = keys_of(tx, (w.item_id for pool in board.pools for w in pool.workers if w.item_id is not None))
        names = names_of(tx, (*keys.values(), *(line.item.key for line in board.exceptions)))
        return {"board": board, "keys": keys, "names": names}

    moments: Moments = request.app.state.moments
    share = moments.share if "fragment" in request.query_params else _read_anew
    values = share(("dashboard", job, parts), lambda: here.store.read(read))
    charts = share("charts", lambda: here.store.read(read_charts)) if wanted(request, "charts") else None
    values = {**values, "charts": [] if charts is None else plots(words, charts)}
    numbers, storage = None, None
    if wanted(request, "attention", "figures", "storage"):
        numbers, storage = share("overview", lambda: overview(here.store, here.settings))
        board: Dashboard = values["board"]
        values["board"] = replace(board, attention=in_order([*board.attention, *attention_of(here, storage)]))
    return render(
        request, here, "dashboard.html", page="dashboard", live=LIVE, told=telling(words), numbers=numbers,
        storage=storage, services=_under_way(values["board"]), **values,
    )  # fmt: skip


def _read_anew(_: Hashable, read: Callable[[], T]) -> T:
    return read()


def _under_way(board: Dashboard) -> list[str]:
    """Services whose pools are worth a place: those of the job's stages that are not over."""
    if board.job is None:
        return []
    return [stage.service for stage in board.job.detail.stages if stage.status in ("running", "pause_requested")]


def plots(words: Words, charts: Charts) -> list[tuple[str, str, str]]:
    """The charts as (id, title, data): items a minute by outcome, bytes a second, how long items take."""
    x = [int(minute.timestamp()) for minute in charts.minutes[:-1]]  # the last one is still filling
    outcomes = [
        {"label": words.word(name), "color": color, "values": values}
        for name, color in OUTCOMES.items()
        if any(values := _sum(charts, name))
    ]
    moved: list[dict[str, Any]] = [
        {"label": words.stage(each.service), "color": LINES[place % len(LINES)], "values": each.bytes_per_second[:-1]}
        for place, each in enumerate(s for s in charts.series if any(s.bytes_per_second[:-1]))
    ]
    took = [
        {"label": f"{words.stage(each.service)} {name}", "color": LINES[place % len(LINES)], "values": values[:-1],
         "dash": [4, 3] if name == "p95" else [], "class": name, "points": {"show": True, "size": 4}}
        for place, each in enumerate(s for s in charts.series if any(s.p50[:-1]))
        for name, values in (("p50", each.p50), ("p95", each.p95))
    ]  # fmt: skip
    unit, factor = _unit(max((value or 0 for line in moved for value in line["values"]), default=0))
    drawn: list[tuple[str, str, list[dict[str, Any]], str, float]] = [
        ("chart-items", words.text("Items per minute, by outcome"), outcomes, "", 1),
        ("chart-bytes", words.text("Bytes per second"), moved, unit, factor),
        ("chart-times", words.text("Seconds an item takes: p50 and p95"), took, " s", 1),
    ]
    return [(id, title, _json(x, lines, unit, factor)) for id, title, lines, unit, factor in drawn if lines]


def _sum(charts: Charts, name: str) -> list[int]:
    columns = [series.outcomes[name] for series in charts.series if name in series.outcomes]
    return [sum(column) for column in zip(*columns, strict=True)][:-1] if columns else []


def _unit(most: float) -> tuple[str, float]:
    """What the largest is best said in, and how many bytes that is."""
    unit = size(most).partition(" ")[2]
    return f" {unit}/s", BYTES[unit]


def _json(x: list[int], lines: list[dict[str, Any]], unit: str, factor: float) -> str:
    data = [x, *([None if v is None else round(v / factor, 3) for v in line.pop("values")] for line in lines)]
    return json.dumps({"data": data, "lines": lines, "unit": unit}, ensure_ascii=False, separators=(",", ":"))
