"""The documentation of the API: one page made from its OpenAPI, served from here. No script, nothing from elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from dalsegno.web.api.describing import JSON, examples
from dalsegno.web.console.frame import render
from dalsegno.web.room import Here

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
def openapi(request: Request) -> Response:
    """Where tools look first; it lies with the rest of the API."""
    return JSONResponse(request.app.openapi())


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    needed: bool
    says: str


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    title: str
    says: str
    parameters: list[Parameter]
    curl: str
    answer: str | None
    status: int
    refusals: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    says: str
    operations: list[Operation]


@router.get("/docs")
def docs(request: Request, here: Here) -> HTMLResponse:
    return render(request, here, "docs.html", page="docs", parts=parts(request.app), url=str(request.base_url))


def parts(app: FastAPI) -> list[Part]:
    found: list[Part] = getattr(app.state, "docs", None) or _parts(app.openapi())
    app.state.docs = found
    return found


def _parts(schema: dict[str, Any]) -> list[Part]:
    by_tag: dict[str, list[Operation]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[-1]
            by_tag.setdefault(tag, []).append(_operation(method.upper(), path, operation))
    told = {tag["name"]: tag["description"] for tag in schema.get("tags", ())}
    order = [*told, *(tag for tag in by_tag if tag not in told)]
    return [Part(tag, told.get(tag, ""), by_tag[tag]) for tag in order if tag in by_tag]


def _operation(method: str, path: str, operation: dict[str, Any]) -> Operation:
    known = examples().get(operation["operationId"], {})
    first, _, rest = operation.get("description", "").partition("\n\n")
    status = known.get("status", 200)
    answers = operation["responses"]
    content = answers.get(str(status), {}).get("content", {})
    answer = content.get(JSON, next(iter(content.values()), {})).get("example")
    return Operation(
        operation["operationId"],
        method,
        path,
        " ".join(first.split()),
        " ".join(rest.split()),
        [
            Parameter(each["name"], each["in"], each.get("required", False), each.get("description", ""))
            for each in operation.get("parameters", ())
        ],
        _curl(method, path, known),
        answer if isinstance(answer, str) else None if answer is None else _pretty(answer),
        status,
        [(code, each["description"]) for code, each in answers.items() if code.startswith("4") and code != "4XX"],
    )


def _curl(method: str, path: str, known: dict[str, Any]) -> str:
    """As it can be pasted, against this very console."""
    for name, value in known.get("path", {}).items():
        path = path.replace("{" + name + "}", quote(str(value), safe=":/"))
    query = known.get("query")
    address = f"{path}?{urlencode(query)}" if query else path
    parts = ["curl"] + ([] if method == "GET" else ["-X", method]) + [f"'$URL{address}'"]
    if known.get("request") is not None:
        body = json.dumps(known["request"], ensure_ascii=False).replace("'", "'\\''")
        parts += ["-H 'Content-Type: application/json'", f"-d '{body}'"]
    return " ".join(parts)


@cache
def _dumped(text: str) -> str:
    return json.dumps(json.loads(text), ensure_ascii=False, indent=1)


def _pretty(value: Any) -> str:
    return _dumped(json.dumps(value, ensure_ascii=False))
