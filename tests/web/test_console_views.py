"""Views: filters that a reader keeps under a name, and how dense the pages are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dalsegno import Store
from dalsegno.web.console.views import LARGEST, kept, with_view, written
from tests.web.conftest import Desk
from tests.web.console import check_page, get

FAILED = "/jobs?q=state%3Afailed+template%3Afull"


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    """The frame does not depend on the database."""
    return stores(sqlite_url)


def keep(desk: Desk, name: str, shown: str) -> None:
    path, _, query = shown.partition("?")
    answer = desk.http.get(f"{path}/views", params={"name": name, "query": query})
    assert (answer.status_code, answer.headers["location"]) == (303, shown)


def test_a_filter_is_kept_under_a_name_and_found_again(desk: Desk) -> None:
    assert "Filter the list, then keep" in check_page(desk, "/jobs").by_id("views").text
    assert check_page(desk, FAILED).all("form", action="/jobs/views")
    keep(desk, "夜间失败", FAILED)
    keep(desk, "mine", "/jobs?q=by%3Acli")
    page = check_page(desk, FAILED)
    names = {link.text: link.attributes for link in page.all("a") if link.text in ("夜间失败", "mine")}
    assert names["夜间失败"]["href"] == FAILED
    assert [name for name, attributes in names.items() if "aria-current" in attributes] == ["夜间失败"]
    assert "夜间失败" not in get(desk, "/songs").by_id("views").text, "each page has its own"


def test_a_view_is_forgotten_by_its_own_button(desk: Desk) -> None:
    keep(desk, "a&b", FAILED)
    (forget,) = [a for a in get(desk, FAILED).all("a") if a.attributes["href"].startswith("/jobs/views?forget=")]
    assert desk.http.get(forget.attributes["href"]).headers["location"] == FAILED
    assert "a&b" not in get(desk, FAILED).by_id("views").text


def test_the_tabs_of_one_job_keep_none(desk: Desk) -> None:
    job = desk.start()["id"]
    assert not [e for e in get(desk, f"/jobs/{job}?tab=logs").elements if e.attributes.get("id") == "views"]


@pytest.mark.parametrize("page", ["//evil.example", "/\\\\evil.example"])
def test_no_view_leads_elsewhere(desk: Desk, page: str) -> None:
    answer = desk.http.get(f"{desk.url}{page}/views", params={"name": "x", "query": "q=1"})
    assert answer.headers["location"] == "/?q=1"


def test_what_somebody_else_put_into_the_cookie_is_nothing() -> None:
    for broken in ("", "x", "é", "W10x", "bnVsbA==", "WzFd"):
        assert kept({"views_jobs": broken}, "/jobs") == {}


def test_the_oldest_views_make_room_for_new_ones() -> None:
    views: dict[str, str] = {}
    for number in range(40):
        views = with_view(views, f"歌曲 {number}", f"q={'x' * 200}{number}")
        assert len(written(views)) <= LARGEST
    assert next(iter(views)) == "歌曲 39"
    assert kept({"views_songs": written(views)}, "/songs") == views
    assert with_view(views, "huge", f"q={'x' * 9000}") == views


def test_a_density_is_kept(desk: Desk) -> None:
    assert get(desk, "/").all("html")[0].attributes["data-density"] == "comfortable"
    desk.http.get("/preferences", params={"density": "compact"})
    assert get(desk, "/").all("html")[0].attributes["data-density"] == "compact"
    desk.http.get("/preferences", params={"density": "tiny"})
    assert get(desk, "/").all("html")[0].attributes["data-density"] == "compact"
