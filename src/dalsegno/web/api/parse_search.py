"""The synchronous twin of a parse request: the same request, and somebody who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from dalsegno.errors import ParseFailed, PayloadTooLarge, RequestInvalid, TooManyRequests
from dalsegno.requests import ask as asking
from dalsegno.requests.export import one_content
from dalsegno.requests.view import RequestView, one_request
from dalsegno.store.store import Store
from dalsegno.web.answers import json_answers
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.export import ExportedContent, content_json
from dalsegno.web.api.parse_body import BODY, CreatedBy, Wanted
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(prefix="/v1/parse", tags=["parse requests"])

LOOK_EVERY = 1.0
"""Seconds between two looks when nothing is heard: whoever works may be another process."""
BREATH = 0.05
"""Seconds between two looks at most, while many jobs move."""
GONE = 499
_LOCATION = {"Location": {"description": "The request that was carried out.", "schema": {"type": "string"}}}


@router.post(
    "/search",
    response_model=list[ExportedContent],
    responses={
        200: {"headers": _LOCATION},
        **refusals(RequestInvalid, PayloadTooLarge, TooManyRequests, ParseFailed),
    },
    openapi_extra=BODY,
)
async def parse_search(request: Request, here: Here, who: Who, wanted: Wanted, created_by: CreatedBy) -> Response:
    """Ask, and wait for what is found and decoded. For people who explore: with `decodeLinks` it may take long.

    It is a request like any other. Whoever goes away stops waiting, not the work; whoever asks for the same waits for
    the same.
    """
    by = asker(created_by, who)
    asked = await run_in_threadpool(
        lambda: asking.ask(here.store, here.settings, wanted, created_by=created_by, requested_by=by)
    )
    view = await _finished(request, here.store, asked.id)
    if view is None:
        return Response(status_code=GONE)
    if view.status == "FAILED":
        raise ParseFailed(id=view.id, problem=f"failed: {view.error}" if view.error else "was canceled.")
    return await run_in_threadpool(lambda: _answer(here, view))


async def _finished(request: Request, store: Store, job_id: int) -> RequestView | None:
    """The request once it has ended; None when nobody waits for it any more."""
    moved = asyncio.Event()
    stop = _listen(store, moved)
    try:
        while True:
            moved.clear()
            view = await run_in_threadpool(lambda: store.read(lambda tx: one_request(tx, job_id)))
            if view.status in ("DONE", "FAILED"):
                return view
            if await request.is_disconnected():
                return None
            try:
                await asyncio.wait_for(moved.wait(), LOOK_EVERY)
                await asyncio.sleep(BREATH)
            except TimeoutError:
                pass
    finally:
        stop()


def _listen(store: Store, moved: asyncio.Event) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def heard(topics: set[str]) -> None:
        if "jobs" in topics and not loop.is_closed():
            loop.call_soon_threadsafe(moved.set)

    return store.listen(heard)


def _answer(here: Room, view: RequestView) -> Response:
    found = here.store.read(lambda tx: [one_content(tx, number, every=True) for number in view.content_ids])
    headers = {"Location": f"/api/v1/parse/requests/{view.id}"}
    return json_answers(here.config.secrets)([content_json(each) for each in found], headers=headers)
