"""The API keeps the word of its documentation, whatever it is sent: no 5xx, nothing that the schema does not say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from dalsegno import Engine, Store
from dalsegno.catalog.services import catalog_services
from dalsegno.catalog.templates import order
from dalsegno.requests.ask import ask
from dalsegno.requests.body import body_of
from dalsegno.settings import Settings
from dalsegno.sources.demo_server import DemoServer
from tests.helpers import SWIFT
from tests.web.conftest import Desk

STREAM = "/api/events/stream"
"""Has no end; its own tests listen to it."""
READY = "/readyz"
"""Says 503, as documented, where no engine is."""
THERE = {"job_id": 1, "item_id": 22, "playlist_id": 1, "song_id": 7, "command_id": 1, "what": "job", "target": "1",
         "request_id": 2}  # fmt: skip
"""Things that are really there: few random numbers are."""
EXAMPLES = int(os.environ.get("DALSEGNO_FUZZ", "6"))
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
REFUSED = [*CHECKS, checks.negative_data_rejection]


@contextmanager
def demo(store: Store, root: Path) -> Iterator[dict[str, Any]]:
    """A small catalog that was really collected, synced, downloaded and uploaded, with its few broken songs."""
    with DemoServer(pace=0) as server:
        own: dict[str, Any] = {
            "demo_url": server.url,
            "sources": ("demo",),
            "download_sources": ("demo",),
            "library_root": root / "library",
            "object_store": (root / "archive").as_uri(),
            "min_free_space": 0,
        }
        chosen = Settings(_env_file=None, **own)
        with Engine(store, catalog_services(store, chosen), SWIFT) as engine:
            engine.wait(order(store, chosen, "full", requested_by="test").job_id, 120)
        assert ask(store, chosen, body_of({"title": "Naruto"})).id == THERE["request_id"]
        yield own


@pytest.fixture
def api(store: Store, consoles: Callable[..., Desk], tmp_path: Path) -> Iterator[Desk]:
    with demo(store, tmp_path) as own:
        yield consoles(store, **own)


def send(operation: Any, mode: GenerationMode, wanted: list[Any], **known: Any) -> str | None:
    """What was wrong with an answer, if anything was."""

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode, **known))
    def run(case: Case) -> None:
        case.call_and_validate(checks=wanted, timeout=20)

    try:
        run()
    except Unsatisfiable:
        return None  # nothing can be wrong with a request that takes nothing
    except BaseException as error:
        told = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
        return f"{operation.label} ({mode.value}): " + " / ".join(f"{type(each).__name__}: {each}" for each in told)
    return None


@pytest.mark.timeout(300)  # some two thousand requests
def test_whatever_is_sent_the_answer_is_one_that_is_documented(api: Desk) -> None:
    schema = schemathesis.openapi.from_url(f"{api.url}/api/openapi.json").exclude(path=STREAM)
    broken = []
    for result in schema.get_all_operations():
        operation = result.ok()
        waived = [not_a_server_error] if operation.path == READY else []
        good, bad = ([check for check in some if check not in waived] for some in (CHECKS, REFUSED))
        broken.append(send(operation, GenerationMode.POSITIVE, good))
        broken.append(send(operation, GenerationMode.NEGATIVE, bad))
        there = {each["name"]: THERE[each["name"]] for each in _path(operation) if each["name"] in THERE}
        if there:
            broken.append(send(operation, GenerationMode.POSITIVE, good, path_parameters=there))
    assert not list(filter(None, broken)), "\n\n".join(filter(None, broken))


def _path(operation: Any) -> list[dict[str, Any]]:
    return [each for each in operation.definition.raw.get("parameters", ()) if each["in"] == "path"]


def test_every_operation_has_a_name_a_part_and_an_example_that_its_schema_allows(desk: Desk) -> None:
    schema = desk.get("/api/openapi.json")
    names = []
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            place = f"{method.upper()} {path}"
            names.append(operation["operationId"])
            assert operation["tags"], place
            assert operation["description"], place
            assert any(code.startswith("4") for code in operation["responses"]), place
            good = next(answer for code, answer in operation["responses"].items() if code.startswith("2"))
            assert all("example" in content for content in good["content"].values()), place
            body = operation.get("requestBody")
            if body is not None:
                assert all("example" in content for content in body["content"].values()), place
    assert len(names) == len(set(names))


def test_the_documentation_is_one_page_of_this_console(desk: Desk) -> None:
    page = desk.http.get("/docs")
    assert page.status_code == 200
    for path in desk.get("/api/openapi.json")["paths"]:
        assert path in page.text
    assert "//cdn" not in page.text
    assert "http:" not in page.text.replace(desk.url, "").replace("http://127.0.0.1", "")


def test_examples_are_answers_that_the_schema_allows(desk: Desk) -> None:
    import jsonschema_rs

    schema = desk.get("/api/openapi.json")
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            contents = [
                *operation.get("requestBody", {}).get("content", {}).items(),
                *(pair for code, answer in operation["responses"].items() if code.startswith("2")
                  for pair in answer.get("content", {}).items()),
            ]  # fmt: skip
            for kind, content in contents:
                if kind == "application/json" and "example" in content:
                    whole = {**content["schema"], "components": schema["components"]}
                    faults = [str(fault) for fault in jsonschema_rs.iter_errors(whole, content["example"])]
                    assert not faults, (method, path, faults[:3])


def test_nothing_else_answers_json_without_a_word(desk: Desk) -> None:
    answer = httpx.get(f"{desk.url}/api/nothing")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
