"""Log lines and events: found, followed, seen among their neighbours, linked to and taken along as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from fastapi import Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from dalsegno.engine.logbridge import masked
from dalsegno.errors import NotFound, QueryInvalid
from dalsegno.insight.events import EVENTS, find_events
from dalsegno.insight.grammar import Grammar
from dalsegno.insight.logs import CHIPS, LOGS, count_levels, find_logs
from dalsegno.insight.query import Query, parse
from dalsegno.insight.walk import Page
from dalsegno.model.records import LogRecord
from dalsegno.model.states import Level
from dalsegno.store.schema import logs
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Number
from dalsegno.web.console.frame import render, wanted
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Room

router = pages()

PAGE = 100
AROUND = 20
"""Lines before and after the one that is looked at."""
BATCH = 2_000
MOST = 200_000
"""Lines that one download brings."""
LEVELS = {
    Level.DEBUG: ("·", N_("debug")),
    Level.INFO: ("i", N_("info")),
    Level.WARN: ("!", N_("warning")),
    Level.ERROR: ("✕", N_("error")),
}
"""A level is a shape and a word before it is a colour."""
KINDS = ("job_*", "stage_*", "item_failed", "item_retried", "breaker_*", "limit_*", "hold_*", "config_*", "console_*")
"""What people look for among events."""


def asked(text: str, grammar: Grammar) -> tuple[Query | None, QueryInvalid | None]:
    """A query, or what is wrong with it."""
    try:
        return parse(text, grammar), None
    except QueryInvalid as error:
        return None, error


# --- lines ------------------------------------------------------------------------------------------


@router.get("/logs/lines")
def lines(request: Request, here: Here, q: str = "", cursor: str | None = None) -> HTMLResponse:
    """The newest first. Without a cursor it follows; with one it stands still."""
    query, wrong = asked(q, LOGS)

    def read(tx: Tx) -> dict[str, Any]:
        if query is None:
            return {"found": Page([], None), "counts": {}}
        counts = count_levels(tx, query) if wanted(request, "levels") else {}
        return {"found": find_logs(tx, query, cursor=cursor, limit=PAGE), "counts": counts}

    return render(
        request, here, "logs.html", page="logs", live=() if cursor else ("logs",), q=q, query=query or Query(),
        wrong=wrong, cursor=cursor, levels=LEVELS, keys=tuple(LOGS.keys), counted=CHIPS, **here.store.read(read),
    )  # fmt: skip


@router.get("/logs/lines.txt")
def download(here: Here, q: str = "") -> Response:
    """Everything that the query finds, newest first, as text."""
    query = parse(q, LOGS)
    return StreamingResponse(
        _as_text(here, query),
        media_type="text/plain; charset=utf-8",
        headers={"content-disposition": 'attachment; filename="dalsegno-log.txt"'},
    )


def _as_text(here: Room, query: Query) -> Iterator[str]:
    cursor, sent = None, 0
    while True:
        page = here.store.read(lambda tx, after=cursor: find_logs(tx, query, cursor=after, limit=BATCH))  # type: ignore[misc]
        yield "".join(f"{masked(text_of(line), here.config.secrets)}\n" for line in page.lines)
        cursor, sent = page.next_cursor, sent + len(page.lines)
        if cursor is None:
            return
        if sent >= MOST:
            yield f"… and more: these are the newest {sent}. Ask for less, such as age:<1d.\n"
            return


def text_of(line: LogRecord) -> str:
    about = [f"job={line.job_id}" if line.job_id else "", f"item={line.item_id}" if line.item_id else ""]
    told = " ".join(filter(None, (f"{line.at.isoformat()} {line.level:<5} {line.worker or line.logger}", *about)))
    return f"{told} {line.message}" + (f"\n{line.traceback.rstrip()}" if line.traceback else "")


@router.get("/logs/lines/{line_id}")
def line(request: Request, here: Here, line_id: Number, of: str = "") -> HTMLResponse:
    """One line among its neighbours: those of its job, of its item, or all."""

    def read(tx: Tx) -> dict[str, Any]:
        row = tx.row(sa.select(logs).where(logs.c.id == line_id))
        if row is None:
            raise NotFound(what="log line", id=line_id)
        found = LogRecord.model_validate(dict(row))
        choices = {"job": found.job_id, "item": found.item_id, "all": None}
        known = [name for name, number in choices.items() if number is not None or name == "all"]
        chosen = of if of in known else known[0]
        query = Query() if chosen == "all" else Query().with_(chosen, str(choices[chosen]))
        after = find_logs(tx, query, cursor=str(line_id), limit=AROUND, forward=True).lines[::-1]
        before = find_logs(tx, query, cursor=str(line_id), limit=AROUND).lines
        return {"line": found, "known": known, "chosen": chosen, "lines": [*after, found, *before], "query": query}

    return render(request, here, "log_line.html", page="logs", levels=LEVELS, **here.store.read(read))


# --- events -----------------------------------------------------------------------------------------


@router.get("/logs/events")
def events(request: Request, here: Here, q: str = "", cursor: str | None = None) -> HTMLResponse:
    query, wrong = asked(q, EVENTS)
    found: Page[Any] = Page([], None)
    if query is not None:
        found = here.store.read(lambda tx: find_events(tx, query, cursor=cursor, limit=PAGE))
        told = [event.model_copy(update={"data": brief(event.data)}) for event in found.lines]
        found = replace(found, lines=told)
    return render(
        request, here, "events.html", page="logs", live=() if cursor else ("events",), q=q, query=query or Query(),
        wrong=wrong, cursor=cursor, levels=LEVELS, keys=tuple(EVENTS.keys), kinds=KINDS, found=found,
    )  # fmt: skip


def brief(data: Any) -> str:
    """What an event knows, on one line: `rate=30 window=60`."""
    if not isinstance(data, dict):
        return "" if data in (None, []) else _word(data)
    return " ".join(f"{key}={_word(value)}" for key, value in data.items() if value not in (None, {}, []))


def _word(value: Any) -> str:
    plain = isinstance(value, str) and value != "" and not any(letter.isspace() or letter == '"' for letter in value)
    return value if plain else json.dumps(value, ensure_ascii=False, default=str)
