"""What the server answers with. Fields that this version does not know are passed over, so servers may be newer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class ParseRequest(Answer):
    """A request as it was when it was submitted. Nobody has to look at it again: see `iter_ready`."""

    id: int
    request_hash: str
    status: Literal["PENDING", "RUNNING", "DONE", "FAILED"]
    phase: Literal["QUEUED", "SEARCHING", "DECODING", "DONE", "FAILED"]
    progress_decoded: int
    progress_total: int
    result_content_ids: tuple[int, ...]
    error_message: str | None
    retry_count: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_heartbeat_at: datetime | None


@dataclass(frozen=True, slots=True)
class Submitted:
    request: ParseRequest
    created: bool
    """False: the same was asked for before, by anybody, and is not finished yet."""

    @property
    def id(self) -> int:
        return self.request.id


class Variant(Answer):
    """One episode in one translation."""

    id: int
    translation_id: str
    translation_title: str
    translation_type: str
    quality: str
    mp4_link: str | None
    """None only where all variants were asked for."""


class Episode(Answer):
    number: int = Field(alias="episodeNumber")
    title: str
    variants: tuple[Variant, ...]


class Season(Answer):
    """A film is season 0, episode 0."""

    number: int = Field(alias="seasonNumber")
    title: str
    episodes: tuple[Episode, ...]


class Content(Answer):
    """A film or a serial, as it was at `updated_at`."""

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
    source_id: str
    variants_found: int
    variants_decoded: int
    created_at: datetime
    updated_at: datetime
    cursor: str
    """Whoever goes on from here has seen this version."""
    seasons: tuple[Season, ...]

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Of all episodes, in order."""
        return tuple(each for season in self.seasons for episode in season.episodes for each in episode.variants)


class ReadyPage(Answer):
    content: tuple[Content, ...]
    next_cursor: str
    has_more: bool


class Listing(Answer):
    """One page of what an upstream has, in its own words."""

    results: tuple[Any, ...]
    total: int | None
    next_page: str | None
    """Pass it as `next_page` for the next one."""
    prev_page: str | None
    warning: str | None = None
    """What was odd about the upstream's answer."""
