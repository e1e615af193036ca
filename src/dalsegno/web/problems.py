"""Errors as answers: RFC 9457 problem details, with the stable code that programs may rely on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from dalsegno.errors import DalSegnoError, RequestInvalid
from dalsegno.web.answers import json_answers

MEDIA_TYPE = "application/problem+json"
FIRST = "/api/v1/"
"""The API of parse requests, whose contract says 400 to whatever is wrong with a request."""
UNEXPECTED = "Something unexpected went wrong. Nothing that was finished is lost; the log says more."

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

Page = Callable[[Request, int, str, str], Response | None]
"""Status, code and details of an error as a page, for whoever wants one."""


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    where: str
    detail: str


class Mistake(BaseModel):
    """One thing that is wrong with a settings file. Warnings do not keep it from being saved."""

    model_config = ConfigDict(from_attributes=True)

    line: int | None
    key: str | None
    reason: str
    suggestion: str
    level: Literal["error", "warning"]


class Problem(BaseModel):
    """Problem details."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[Fault | Mistake] = []
    twin: int | None = None
    """The active job or request that does the same, where one is in the way."""


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "What is wrong, and what to do about it.", "content": {
        MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
    }},
}  # fmt: skip


def problem(
    status: int,
    code: str,
    detail: str,
    secrets: Sequence[str],
    errors: Sequence[Fault | Mistake] = (),
    wait: int = 2,
    twin: int | None = None,
) -> JSONResponse:
    body = Problem(
        type=f"urn:dalsegno:error:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        errors=list(errors),
        twin=twin,
    )
    headers = None
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers = {"Retry-After": str(wait)}
    elif status == HTTPStatus.UNAUTHORIZED:
        headers = {
            "WWW-Authenticate": 'Bearer realm="Dal Segno"'
        }  # Basic works too, but browsers would ask by themselves
    content = body.model_dump(exclude_defaults=True)
    return json_answers(secrets)(content, status, headers, media_type=MEDIA_TYPE)


def problem_of(error: DalSegnoError, secrets: Sequence[str]) -> JSONResponse:
    mistakes = [Mistake(**each) for each in error.details.get("errors", ())]
    wait, twin = error.details.get("wait", 2), error.details.get("twin")
    return problem(error.status, error.code, str(error), secrets, mistakes, wait=wait, twin=twin)


def answer_with_problems(app: FastAPI, secrets: Sequence[str], page: Page) -> None:
    """Whatever a handler raises becomes problem details, or a page. What nobody expected ends in the guard."""

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, DalSegnoError)
        return page(request, error.status, error.code, str(error)) or problem_of(error, secrets)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [Fault(where=".".join(map(str, each["loc"])), detail=_sentence(each)) for each in error.errors()]
        found = (422, "input_invalid", faults[0].detail)
        if request.url.path.startswith(FIRST):
            found = (400, RequestInvalid.code, faults[0].detail)
        return page(request, *found) or problem(*found, secrets, faults)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_").replace("-", "_")
        headers, detail = dict(error.headers or {}), str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = "There is nothing at this address."
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(taken(request))
            detail = f"This address takes {headers['Allow']}, not {request.method}."
        found = (error.status_code, code, detail)
        answer = page(request, *found) or problem(*found, secrets)
        answer.headers.update(headers)
        return answer

    app.add_exception_handler(DalSegnoError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def taken(request: Request) -> list[str]:
    """The methods of an address: each has a route of its own, and the first of them knows but its own."""

    def takes(method: str) -> bool:
        asked = {**request.scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(asked)[0] == Match.FULL for route in request.app.routes)

    return [method for method in METHODS if method != request.method and takes(method)]


def describe_problems(app: FastAPI) -> None:
    """FastAPI knows only models that a route returns; nothing returns a problem."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = generate()["components"]["schemas"]
            described = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(described.pop("$defs"), Problem=described)
        return generate()

    app.openapi = openapi  # type: ignore[method-assign]


def _sentence(fault: dict[str, Any]) -> str:
    said = str(fault["msg"])
    if fault["type"] == "value_error":
        return said.removeprefix("Value error, ")
    if fault["type"] == "json_invalid":
        return f"The body is not JSON: {fault.get('ctx', {}).get('error', said)}."
    if isinstance(fault.get("input"), bytes):
        return "The body was not sent as JSON: add the header Content-Type: application/json."
    place = ".".join(map(str, fault["loc"][1:])) or "The body"
    if fault["type"] == "model_attributes_type":
        return f"{place} must be a JSON object."
    return f"{place}: {said[0].lower()}{said[1:]}."
