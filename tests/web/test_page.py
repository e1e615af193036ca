"""The live page: rendered by the server, usable without scripts, and safe whatever songs are called."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from dalsegno import Store
from dalsegno.catalog.templates import TITLES
from dalsegno.engine.holds import hold
from dalsegno.web.api.models import Stage
from dalsegno.web.words import percent, rate, segments, share, size, span
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs

INLINE = re.compile(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|javascript:", re.IGNORECASE)


def page(desk: Desk, path: str = "/", status: int = 200) -> str:
    answer = desk.http.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert not INLINE.search(answer.text), "nothing that the policy would have to allow"
    ids = re.findall(r'\sid="([^"]+)"', answer.text)
    assert len(ids) == len(set(ids)), "an id names one thing"
    return answer.text


def test_an_empty_house_says_what_to_do(desk: Desk) -> None:
    text = page(desk)
    assert "Nothing has been run yet" in text
    assert "No engine is at work" in text
    for key, title in TITLES.items():
        assert f'<option value="{key}">{title}' in text


def test_what_the_page_needs_is_here(desk: Desk) -> None:
    for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', page(desk)):
        assert desk.http.get(path).status_code == 200
    assert "http://" not in page(desk)
    assert "https://" not in page(desk)


def test_a_job_is_started_paused_and_resumed_by_plain_forms(desk: Desk, songs: Songs) -> None:
    started = desk.http.post(
        "/jobs", data={"template": "download-upload", "query": "晴天"}, headers={"origin": desk.url}
    )
    assert (started.status_code, started.headers["location"]) == (303, "/?job=1")
    assert desk.get("/api/jobs/1")["scope"]["query"] == "晴天"
    assert desk.get("/api/jobs/1")["requested_by"] == "console"
    wait_until(lambda: "500 B of 1.0 kB" in page(desk), "a worker to be seen")
    text = page(desk)
    assert "下载+上传" in text
    assert 'action="/jobs/1/pause"' in text

    assert desk.http.post("/jobs/1/pause").headers["location"] == "/?job=1"
    assert desk.get("/api/jobs/1")["status"] == "pause_requested", "a form waits until its command was applied"
    assert "2 still running" in page(desk)
    songs.gate.set()
    desk.until(1, "paused")
    text = page(desk)
    assert 'action="/jobs/1/resume"' in text
    assert "paused by an operator (by console)" in text
    assert 'name="library_root"' not in text

    assert desk.http.post("/jobs/1/resume", data={"library_root": " /mnt/bigger "}).status_code == 303
    ended = desk.until(1, "completed_with_errors")
    assert ended["overrides"] == {"LIBRARY_ROOT": "/mnt/bigger"}
    text = page(desk)
    assert "The source says 403: not for you." in text
    assert ">forbidden<" in text
    assert "<form" in text
    assert "/pause" not in text


def test_what_a_form_could_not_do_is_said_on_the_page(desk: Desk, songs: Songs) -> None:
    answer = desk.http.post("/jobs", data={"template": "<b>fulll</b>"})
    assert answer.status_code == 422
    assert "There is no template &#34;&lt;b&gt;fulll" in answer.text
    assert desk.http.post("/jobs/77/pause").status_code == 404
    songs.gate.set()
    job_id = desk.start()["id"]
    desk.until(job_id, "completed_with_errors")
    answer = desk.http.post(f"/jobs/{job_id}/pause")
    assert answer.status_code == 422
    assert "cannot be paused" in answer.text


def test_a_job_that_is_not_there_leaves_the_page_standing(desk: Desk) -> None:
    assert "There is no job 77." in page(desk, "/?job=77", 404)


def test_an_older_job_has_an_address(desk: Desk) -> None:
    for template in ("sync", "collect"):
        desk.start(template=template)
    assert "job #2" in page(desk, "/?job=2")
    assert 'href="/?job=1"' in page(desk, "/?job=2")


def test_names_from_outside_stay_text(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store)
    desk.start(requested_by="<script>alert(1)</script>")
    assert "&lt;script&gt;alert(1)" in page(desk)


def test_what_is_held_is_said(desk: Desk) -> None:
    desk.store.write("test", lambda tx: hold(tx, "lane:catalog", "film night", "nas"))
    assert "film night (by nas)" in page(desk)
    assert "dalsegno resume --lane catalog" in page(desk)


def test_the_board_alone_is_the_part_that_changes(desk: Desk) -> None:
    text = page(desk, "/board")
    assert text.lstrip().startswith('<div id="board"')
    assert text.strip() in page(desk)


# --- how values look ------------------------------------------------------------------------------


def stage(expected: int | None = None, **counts: int) -> Stage:
    names = ("pending", "claimed", "running", "succeeded", "failed", "skipped", "interrupted", "canceled")
    full = {name: counts.get(name, 0) for name in names}
    fields: dict[str, Any] = dict.fromkeys(Stage.model_fields)
    fields |= {"id": 1, "key": "a", "service": "a", "status": "running", "done": 0, "fraction": 0.0}
    return Stage(**{**fields, "expected": expected, "counts": {"total": sum(full.values()), **full}})


@pytest.mark.parametrize(
    "of",
    [
        stage(),
        stage(expected=10, succeeded=3, failed=1),
        stage(succeeded=1_000_000, failed=1),
        stage(succeeded=1, failed=1, skipped=1, interrupted=1, canceled=1, running=1),
    ],
)
def test_a_bar_shows_every_kind_and_never_more_than_all(of: Stage) -> None:
    parts = segments(of)
    assert {name for name, _, _ in parts} == {
        "done" if name == "succeeded" else name
        for name, count in of.counts.items()
        if count and name not in ("total", "pending", "claimed")
    }
    end = 0
    for _, x, width in parts:
        assert (x, width > 0) == (end, True)
        end += width
    assert end <= 1000


def test_values_read_as_people_say_them() -> None:
    assert [size(each) for each in (None, 0, 999, 1500, 2_500_000)] == ["", "0 B", "999 B", "1.5 kB", "2.5 MB"]
    assert [rate(each) for each in (None, 0, 3, 0.5)] == ["", "", "3.0/s", "30.0/min"]
    assert [span(each) for each in (None, 4.4, 65, 3700, 200_000)] == ["", "4 s", "1 min 05 s", "1 h 01 min", "2 d 7 h"]
    assert [percent(each) for each in (None, 0.999, 1.0)] == ["", "99 %", "100 %"]
    assert [share(5, None), share(500, 1500), share(1200, 1500)] == ["5 B", "500 B of 1.5 kB", "1.2 of 1.5 kB"]
