"""What an answer to a request for bytes says: whether it is audio, which part of it, or why not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from urllib3.exceptions import HTTPError

from dalsegno.model.signal import ProviderError
from dalsegno.sources.model import Gone, Media, Unusable

_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.IGNORECASE)
_TEXTS = {"text/html": "html", "application/xhtml+xml": "html", "application/json": "json"}
_TEXTS |= {"application/problem+json": "json", "text/json": "json", "text/xml": "xml", "application/xml": "xml"}
_WORDS = {"html": "a web page", "json": "a message", "xml": "a message"}


class Refused(ProviderError):
    """The other side said no, or not now."""

    @property
    def code(self) -> str:
        known = {401: "unauthorized", 403: "forbidden", 429: "rate_limited", 503: "unavailable"}
        return known.get(self.status or 0, f"http_{self.status}")


class Vanished(Gone):
    """It was there when it was listed and is not any more. `code`: not_found or gone."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Answer(Protocol):
    status: int
    headers: Mapping[str, str]
    length: int | None

    def read_into(self, view: memoryview, /) -> int: ...
    def close(self) -> None: ...


class Web(Protocol):
    """What is needed of sources.http.Http."""

    def open(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = ...,
        trusted: bool = ...,
        read_timeout: float | None = ...,
    ) -> Answer: ...


def range_of(answer: Answer) -> tuple[int | None, int | None, int | None]:
    """First and last byte, and the length of the whole, where said."""
    found = _RANGE.fullmatch((answer.headers.get("content-range") or "").strip())
    if found is None:
        return None, None, None
    first, last, total = (int(text) if text and text != "*" else None for text in found.groups())
    return first, last, total


def check_type(answer: Answer, media: Media) -> None:
    coding = (answer.headers.get("content-encoding") or "identity").strip().lower()
    if coding not in ("identity", ""):
        raise Unusable(f"The bytes come packed ({coding:.20}) though they were not to be.", code="packed_body")
    kind = (answer.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if kind in _TEXTS:
        what = _TEXTS[kind]
        said = _said(answer, media) if what != "html" else ""
        raise Unusable(f"{_WORDS[what].capitalize()} came instead of audio.{said}", code=f"{what}_instead_of_audio")


def refusal_of(answer: Answer, media: Media) -> Exception:
    status = answer.status
    if status in (404, 410):
        return Vanished(f"The other side no longer has it (HTTP {status}).", "not_found" if status == 404 else "gone")
    if status in (206, 416) or status < 400:
        return Unusable(f"HTTP {status} is no answer to what was asked.", code="odd_answer")
    words = {401: "wants other credentials", 403: "does not let us have it", 429: "asks us to slow down"}
    saying = words.get(status, "cannot give it now" if status >= 500 else "refuses")
    body = _body(answer, media)
    return Refused(status, body, answer.headers, f"The other side {saying} (HTTP {status}).")


def _said(answer: Answer, media: Media) -> str:
    body = _body(answer, media)
    text = " ".join((_message(body) or body).split())
    return f" It says: {text if len(text) <= 200 else text[:199] + '…'}" if text else ""


def _message(body: str) -> str:
    """What a JSON answer has to say to people, wherever it says it."""
    try:
        found = [json.loads(body)]
    except (ValueError, RecursionError):
        return ""
    while found:
        here = found.pop(0)
        if not isinstance(here, dict):
            continue
        for name in ("message", "error_description", "detail", "error", "reason"):
            if isinstance(here.get(name), str):
                return str(here[name])
        found += here.values()
    return ""


def _body(answer: Answer, media: Media) -> str:
    """The beginning of a refusal: some providers put into it what they do not say in headers."""
    view, filled = memoryview(bytearray(8192)), 0
    with suppress(HTTPError, OSError):
        while filled < len(view) and (count := answer.read_into(view[filled:])):
            filled += count
    text = bytes(view[:filled]).decode("utf-8", "replace")
    for secret in media.secrets:
        text = text.replace(secret, "***") if secret else text
    return text
