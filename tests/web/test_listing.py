"""An upstream's own list, passed on: page by page, within its limits, and with a warning where it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dalsegno import Store
from dalsegno.engine.limits import set_limit
from dalsegno.model.limit import Limit
from tests.requests.upstream import TOKEN, Kodik, kodik
from tests.web.conftest import Desk


@pytest.fixture
def upstream() -> Iterator[Kodik]:
    with kodik() as running:
        for number in range(5):
            running.film(f"Film {number}")
        yield running


@pytest.fixture
def listed(store: Store, upstream: Kodik, consoles: Callable[..., Desk]) -> Desk:
    return consoles(store, **upstream.settings)


def test_pages_are_turned_by_what_the_answer_says(listed: Desk, upstream: Kodik) -> None:
    first = listed.http.get("/api/v1/kodik/list", params={"limit": 3, "types": "foreign-movie", "with_seasons": "true"})
    assert first.status_code == 200, first.text
    assert "Warning" not in first.headers
    page = first.json()
    assert (len(page["results"]), page["total"], page["prevPage"]) == (3, 5, None)
    assert TOKEN not in first.text
    rest = listed.http.get("/api/v1/kodik/list", params={"limit": 3, "next_page": page["nextPage"]}).json()
    assert (len(rest["results"]), rest["nextPage"]) == (2, None)
    asked, again = upstream.asked
    assert (asked["types"], asked["with_seasons"], asked["token"]) == ("foreign-movie", "true", TOKEN)
    assert again["next"] == "3"


def test_a_token_of_somebody_else_is_not_passed_on(listed: Desk, upstream: Kodik) -> None:
    params = {"token": "mine", "Token": "mine", "next_page": "token=mine&next=1"}
    assert listed.http.get("/api/v1/kodik/list", params=params).status_code == 200
    (asked,) = upstream.asked
    assert asked["token"] == TOKEN
    assert "mine" not in str(asked)


@pytest.mark.parametrize(
    ("more", "words"),
    [({"shiny": 1}, "unknown field 'shiny' in the answer"), ({"results": None}, "results are missing"),
     ({"results": {"a": 1}}, "results are no list"), ({"results": [3]}, "a result is a number"),
     ({"results": [{"id": "x", "type": [], "title": "t", "link": "l"}]}, "result.type is a list"),
     ({"total": "many"}, "answer.total is a text"), ({"next_page": 7}, "next_page is no address")],
)  # fmt: skip
def test_a_shape_that_has_changed_is_a_warning(listed: Desk, upstream: Kodik, more: dict, words: str) -> None:  # type: ignore[type-arg]
    upstream.more = more
    answer = listed.http.get("/api/v1/kodik/list")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Warning"].startswith('199 dalsegno "kodik: ')
    assert words in answer.headers["Warning"]


def test_names_that_no_header_takes_are_told_all_the_same(listed: Desk, upstream: Kodik) -> None:
    upstream.more = {'на\r\nX: "1"' * 20: 1}
    answer = listed.http.get("/api/v1/kodik/list")
    assert answer.status_code == 200
    assert "X" not in answer.headers
    assert len(answer.headers["Warning"]) < 1100


def test_an_upstream_that_is_not_there(consoles: Callable[..., Desk], store: Store, upstream: Kodik) -> None:
    desk = consoles(store)
    assert "KODIK_URL" in desk.get("/api/v1/kodik/list", 404)["detail"]
    assert desk.get("/api/v1/nobody/list", 404)["code"] == "upstream_unknown"


@pytest.mark.parametrize("status", [400, 404, 500])
def test_an_upstream_that_fails_is_told_as_such(listed: Desk, upstream: Kodik, status: int) -> None:
    upstream.hook = lambda path, count: (status, {}, b"no")
    assert listed.get("/api/v1/kodik/list", 502)["code"] == "upstream_failed"


def test_a_busy_upstream_is_left_alone_until_its_time_has_come(listed: Desk, upstream: Kodik) -> None:
    upstream.hook = lambda path, count: (429, {"Retry-After": "100"}, b"") if count == 1 else None
    assert listed.get("/api/v1/kodik/list", 502)["code"] == "upstream_failed"
    answer = listed.http.get("/api/v1/kodik/list")
    assert (answer.status_code, answer.json()["code"]) == (503, "upstream_busy")
    assert 90 < int(answer.headers["Retry-After"]) <= 101
    assert upstream.calls["/list"] == 1


def test_its_limit_holds_here_too(listed: Desk, upstream: Kodik, store: Store) -> None:
    store.write("limit", lambda tx: set_limit(tx, "search:kodik", Limit(rate=2, window=100.0), "test"))
    assert [listed.http.get("/api/v1/kodik/list").status_code for _ in range(3)] == [200, 200, 503]
    assert upstream.calls["/list"] == 2
