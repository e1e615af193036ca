"""Items: found across jobs, opened, tried again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi import Body as InBody
from pydantic import BaseModel

from dalsegno.catalog.find import ITEMS
from dalsegno.catalog.records import CandidateRecord
from dalsegno.catalog.songs import SongDetail, candidates_of, song_detail
from dalsegno.catalog.subjects import number_of
from dalsegno.engine.retry import refuse_twin_of_item
from dalsegno.errors import InputInvalid, NotFound, QueryInvalid, TwinActive
from dalsegno.insight.drawer import Attempt, Moment, open_drawer
from dalsegno.insight.explain import Explanation, explain_item
from dalsegno.insight.finding import find_items
from dalsegno.insight.query import parse
from dalsegno.model.records import ArtifactRecord, ItemRecord, LeaseRecord, LogRecord
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import ACCEPTED, ask, refusals, told
from dalsegno.web.api.models import Asked, Command, Item, Items
from dalsegno.web.api.parameters import (
    Choice,
    Cursor,
    Limit,
    Named,
    Number,
    OfJob,
    Q,
    Status,
    item_states,
    narrowed,
)
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(tags=["items"])


class Song(BaseModel):
    """The song that an item is about."""

    id: int
    title: str
    artist: str
    album: str
    platform: str
    downloaded: bool
    size_bytes: int | None
    sha256: str | None
    copies: list[str]
    """Where its file is."""
    playlists: list[str]


class ItemInFull(BaseModel):
    item: Item
    service: str
    job_id: int
    lease: LeaseRecord | None
    parent: ItemRecord | None
    """The item it follows."""
    timeline: list[Moment]
    """What it was, from when to when, and why."""
    attempts: list[Attempt]
    """From each claim to its end, with what was logged."""
    logs: list[LogRecord]
    """Of no attempt in particular."""
    candidates: list[CandidateRecord]
    """What was considered for it, and why each was taken or not."""
    artifacts: list[ArtifactRecord]
    song: Song | None
    explanation: Explanation
    """Why it is not running, or what would make it run again."""
    force_retry: str
    """What a forced retry would lead to."""


@router.get("/items", responses=refusals(QueryInvalid, InputInvalid))
def all_items(
    here: Here,
    q: Q = None,
    job: OfJob = None,
    stage: Annotated[Named, Query(description="Only items of this stage.")] = None,
    state: Choice = None,
    status: Status = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Items:
    """Items of all jobs, newest first: `state:failed,interrupted stage:download -error:429 age:<2h`."""
    query = narrowed(parse(q, ITEMS), job=job, stage=stage, states=item_states(state, status))

    def read(tx: Tx) -> Items:
        page = find_items(tx, query, among=ITEMS, cursor=cursor, limit=limit)
        return Items.of(page, names_of(tx, (line.item.key for line in page.lines)))

    return here.store.read(read)


@router.get("/job-items/{item_id}", responses=refusals(NotFound))
def item(here: Here, item_id: Number) -> ItemInFull:
    """Everything about one item."""
    return here.store.read(lambda tx: in_full(tx, item_id))


@router.post("/job-items/{item_id}/retry", status_code=202, responses={**ACCEPTED, **refusals(NotFound, TwinActive)})
def retry_item(
    here: Here, who: Who, item_id: Number, response: Response, asked: Annotated[Asked | None, InBody()] = None
) -> Command:
    """A fresh budget of attempts for an item that failed or was interrupted; a finished job goes on for it.

    While another job does the same work as the finished one, 409 names that one (`twin`).
    """
    return told(response, retry(here, item_id, _by(asked, who)))


@router.post(
    "/job-items/{item_id}/force-retry", status_code=202, responses={**ACCEPTED, **refusals(NotFound, TwinActive)}
)
def force_retry_item(
    here: Here, who: Who, item_id: Number, response: Response, asked: Annotated[Asked | None, InBody()] = None
) -> Command:
    """The same, also for one that is done: it is downloaded or uploaded once more, whatever is there."""
    return told(response, retry(here, item_id, _by(asked, who), force=True))


def _by(asked: Asked | None, who: str) -> str:
    return asker(asked.requested_by if asked else None, who)


# --- shared with the pages ------------------------------------------------------------------------


def retry(here: Room, item_id: int, by: str, *, force: bool = False) -> Command:
    here.store.read(lambda tx: refuse_twin_of_item(tx, item_id))
    return ask(here.store, "force_retry_item" if force else "retry_item", item_id=item_id, by=by)


def in_full(tx: Tx, item_id: int) -> ItemInFull:
    drawer = open_drawer(tx, item_id)
    found = drawer.detail
    number = number_of(found.item.key, "song")
    song = None if number is None else _song(tx, number)
    return ItemInFull(
        item=Item(stage=found.stage.key, name=names_of(tx, [found.item.key]).get(found.item.key), **dict(found.item)),
        service=found.stage.service,
        job_id=found.item.job_id,
        lease=found.lease,
        parent=found.parent,
        timeline=drawer.timeline,
        attempts=drawer.attempts,
        logs=drawer.logs,
        candidates=candidates_of(tx, item_id),
        artifacts=found.artifacts,
        song=song,
        explanation=explain_item(tx, item_id),
        force_retry=consequence(found.stage.service, song),
    )


def _song(tx: Tx, number: int) -> Song | None:
    try:
        found: SongDetail = song_detail(tx, number)
    except NotFound:
        return None
    own: dict[str, Any] = {name: getattr(found.song, name) for name in ("id", "title", "artist", "album", "platform")}
    return Song(
        **own,
        downloaded=found.song.downloaded_at is not None,
        size_bytes=found.song.size_bytes,
        sha256=found.sha256,
        copies=[f"{copy.root.rstrip('/')}/{copy.path}" for copy in found.copies],
        playlists=found.playlists,
    )


def consequence(service: str, song: Song | None) -> str:
    """What a forced retry does, said before it is done."""
    size = "" if song is None or song.size_bytes is None else f" {song.size_bytes / 1e6:.1f} MB"
    match service:
        case "download" if size:
            return f"Downloads{size} again; keeps the old file until the new one is verified."
        case "download":
            return "Downloads it, whatever is there."
        case "upload":
            return f"Uploads{size or ' it'} again, although the store may have it."
        case _:
            return "Runs it once more, although it is done."
