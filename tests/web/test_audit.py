"""Every change is somebody's: who, when, what. And looking changes nothing.

Both go through all that OpenAPI names, with the examples it gives, so that what is added is tried as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.store.schema import commands, events
from tests.helpers import every
from tests.web.conftest import Desk, Songs
from tests.web.test_hostile_page import everything
from tests.web.test_secrets import crawl, operations

PASSWORD = "da capo al fine"
ASKING = ("/api/plan", "/check", "/preview")
"""How addresses end that only ask what would be."""
SURE = {
    "POST /api/jobs", "POST /api/jobs/{job_id}/pause", "POST /api/jobs/{job_id}/cancel",
    "POST /api/jobs/{job_id}/priority", "POST /api/jobs/{job_id}/clone", "POST /api/job-items/{item_id}/retry",
    "POST /api/job-items/{item_id}/force-retry", "POST /api/pause", "POST /api/resume", "PUT /api/limits/{name}",
    "DELETE /api/limits/{name}", "POST /api/breakers/{name}/trip", "POST /api/breakers/{name}/reset",
}  # fmt: skip
"""Changes that must have been tried; others are where their example fits what is there."""


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    return stores(sqlite_url)


def traces(store: Store) -> set[tuple[str, int]]:
    """What carries our name."""
    ours = "keeper@127.0.0.1"
    asked = every(store, sa.select(commands.c.id, commands.c.requested_by))
    told = every(store, sa.select(events.c.id, events.c.source))
    return {("command", row["id"]) for row in asked if ours in (row["requested_by"] or "")} | {
        ("event", row["id"]) for row in told if ours in row["source"]
    }


def changes(desk: Desk) -> list[tuple[str, str, Any]]:
    """Method, address and an example of every operation that is no GET."""
    found = []
    for path, known in desk.http.get("/api/openapi.json").json()["paths"].items():
        for method, operation in known.items():
            if method != "get" and not path.endswith(ASKING):
                content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
                found.append((method.upper(), path, content.get("example")))
    return found


def test_every_change_is_somebodys(store: Store, songs: Songs, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, console_password=PASSWORD)
    assert desk.http.post("/login", data={"password": PASSWORD, "name": "keeper"}).status_code == 303
    assert traces(store), "signing in is one"
    job = desk.post("/api/jobs", {"template": "download"}, 201)["id"]
    songs.gate.set()
    desk.until(job, "completed_with_errors")
    songs.gate.clear()
    fifth = desk.get(f"/api/jobs/{job}/items?state=failed")["items"][0]["id"]
    done = set()
    for method, path, example in changes(desk):
        targets = {"job_id": str(job), "item_id": str(fifth), "name": "source:demo"}
        if path.startswith("/api/jobs/"):  # one that still runs
            targets["job_id"] = str(desk.post("/api/jobs", {"template": "download"}, 201)["id"])
        before = traces(store)
        address = re.sub(r"\{(\w+)\}", lambda found: quote(targets.get(found[1], "1"), safe=":"), path)  # noqa: B023
        answer = desk.http.request(method, address, json=example)
        assert answer.status_code < 500, (method, path, answer.text)
        if answer.is_success:
            done.add(f"{method} {path}")
            assert traces(store) > before, f"{method} {path} left no trace of who did it"
    songs.gate.set()
    assert done >= SURE, SURE - done
    before = traces(store)
    assert desk.http.post("/logout").status_code == 303
    assert traces(store) > before


def test_looking_changes_nothing(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store)
    desk.start()
    desk.post("/api/jobs/1/pause")
    before = everything(store)
    seen = [path for path, _ in crawl(desk.http, ["/", *operations(desk.http)])]
    assert len(seen) > 20
    assert everything(store) == before
