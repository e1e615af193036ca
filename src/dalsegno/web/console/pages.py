"""What routers of pages have in common: an error is a page too, in the frame."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from dalsegno.errors import DalSegnoError
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.meanings import trouble


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_or_say_why(request: Request) -> Response:
            try:
                if request.query_params.get("fragment") == "frame_state":
                    return await run_in_threadpool(_frame, request)
                return await answer(request)
            except DalSegnoError as error:
                return _page(request, error.status, error.code, str(error))
            except RequestValidationError:
                words = words_of(request, request.app.state.room)
                return _page(request, 422, "input_invalid", words.text("This address means nothing here."))

        return answer_or_say_why


def _frame(request: Request) -> Response:
    """The frame's own region is the same on every page: none is read for it."""
    return render(request, request.app.state.room, "base.html", page="")


def page_of_error(request: Request, status: int, code: str, details: str) -> Response | None:
    """For people who look with a browser; None for programs, and whatever asks the API."""
    if request.scope["path"].startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return None
    return _page(request, status, code, details)


def _page(request: Request, status: int, code: str, details: str) -> Response:
    here = request.app.state.room
    found = trouble(words_of(request, here), status, code, details)
    return render(
        Request({**request.scope, "query_string": b""}), here, "error.html", page="", status=status, trouble=found
    )


def pages() -> APIRouter:
    """A router for pages: not part of the API, and its errors are pages."""
    return APIRouter(include_in_schema=False, route_class=_Route)
