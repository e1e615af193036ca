"""The frame around every page: languages, themes, regions, everything's pause, budgets."""

from __future__ import annotations

import gzip
import hashlib
import re
import runpy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.templates import TITLES
from dalsegno.errors import DalSegnoError
from dalsegno.web.app import STATIC
from dalsegno.web.console.i18n import texts
from dalsegno.web.console.meanings import MEANINGS
from dalsegno.web.console.words import Words, percent, segments, size, tally
from tests.web.conftest import Desk
from tests.web.console import Page, check_page, get, look_at

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    """The frame does not depend on the database."""
    return stores(sqlite_url)


# --- languages --------------------------------------------------------------------------------------


def test_every_text_is_said_in_every_language_and_none_in_vain() -> None:
    faults = runpy.run_path(str(ROOT / "scripts" / "texts.py"))["faults"]
    assert faults() == []


def test_chinese_has_the_words_of_the_specification() -> None:
    words = Words(texts("zh-CN"))
    assert {key: words.template(key) for key in TITLES} == TITLES
    assert [words.word(status) for status in ("incomplete", "active", "complete", "error")] == [
        "未完成", "进行中", "已完成", "异常",
    ]  # fmt: skip
    assert words.word("running") == "进行中"


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("fr", "en"),
        ("zh", "zh-CN"),
        ("zh-TW,zh;q=0.9", "zh-CN"),
        ("fr, en;q=0.3, zh-CN;q=0.8", "zh-CN"),
        ("en-GB,zh;q=0.9", "en"),
        ("en; q=0.4, zh; q=0.6", "zh-CN"),
        ("ZH-CN ; Q=1, en;q=0.9", "zh-CN"),
        ("zh;q=0, fr", "en"),
        ("zh;q=x,en", "en"),
        (";;q=,,", "en"),
    ],
)
def test_the_browser_s_wish_is_heard(desk: Desk, header: str, language: str) -> None:
    assert get(desk, "/", header).all("html")[0].attributes["lang"] == language


def test_a_choice_is_kept_and_leads_back_to_the_same_address(desk: Desk) -> None:
    answer = desk.http.get("/preferences", params={"language": "zh-CN", "back": "/jobs?q=state%3Afailed"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?q=state%3Afailed")
    assert get(desk, "/", "en").all("html")[0].attributes["lang"] == "zh-CN"
    links = [link.attributes["href"] for link in get(desk, "/?job=3").all("a", lang="en")]
    assert links == ["/preferences?language=en&back=/%3Fjob%3D3"]


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:1", "/a\nb", ""]
)
def test_no_choice_leads_elsewhere(desk: Desk, back: str) -> None:
    answer = desk.http.get("/preferences", params={"theme": "dark", "back": back})
    assert answer.headers["location"] == "/"


def test_the_operator_s_language_is_everybody_s_who_chose_none(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, language="zh-CN")
    page = get(desk, "/", "en")
    assert page.all("html")[0].attributes["lang"] == "zh-CN"
    (switch,) = page.all("a", hreflang="en")
    desk.http.get(switch.attributes["href"])
    assert get(desk, "/", "zh-CN").all("html")[0].attributes["lang"] == "en"


def test_a_theme_is_kept(desk: Desk) -> None:
    assert get(desk, "/").all("html")[0].attributes["data-theme"] == "auto"
    desk.http.get("/preferences", params={"theme": "dark"})
    assert get(desk, "/").all("html")[0].attributes["data-theme"] == "dark"
    desk.http.get("/preferences", params={"theme": "pink"})
    assert get(desk, "/").all("html")[0].attributes["data-theme"] == "dark"


# --- regions, errors --------------------------------------------------------------------------------


def test_several_regions_come_in_one_answer(desk: Desk) -> None:
    page = get(desk, "/?fragment=attention,frame_state,queue")
    assert [element.attributes["id"] for element in page.elements if "data-live" in element.attributes] == [
        "attention", "frame-state", "queue",
    ]  # fmt: skip
    assert page.all("html") == []


@pytest.mark.parametrize("path", ["/?fragment=nothing", "/explain/job/77", "/explain/nothing/1"])
def test_what_is_not_there_is_said_on_a_page(desk: Desk, path: str) -> None:
    answer = desk.http.get(path)
    assert answer.status_code in (404, 422)
    assert "Dal Segno" in answer.text
    assert "</main>" in answer.text


def test_an_address_that_means_nothing_is_a_page_too(desk: Desk) -> None:
    assert "</main>" in desk.http.get("/?job=x").text


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/static/nothing.js", 404),
        ("GET", "/pause", 405),
        ("GET", "/jobs/many", 422),
        ("POST", "/jobs", 403),
    ],
)
def test_browsers_get_a_page_with_a_way_back_and_programs_problem_details(
    store: Store, consoles: Callable[..., Desk], method: str, path: str, status: int
) -> None:
    desk = consoles(store, console_read_only=True)
    for language in ("en", "zh-CN"):
        answer = desk.http.request(method, path, headers={**BROWSER, "accept-language": language})
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html")
        page = Page(answer.text)
        look_at(page, path)
        (title,) = page.all("h1")
        assert title.text.isascii() == (language == "en")
        assert page.all("a", href="/")
    if status != 422:  # pages of ours always answer with pages
        assert desk.http.request(method, path).headers["content-type"] == "application/problem+json"
    answer = desk.http.request(method, f"/api{path}", headers=BROWSER)
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_nobody_expected_is_a_page_too(desk: Desk) -> None:
    desk.store.write("break it", lambda tx: tx.conn.execute(sa.text("ALTER TABLE jobs RENAME TO gone")))
    answer = desk.http.get("/jobs", headers=BROWSER)
    assert answer.status_code == 500
    assert len(Page(answer.text).all("h1")) == 1


def test_every_code_is_explained() -> None:
    """Those of our own errors, and those that services give items."""
    own = {each.code for each in _below(DalSegnoError)} - {"error"}
    given = set()
    for room in ("catalog", "requests", "sources", "objects", "engine", "model"):
        for file in (ROOT / "src" / "dalsegno" / room).rglob("*.py"):
            given |= set(re.findall(r"""(?:\bcode(?:: str)? ?= ?|\bNotAudio\()"([a-z_]+)\"""", file.read_text()))
    assert sorted((own | given) - MEANINGS.keys()) == []


def _below(kind: type[DalSegnoError]) -> list[type[DalSegnoError]]:
    return [each for child in kind.__subclasses__() for each in (child, *_below(child))]


# --- everything's pause -------------------------------------------------------------------------------


def test_everything_is_held_and_goes_on_from_any_page(desk: Desk) -> None:
    answer = desk.http.post("/pause", data={"back": "/?job=1"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?job=1")
    page = get(desk, "/")
    assert "Everything is held." in page.by_id("flash").text
    assert "Resume all" in page.by_id("frame-state").text
    assert page.by_id("attention-everything").attributes["class"].startswith("notice")
    assert "held" not in get(desk, "/").by_id("flash").text, "it is said once"
    desk.http.post("/resume")
    assert "Pause all" in get(desk, "/").by_id("frame-state").text


def test_everything_is_held_with_why_and_until_when(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    options = [each.attributes["value"] for each in get(desk, "/").all("option")]
    assert options == ["", "1h", "2h", "4h", "08:00"]
    for path in ("/", "/jobs", "/songs"):
        (summary,) = [each for each in get(desk, path).all("summary") if "Pause all" in each.text]
        assert summary.attributes["data-key"] == "p"
    for path in ("/config", "/logs", "/config?fragment=frame_state"):
        (summary,) = [each for each in get(desk, path).all("summary") if "Pause all" in each.text]
        assert "data-key" not in summary.attributes, "no key pauses everything where the page is about one thing"
    for until in ("1h", "08:00"):
        before = datetime.now(UTC)
        desk.http.post("/pause", data={"reason": "film night", "until": until})
        (hold,) = desk.get("/api/holds")["holds"]
        end = datetime.fromisoformat(hold["until"])
        assert hold["reason"] == "film night"
        assert before < end <= before + timedelta(hours=1 if until == "1h" else 24, minutes=5)
        assert until == "1h" or end.astimezone(ZoneInfo("Asia/Shanghai")).strftime("%H:%M") == until
        assert end.strftime("%Y-%m-%d %H:%M") in get(desk, "/config").by_id("frame-state").text
        desk.http.post("/resume")
    answer = desk.http.post("/pause", data={"until": "some day"}, follow_redirects=True)
    assert "Choose from the list" in answer.text
    assert desk.get("/api/holds")["holds"] == []


def test_a_script_is_told_where_to_look(desk: Desk) -> None:
    """It follows a redirect to the page it is on; to another page it must go."""
    for shown, status, header in (("/?job=2", 303, "location"), ("/jobs", 204, "hx-redirect")):
        headers = {"hx-request": "true", "hx-current-url": desk.url + shown}
        answer = desk.http.post("/pause", data={"back": "/?job=1"}, headers=headers)
        assert (answer.status_code, answer.headers[header]) == (status, "/?job=1")


def test_a_console_that_only_shows_offers_nothing_to_press(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, console_read_only=True)
    page = get(desk, "/")
    assert page.all("form", method="post") == []
    assert "read-only" in page.by_id("frame-state").text


# --- what is sent -------------------------------------------------------------------------------------


def test_vendored_files_are_as_published() -> None:
    noted = dict(
        re.findall(
            r"^\| `([^`]+)` .* `([0-9a-f]{64})` \|$", (STATIC / "vendor" / "README.md").read_text(), re.MULTILINE
        )
    )
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (STATIC / "vendor").iterdir()}
    del files["README.md"]
    assert files == noted


def test_our_own_scripts_are_small() -> None:
    own = sum(file.stat().st_size for file in STATIC.glob("*.js"))
    assert own <= 8192


def weight(desk: Desk, path: str) -> tuple[int, bool]:
    """What a first visit brings, gzipped, and whether there is a chart on it."""
    page = get(desk, path)
    wanted = {e.attributes["src"] for e in page.elements if e.tag in ("script", "img")}
    wanted |= {e.attributes["href"] for e in page.all("link")}
    wanted |= {e.attributes["href"].partition("#")[0] for e in page.all("use")}
    parts = [page.source.encode(), *(desk.http.get(address).content for address in wanted)]
    return sum(len(gzip.compress(part)) for part in parts), any("uPlot" in address for address in wanted)


@pytest.mark.parametrize("path", ["/", "/explain/service/download"])
def test_a_page_weighs_little(desk: Desk, path: str) -> None:
    desk.start(template="full")
    bytes, chart = weight(desk, path)
    assert bytes <= (85_000 if chart else 60_000), f"{path}: {bytes}"


def test_pages_of_an_empty_console_say_what_to_do(desk: Desk) -> None:
    page = check_page(desk, "/")
    assert "Nothing has been run yet" in page.by_id("active").text


# --- how values look ----------------------------------------------------------------------------------


def test_values_are_said_as_people_say_them() -> None:
    words = Words(texts("en"))
    assert [words.span(each) for each in (0, 0.25, 59.4, 61, 3700, 200_000)] == [
        "0 s", "250 ms", "59 s", "1 min 01 s", "1 h 01 min", "2 d 7 h",
    ]  # fmt: skip
    assert [words.rate(each) for each in (None, 0.5, 12.34)] == ["", "30.0/min", "12.3/s"]
    assert [size(each) for each in (None, 12, 1234, 5_600_000)] == ["", "12 B", "1.2 kB", "5.6 MB"]
    assert [words.share(*each) for each in ((0, 5), (5_500_000, 5_800_000), (900, 5_800_000), (7, None))] == [
        "", "5.5 of 5.8 MB", "900 B of 5.8 MB", "7 B",
    ]  # fmt: skip
    assert [percent(each) for each in (None, 0.999, 1.0)] == ["", "99 %", "100 %"]


def test_one_failure_among_a_million_is_seen() -> None:
    counts: dict[str, Any] = {"total": 1_000_000, "succeeded": 999_999, "failed": 1}
    parts = segments(counts)
    assert [name for name, _, _ in parts] == ["done", "failed"]
    assert sum(width for _, _, width in parts) == 1000
    assert tally(counts, 1_000_002) == [
        ("done", 999_999, "succeeded"),
        ("failed", 1, "failed"),
        ("left", 2, "pending,claimed"),
    ]
