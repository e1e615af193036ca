"""The synchronous twin: the same request, and somebody who waits for it, or not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dalsegno import Engine, Store
from dalsegno.requests.services import request_services
from dalsegno.settings import Settings
from tests.helpers import SWIFT, wait_until
from tests.requests.upstream import Kodik, kodik
from tests.web.conftest import Desk


@pytest.fixture
def upstream() -> Iterator[Kodik]:
    with kodik() as running:
        yield running


@pytest.fixture
def served(store: Store, upstream: Kodik, consoles: Callable[..., Desk]) -> Iterator[Desk]:
    """A console and an engine that search at the scripted upstream."""
    settings = Settings(_env_file=None, **upstream.settings)
    desk = consoles(store, **upstream.settings)
    with Engine(store, request_services(store, settings), SWIFT):
        yield desk


def test_what_is_found_is_the_answer(served: Desk, upstream: Kodik) -> None:
    upstream.serial(episodes=2, translations=1)
    answer = served.http.post("/api/v1/parse/search", json={"title": "Long Serial"})
    assert answer.status_code == 200, answer.text
    (content,) = answer.json()
    (season,) = content["seasons"]
    assert (content["title"], season["seasonNumber"]) == ("Long Serial", 1)
    assert [each["episodeNumber"] for each in season["episodes"]] == [1, 2]
    assert season["episodes"][0]["variants"][0]["mp4Link"] is None, "nothing was to be decoded"
    assert served.get(answer.headers["Location"])["status"] == "DONE"


def test_with_decoding_the_links_are_there(served: Desk, upstream: Kodik) -> None:
    upstream.film("Film")
    (content,) = served.post("/api/v1/parse/search", {"title": "film", "decodeLinks": True}, 200)
    (variant,) = content["seasons"][0]["episodes"][0]["variants"]
    assert variant["mp4Link"].endswith("/media/film/Film.mp4")


def test_a_failure_says_why(served: Desk, upstream: Kodik) -> None:
    upstream.more = {"results": "gone with the wind"}
    problem = served.post("/api/v1/parse/search", {"title": "film"}, 502)
    assert problem["code"] == "parse_failed"
    assert "shape" in problem["detail"]


@pytest.mark.parametrize("body", [{}, {"title": " "}, {"title": 3}, [], {"titel": "x"}])
def test_a_bad_body_is_refused(served: Desk, body: Any) -> None:
    assert served.post("/api/v1/parse/search", body, 400)["code"] == "request_invalid"


def test_where_nobody_works_the_request_is_the_answer(desk: Desk) -> None:
    answer = desk.http.post("/api/v1/parse/search", json={"title": "film"})
    assert answer.status_code == 202, answer.text
    assert answer.json() == desk.get(answer.headers["Location"])
    assert answer.json()["status"] == "PENDING"


def test_who_goes_away_stops_waiting_and_not_the_work(served: Desk, upstream: Kodik) -> None:
    upstream.film("Film")
    upstream.open.clear()
    listening = len(served.store._listeners)
    host, _, port = served.url.removeprefix("http://").partition(":")
    body = b'{"title": "film", "decodeLinks": true}'
    with socket.create_connection((host, int(port))) as wire:
        head = f"POST /api/v1/parse/search HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        wire.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert upstream.waiting.acquire(timeout=30)
        assert len(served.store._listeners) == listening + 1
    wait_until(lambda: len(served.store._listeners) == listening, "nobody to wait any more")
    upstream.open.set()

    def done() -> Any:
        (request,) = served.get("/api/v1/parse/requests")
        return request if request["status"] == "DONE" else None

    request = wait_until(done, "the request to be carried out")
    assert (request["progressDecoded"], request["progressTotal"]) == (1, 1)


def test_two_who_ask_for_the_same_wait_for_the_same(served: Desk, upstream: Kodik) -> None:
    import threading

    upstream.film("Film")
    upstream.open.clear()
    answers: list[Any] = []

    def ask(title: str) -> None:
        answers.append(served.http.post("/api/v1/parse/search", json={"title": title, "decodeLinks": True}))

    waiting = [threading.Thread(target=ask, args=(title,)) for title in ("film", " FILM ")]
    for each in waiting:
        each.start()
    wait_until(lambda: served.http.get("/api/v1/parse/requests").headers["X-Total-Count"] == "1", "one request")
    assert upstream.waiting.acquire(timeout=30)
    upstream.open.set()
    for each in waiting:
        each.join()
    assert len({answer.headers["Location"] for answer in answers}) == 1
    assert answers[0].json() == answers[1].json()
    assert set(upstream.decoded().values()) == {1}
