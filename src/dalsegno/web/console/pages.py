"""What routers of pages have in common: an error is a page too, in the frame."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.web.console.frame import render


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_or_say_why(request: Request) -> Response:
            try:
                return await answer(request)
            except DalSegnoError as error:
                return _trouble(request, error)
            except RequestValidationError:
                return _trouble(request, InputInvalid(problem="This address means nothing here."))

        return answer_or_say_why


def _trouble(request: Request, error: DalSegnoError) -> Response:
    values = {key: value for key, value in request.query_params.items() if key != "fragment"}
    scope = {**request.scope, "query_string": b""}
    return render(Request(scope), request.app.state.room, "error.html", page="", status=error.status,
                  error=error, values=values)  # fmt: skip


def pages() -> APIRouter:
    """A router for pages: not part of the API, and its errors are pages."""
    return APIRouter(include_in_schema=False, route_class=_Route)
