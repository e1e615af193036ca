"""One item, opened: how it came to be where it is, what was tried, its files; and trying again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from dalsegno.catalog.chain import Link, chain
from dalsegno.catalog.records import CandidateRecord
from dalsegno.insight.drawer import Attempt, Moment
from dalsegno.web.api.items import ItemInFull, in_full
from dalsegno.web.api.parameters import Number
from dalsegno.web.console.acting import Form, acted, commanded, fate
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.gates import gating
from dalsegno.web.console.i18n import language_of
from dalsegno.web.console.pages import pages
from dalsegno.web.console.words import BAR, THINNEST, Words, size
from dalsegno.web.room import Here, Room, Who

router = pages()

COLOURS = {"claimed": "held", "running": "running", "succeeded": "done", "skipped": "skipped", "failed": "failed",
           "interrupted": "interrupted", "canceled": "canceled"}  # fmt: skip


@router.get("/items/{item_id}")
def item(request: Request, here: Here, item_id: Number) -> HTMLResponse:
    return _opened(request, here, item_id, "drawer.html")


@router.get("/items/{item_id}/force")
def force(request: Request, here: Here, item_id: Number) -> HTMLResponse:
    """What a forced retry would lead to, before it is done."""
    return _opened(request, here, item_id, "drawer_force.html")


@router.post("/items/{item_id}/retry")
def retry_item(request: Request, here: Here, who: Who, form: Form, item_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> str:
        command = commanded(here, who, "retry_item", item_id=item_id)
        return fate(request, here, command, words.text("Item %(id)s is tried again.", id=item_id))

    return acted(request, here, form, work, f"/items/{item_id}")


@router.post("/items/{item_id}/force-retry")
def force_retry_item(request: Request, here: Here, who: Who, form: Form, item_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> str:
        command = commanded(here, who, "force_retry_item", item_id=item_id)
        return fate(request, here, command, words.text("Item %(id)s is done once more.", id=item_id))

    return acted(request, here, form, work, f"/items/{item_id}")


def _opened(request: Request, here: Room, item_id: int, template: str) -> HTMLResponse:
    words, language = words_of(request, here), language_of(request, here.settings)
    found = here.store.read(lambda tx: in_full(tx, item_id))
    now = here.store.clock.now()
    return render(
        request, here, template, page="songs", live=(f"item:{item_id}", "items", "workers"), full=found,
        item=found.item, found=found.explanation,
        gates=gating(words, language, job_id=found.job_id, item_id=item_id), now=now,
        steps=steps(found.timeline, now), attempts=tried(found), consequence=consequence(words, found),
    )  # fmt: skip


def consequence(words: Words, found: ItemInFull) -> str:
    """What a forced retry does, in the reader's language; the API says the same in English."""
    song = found.song
    whole = "" if song is None or song.size_bytes is None else size(song.size_bytes)
    match found.service:
        case "download" if whole:
            return words.text("Re-downloads %(size)s; keeps the old file until the new one is verified.", size=whole)
        case "download":
            return words.text("Downloads it, whatever is there.")
        case "upload" if whole:
            return words.text("Uploads %(size)s again, although the store may have it.", size=whole)
        case "upload":
            return words.text("Uploads it again, although the store may have it.")
        case _:
            return words.text("Runs it once more, although it is done.")


def steps(timeline: Sequence[Moment], now: Any) -> list[tuple[str, int, int]]:
    """The timeline as a bar: each state as wide as it lasted, on a scale that keeps short ones visible."""
    if not timeline:
        return []
    lengths = [
        (now - moment.at).total_seconds() if moment.seconds is None and moment.state in ("claimed", "running")
        else moment.seconds or 0.0
        for moment in timeline
    ]  # fmt: skip
    roots = [max(length, 0.0) ** 0.5 for length in lengths]
    whole = sum(roots) or 1.0
    room = BAR - THINNEST * len(roots)
    found, x = [], 0
    for moment, root in zip(timeline, roots, strict=True):
        width = THINNEST + int(max(room, 0) * root / whole)
        if moment.state in COLOURS:
            found.append((COLOURS[moment.state], x, width))
        x += width
    return found


def tried(found: ItemInFull) -> list[tuple[Attempt, list[CandidateRecord], list[Link]]]:
    """Attempts, newest first, each with what was considered in it and the chain that this makes."""
    left = list(found.candidates)
    rows = []
    for attempt in found.attempts:
        until = None if attempt is found.attempts[-1] else attempt.ended_at
        own = [each for each in left if until is None or each.at <= until]
        left = [each for each in left if each not in own]
        rows.append((attempt, own, chain(own)))
    return rows[::-1]
