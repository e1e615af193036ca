"""The catalog over HTTP, after a real run of the demo: pools, playlists, songs, what was considered, plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import Store
from tests.web.conftest import Desk
from tests.web.test_api_acts import problem
from tests.web.test_openapi import demo


@pytest.fixture
def shop(store: Store, consoles: Callable[..., Desk], tmp_path: Path) -> Iterator[Desk]:
    with demo(store, tmp_path) as own:
        yield consoles(store, **own)


def stages(plan: Any) -> dict[str, Any]:
    return {stage["service"]: stage for stage in plan["stages"]}


def test_the_catalog_is_told_and_planned(shop: Desk) -> None:
    _pools_and_playlists(shop)
    _songs(shop)
    _drawer(shop)
    _plans(shop)
    _numbers(shop)


def _pools_and_playlists(desk: Desk) -> None:
    pools = desk.get("/api/pools")["pools"]
    assert {pool["name"] for pool in pools} == {"Charts", "排行榜", "Radio"}
    everything = desk.get("/api/playlists?limit=100")["playlists"]
    assert len(everything) == 12
    seen, cursor = [], ""
    while True:
        page = desk.get(f"/api/playlists?limit=5{cursor}")
        seen += [each["id"] for each in page["playlists"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [each["id"] for each in everything]
    wrong = desk.get("/api/playlists?status=error")
    assert {each["status"] for each in wrong["playlists"]} == {"error"}
    assert desk.get("/api/playlists?q=status:error")["total"] == wrong["total"] == len(wrong["playlists"])
    assert desk.get("/api/playlists?q=platform:nobody")["playlists"] == []
    assert 'Did you mean "status"?' in problem(desk.http.get("/api/playlists?q=statu:error"), 422, "query_invalid")
    problem(desk.http.get("/api/playlists?status=broken"), 422, "input_invalid")
    one = desk.get(f"/api/playlists/{everything[0]['id']}")
    assert len(one["songs"]) == one["playlist"]["song_count"] > 0
    problem(desk.http.get("/api/playlists/7777"), 404, "not_found")


def _songs(desk: Desk) -> None:
    page = desk.get("/api/songs?limit=500")
    assert (len(page["songs"]), page["next_cursor"]) == (120, None)
    there = [song for song in page["songs"] if song["downloaded_at"]]
    assert len(desk.get("/api/songs?limit=500&downloaded=true")["songs"]) == len(there) > 100
    assert all("clock" in f"{song['title']}{song['artist']}{song['album']}".lower()
               for song in desk.get("/api/songs?q=clock")["songs"])  # fmt: skip
    left = desk.get("/api/songs?limit=500&q=status:left")["songs"]
    assert {song["id"] for song in left} == {song["id"] for song in page["songs"]} - {song["id"] for song in there}
    assert len(desk.get("/api/songs?limit=500&q=source:demo%20status:downloaded")["songs"]) == len(there)
    inside = [song["id"] for song in desk.get("/api/playlists/1")["songs"]]
    assert [song["id"] for song in desk.get("/api/songs?limit=500&q=playlist:1")["songs"]] == sorted(inside)
    assert desk.get("/api/songs?q=playlist:1%20-source:demo")["songs"] == []
    assert 'Did you mean "source"?' in problem(desk.http.get("/api/songs?q=sourc:demo"), 422, "query_invalid")
    (asked,) = [each for each in desk.get("/api/openapi.json")["paths"]["/api/songs"]["get"]["parameters"]
                if each["name"] == "q"]  # fmt: skip
    assert "`playlist:`" in asked["description"]
    song = desk.get(f"/api/songs/{there[0]['id']}")
    assert {copy["kind"] for copy in song["copies"]} == {"library", "file"}
    assert len(song["sha256"]) == 64
    problem(desk.http.get("/api/songs/7777"), 404, "not_found")


def _drawer(desk: Desk) -> None:
    gone = desk.get("/api/items?q=error:song_gone")["items"][0]
    assert gone["name"]
    found = desk.get(f"/api/job-items/{gone['id']}")
    assert {each["verdict"] for each in found["candidates"]} == {"rejected"}
    assert found["candidates"][0]["reason"].startswith("gone:")
    assert (found["song"]["downloaded"], found["song"]["sha256"]) == (False, None)
    done = desk.get("/api/items?q=state:succeeded%20stage:download&limit=1")["items"][0]
    found = desk.get(f"/api/job-items/{done['id']}")
    assert found["force_retry"].startswith("Downloads ")
    assert "keeps the old file" in found["force_retry"]
    assert len(found["song"]["copies"]) == 2


def _plans(desk: Desk) -> None:
    full = desk.post("/api/plan", {"template": "全链路"}, 200)
    found = stages(full)
    assert list(found) == ["collect", "sync", "download", "upload"]
    assert (found["collect"]["items"], found["sync"]["items"], found["download"]["items"]) == (3, 12, 120)
    assert found["download"]["left"] == 120 - found["download"]["done"] > 0
    assert found["download"]["bytes"] > 0
    assert found["download"]["estimated"]
    assert found["download"]["first"]
    assert {stop["kind"] for stop in full["stops"]} == {"no_worker"}
    assert full["snapshot"]["DOWNLOAD_SOURCES"] == ["demo"]
    song = desk.get("/api/songs?downloaded=true&limit=1")["songs"][0]["id"]
    one = stages(desk.post("/api/plan", {"template": "download-upload", "scope": {"songs": [song]}}, 200))
    assert [(stage["items"], stage["done"], stage["left"]) for stage in one.values()] == [(1, 1, 0), (1, 1, 0)]
    part = stages(desk.post("/api/plan", {"template": "upload", "scope": {"playlists": [1]}}, 200))["upload"]
    assert (part["items"], part["left"], part["estimated"]) == (part["done"], 0, False)
    desk.post("/api/pause", {"lane": "catalog", "reason": "film night"}, 200)
    desk.post("/api/breakers/source:demo/trip", {"reason": "they asked us to stop"}, 200)
    kinds = {stop["kind"] for stop in desk.post("/api/plan", {"template": "sync"}, 200)["stops"]}
    assert kinds == {"hold", "breaker", "no_worker"}
    problem(desk.http.post("/api/plan", json={"template": "fulll"}), 422, "workflow_unknown")
    problem(desk.http.post("/api/plan", json={"template": "full", "scope": {"song": []}}), 422, "input_invalid")
    assert [job["template"] for job in desk.get("/api/jobs")["jobs"]].count("full") == 1


def _numbers(desk: Desk) -> None:
    board = desk.get("/api/dashboard")
    catalog, storage = board["catalog"], board["storage"]
    assert (catalog["playlists"], catalog["songs"]) == (12, 120)
    assert catalog["uploaded"] == catalog["downloaded"] > 100
    assert storage["growth"]["files"] > 100
    assert storage["days_to_full"] > 0
    assert {hit["platform"] for hit in desk.get("/api/search?q=Clock")["songs"]} == {"demo"}
