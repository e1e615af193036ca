"""Record the examples of the API's documentation: real answers of a real run of the demo, shortened.

    python scripts/examples.py

Writes src/dalsegno/web/api/examples.json. The tests hold every example against the schema of its operation.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.requests.upstream import TOKEN, kodik  # noqa: E402 - a server of ours, which the demo has none of

FILE = ROOT / "src/dalsegno/web/api/examples.json"
MOST = 2
"""Elements that are shown of a list."""
LONGEST = 400

SCOPE = {"sources": [], "pools": [], "playlists": ["Slow Cello 4"], "songs": [], "query": ""}
NEW = {"template": "全链路", "scope": SCOPE, "priority": 50, "options": {"note": "film night"}}
NAS = {"requested_by": "nas"}
NIGHTLY = {
    "name": "nightly",
    "workflow": "full",
    "cron": "30 2 * * *",
    "time_zone": "Europe/Berlin",
    "overlap": "queue",
}
LIKE = {"cancel_parse_request": "cancel_job", "retry_parse_request": "retry_job"}
"""What the demo may refuse because it is over by then, and what answers alike."""

CALLS: list[tuple[str, str, str, dict[str, Any], dict[str, Any], Any]] = [
    # operation, method, path, what stands in the path, the query, the body
    ("dashboard", "GET", "/api/dashboard", {}, {}, None),
    ("jobs", "GET", "/api/jobs", {}, {"q": "template:full age:<7d", "limit": 1}, None),
    ("job", "GET", "/api/jobs/{job_id}", {"job_id": 1}, {}, None),
    ("plan", "POST", "/api/plan", {}, {}, NEW),
    ("create_job", "POST", "/api/jobs", {}, {}, NEW),
    ("pause_job", "POST", "/api/jobs/{job_id}/pause", {"job_id": 2}, {}, {"reason": "film night"}),
    (
        "resume_job",
        "POST",
        "/api/jobs/{job_id}/resume",
        {"job_id": 2},
        {},
        {"overrides": {"LIBRARY_ROOT": "/srv/more"}},
    ),
    ("set_priority", "POST", "/api/jobs/{job_id}/priority", {"job_id": 2}, {}, {"priority": 10}),
    ("cancel_job", "POST", "/api/jobs/{job_id}/cancel", {"job_id": 2}, {}, {"requested_by": "nas"}),
    ("clone_job", "POST", "/api/jobs/{job_id}/clone", {"job_id": 1}, {}, {"priority": 200}),
    ("retry_job", "POST", "/api/jobs/{job_id}/retry", {"job_id": 1}, {}, {"requested_by": "nas"}),
    ("create_schedule", "POST", "/api/schedules", {}, {}, NIGHTLY),
    ("run_schedule", "POST", "/api/schedules/{schedule_id}/run", {"schedule_id": 1}, {}, NAS),
    ("schedule", "GET", "/api/schedules/{schedule_id}", {"schedule_id": 1}, {}, None),
    ("schedules", "GET", "/api/schedules", {}, {"q": "state:active template:full", "limit": 1}, None),
    ("schedule_runs", "GET", "/api/schedules/{schedule_id}/runs", {"schedule_id": 1}, {"limit": 1}, None),
    ("change_schedule", "PATCH", "/api/schedules/{schedule_id}", {"schedule_id": 1}, {}, {"cron": "0 4 * * *"}),
    ("pause_schedule", "POST", "/api/schedules/{schedule_id}/pause", {"schedule_id": 1}, {}, {"reason": "film night"}),
    ("resume_schedule", "POST", "/api/schedules/{schedule_id}/resume", {"schedule_id": 1}, {}, NAS),
    ("remove_schedule", "DELETE", "/api/schedules/{schedule_id}", {"schedule_id": 1}, {}, None),
    (
        "preview_schedule",
        "GET",
        "/api/schedules/preview",
        {},
        {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "count": 2},
        None,
    ),
    ("items", "GET", "/api/jobs/{job_id}/items", {"job_id": 1}, {"q": "stage:download state:failed", "limit": 1}, None),
    ("events_of_job", "GET", "/api/jobs/{job_id}/events", {"job_id": 1}, {"q": "kind:job_*", "limit": 2}, None),
    ("commands_about_job", "GET", "/api/jobs/{job_id}/commands", {"job_id": 2}, {"limit": 2}, None),
    ("config_of_job", "GET", "/api/jobs/{job_id}/config", {"job_id": 1}, {}, None),
    ("all_items", "GET", "/api/items", {}, {"q": "state:failed stage:download -error:429", "limit": 1}, None),
    ("item", "GET", "/api/job-items/{item_id}", {"item_id": "FAILED"}, {}, None),
    ("retry_item", "POST", "/api/job-items/{item_id}/retry", {"item_id": "FAILED"}, {}, {"requested_by": "nas"}),
    ("force_retry_item", "POST", "/api/job-items/{item_id}/force-retry", {"item_id": "DONE"}, {}, {}),
    ("bulk_preview", "POST", "/api/bulk/preview", {}, {}, {"action": "retry", "q": "state:failed stage:download"}),
    ("bulk", "POST", "/api/bulk", {}, {}, {"action": "retry", "q": "state:failed stage:download"}),
    ("operations", "GET", "/api/bulk", {}, {"limit": 1}, None),
    ("operation", "GET", "/api/bulk/{operation_id}", {"operation_id": "BULK"}, {}, None),
    ("stop_operation", "POST", "/api/bulk/{operation_id}/stop", {"operation_id": "BULK"}, {}, None),
    ("facets", "GET", "/api/facets", {}, {"q": "job:1"}, None),
    ("exceptions", "GET", "/api/exceptions", {}, {"q": "service:download", "limit": 1}, None),
    ("exception", "GET", "/api/exceptions/{fingerprint}", {"fingerprint": "GROUP"}, {}, None),
    ("retry_exception", "POST", "/api/exceptions/{fingerprint}/retry", {"fingerprint": "GROUP"}, {}, {}),
    ("parse_search", "POST", "/api/v1/parse/search", {}, {}, {"shikimoriId": "20", "decodeLinks": True}),
    ("source_list", "GET", "/api/v1/{source}/list", {"source": "kodik"}, {"limit": 1, "types": "anime-serial"}, None),
    ("export_ready", "GET", "/api/v1/export/ready", {}, {"cursor": "", "size": 1}, None),
    ("export_content", "GET", "/api/v1/export/{content_id}", {"content_id": 1}, {}, None),
    ("submit_parse_request", "POST", "/api/v1/parse/requests", {}, {}, {"title": "Naruto", "decodeLinks": True}),
    ("parse_requests", "GET", "/api/v1/parse/requests", {}, {"limit": 1, "offset": 0}, None),
    ("parse_request", "GET", "/api/v1/parse/requests/{request_id}", {"request_id": "REQUEST"}, {}, None),
    ("cancel_parse_request", "POST", "/api/v1/parse/requests/{request_id}/cancel", {"request_id": "REQUEST"}, {}, NAS),
    ("retry_parse_request", "POST", "/api/v1/parse/requests/{request_id}/retry", {"request_id": "REQUEST"}, {}, NAS),
    ("pools", "GET", "/api/pools", {}, {}, None),
    ("playlists", "GET", "/api/playlists", {}, {"status": "error", "limit": 1}, None),
    ("playlist", "GET", "/api/playlists/{playlist_id}", {"playlist_id": 1}, {}, None),
    ("songs", "GET", "/api/songs", {}, {"q": "Clock", "limit": 1}, None),
    ("song", "GET", "/api/songs/{song_id}", {"song_id": 1}, {}, None),
    ("workers", "GET", "/api/workers", {}, {}, None),
    ("logs", "GET", "/api/logs", {}, {"q": "level:info job:1", "limit": 2}, None),
    ("events", "GET", "/api/events", {}, {"q": "kind:stage_*", "limit": 2}, None),
    ("commands", "GET", "/api/commands", {}, {"q": "by:nas", "limit": 1}, None),
    ("audit", "GET", "/api/audit", {}, {"q": "by:nas", "limit": 1}, None),
    ("command", "GET", "/api/commands/{command_id}", {"command_id": 1}, {}, None),
    ("stop_command", "POST", "/api/commands/{command_id}/stop", {"command_id": "BULK"}, {}, None),
    ("pause", "POST", "/api/pause", {}, {}, {"lane": "catalog", "reason": "film night"}),
    ("holds", "GET", "/api/holds", {}, {}, None),
    ("resume", "POST", "/api/resume", {}, {}, {"lane": "catalog"}),
    ("change_limit", "PUT", "/api/limits/{name}", {"name": "service:download"}, {}, {"concurrent": 2, "rate": 30}),
    ("limit", "GET", "/api/limits/{name}", {"name": "service:download"}, {}, None),
    ("limits", "GET", "/api/limits", {}, {}, None),
    ("lift_limit", "DELETE", "/api/limits/{name}", {"name": "service:download"}, {}, None),
    ("change_setting", "PUT", "/api/settings/{key}", {"key": "queue_concurrency"}, {}, {"value": 2}),
    ("settings", "GET", "/api/settings", {}, {}, None),
    (
        "trip_breaker",
        "POST",
        "/api/breakers/{name}/trip",
        {"name": "source:demo"},
        {},
        {"reason": "they asked us to"},
    ),
    ("breakers", "GET", "/api/breakers", {}, {}, None),
    ("breaker", "GET", "/api/breakers/{name}", {"name": "source:demo"}, {}, None),
    ("probe_breaker", "POST", "/api/breakers/{name}/probe", {"name": "source:demo"}, {}, None),
    ("reset_breaker", "POST", "/api/breakers/{name}/reset", {"name": "source:demo"}, {}, None),
    ("search", "GET", "/api/search", {}, {"q": "Clock", "limit": 1}, None),
    ("explain", "GET", "/api/explain/{what}/{target}", {"what": "job", "target": "1"}, {}, None),
    ("workflows", "GET", "/api/workflows", {}, {}, None),
    ("workflow", "GET", "/api/workflows/{name}", {"name": "full"}, {}, None),
    ("artifacts", "GET", "/api/artifacts", {}, {"job": 1}, None),
    ("system", "GET", "/api/system", {}, {}, None),
    ("system_health", "GET", "/api/system/health", {}, {}, None),
    ("env_file", "GET", "/api/config/env", {}, {}, None),
    (
        "check_env_file",
        "POST",
        "/api/config/env/check",
        {},
        {},
        {"content": "DOWNLOAD_WORKER=4\nUPLOAD_WORKERS=many\n"},
    ),
    (
        "save_env_file",
        "PUT",
        "/api/config/env",
        {},
        {},
        {"content": "MORE", "note": "be gentle", "base_revision": "REV"},
    ),
    ("adopt_env_file", "POST", "/api/config/revisions", {}, {}, {"note": "edited over ssh"}),
    ("revisions", "GET", "/api/config/revisions", {}, {"limit": 2}, None),
    ("revision", "GET", "/api/config/revisions/{revision_id}", {"revision_id": "NEWEST"}, {}, None),
    (
        "compare_revisions",
        "GET",
        "/api/config/revisions/{revision_id}/diff/{other_id}",
        {"revision_id": "OLDEST", "other_id": "NEWEST"},
        {},
        None,
    ),
    (
        "apply_revision",
        "POST",
        "/api/config/revisions/{revision_id}/apply",
        {"revision_id": "OLDEST"},
        {},
        {"note": "as it was"},
    ),
    ("healthz", "GET", "/healthz", {}, {}, None),
    ("readyz", "GET", "/readyz", {}, {}, None),
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, kodik() as upstream:
        upstream.serial(episodes=2, translations=2, title="Naruto")
        command = [sys.executable, "-m", "dalsegno", "demo", "--folder", folder, "--port", "0", "--pace", "0.2"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
        try:
            url = _address(server)
            with httpx.Client(base_url=url, timeout=30) as client:
                _wait(client)
                _search_at(client, upstream.url)
                recorded = _record(client)
        finally:
            server.terminate()
            server.wait(30)
        text = json.dumps(recorded, ensure_ascii=False, indent=1)
        for old, new in ((folder, "/srv/dalsegno"), (url, "http://127.0.0.1:8765"), (socket.gethostname(), "nas")):
            text = text.replace(json.dumps(old)[1:-1], new)
        text = re.sub(r'"host": "[^"]*"', '"host": "nas"', text)
        text = re.sub(r"http://127\.0\.0\.1:(?!8765)\d+", "http://127.0.0.1:8766", text)
        FILE.write_text(text + "\n", "utf-8")


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise SystemExit("the demo did not start")


def _wait(client: httpx.Client) -> None:
    for _ in range(600):
        if client.get("/api/jobs/1").json()["finished_at"]:
            return
        time.sleep(0.1)
    raise SystemExit("the demo did not finish")


def _search_at(client: httpx.Client, url: str) -> None:
    """Parse requests need somebody to ask."""
    found = client.get("/api/config/env").json()
    more = f"KODIK_URL={url}\nKODIK_TOKEN={TOKEN}\nREQUESTS_SOURCES=kodik\nREQUESTS_DECODERS=direct\n"
    saved = {"content": found["content"] + more, "note": "search at Kodik", "base_revision": found["revision"]["id"]}
    client.put("/api/config/env", json=saved).raise_for_status()


STOPS = {"stop_command": "bulk", "stop_operation": "operation"}
"""What is shown of a stop that came too late: the same, stopped."""


def _record(client: httpx.Client) -> dict[str, Any]:
    known = {(method.upper(), path): operation["operationId"]
             for path, operations in client.get("/api/openapi.json").json()["paths"].items()
             for method, operation in operations.items()}  # fmt: skip
    failed = client.get("/api/items", params={"q": "state:failed stage:download"}).json()["items"][-1]
    done = client.get("/api/items", params={"q": "state:succeeded stage:download"}).json()["items"][-1]
    places: dict[Any, Any] = {"FAILED": failed["id"], "DONE": done["id"], "GROUP": failed["fingerprint"]}
    recorded: dict[str, Any] = {}
    for name, method, path, given, query, body in CALLS:
        if (method, path) not in known:
            continue
        _prepare(client, name, places)
        found, sent = _placed(given, places), _placed(body, places)
        answer = client.request(method, path.format(**found), params=query, json=sent)
        if name in STOPS and answer.status_code == 409:  # too late: the demo has few items
            asked = recorded[STOPS[name]]["response"]
            told = asked.get("command", asked)
            stopped = {**told, "stop_requested_at": told["created_at"]}
            if name == "stop_operation":
                stopped = {**asked, "state": "stopped", "command": stopped}
            recorded[name] = {"path": found, "query": {}, "request": None, "status": 202, "response": stopped}
            continue
        if name in LIKE and answer.status_code == 409:
            number = found["request_id"]
            like = {**recorded[LIKE[name]]["response"], "job_id": number}
            if like["payload"]:
                like["payload"] = {"query": f"job:{number} state:failed"}
            recorded[name] = {"path": found, "query": {}, "request": sent, "status": 202, "response": like}
            continue
        if answer.status_code >= 400:
            raise SystemExit(f"{name}: {answer.status_code} {answer.text}")
        if name == "bulk":
            places["BULK"] = answer.json()["id"]
        if name == "submit_parse_request":
            places["REQUEST"] = answer.json()["id"]
        time.sleep(0.3 if method == "POST" else 0)  # an engine applies it
        recorded[known[method, path]] = {
            "path": found, "query": query, "request": sent, "status": answer.status_code,
            "response": _short(answer.json()),
        }  # fmt: skip
    for key, name in known.items():
        if name not in recorded:
            sys.stderr.write(f"no example: {' '.join(key)}\n")
    return recorded


def _placed(given: Any, places: dict[Any, Any]) -> Any:
    """With what is only known once it runs in its place."""
    plain = {str, int}
    return given and {key: places.get(value, value) if type(value) in plain else value for key, value in given.items()}


def _prepare(client: httpx.Client, name: str, places: dict[Any, Any]) -> None:
    if name in ("save_env_file", "adopt_env_file"):
        found = client.get("/api/config/env").json()
        places["REV"] = found["revision"]["id"]
        places["MORE"] = f"{found['content']}DOWNLOAD_WORKERS=4\n"
        if name == "adopt_env_file":
            with Path(found["file"]).open("a") as file:
                file.write("UPLOAD_WORKERS=2\n")
    if name == "revision":
        ids = [each["id"] for each in client.get("/api/config/revisions").json()["revisions"]]
        places.update(NEWEST=ids[0], OLDEST=ids[-1])


def _short(value: Any) -> Any:
    match value:
        case dict():
            return {key: _short(each) for key, each in value.items()}
        case list():
            return [_short(each) for each in value[:MOST]]
        case str() if len(value) > LONGEST:
            return value[:LONGEST] + "…"
        case _:
            return value


if __name__ == "__main__":
    main()
