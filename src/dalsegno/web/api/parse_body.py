"""The body of a parse request as it comes in: small, strictly read, and documented by hand since no model reads it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from starlette.requests import ClientDisconnect

from dalsegno.errors import PayloadTooLarge, RequestInvalid
from dalsegno.requests.body import DECODE, LONGEST, TEXTS, ParseBody, body_in

MAX_BODY = 64 * 1024
PATIENCE = 30.0
"""Seconds in which a body has to come."""

_TEXT = {"type": ["string", "null"]}
_SAYS = {
    "title": "Capitals and spaces make no difference.",
    "kinopoiskId": "As a text: `283290`.",
    "imdbId": "As a text: `tt0409591`.",
    "shikimoriId": "As a text: `20`.",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "ParseBody",
    "description": f"At least one of {', '.join(TEXTS)} must say something.",
    "properties": {
        **{name: {**_TEXT, "maxLength": LONGEST[name], "description": _SAYS[name]} for name in TEXTS},
        DECODE: {"type": ["boolean", "null"], "default": False, "description": "Find the video behind every link."},
    },
    "additionalProperties": False,
    "minProperties": 1,
}
BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": SCHEMA}}}}
"""For `openapi_extra` of a route that takes one."""


async def _wanted(request: Request) -> ParseBody:
    try:
        async with asyncio.timeout(PATIENCE):
            return body_in(await _heard(request))
    except TimeoutError:
        raise RequestInvalid(problem=f"The body did not come within {PATIENCE:g} seconds.") from None
    except ClientDisconnect:  # nobody is there to be told
        raise RequestInvalid(problem="The body broke off.") from None


async def _heard(request: Request) -> bytes:
    size, parts = 0, []
    async for part in request.stream():
        size += len(part)
        if size <= MAX_BODY:  # what is too long is heard to its end, or its sender would not hear our answer
            parts.append(part)
    if size > MAX_BODY:
        raise PayloadTooLarge(what="The body", size=size, limit=MAX_BODY)
    return b"".join(parts)


async def _created_by(
    said: Annotated[
        str | None,
        Header(
            alias="X-Created-By", max_length=200, description="Whom it is for. Shown, and counted where there is a cap."
        ),
    ] = None,
) -> str | None:
    if said is None:
        return None
    with suppress(UnicodeError):  # headers have no encoding, and most people send UTF-8
        said = said.encode("latin-1").decode("utf-8")
    name = " ".join(said.split())
    if not name.isprintable():
        raise RequestInvalid(problem="X-Created-By has a character that cannot be shown.")
    return name or None


Wanted = Annotated[ParseBody, Depends(_wanted)]
CreatedBy = Annotated[str | None, Depends(_created_by)]
