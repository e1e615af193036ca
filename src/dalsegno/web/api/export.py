"""Export: what parse requests found, for other services to read in the order in which it changed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from dalsegno.clock import as_utc
from dalsegno.errors import NotFound, RequestInvalid
from dalsegno.requests.export import (
    EPOCH,
    Content,
    Place,
    Ready,
    Season,
    Variant,
    one_content,
    ready_after,
    ready_page,
)
from dalsegno.store.schema import to_text
from dalsegno.web.answers import json_answers
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.parameters import Number
from dalsegno.web.room import Here, Room

router = APIRouter(prefix="/v1/export", tags=["parse requests"])

MOST = 2**31 - 1


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class ExportedVariant(_Camel):
    id: int
    translation_id: str
    translation_title: str
    translation_type: str
    quality: str
    mp4_link: str | None
    """Null only where `variants=all` was asked for."""


class ExportedEpisode(_Camel):
    episode_number: int
    title: str
    variants: list[ExportedVariant]


class ExportedSeason(_Camel):
    season_number: int
    """A film is season 0, episode 0."""
    title: str
    episodes: list[ExportedEpisode]


class ExportedContent(_Camel):
    id: int
    type: str
    title: str
    title_orig: str
    other_title: str
    year: int | None
    kinopoisk_id: str | None
    imdb_id: str | None
    shikimori_id: str | None
    source: str
    """Whom it was found at, under `sourceId`."""
    source_id: str
    variants_found: int
    """Episodes times translations that its source offers; `variantsDecoded` of them have a link."""
    variants_decoded: int
    created_at: datetime
    updated_at: datetime
    """Moves when something here changes, and only then; no two contents share one."""
    cursor: str
    """The place after it: whoever goes on from here has seen this version."""
    seasons: list[ExportedSeason]


class ReadyAfter(_Camel):
    content: list[ExportedContent]
    next_cursor: str
    """Keep it: it is where to go on, now or next week. It is there also when nothing is left."""
    has_more: bool
    """Whether there is more already."""


class ReadyPage(ReadyAfter):
    page: int
    size: int
    total_elements: int
    total_pages: int


def _moment(value: Any) -> Any:
    """A plus sign that was not escaped has become a space on its way here."""
    return value.replace(" ", "+") if isinstance(value, str) and "T" in value else value


def _utc(value: datetime) -> datetime:
    try:
        return as_utc(value)
    except OverflowError:
        raise ValueError("this is outside of all calendars") from None


Since = Annotated[
    datetime | None,
    BeforeValidator(_moment),
    AfterValidator(lambda value: value and _utc(value)),
    Query(
        alias="updatedSince",
        description="Only what changed at this moment or later (inclusive), in ISO 8601; UTC where no zone is said.",
        examples=["2026-05-04T18:00:00Z"],
    ),
]
Cursor = Annotated[
    str | None,
    Query(
        max_length=100,
        description="`nextCursor` of the page before, or `cursor` of a content; empty to begin. Then there is no "
        "`page`, and nothing is missed or shown twice, whatever changes meanwhile.",
    ),
]
Page = Annotated[int, Query(ge=0, le=MOST, description="From 0. Pages close up while contents change: see `cursor`.")]
Size = Annotated[int | None, Query(ge=1, le=MOST, description="How many at most. REQUESTS_MAX_PAGE_LIMIT holds.")]
Variants = Annotated[
    Literal["decoded", "all"], Query(description="Only variants with a link, or all that are offered.")
]


@router.get("/ready", response_model=ReadyPage | ReadyAfter, responses=refusals(RequestInvalid))
def export_ready(
    here: Here,
    cursor: Cursor = None,
    since: Since = None,
    page: Page = 0,
    size: Size = None,
    variants: Variants = "decoded",
) -> Response:
    """Contents that are ready, in the order in which they last changed.

    A content is ready once one of its variants was decoded, or once a request without `decodeLinks` found it. By
    `cursor`, every change is seen and no version twice; a page of large serials may be shorter than `size`. By `page`,
    the answer also says how many there are.
    """
    settings = here.settings
    most = min(settings.requests_default_page_limit if size is None else size, settings.requests_max_page_limit)
    every = variants == "all"
    if cursor is not None:
        after = max(Place.parse(cursor), Place.before(since or EPOCH))
        return _answer(here, _ready(here.store.read(lambda tx: ready_after(tx, after, limit=most, every=every))))
    found = here.store.read(lambda tx: ready_page(tx, page=page, size=most, since=since, every=every))
    total = found.total or 0
    pages = {"page": page, "size": most, "totalElements": total, "totalPages": -(-total // most)}
    return _answer(here, _ready(found) | pages)


@router.get("/{content_id}", response_model=ExportedContent, responses=refusals(NotFound))
def export_content(here: Here, content_id: Number, variants: Variants = "decoded") -> Response:
    """One content, as it is now, ready or not."""
    found = here.store.read(lambda tx: one_content(tx, content_id, every=variants == "all"))
    return _answer(here, content_json(found))


# --- in the words of the models above, without their machinery: a page has thousands of variants ----------------------


def _answer(here: Room, content: dict[str, Any]) -> Response:
    return json_answers(here.config.secrets)(content)


def _ready(found: Ready) -> dict[str, Any]:
    return {
        "content": [content_json(each) for each in found.contents],
        "nextCursor": str(found.next),
        "hasMore": found.more,
    }


def content_json(content: Content) -> dict[str, Any]:
    return {
        "id": content.id,
        "type": content.type,
        "title": content.title,
        "titleOrig": content.title_orig,
        "otherTitle": content.other_title,
        "year": content.year,
        "kinopoiskId": content.kinopoisk_id,
        "imdbId": content.imdb_id,
        "shikimoriId": content.shikimori_id,
        "source": content.source,
        "sourceId": content.remote_id,
        "variantsFound": content.found,
        "variantsDecoded": content.decoded,
        "createdAt": to_text(content.created_at),
        "updatedAt": to_text(content.updated_at),
        "cursor": str(content.place),
        "seasons": [_season(season) for season in content.seasons],
    }


def _season(season: Season) -> dict[str, Any]:
    return {
        "seasonNumber": season.number,
        "title": season.title,
        "episodes": [
            {
                "episodeNumber": episode.number,
                "title": episode.title,
                "variants": [_variant(v) for v in episode.variants],
            }
            for episode in season.episodes
        ],
    }


def _variant(variant: Variant) -> dict[str, Any]:
    number, translation, title, kind, quality, link = variant
    return {
        "id": number,
        "translationId": translation,
        "translationTitle": title,
        "translationType": kind,
        "quality": quality,
        "mp4Link": link,
    }
