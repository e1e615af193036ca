"""Exceptions in groups: how often, since when, a sample, and a way to try the whole group again."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from dalsegno.catalog.subjects import keys_of
from dalsegno.insight.finding import ITEMS, find_items
from dalsegno.insight.groups import CAP, GROUPS, GroupLine, find_groups, get_group
from dalsegno.insight.query import Query, parse
from dalsegno.insight.walk import Page
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.console.frame import render
from dalsegno.web.console.logs import asked
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here

router = pages()

PAGE = 30
FIRST = 10
"""Items of a group that are named."""


@router.get("/logs")
def exceptions(request: Request, here: Here, q: str = "", cursor: str | None = None) -> HTMLResponse:
    """Those met last first."""
    query, wrong = asked(q, GROUPS)

    def read(tx: Tx) -> dict[str, Any]:
        found: Page[GroupLine] = Page([], None)
        if query is not None:
            found = find_groups(tx, query, cursor=cursor, limit=PAGE)
        return {"found": found, "now": tx.now}

    return render(
        request, here, "exceptions.html", page="logs", live=("exceptions",), q=q, query=query or Query(), wrong=wrong,
        cursor=cursor, cap=CAP, **here.store.read(read),
    )  # fmt: skip


@router.get("/logs/exceptions/{fingerprint}")
def exception(request: Request, here: Here, fingerprint: str) -> HTMLResponse:
    """One group with its sample and the items that still have it."""

    def read(tx: Tx) -> dict[str, Any]:
        line = get_group(tx, fingerprint)
        items = find_items(tx, parse(line.query, ITEMS), limit=FIRST)
        sample = keys_of(tx, [line.group.sample_item_id])
        names = names_of(tx, (*sample.values(), *(each.item.key for each in items.lines)))
        return {"line": line, "items": items, "names": names, "sample": sample.get(line.group.sample_item_id, ""),
                "now": tx.now}  # fmt: skip

    return render(request, here, "exception.html", page="logs", cap=CAP, **here.store.read(read))
