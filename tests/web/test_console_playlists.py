"""The playlist pools: how playlists stand and why, in both languages, and jobs about many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from dalsegno import Store
from dalsegno.catalog.judgement import Numbers, PlaylistStatus, PoolNumbers, judge, judge_pool
from dalsegno.catalog.preview import StagePreview
from dalsegno.catalog.schema import playlists
from dalsegno.web.api.plan import Stop
from dalsegno.web.console.i18n import texts
from dalsegno.web.console.planning import basis, stops
from dalsegno.web.console.standing import because
from dalsegno.web.console.words import Words
from tests.catalog.shelves import Shelves
from tests.helpers import wait_until
from tests.web.conftest import Desk
from tests.web.console import CHINESE, Page, check_page, get

ENGLISH_WORDS, CHINESE_WORDS = Words(texts("en")), Words(texts("zh-CN"))


@pytest.fixture
def stocked(store: Store) -> dict[str, int]:
    """Two pools, three playlists: complete, lacking a song, never synced."""
    made = Shelves(store)
    charts, radio = made.pool("Charts <1>"), made.pool("Radio")
    there, lacking = made.song("Rain", artist="The <b>Clocks"), made.song("Snow")
    made.download(there)
    return {
        "amber": made.playlist("Amber <i>", there, pools=(charts,)),
        "blue": made.playlist("Blue", there, lacking, pools=(charts, radio)),
        "dark": made.playlist("Dark", synced_at=None, platform="other"),
        "there": there,
    }


def rows(page: Page) -> list[str]:
    return [each.attributes["id"] for each in page.all("tr") if each.attributes.get("id", "").startswith("row-")]


def test_the_page_and_its_regions_in_both_languages(desk: Desk, stocked: dict[str, int]) -> None:
    page = check_page(desk, "/playlists")
    assert rows(page) == [f"row-{stocked[name]}" for name in ("amber", "blue", "dark")]
    assert "1 of 2 not downloaded yet" in page.by_id(f"row-{stocked['blue']}").text
    assert "Charts <1>" in page.by_id("pool-list").text
    chinese = get(desk, "/playlists", CHINESE)
    for status in ("已完成", "未完成", "进行中", "异常"):
        assert status in chinese.by_id("facets").text
    assert "2 首中 1 首尚未下载" in chinese.by_id(f"row-{stocked['blue']}").text


def test_without_playlists_the_page_says_what_to_do(desk: Desk) -> None:
    page = check_page(desk, "/playlists")
    assert "No pools yet" in page.by_id("pools").text
    assert page.all("a", href="/jobs/new?template=collect")


@pytest.mark.parametrize(
    ("query", "found"),
    [("status:complete", ["amber"]), ('pool:"Charts <1>" -status:complete', ["blue"]), ("source:other", ["dark"])],
)
def test_the_address_is_the_filter(desk: Desk, stocked: dict[str, int], query: str, found: list[str]) -> None:
    page = check_page(desk, "/playlists?" + urlencode({"q": query}))
    assert rows(page) == [f"row-{stocked[name]}" for name in found]
    assert page.by_id("q").attributes["value"] == query


def test_a_filter_that_cannot_be_read_says_where_and_what_was_meant(desk: Desk, stocked: dict[str, int]) -> None:
    page = get(desk, "/playlists?q=stats:error")
    assert "status" in page.by_id("q-error").text
    assert rows(page) == []


def test_one_playlist_with_its_songs(desk: Desk, stocked: dict[str, int]) -> None:
    page = check_page(desk, f"/playlists/{stocked['blue']}")
    assert "Rain" in page.by_id(f"row-{stocked['there']}").text
    get(desk, "/playlists/999", status=404)


def test_a_status_that_changes_is_seen(desk: Desk, stocked: dict[str, int]) -> None:
    assert "complete" in get(desk, "/playlists").by_id(f"row-{stocked['amber']}").text
    Shelves(desk.store).change(playlists, stocked["amber"], synced_at=None)
    # Its line is judged anew for every reader; the counts of all follow with the next look.
    assert "never synced" in get(desk, "/playlists").by_id(f"row-{stocked['amber']}").text
    wait_until(
        lambda: not rows(get(desk, "/playlists?q=status:complete")), "the count of all playlists to be made again"
    )


# --- plans and jobs ---------------------------------------------------------------------------------


def test_ticked_playlists_get_a_plan_and_then_a_job(desk: Desk, stocked: dict[str, int]) -> None:
    ticked = [("template", "download"), ("id", stocked["amber"]), ("id", stocked["blue"])]
    page = check_page(desk, "/playlists/plan?" + urlencode(ticked))
    assert "2 playlists" in page.all("h1")[0].text
    assert "Snow" in page.by_id("plan-download").text
    assert not desk.get("/api/jobs")["jobs"], "looking starts nothing"
    answer = desk.http.post("/playlists/start", data={"template": "download", "id": [str(id) for _, id in ticked[1:]]})
    job_id = int(answer.headers["location"].rpartition("/")[2])
    assert answer.status_code == 303
    job = desk.get(f"/api/jobs/{job_id}")
    assert job["scope"]["playlists"] == sorted([stocked["amber"], stocked["blue"]])
    assert job["requested_by"].startswith("console@")


def test_all_that_match_are_what_the_job_is_about(desk: Desk, stocked: dict[str, int]) -> None:
    page = get(desk, "/playlists/plan?" + urlencode({"template": "sync", "all": "1", "q": "-status:complete"}))
    assert "2 playlists" in page.all("h1")[0].text
    answer = desk.http.post("/playlists/start", data={"template": "sync", "all": "1", "q": "-status:complete"})
    job_id = int(answer.headers["location"].rpartition("/")[2])
    assert desk.get(f"/api/jobs/{job_id}")["scope"]["playlists"] == sorted([stocked["blue"], stocked["dark"]])


@pytest.mark.parametrize(
    "form",
    [{"template": "sync"}, {"template": "format-disk", "id": "1"}, {"template": "sync", "all": "1", "q": "nowhere"},
     {"template": "sync", "id": "1", "priority": "soon"}],
)  # fmt: skip
def test_a_plan_about_nothing_is_refused(desk: Desk, stocked: dict[str, int], form: dict[str, str]) -> None:
    answer = desk.http.post("/playlists/start", data=form)
    assert answer.status_code == 422
    assert not desk.get("/api/jobs")["jobs"]


def test_a_read_only_console_offers_nothing_to_do(store: Store, consoles: Callable[..., Desk]) -> None:
    made = Shelves(store)
    number = made.playlist("Amber", made.song())
    desk = consoles(store, console_read_only=True)
    page = get(desk, "/playlists")
    assert not [each for each in page.elements if "data-tick" in each.attributes]
    assert not page.all("details", id="all-menu")
    assert not get(desk, f"/playlists/plan?template=sync&id={number}").all("form", id="start")


# --- every because and every part of a plan has its words -------------------------------------------

STANDINGS = [
    Numbers(sync_error="timeout", failed=3, codes=["a", "b", "c", "d"], songs=3),
    Numbers(syncing=True, downloading=1, uploading=2, pausing=3, songs=9),
    Numbers(sync_pausing=True),
    Numbers(synced=False, songs=4, downloaded=2, uploaded=1, uploads=True, gone=1),
    Numbers(waiting=2, songs=1, downloaded=1, missing=True),
    Numbers(sync_waiting=True),
    Numbers(),
    Numbers(songs=2, downloaded=2, uploaded=2, uploads=True),
    Numbers(songs=3, downloaded=2, gone=1),
    Numbers(songs=3, downloaded=2, uploaded=2, uploads=True, gone=1),
]
COUNTS = dict.fromkeys(PlaylistStatus, 0)
POOLS = [
    PoolNumbers(counts={**COUNTS, PlaylistStatus.ERROR: 2}, collected=True, missing=True, collecting=False, error="x"),
    PoolNumbers(
        counts={**COUNTS, PlaylistStatus.ACTIVE: 1}, collected=True, missing=False, collecting=True, error=None
    ),
    PoolNumbers(
        counts={**COUNTS, PlaylistStatus.INCOMPLETE: 1}, collected=False, missing=False, collecting=False, error=None
    ),
    PoolNumbers(
        counts={**COUNTS, PlaylistStatus.COMPLETE: 2}, collected=True, missing=False, collecting=False, error=None
    ),
    PoolNumbers(counts=COUNTS, collected=True, missing=False, collecting=False, error=None),
]


@pytest.mark.parametrize("reasons", [judge(each)[1] for each in STANDINGS] + [judge_pool(each)[1] for each in POOLS])
def test_every_reason_is_said_in_chinese(reasons: Any) -> None:
    for reason in reasons:
        said = because(CHINESE_WORDS, [reason])
        assert said != reason.says, f"{reason.code} is said in English"
        assert any("一" <= sign <= "鿿" for sign in said), said
    assert because(ENGLISH_WORDS, reasons)


@pytest.mark.parametrize(
    "stop",
    [
        Stop(kind="hold", name="everything", says="Everything is held."),
        Stop(kind="hold", name="download", says="Service download is held."),
        Stop(kind="lane", name="catalog", says="Job 7 is before it in lane catalog, which takes one at a time."),
        Stop(
            kind="lane",
            name="catalog",
            says="Job 7 and 3 more are before it in lane catalog, which takes one at a time.",
        ),
        Stop(
            kind="scope", name="scope", says='No playlist is named "Rain". It fails unless an earlier stage brings it.'
        ),
        Stop(kind="breaker", name="source:qq", says="source:qq is stopped."),
        Stop(kind="limit", name="source:qq", says="source:qq is 0: nothing begins."),
        Stop(kind="limit", name="source:qq", says="source:qq has no room right now."),
        Stop(kind="no_worker", name="upload", says="No live process offers upload."),
        Stop(kind="disk", name="/music", says="About 3 GB would be downloaded."),
    ],
)
def test_every_stop_is_said_in_chinese(stop: Stop) -> None:
    assert any("一" <= sign <= "鿿" for sign in stops(CHINESE_WORDS, stop))
    assert stops(ENGLISH_WORDS, stop)


def test_what_a_plan_is_based_on_is_said_in_chinese() -> None:
    told = "the songs that are known; a sync may add some; 6.2 MB each, as the newest files have"
    stage = StagePreview("download", 3, 1, 2, 12_400_000, True, told, [])
    assert basis(ENGLISH_WORDS, stage) == told
    assert basis(CHINESE_WORDS, stage) == "已知的歌曲；同步可能新增一些；按最新文件估计，每首 6.2 MB"  # noqa: RUF001
