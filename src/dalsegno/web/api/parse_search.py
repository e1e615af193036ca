"""The synchronous twin of a parse request: the same request, and somebody who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from dalsegno.errors import ParseFailed, PayloadTooLarge, RequestInvalid, TooManyRequests
from dalsegno.requests import ask as asking
from dalsegno.requests.attended import is_attended
from dalsegno.requests.export import these_contents
from dalsegno.requests.view import RequestView, one_request
from dalsegno.store.store import Store, Tx
from dalsegno.web.answers import json_answers
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.export import ExportedContent, content_json
from dalsegno.web.api.parse import ParseRequest
from dalsegno.web.api.parse_body import BODY, CreatedBy, Wanted
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(prefix="/v1/parse", tags=["parse requests"])

LOOK_EVERY = 1.0
"""Seconds between two looks when nothing is heard: whoever works may be another process."""
BREATH = 0.05
"""Seconds between two looks at most, while many jobs move."""
PATIENCE = 1.0
"""Seconds that a request waits for somebody to come and carry it out: engines start a moment after their console."""
ENDED = ("DONE", "FAILED")
GONE = 499
_LOCATION = {"Location": {"description": "The request that was carried out.", "schema": {"type": "string"}}}


@router.post(
    "/search",
    response_model=list[ExportedContent],
    responses={
        200: {"headers": _LOCATION},
        202: {
            "description": "Nobody is at work now. It is written down, and carried out once somebody is.",
            "model": ParseRequest,
            "headers": _LOCATION,
        },
        **refusals(RequestInvalid, PayloadTooLarge, TooManyRequests, ParseFailed),
    },
    openapi_extra=BODY,
)
async def parse_search(request: Request, here: Here, who: Who, wanted: Wanted, created_by: CreatedBy) -> Response:
    """Ask, and wait for what is found and decoded. For people who explore: with `decodeLinks` it may take long.

    It is a request like any other. Whoever goes away stops waiting, not the work; whoever asks for the same waits for
    the same. Where nobody is at work, the answer is 202 and the request.
    """
    by = asker(created_by, who)
    asked = await run_in_threadpool(
        lambda: asking.ask(here.store, here.settings, wanted, created_by=created_by, requested_by=by)
    )
    view = await _rested(request, here.store, asked.id)
    if view is None:
        return Response(status_code=GONE)
    if view.status == "FAILED":
        raise ParseFailed(id=view.id, problem=f"failed: {view.error}" if view.error else "was canceled.")
    return await run_in_threadpool(lambda: _answer(here, view))


async def _rested(request: Request, store: Store, job_id: int) -> RequestView | None:
    """The request once it has ended, or as it is where nobody works; None when nobody waits for it any more."""
    moved = asyncio.Event()
    stop = _listen(store, moved)
    seen = store.clock.monotonic()
    try:
        while True:
            moved.clear()
            view, attended = await run_in_threadpool(lambda: store.read(lambda tx: _look(tx, job_id)))
            now = store.clock.monotonic()
            seen = now if attended else seen
            if view.status in ENDED or now - seen >= PATIENCE:
                return view
            if await request.is_disconnected():
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(moved.wait(), LOOK_EVERY)
                await asyncio.sleep(BREATH)
    finally:
        stop()


def _look(tx: Tx, job_id: int) -> tuple[RequestView, bool]:
    return one_request(tx, job_id), is_attended(tx)


def _listen(store: Store, moved: asyncio.Event) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def heard(topics: set[str]) -> None:
        if "jobs" in topics and not loop.is_closed():
            loop.call_soon_threadsafe(moved.set)

    return store.listen(heard)


def _answer(here: Room, view: RequestView) -> Response:
    answer = json_answers(here.config.secrets)
    headers = {"Location": f"/api/v1/parse/requests/{view.id}"}
    if view.status not in ENDED:
        return answer(ParseRequest.of(view).model_dump(mode="json", by_alias=True), 202, headers)
    found = here.store.read(lambda tx: these_contents(tx, view.content_ids, every=True))
    return answer([content_json(each) for each in found], headers=headers)
