"""Song processing: the lanes at work, and every item by state, with why it waits or what went wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from dalsegno.catalog.chain import chains_of
from dalsegno.catalog.facets import catalog_facets
from dalsegno.catalog.find import ITEMS
from dalsegno.catalog.subjects import keys_of
from dalsegno.errors import QueryInvalid
from dalsegno.insight.facets import Facet, by_counters, item_facets, item_states
from dalsegno.insight.finding import find_items
from dalsegno.insight.items import ItemLine
from dalsegno.insight.pools import pools_of, verdicts
from dalsegno.insight.query import Query, parse
from dalsegno.insight.waiting import why_waiting
from dalsegno.insight.walk import Page
from dalsegno.insight.workers import list_processes
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Cursor, Q
from dalsegno.web.console.facets import Chip, chips
from dalsegno.web.console.frame import Frame, render, wanted, words_of
from dalsegno.web.console.gates import gating
from dalsegno.web.console.i18n import N_, language_of
from dalsegno.web.console.pages import pages
from dalsegno.web.console.told import telling
from dalsegno.web.console.words import Words, mark, number
from dalsegno.web.room import Here

router = pages()

LIMIT = 50
LIVE = ("workers", "items", "jobs", "holds", "breakers", "limits", "exceptions", "commands")
SERVICES = ("download", "upload", "sync", "collect")
"""Whose lanes are shown, in this order; those of others follow."""
VIEWS = {
    "running": ("claimed", "running"),
    "failed": ("failed",),
    "interrupted": ("interrupted",),
    "waiting": ("pending",),
    "all": (),
}
"""The tabs, and the states each is about."""
LINKS = (
    N_("slower"), N_("no match"), N_("timeout"), N_("unreachable"), N_("not offered"), N_("gone"), N_("breaker open"),
)  # fmt: skip
"""What links of a chain of sources say; others have the words of the source itself."""
LONGEST = 64
"""Characters of a chip."""
BEFORE = re.compile(r"resolving source |(?:starting download|[\d.]+MB(?:/[\d.]+MB)?)(?: via |$)")
"""What the text of a lane says before its sources. Bytes have a column of their own."""


@router.get("/songs")
def songs(request: Request, here: Here, q: Q = None, view: str = "", cursor: Cursor = None) -> HTMLResponse:
    """A query that names states is its own view; without one the view says which."""
    words = words_of(request, here)
    error = None
    try:
        query = parse(q, ITEMS)
    except QueryInvalid as wrong:
        query, error = Query(), wrong
    view = _view(view, query)
    asked = query.with_("state", *VIEWS[view]) if VIEWS[view] else query

    def read(tx: Tx) -> dict[str, Any]:
        found: dict[str, Any] = {"rows": Page([], None), "pools": [], "names": {}, "keys": {}, "facets": {}}
        keys: set[str] = set()
        if wanted(request, "lanes"):
            processes = list_processes(tx)
            found["pools"] = [pool for pool in pools_of(processes, SERVICES) if pool.busy or pool.service in SERVICES]
            found["verdicts"] = verdicts(processes)
            workers = [worker for pool in found["pools"] for worker in pool.workers]
            found["keys"] = keys_of(tx, (worker.item_id for worker in workers if worker.item_id is not None))
            keys |= set(found["keys"].values())
        if wanted(request, "facets", "tabs") and error is None:
            found["facets"] = _facets(tx, query, asked)
        if wanted(request, "item_list") and error is None:
            page = find_items(tx, asked, among=ITEMS, cursor=cursor, limit=LIMIT)
            found |= _around(tx, page)
            keys |= {line.item.key for line in page.lines}
        found["names"] = names_of(tx, keys)
        return found

    values = here.store.read(read)
    gates = gating(words, language_of(request, here.settings))
    return render(
        request, here, "songs.html", page="songs", live=LIVE, q=q or "", query=query, error=error, view=view,
        views=list(VIEWS), cursor=cursor, now=here.store.clock.now(), gates=gates, told=telling(words),
        sources_in=sources_in,
        chips=_chips(words, query, values["facets"]), counts=_counts(values["facets"]) if error is None else {},
        **{"verdicts": [], "chains": {}, "reasons": {}, **values},
    )  # fmt: skip


def sources_in(text: str | None) -> str:
    """What a lane says about where its song comes from: `qq ✗ 429 → kuwo ✓ 2.1 s`, or `qq` alone."""
    said = text or ""
    found = BEFORE.match(said)
    named = said[found.end() :] if found else said.replace("resolved via ", "✓ ")
    chain = named.partition(": ")[2]
    return chain if "→" in chain else named


def _view(view: str, query: Query) -> str:
    if query.of("state"):
        return "all"
    return view if view in VIEWS else "all" if query else "running"


def _around(tx: Tx, page: Page[ItemLine]) -> dict[str, Any]:
    """What the rows of a page say beside themselves."""
    downloads = (line.item.id for line in page.lines if line.service == "download")
    return {
        "rows": page,
        "chains": chains_of(tx, downloads),
        "reasons": why_waiting(tx, (line.item for line in page.lines)),
    }


def _facets(tx: Tx, query: Query, asked: Query) -> dict[str, list[Facet]]:
    """States are counted whatever the view; everything else within it."""
    own = item_facets(tx, asked, among=ITEMS)
    alike = asked == query or by_counters(query)
    states = own.state if alike else item_states(tx, query, among=ITEMS)
    sources, lists = catalog_facets(tx, asked)
    return {"state": states, "stage": own.stage, "group": own.group, "source": sources, "playlist": lists}


def _counts(facets: dict[str, list[Facet]]) -> dict[str, tuple[int, bool]]:
    """How many each tab has, and whether there may be more."""
    states = {facet.value: facet for facet in facets.get("state", ())}
    found = {}
    for view, names in VIEWS.items():
        some = [states[name] for name in names or states if name in states]
        found[view] = (sum(facet.count for facet in some), any(facet.more for facet in some))
    return found


def _chips(words: Words, query: Query, facets: dict[str, list[Facet]]) -> Callable[[Frame, str], list[Chip]]:
    labels: dict[str, Callable[[str], str]] = {
        "state": lambda value: f"{mark(value)} {words.word(value)}",
        "stage": words.stage,
    }

    def row(frame: Frame, key: str) -> list[Chip]:
        own = {facet.value: _shortened(facet.label) for facet in facets.get(key, ()) if facet.label}
        label = labels.get(key, lambda value: own.get(value, value))
        return chips(frame, query, key, _pairs(facets.get(key, ())), label)

    return row


def _shortened(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1].rstrip()}…"


def _pairs(facets: Iterable[Facet]) -> Iterable[tuple[str, int | str]]:
    """With `+` where only some were counted."""
    return ((facet.value, f"{number(facet.count)}+" if facet.more else facet.count) for facet in facets)
