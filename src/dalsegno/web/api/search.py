"""One box for everything: jobs, playlists, songs and items by a text, within a bounded time."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel

from dalsegno.catalog.find import ITEMS
from dalsegno.catalog.search import Hit, playlists_like, songs_like
from dalsegno.engine.item import storable
from dalsegno.errors import InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.finding import find_items
from dalsegno.insight.items import ItemLine, item_detail
from dalsegno.insight.jobs import JOBS, JobLine, find_jobs
from dalsegno.insight.query import Query as Asked
from dalsegno.insight.query import Term, Value
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import Item, Job
from dalsegno.web.room import Here

router = APIRouter(tags=["search"])

EACH = 0.1
"""Seconds for each kind of thing."""

Text = Annotated[
    str,
    Query(min_length=1, max_length=200, description="A number, a name, or a part of one.", examples=["晴天"]),
    AfterValidator(storable),
]


class Found(BaseModel):
    q: str
    jobs: list[Job]
    playlists: list[Hit]
    songs: list[Hit]
    items: list[Item]
    partial: list[str]
    """What was not looked through to the end, because the time was up."""
    seconds: float


@router.get("/search", responses=refusals(QueryInvalid, InputInvalid))
def search(here: Here, q: Text, limit: Annotated[int, Query(ge=1, le=50)] = 10) -> Found:
    """The newest of each kind. What took too long is named in `partial`."""
    began = time.monotonic()
    text = q.strip()
    asked = Asked((Term("", (Value(text),)),)) if text else Asked()

    def read(tx: Tx) -> Found:
        partial = []
        lists = playlists_like(tx, text, limit, EACH)
        tunes = songs_like(tx, text, limit, EACH)
        jobs = find_jobs(tx, asked, among=JOBS, limit=limit)
        items = find_items(tx, asked, among=ITEMS, limit=limit, seconds=EACH)
        for name, cut in (("playlists", lists.partial), ("songs", tunes.partial), ("jobs", jobs.partial),
                          ("items", items.partial)):  # fmt: skip
            if cut:
                partial.append(name)
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
        lines = list({line.item.id: line for line in [*_item(tx, number), *items.lines]}.values())[:limit]
        found = list({line.job.id: line for line in [*_job(tx, number), *jobs.lines]}.values())[:limit]
        names = names_of(tx, (line.item.key for line in lines))
        return Found(
            q=q,
            jobs=[Job.of(line) for line in found],
            playlists=lists.hits,
            songs=tunes.hits,
            items=[Item.of(line, names) for line in lines],
            partial=partial,
            seconds=round(time.monotonic() - began, 4),
        )

    return here.store.read(read)


def _job(tx: Tx, number: int | None) -> list[JobLine]:
    if number is None:
        return []
    return find_jobs(tx, Asked((Term("job", (Value(str(number)),)),)), limit=1).lines


def _item(tx: Tx, number: int | None) -> list[ItemLine]:
    if number is None or number == 0:
        return []
    try:
        found = item_detail(tx, number)
    except NotFound:
        return []
    return [ItemLine(found.stage.key, found.item, found.stage.service)]
