"""The calls of the API: what is sent, and what the answer means. Both clients make them, each in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from dalsegno.client.errors import ClientError, NotFound, Refused, TooMany, Unexpected, Unreachable
from dalsegno.client.models import Content, Listing, ParseRequest, ReadyPage, Submitted
from dalsegno.client.patience import TROUBLE, retry_after

T = TypeVar("T")

REQUESTS = "api/v1/parse/requests"
TOTAL = "X-Total-Count"
TIMEOUT = 30.0
_REFUSALS: dict[int, type[Refused]] = {404: NotFound, 429: TooMany}


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    method: str
    path: str
    read: Callable[[httpx.Response], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None

    def sent(self, base: str, headers: Mapping[bytes, bytes]) -> dict[str, Any]:
        """As httpx takes it."""
        said = {name: value for name, value in self.params.items() if value is not None}
        return {
            "method": self.method, "url": f"{base}/{self.path}", "params": said, "json": self.json, "headers": headers,
        }  # fmt: skip

    def understood(self, answer: httpx.Response) -> T:
        if not answer.is_success:
            raise refusal(answer)
        try:
            return self.read(answer)
        except (ValueError, TypeError) as error:  # a ValidationError is a ValueError
            raise Unexpected(f"{answer.request.url} answered something else than expected: {error}") from error


def base(url: str) -> str:
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL:
        found = httpx.URL()
    if found.scheme not in ("http", "https") or not found.host:
        raise ValueError(f'"{url}" is no address; say http://HOST:PORT.')
    return url.rstrip("/")


def headers(api_key: str | None, created_by: str | None) -> dict[bytes, bytes]:
    said = {"X-API-KEY": api_key, "X-Created-By": created_by}
    for name, text in said.items():
        if text and not text.isprintable():
            raise ValueError(f"What is to be sent as {name} has a character that no header can have.")
    return {name.encode(): text.encode() for name, text in said.items() if text}


def failure(url: str, error: httpx.HTTPError) -> ClientError:
    """No answer at all, or one that is no HTTP."""
    said = str(error) or type(error).__name__
    if isinstance(error, TROUBLE):
        return Unreachable(f"{url} does not answer: {said}")
    return Unexpected(f"{url} answered something else than expected: {said}")


def refusal(answer: httpx.Response) -> ClientError:
    """Problem details as an error; anything else is not of our server."""
    try:
        said = answer.json()
        kind = _REFUSALS.get(answer.status_code, Refused)
        return kind(answer.status_code, str(said["code"]), str(said["detail"]), retry_after(answer))
    except (ValueError, KeyError, TypeError):
        return Unexpected(f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}.")


def submit(
    title: str | None, kinopoisk_id: str | None, imdb_id: str | None, shikimori_id: str | None, decode_links: bool
) -> Call[Submitted]:
    body = {"title": title, "kinopoiskId": kinopoisk_id, "imdbId": imdb_id, "shikimoriId": shikimori_id}
    said = {name: text for name, text in body.items() if text is not None}

    def read(answer: httpx.Response) -> Submitted:
        return Submitted(ParseRequest.model_validate_json(answer.content), created=answer.status_code == 201)

    return Call("POST", REQUESTS, read, json={**said, "decodeLinks": decode_links})


def pending_count() -> Call[int]:
    return Call("GET", REQUESTS, lambda answer: int(answer.headers.get(TOTAL, "")), {"status": "PENDING", "limit": 0})


def ready(cursor: str, since: datetime | None, size: int | None, every: bool) -> Call[ReadyPage]:
    said = None if since is None else _utc(since)
    params = {"cursor": cursor, "updatedSince": said, "size": size, "variants": _variants(every)}
    return Call("GET", "api/v1/export/ready", lambda answer: ReadyPage.model_validate_json(answer.content), params)


def content(content_id: int, every: bool) -> Call[Content]:
    path, params = f"api/v1/export/{content_id:d}", {"variants": _variants(every)}
    return Call("GET", path, lambda answer: Content.model_validate_json(answer.content), params)


def listing(source: str, params: Mapping[str, Any]) -> Call[Listing]:
    def read(answer: httpx.Response) -> Listing:
        return Listing.model_validate({**answer.json(), "warning": answer.headers.get("Warning")})

    return Call("GET", f"api/v1/{quote(source, safe='')}/list", read, params)


def _variants(every: bool) -> str | None:
    return "all" if every else None


def _utc(moment: datetime) -> str:
    """A time without a zone could be anybody's."""
    if moment.tzinfo is None:
        raise ValueError("`since` has no time zone; say datetime(…, tzinfo=UTC).")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
