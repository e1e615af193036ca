"""The rows of parse requests as programs read them: one model per table, field for column."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from dalsegno.model.records import Record

State = Literal["PENDING", "RUNNING", "DONE", "FAILED"]


class ParseRequestRecord(Record):
    job_id: int
    hash: str
    body: dict[str, Any]
    created_by: str | None
    hits: int
    retry_count: int
    state: State
    created_at: datetime


class RequestCountsRecord(Record):
    slot: int
    pending: int
    running: int
    done: int
    failed: int


class ContentRecord(Record):
    id: int
    source: str
    remote_id: str
    type: str
    title: str
    title_orig: str
    other_title: str
    year: int | None
    kinopoisk_id: str | None
    imdb_id: str | None
    shikimori_id: str | None
    ready: bool
    created_at: datetime
    updated_at: datetime


class SeasonRecord(Record):
    id: int
    content_id: int
    number: int
    title: str
    link: str


class EpisodeRecord(Record):
    id: int
    season_id: int
    number: int
    title: str
    link: str


class VariantRecord(Record):
    id: int
    episode_id: int
    translation_id: str
    translation_title: str
    translation_type: str
    quality: str
    link: str
    mp4_link: str | None
    decoded_at: datetime | None
    expires_at: datetime | None
    error_code: str | None
    error_message: str | None
    missing_at: datetime | None


class RequestContentRecord(Record):
    job_id: int
    content_id: int
    position: int


class ContentClockRecord(Record):
    id: int
    last: datetime
    ready: int


RECORDS: dict[str, type[Record]] = {
    "parse_requests": ParseRequestRecord,
    "request_counts": RequestCountsRecord,
    "contents": ContentRecord,
    "seasons": SeasonRecord,
    "episodes": EpisodeRecord,
    "variants": VariantRecord,
    "request_contents": RequestContentRecord,
    "content_clock": ContentClockRecord,
}
