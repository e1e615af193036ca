"""What the API tells: the dashboard, items opened, logs, events, groups, search, explanations, the system."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.schema import songs as songs_table
from dalsegno.engine.heart import Heart
from dalsegno.engine.pauses import pause_job
from dalsegno.store.schema import artifacts, processes
from dalsegno.store.schema import logs as logs_table
from dalsegno.store.store import Tx
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs
from tests.web.test_api_acts import finished, follow, problem


def attention(desk: Desk, code: str) -> Any:
    return next((each for each in desk.get("/api/dashboard")["attention"] if each["code"] == code), None)


# --- the dashboard --------------------------------------------------------------------------------


def test_an_empty_console_says_that_no_engine_is_there(desk: Desk) -> None:
    board = desk.get("/api/dashboard")
    assert (board["job"], board["active"], board["waiting"], board["pools"]) == (None, [], [], [])
    assert attention(desk, "no_engine")["level"] == "warn"
    desk.start()
    assert attention(desk, "no_engine")["level"] == "error"
    assert len(board["charts"]["minutes"]) == 60


def test_the_dashboard_shows_what_runs_and_who_drains(desk: Desk, songs: Songs) -> None:
    job_id = desk.start(template="download-upload")["id"]
    wait_until(lambda: desk.get("/api/dashboard")["counters"]["running"] == 2, "two songs to run")
    other = desk.start()["id"]
    board = desk.get("/api/dashboard")
    assert (board["job"]["id"], board["job"]["status"], board["job"]["draining"]) == (job_id, "running", None)
    assert [job["id"] for job in board["waiting"]] == [other]
    assert (board["counters"]["queued_jobs"], board["counters"]["pending"]) == (1, 4)
    pool = wait_until(lambda: _busy(desk, "download") == 2 and _pool(desk, "download"), "the roster to be written")
    assert (pool["idle"], len(pool["workers"]), pool["phase"]) == (0, 2, None)
    assert attention(desk, "no_engine") is None
    follow(desk, desk.http.post(f"/api/jobs/{job_id}/pause", json={"reason": "film night"}))
    assert desk.get("/api/dashboard")["job"]["draining"] == {"left": 2, "of": 2}
    songs.gate.set()
    desk.until(job_id, "paused")
    entry = attention(desk, "job_paused")
    assert (entry["level"], entry["subject"]) == ("info", f"job:{job_id}")
    assert desk.get(f"/api/dashboard?job={other}")["job"]["id"] == other
    problem(desk.http.get("/api/dashboard?job=77"), 404, "not_found")


def _pool(desk: Desk, name: str) -> Any:
    return next((pool for pool in desk.get("/api/dashboard")["pools"] if pool["name"] == name), None)


def _busy(desk: Desk, name: str) -> int:
    pool = _pool(desk, name)
    return 0 if pool is None else pool["busy"]


def test_the_minutes_of_a_run_become_charts_and_a_rate(desk: Desk, songs: Songs) -> None:
    finished(desk, songs)

    def counted() -> Any:
        found = [each for each in desk.get("/api/dashboard")["charts"]["series"] if each["service"] == "download"]
        return found and sum(found[0]["outcomes"]["succeeded"]) == 5 and found[0]

    line = wait_until(counted, "five downloads in the minutes")
    assert sum(line["outcomes"]["failed"]) == 1
    assert [share for share in line["p95"] if share is not None]
    (failed,) = desk.get("/api/dashboard")["exceptions"]
    assert (failed["error_code"], failed["stage"]) == ("forbidden", "download")


def test_a_full_disk_asks_for_another_folder(desk: Desk) -> None:
    job_id = desk.start()["id"]

    def pause(tx: Tx) -> None:
        pause_job(tx, job_id, "disk_full: The library has 3 bytes free.", "service")

    desk.store.write("pause", pause)
    entry = attention(desk, "disk_full")
    assert (entry["level"], entry["subject"]) == ("error", f"job:{job_id}")
    assert entry["says"] == f"Job {job_id} is paused: The library has 3 bytes free."
    (fix,) = entry["fixes"]
    assert (fix["path"], fix["asks"]) == (f"/api/jobs/{job_id}/resume", ["LIBRARY_ROOT"])
    answer = desk.http.post(fix["path"], json={"overrides": {"LIBRARY_ROOT": "/mnt/bigger"}})
    assert answer.json()["payload"] == {"overrides": {"LIBRARY_ROOT": "/mnt/bigger"}}


def test_a_process_that_gives_no_sign_is_pointed_at(desk: Desk) -> None:
    heart = Heart(desk.store, "attic", {}, 60, lambda: None)
    heart.register({})

    def die(tx: Tx) -> None:
        gone = tx.hot.database_now(tx) - timedelta(minutes=5)
        tx.conn.execute(sa.update(processes).where(processes.c.id == heart.process_id).values(lease_until=gone))

    desk.store.write("die", die)
    entry = attention(desk, "process_stale")
    assert entry["data"]["node"] == "attic"
    assert [each["alive"] for each in desk.get("/api/dashboard")["processes"]] == [False]


def test_a_disk_that_is_nearly_full_is_said(store: Store, consoles: Callable[..., Desk], tmp_path: Path) -> None:
    desk = consoles(store, library_root=tmp_path, min_free_space=2**60)
    entry = attention(desk, "disk_soon_full")
    assert (entry["level"], entry["data"]["root"]) == ("warn", str(tmp_path))
    storage = desk.get("/api/dashboard")["storage"]
    assert storage["free"] > 0
    assert storage["growth"] is None


# --- items ----------------------------------------------------------------------------------------


def test_an_item_is_opened_with_its_attempts_and_their_logs(desk: Desk, songs: Songs) -> None:
    finished(desk, songs)
    (failed,) = desk.get("/api/items?q=state:failed")["items"]
    follow(desk, desk.http.post(f"/api/job-items/{failed['id']}/retry"))
    wait_until(
        lambda: (
            len(desk.get(f"/api/job-items/{failed['id']}")["attempts"]) == 2
            and desk.get(f"/api/job-items/{failed['id']}")["item"]["status"] == "failed"
        ),
        "a second attempt",
    )
    found = desk.get(f"/api/job-items/{failed['id']}")
    states = [moment["state"] for moment in found["timeline"]]
    assert states == ["claimed", "running", "failed", "pending", "claimed", "running", "failed"]
    assert [attempt["ended"] for attempt in found["attempts"]] == ["failed", "failed"]
    assert found["attempts"][0]["says"] == "The source says 403: not for you."
    assert all(moment["seconds"] is not None for moment in found["timeline"][:-1])
    assert found["explanation"]["first_closed"]["code"] == "finished"
    assert found["force_retry"] == "Downloads it, whatever is there."
    problem(desk.http.get("/api/job-items/7777"), 404, "not_found")


def test_items_of_all_jobs_are_found_and_paged(desk: Desk, songs: Songs) -> None:
    finished(desk, songs)
    finished(desk, songs)
    seen, cursor = [], ""
    while True:
        page = desk.get(f"/api/items?q=state:succeeded&limit=4{cursor}")
        seen += [(item["job_id"], item["key"]) for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(seen) == len(set(seen)) == 10
    assert seen == sorted(seen, reverse=True)
    facets = desk.get("/api/facets?q=job:1")
    assert {each["value"]: each["count"] for each in facets["state"]} == {"succeeded": 5, "failed": 1}
    assert "Did you mean" in problem(desk.http.get("/api/items?q=stage:download%20sate:failed"), 422, "query_invalid")
    problem(desk.http.get("/api/items?cursor=x"), 422, "input_invalid")


def test_parameters_say_the_same_as_a_query(desk: Desk, songs: Songs) -> None:
    first, second = finished(desk, songs), finished(desk, songs)
    for name in ("state", "status"):
        assert [item["key"] for item in desk.get(f"/api/jobs/{first}/items?{name}=failed")["items"]] == ["demo:5"]
        assert {item["status"] for item in desk.get(f"/api/items?{name}=failed,skipped")["items"]} == {"failed"}
        assert len(desk.get(f"/api/jobs?{name}=completed_with_errors")["jobs"]) == 2
        assert desk.get(f"/api/jobs?{name}=queued")["jobs"] == []
        for path in (f"/api/jobs/{first}/items", "/api/items"):
            said = problem(desk.http.get(f"{path}?{name}=faild"), 422, "input_invalid")
            assert 'Did you mean "failed"?' in said
    assert len(desk.get(f"/api/jobs/{first}/items?status=failed&state=succeeded")["items"]) == 6, "either"
    assert len(desk.get(f"/api/items?job={second}&stage=download&status=succeeded")["items"]) == 5
    item = desk.get(f"/api/items?job={second}&status=failed")["items"][0]["id"]

    def write(tx: Tx) -> None:
        lines = [{"at": tx.now, "level": level, "logger": "test", "message": f"{job} {level}", "job_id": job,
                  "item_id": item if job == second else None}
                 for job in (first, second) for level in ("info", "error")]  # fmt: skip
        tx.conn.execute(sa.insert(logs_table), lines)

    desk.store.write("logs", write)
    for asked, found in (
        (f"job={first}", [f"{first} error", f"{first} info"]),
        (f"job={first}&level=error", [f"{first} error"]),
        ("level=error,warn", [f"{second} error", f"{first} error"]),
        (f"item={item}&level=info", [f"{second} info"]),
    ):
        lines = desk.get(f"/api/logs?{asked}")["logs"]
        assert [line["message"] for line in lines if line["logger"] == "test"] == found, asked
    for asked in (f"job={second}", f"item={item}"):
        events = desk.get(f"/api/events?{asked}&limit=500")["events"]
        assert events
        assert all(event["job_id"] == second for event in events), asked
    assert {event["item_id"] for event in desk.get(f"/api/jobs/{second}/events?item={item}")["events"]} == {item}
    assert 'Did you mean "error"?' in problem(desk.http.get("/api/logs?level=eror"), 422, "input_invalid")


def test_a_parameter_that_nobody_knows_is_refused(desk: Desk) -> None:
    desk.start()
    for path, meant in (
        ("jobs?stauts=queued", "status"),
        ("jobs/1/items?states=failed", "state"),
        ("logs?levels=error", "level"),
        ("exceptions?limits=3", "limit"),
        ("songs?playlists=3", "playlist"),
        ("schedules/preview?cron=@daily&timezone=UTC", "time_zone"),
    ):
        said = problem(desk.http.get(f"/api/{path}"), 422, "input_invalid")
        assert "There is no parameter" in said
        assert f'Did you mean "{meant}"?' in said, path
    problem(desk.http.post("/api/jobs/1/cancel?reason=x"), 422, "input_invalid")
    problem(desk.http.get("/api/jobs?%00=x"), 422, "input_invalid")
    assert desk.get("/api/jobs/1?mine=x")["id"] == 1
    assert desk.get("/api/commands")["commands"] == []
    for path in ("v1/export/ready?size=1&since=x", "v1/parse/requests?page=2"):
        assert desk.http.get(f"/api/{path}").status_code == 200, path


def test_every_parameter_that_is_documented_is_known(desk: Desk) -> None:
    paths = desk.get("/api/openapi.json")["paths"]
    for path, operations in paths.items():
        for parameter in operations.get("get", {}).get("parameters", ()):
            if parameter["in"] == "query" and path != "/api/events/stream":
                place = path.replace("{what}", "job").replace("{source}", "kodik")
                answer = desk.http.get(re.sub(r"{\w+}", "1", place), params={parameter["name"]: ""})
                assert "There is no parameter" not in answer.text, (path, parameter["name"])


# --- logs, events, search -------------------------------------------------------------------------


def test_logs_and_events_are_found(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    kinds = [event["type"] for event in desk.get(f"/api/jobs/{job_id}/events?q=kind:job_*")["events"]]
    assert kinds == ["job_completed_with_errors", "job_running", "job_submitted"]
    assert desk.get("/api/events?q=kind:job_submitted")["events"][0]["job_id"] == job_id
    logs = desk.get(f"/api/logs?q=job:{job_id}%20level:info")
    assert set(logs["levels"]) == {"debug", "info", "warn", "error"}
    problem(desk.http.get("/api/jobs/77/events"), 404, "not_found")
    problem(desk.http.get("/api/logs?q=levle:info"), 422, "query_invalid")


def test_one_box_finds_jobs_songs_and_items(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)

    def song(tx: Tx) -> None:
        row = {"platform": "demo", "remote_id": "1", "title": "晴天", "artist": "周杰伦", "album": "", "snapshot": None}
        tx.conn.execute(sa.insert(songs_table).values(**row, created_at=tx.now, updated_at=tx.now))

    desk.store.write("song", song)
    assert [hit["name"] for hit in desk.get("/api/search?q=晴")["songs"]] == ["晴天"]
    assert [job["id"] for job in desk.get(f"/api/search?q={job_id}")["jobs"]] == [job_id]
    assert [job["id"] for job in desk.get("/api/search?q=77")["jobs"]] == []
    assert [item["key"] for item in desk.get("/api/search?q=demo:5")["items"]] == ["demo:5"]
    assert desk.get("/api/search?q=403")["partial"] == []
    problem(desk.http.get("/api/search?q="), 422, "input_invalid")


# --- the rest -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["job/1", "stage/1", "stage/1/download", "item/1", "service/download"])
def test_everything_can_be_explained(desk: Desk, songs: Songs, target: str) -> None:
    finished(desk, songs)
    found = desk.get(f"/api/explain/{target}")
    assert found["what"] == target.partition("/")[0]
    assert found["answer"]
    assert [gate["code"] for gate in found["gates"]]


def test_what_cannot_be_explained_is_said(desk: Desk) -> None:
    problem(desk.http.get("/api/explain/job/77"), 404, "not_found")
    problem(desk.http.get("/api/explain/job/x"), 422, "input_invalid")
    problem(desk.http.get("/api/explain/song/1"), 422, "input_invalid")


def test_workflows_have_versions_steps_and_runs(desk: Desk, songs: Songs) -> None:
    job_id = finished(desk, songs)
    names = {each["name"]: each for each in desk.get("/api/workflows")["workflows"]}
    assert (names["download"]["versions"], names["full"]["versions"]) == ([1], [])
    assert [step["key"] for step in names["full"]["steps"]] == ["collect", "sync", "download", "upload"]
    assert [run["id"] for run in desk.get("/api/workflows/download")["runs"]] == [job_id]
    assert 'Did you mean "download"?' in problem(desk.http.get("/api/workflows/downlod"), 404, "workflow_unknown")


def test_artifacts_are_paged_newest_first(desk: Desk) -> None:
    def add(tx: Tx) -> None:
        for number in range(1, 4):
            row = {"job_id": 1, "stage_id": 1, "item_id": number, "kind": "output", "key": f"{number}.flac"}
            more = {"size_bytes": 5, "checksum": "sha256:0", "created_at": tx.now}
            tx.conn.execute(sa.insert(artifacts).values(**row, **more))

    desk.store.write("artifacts", add)
    first = desk.get("/api/artifacts?limit=2")
    assert [each["key"] for each in first["artifacts"]] == ["3.flac", "2.flac"]
    rest = desk.get(f"/api/artifacts?limit=2&cursor={first['next_cursor']}")
    assert ([each["key"] for each in rest["artifacts"]], rest["next_cursor"]) == (["1.flac"], None)
    assert [each["item_id"] for each in desk.get("/api/artifacts?item=2")["artifacts"]] == [2]


def test_the_system_tells_its_loops_its_database_and_who_holds_old_rows(desk: Desk, songs: Songs, backend: str) -> None:
    def ticked() -> Any:
        found = desk.get("/api/system")
        loops = {loop["name"]: loop for process in found["processes"] for loop in process["loops"]}
        return loops.get("heart") and found

    found = wait_until(ticked, "a heartbeat")
    assert found["migrations"]["current"]
    assert found["migrations"]["missing"] == []
    database = found["database"]
    assert database["size"] > 0
    if backend == "sqlite":
        assert (database["kind"], database["holders"], type(database["slow"])) == ("sqlite", [], list)
    else:
        assert database["kind"] == "postgresql"
        assert "items" in {table["name"] for table in database["tables"]}


def test_an_old_transaction_is_named_as_holding_old_rows(
    store: Store, consoles: Callable[..., Desk], backend: str
) -> None:
    if backend == "sqlite":
        pytest.skip("SQLite keeps old rows for nobody")
    desk = consoles(store)

    def look(tx: Tx) -> Any:
        tx.conn.execute(sa.select(processes))
        return desk.get("/api/system")["database"]["holders"]

    holders = store.read(look)
    assert any(holder["what"] == "session" and "idle in transaction" in (holder["doing"] or "") for holder in holders)
