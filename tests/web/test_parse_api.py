"""The API of parse requests over real HTTP: every status of its contract, and races."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store, submit
from dalsegno.catalog.find import matching
from dalsegno.engine.item import Item
from dalsegno.engine.service import Service, service
from dalsegno.model.outcome import Fail
from dalsegno.requests.body import DECODE, body_of
from dalsegno.requests.schema import parse_requests, request_counts
from dalsegno.requests.workflow import DECODE as DECODER
from dalsegno.requests.workflow import SEARCH
from dalsegno.settings import Settings
from dalsegno.store.schema import jobs
from tests.helpers import SWIFT, events_of, every, one_step, wait_until
from tests.web.conftest import Desk

PATH = "/api/v1/parse/requests"
VIEW = {
    "id", "requestHash", "status", "phase", "progressDecoded", "progressTotal", "resultContentIds", "errorMessage",
    "retryCount", "createdAt", "startedAt", "finishedAt", "lastHeartbeatAt",
}  # fmt: skip


class Parser:
    """A search that waits to be told, and a decoder of three variants of which one may be broken."""

    def __init__(self) -> None:
        self.found, self.decoded = threading.Event(), threading.Event()
        self.broken: set[str] = set()
        self.lost = False
        self.services = [self._search(), self._decode()]

    def _search(self) -> Service:
        @service(SEARCH, workers=2)
        def search(item: Item) -> Any:
            assert self.found.wait(60)
            return Fail("Nothing was found.", code="nothing_found") if self.lost else {}

        return search

    def _decode(self) -> Service:
        @service(DECODER, workers=2)
        def decode(item: Item) -> Any:
            assert self.decoded.wait(60)
            return Fail("There is no video on this page.", code="no_video") if item.key in self.broken else {}

        @decode.plan
        def plan(_: Any) -> Iterator[str]:
            yield from ("variant:1", "variant:2", "variant:3")

        return decode


@pytest.fixture
def parser(store: Store) -> Iterator[Parser]:
    made = Parser()
    with Engine(store, made.services, replace(SWIFT, find=matching)):
        try:
            yield made
        finally:
            made.found.set()
            made.decoded.set()


def ask(desk: Desk, status: int = 201, headers: dict[str, str] | None = None, **body: Any) -> Any:
    answer = desk.http.post(PATH, json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def until(desk: Desk, number: int, **wanted: Any) -> Any:
    def look() -> Any:
        found = desk.get(f"{PATH}/{number}")
        return found if all(found[name] == value for name, value in wanted.items()) else None

    return wait_until(look, f"request {number} to be {wanted}")


def count(desk: Desk, status: str | None = None) -> int:
    answer = desk.http.get(PATH, params={"limit": 0, **({"status": status} if status else {})})
    assert answer.status_code == 200, answer.text
    assert answer.json() == []
    return int(answer.headers["X-Total-Count"])


def problem(answer: httpx.Response, status: int, code: str) -> Any:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["code"] == code
    assert answer.json()["detail"]
    return answer.json()


# --- submit -----------------------------------------------------------------------------------------


def test_a_new_request_is_created_and_the_same_again_is_found(desk: Desk) -> None:
    answer = desk.http.post(PATH, json={"title": "Naruto", "imdbId": "tt0409591"}, headers={"X-Created-By": "shelf"})
    assert answer.status_code == 201
    first = answer.json()
    assert set(first) == VIEW
    assert first["requestHash"] == body_of({"title": "Naruto", "imdbId": "tt0409591"}).hash
    assert (first["status"], first["phase"], first["resultContentIds"]) == ("PENDING", "QUEUED", [])
    assert (first["progressDecoded"], first["progressTotal"], first["retryCount"]) == (0, 0, 0)
    assert answer.headers["Location"] == f"{PATH}/{first['id']}"
    assert desk.get(answer.headers["Location"]) == first

    again = desk.http.post(PATH, content=b'{"imdbId":" tt0409591 ", "title": "  NARUTO ", "kinopoiskId": null}')
    assert again.status_code == 200
    assert again.json() == first
    assert again.headers["Location"] == answer.headers["Location"]
    (row,) = every(desk.store, sa.select(parse_requests))
    assert (row["hits"], row["created_by"], row["body"]["title"]) == (1, "shelf", "Naruto")
    (told,) = events_of(desk.store, job_id=first["id"], type="job_submitted_again")
    assert told["source"] == "api@127.0.0.1"
    assert ask(desk, title="Naruto", imdbId="tt0409591", decodeLinks=True)["id"] != first["id"]


def test_who_asked_is_kept_in_any_script(desk: Desk) -> None:
    for number, said in enumerate(("полка", "书架".encode(), b"caf\xe9")):
        headers = {"X-Created-By": said.encode() if isinstance(said, str) else said}
        assert desk.http.post(PATH, json={"title": f"a {number}"}, headers=headers).status_code == 201
    rows = every(desk.store, sa.select(parse_requests.c.created_by).order_by(parse_requests.c.job_id))
    assert [row["created_by"] for row in rows] == ["полка", "书架", "café"]
    long = desk.http.post(PATH, json={"title": "b"}, headers={"X-Created-By": "x" * 201})
    problem(long, 400, "request_invalid")


@pytest.mark.parametrize("rounds", [6, pytest.param(50, marks=pytest.mark.long)])
def test_of_many_that_ask_at_once_one_creates_and_all_hear_of_it(desk: Desk, rounds: int) -> None:
    crowd = 64
    spelling = [
        {"title": "One  Piece"},
        {"title": "one piece", "imdbId": ""},
        {"imdbId": None, "title": " ONE PIECE\t"},
    ]
    together = threading.Barrier(crowd)
    limits = httpx.Limits(max_connections=crowd, max_keepalive_connections=crowd)
    with httpx.Client(base_url=desk.url, timeout=60, limits=limits) as client, ThreadPoolExecutor(crowd) as pool:

        def post(number: int) -> tuple[int, int]:
            together.wait(60)
            answer = client.post(PATH, json={**spelling[number % 3], DECODE: True})
            return answer.status_code, answer.json()["id"]

        seen: set[int] = set()
        for _ in range(rounds):
            answers = list(pool.map(post, range(crowd)))
            assert sorted(status for status, _ in answers) == [200] * (crowd - 1) + [201]
            (number,) = {number for _, number in answers}
            assert number not in seen  # a finished one does not block a new one
            seen.add(number)
            active = sa.select(jobs.c.id).where(jobs.c.finished_at.is_(None))
            assert [row["id"] for row in every(desk.store, active)] == [number]
            assert count(desk, "PENDING") == 1
            _finish(desk.store, number)
    assert count(desk) == count(desk, "DONE") == rounds


def _finish(store: Store, number: int) -> None:
    done = sa.update(jobs).where(jobs.c.id == number)
    store.write("test", lambda tx: tx.conn.execute(done.values(status="completed", finished_at=tx.now)))


def test_a_client_may_have_so_many_and_no_more(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, requests_per_client_max=2)
    shelf = {"X-Created-By": "shelf"}
    first = ask(desk, title="a", headers=shelf)
    ask(desk, title="b", headers=shelf)
    refused = desk.http.post(PATH, json={"title": "c"}, headers=shelf)
    assert "shelf" in problem(refused, 429, "too_many_requests")["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    ask(desk, title="A", headers=shelf, status=200)  # what is there already is no new one
    ask(desk, title="c", headers={"X-Created-By": "attic"})
    _finish(store, first["id"])
    ask(desk, title="d", headers=shelf)
    for title in ("e", "f"):
        ask(desk, title=title)
    problem(desk.http.post(PATH, json={"title": "g"}), 429, "too_many_requests")
    assert count(desk) == 6


def test_a_cap_holds_when_many_ask_at_once(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, requests_per_client_max=5)
    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(lambda n: desk.http.post(PATH, json={"title": f"t{n}"}).status_code, range(32)))
    assert sorted(said) == [201] * 5 + [429] * 27


# --- keys -------------------------------------------------------------------------------------------


KEY = "a-key-of-some-length"


def test_no_key_is_asked_for_where_none_is_configured(desk: Desk) -> None:
    ask(desk, title="a", headers={"X-API-KEY": "whatever"})


def test_a_key_that_is_easily_guessed_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 characters"):
        Settings(_env_file=None, requests_api_key="short")


def test_where_there_is_a_key_it_is_needed_for_everything_of_this_api(
    store: Store, consoles: Callable[..., Desk]
) -> None:
    desk = consoles(store, requests_api_key=KEY)
    for headers in ({}, {"X-API-KEY": "wrong"}, {"X-API-KEY": KEY + "x"}, {"X-API-KEY": ""}):
        for method, path in (("POST", PATH), ("GET", PATH), ("GET", f"{PATH}/1"), ("POST", f"{PATH}/1/cancel")):
            answer = desk.http.request(method, path, headers=headers, json={"title": "a"} if method == "POST" else None)
            problem(answer, 401, "api_key_needed")
            assert KEY not in answer.text
    assert every(store, sa.select(parse_requests)) == []
    ask(desk, title="a", headers={"X-API-KEY": KEY})
    desk.get("/api/jobs")  # it is no key to anything else, which has none


def test_the_key_is_enough_for_programs_where_people_have_a_password(
    store: Store, consoles: Callable[..., Desk]
) -> None:
    password = "winter-river-2"
    desk = consoles(store, requests_api_key=KEY, console_password=password)
    key = {"X-API-KEY": KEY}
    ask(desk, title="a", headers=key)
    problem(desk.http.get("/api/jobs", headers=key), 401, "login_needed")
    problem(desk.http.get(PATH), 401, "login_needed")
    problem(desk.http.get(PATH, headers={"X-API-KEY": "wrong"}), 401, "api_key_needed")
    assert desk.http.get(PATH, auth=("console", password)).status_code == 200
    for path in ("/api/v1/../jobs", "/api/v1/%2e%2e/jobs", "/api/v1"):
        assert desk.http.get(path, headers=key).status_code in (401, 404)


def test_a_page_of_another_site_cannot_submit(desk: Desk) -> None:
    answer = desk.http.post(PATH, json={"title": "a"}, headers={"Origin": "http://elsewhere.test"})
    problem(answer, 403, "origin_refused")


# --- lists ------------------------------------------------------------------------------------------


def test_a_list_has_pages_a_total_and_a_filter(desk: Desk) -> None:
    numbers = [ask(desk, title=f"t{number}")["id"] for number in range(7)]
    _finish(desk.store, numbers[2])
    answer = desk.http.get(PATH, params={"limit": 3, "offset": 1})
    assert [each["id"] for each in answer.json()] == numbers[::-1][1:4]
    assert answer.headers["X-Total-Count"] == "7"
    assert set(answer.json()[0]) == VIEW
    done = desk.http.get(PATH, params={"status": "DONE"})
    assert [each["id"] for each in done.json()] == [numbers[2]]
    assert done.headers["X-Total-Count"] == "1"
    assert (count(desk), count(desk, "PENDING"), count(desk, "FAILED")) == (7, 6, 0)
    assert desk.get(f"{PATH}?offset=100") == []


def test_a_page_is_as_long_as_the_settings_say(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, requests_default_page_limit=2, requests_max_page_limit=4)
    for number in range(6):
        ask(desk, title=f"t{number}")
    assert [len(desk.get(PATH + query)) for query in ("", "?limit=3", "?limit=1000000", "?limit=0")] == [2, 3, 4, 0]


@pytest.mark.parametrize(
    "query",
    ["limit=-1", "limit=x", "limit=1.5", "offset=-1", "offset=99999999999999999999", "status=NEW", "status=pending"],
)
def test_a_wrong_question_is_answered_with_400(desk: Desk, query: str) -> None:
    problem(desk.http.get(f"{PATH}?{query}"), 400, "request_invalid")


def test_what_is_not_a_request_is_not_found(desk: Desk) -> None:
    other = submit(desk.store, one_step(), items=["a"]).job_id
    for number in (other, other + 1, 2**63 - 1):
        for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/retry")):
            problem(desk.http.request(method, f"{PATH}/{number}{path}"), 404, "not_found")
    problem(desk.http.get(f"{PATH}/0"), 400, "request_invalid")
    problem(desk.http.get(f"{PATH}/x"), 400, "request_invalid")


# --- its life ---------------------------------------------------------------------------------------


def test_a_request_goes_through_its_phases(desk: Desk, parser: Parser) -> None:
    number = ask(desk, title="a", decodeLinks=True)["id"]
    searching = until(desk, number, status="RUNNING", phase="SEARCHING")
    assert searching["startedAt"]
    assert searching["lastHeartbeatAt"] >= searching["startedAt"]
    assert (count(desk, "PENDING"), count(desk, "RUNNING")) == (0, 1)
    parser.found.set()
    until(desk, number, status="RUNNING", phase="DECODING", progressTotal=3)
    parser.decoded.set()
    done = until(desk, number, status="DONE", phase="DONE")
    assert (done["progressDecoded"], done["progressTotal"], done["errorMessage"]) == (3, 3, None)
    assert done["finishedAt"] >= done["startedAt"] >= done["createdAt"]
    assert (count(desk, "RUNNING"), count(desk, "DONE")) == (0, 1)


def test_one_that_found_nothing_failed_and_can_be_tried_again(desk: Desk, parser: Parser) -> None:
    parser.lost = True
    parser.found.set()
    number = ask(desk, title="a")["id"]
    failed = until(desk, number, status="FAILED", phase="FAILED")
    assert failed["errorMessage"] == "Nothing was found."
    parser.lost = False
    parser.decoded.set()
    answer = desk.http.post(f"{PATH}/{number}/retry", json={"requested_by": "shelf"})
    assert answer.status_code == 202, answer.text
    assert desk.get(answer.headers["Location"])["type"] == "bulk_retry"
    assert until(desk, number, status="DONE")["errorMessage"] is None
    assert (count(desk), count(desk, "FAILED"), count(desk, "DONE")) == (1, 0, 1)


def test_one_that_is_over_cannot_be_tried_again_beside_its_twin(desk: Desk, parser: Parser) -> None:
    parser.lost = True
    parser.found.set()
    number = ask(desk, title="a")["id"]
    until(desk, number, status="FAILED")
    parser.found.clear()
    twin = ask(desk, title="A")["id"]
    assert twin != number
    refused = problem(desk.http.post(f"{PATH}/{number}/retry"), 409, "twin_active")
    assert refused["twin"] == twin
    assert str(twin) in refused["detail"]
    assert desk.get(f"{PATH}/{number}")["status"] == "FAILED"


def test_variants_that_failed_are_told_of_and_tried_again_alone(desk: Desk, parser: Parser) -> None:
    parser.broken.add("variant:2")
    parser.found.set()
    parser.decoded.set()
    number = ask(desk, title="a", decodeLinks=True)["id"]
    done = until(desk, number, status="DONE")
    assert (done["progressDecoded"], done["progressTotal"]) == (2, 3)
    assert done["errorMessage"] == "There is no video on this page."
    parser.broken.clear()
    desk.post(f"{PATH}/{number}/retry")
    until(desk, number, status="DONE", progressDecoded=3, errorMessage=None)
    refused = problem(desk.http.post(f"{PATH}/{number}/retry"), 409, "command_refused")
    assert "submit it again" in refused["detail"]


def test_a_request_is_canceled_once(desk: Desk, parser: Parser) -> None:
    number = ask(desk, title="a")["id"]
    until(desk, number, phase="SEARCHING")
    canceling = desk.post(f"{PATH}/{number}/cancel", {"requested_by": "shelf"})
    command = f"/api/commands/{canceling['id']}"
    wait_until(lambda: desk.get(command)["status"] == "applied", "the cancel to be applied")
    parser.found.set()
    gone = until(desk, number, status="FAILED", phase="FAILED")
    assert gone["errorMessage"] == "It was canceled."
    problem(desk.http.post(f"{PATH}/{number}/cancel"), 409, "command_refused")
    problem(desk.http.post(f"{PATH}/{number}/retry"), 409, "command_refused")
    assert ask(desk, title="a")["id"] != number
    problem(desk.http.post(f"{PATH}/{number}/cancel", json={"by": "x"}), 400, "request_invalid")


def test_no_more_requests_are_worked_on_than_the_settings_say(
    store: Store, consoles: Callable[..., Desk], parser: Parser
) -> None:
    desk = consoles(store, requests_active_max=2, requests_max_retries=7)
    numbers = [ask(desk, title=f"t{number}")["id"] for number in range(3)]
    for number in numbers[:2]:
        until(desk, number, phase="SEARCHING")
    assert (count(desk, "RUNNING"), count(desk, "PENDING")) == (2, 1)
    tries = every(store, sa.text("SELECT max_attempts AS most FROM stages"))
    assert {row["most"] for row in tries} == {7}
    parser.found.set()
    parser.decoded.set()
    for number in numbers:
        until(desk, number, status="DONE")


# --- counts ---------------------------------------------------------------------------------------


def test_the_counts_are_those_of_the_rows_whatever_happened(desk: Desk, parser: Parser) -> None:
    numbers = [ask(desk, title=f"t{number}")["id"] for number in range(4)]
    parser.found.set()
    parser.decoded.set()
    for number in numbers:
        until(desk, number, status="DONE")
    state = sa.select(parse_requests.c.state, sa.func.count().label("n")).group_by(parse_requests.c.state)
    assert {row["state"]: row["n"] for row in every(desk.store, state)} == {"DONE": 4}
    desk.store.write("test", lambda tx: tx.conn.execute(sa.delete(parse_requests)))
    sums = sa.select(*(sa.func.sum(column).label(column.name) for column in list(request_counts.c)[1:]))
    assert set(dict(every(desk.store, sums)[0]).values()) == {0}
