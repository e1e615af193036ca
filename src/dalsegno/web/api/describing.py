"""What the OpenAPI says beyond what code says by itself: its parts in a sentence each, and a real example of all."""

from __future__ import annotations

import json
import threading
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI

EXAMPLES = Path(__file__).parent / "examples.json"
JSON = "application/json"

PARTS = {
    "dashboard": "Everything at a glance.",
    "jobs": "One run of a template or workflow: started, paused, resumed, canceled, tried again.",
    "schedules": "What is started by the clock, when it is due, and what became of each time it was.",
    "items": "The unit of work: one playlist, one song, one file. Retried one by one, or all that a query finds.",
    "exceptions": "Errors alike, in groups.",
    "catalog": "Pools, playlists and songs as they stand.",
    "config": "The settings file: read, checked, saved, compared.",
    "parse requests": "Searched and decoded in the background. Submitted once, read by cursor; nobody has to poll."
    " Where `REQUESTS_API_KEY` is set, send it along as `X-API-KEY`.",
    "workers": "Who is there, and what each does now.",
    "events": "What changes, as it changes.",
    "logs and events": "What was said and what happened.",
    "commands": "What operators asked for, and what became of it.",
    "holds": "What stands still: everything, a lane, a service.",
    "limits and breakers": "How fast things may go, what is stopped, and until when.",
    "search": "One box for everything.",
    "explain": "Why is it not running?",
    "workflows": "What can be run.",
    "artifacts": "Files that items produced.",
    "system": "The system under the work.",
    "health": "For whoever watches this process.",
}


_KNOWN: dict[str, Any] = {}
"""Every app of a process has the same, and it takes most of a second to make."""
_MAKING = threading.Lock()


def describe(app: FastAPI) -> None:
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        with _MAKING:
            if not _KNOWN:
                _KNOWN.update(_described(generate()))
            return _KNOWN

    app.openapi = openapi  # type: ignore[method-assign]


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    operations = [each for path in schema["paths"].values() for each in path.values()]
    used = {tag for each in operations for tag in each.get("tags", ())}
    schema["tags"] = [{"name": name, "description": says} for name, says in PARTS.items() if name in used]
    for each in operations:
        _exemplify(each)
    return schema


@cache
def examples() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXAMPLES.read_text("utf-8"))
    return found


def _exemplify(operation: dict[str, Any]) -> None:
    known = examples().get(operation["operationId"])
    if known is None:
        return
    given = {**known["query"], **known["path"]}
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in given:
            parameter["example"] = given[parameter["name"]]
    body = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if body is not None and known["request"] is not None:
        body["example"] = known["request"]
    answers = {code: answer["content"][JSON] for code, answer in operation["responses"].items()
               if code.startswith("2") and JSON in answer.get("content", {})}  # fmt: skip
    shape = answers.get(str(known["status"]), {}).get("schema")
    for answer in answers.values():
        if shape in (None, answer.get("schema")):  # another 2xx may answer with something else
            answer["example"] = known["response"]
