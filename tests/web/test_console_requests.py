"""The pages of parse requests over real HTTP: the list, one of them, what it found, and the form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store
from dalsegno.catalog.find import matching
from dalsegno.requests.body import body_of
from dalsegno.requests.schema import parse_requests
from dalsegno.requests.services import request_services
from dalsegno.settings import Settings
from dalsegno.store.schema import jobs
from tests.helpers import SWIFT, every, wait_until
from tests.requests.upstream import Kodik, kodik
from tests.web.conftest import Desk
from tests.web.console import CHINESE, ENGLISH, check_page, get

API = "/api/v1/parse/requests"


def ask(desk: Desk, status: int = 201, by: str = "shelf", **body: Any) -> int:
    answer = desk.http.post(API, json=body, headers={"X-Created-By": by})
    assert answer.status_code == status, answer.text
    return int(answer.json()["id"])


def until(desk: Desk, number: int, status: str) -> Any:
    def look() -> Any:
        found = desk.get(f"{API}/{number}")
        return found if found["status"] == status else None

    return wait_until(look, f"request {number} to be {status}")


def post(desk: Desk, path: str, **fields: Any) -> httpx.Response:
    return desk.http.post(path, data=fields, follow_redirects=True)


def flash(answer: httpx.Response) -> str:
    return answer.text.partition('id="flash"')[2].partition("</div>")[0]


@pytest.fixture
def upstream() -> Iterator[Kodik]:
    with kodik() as running:
        yield running


@pytest.fixture
def parser(store: Store, consoles: Callable[..., Desk], upstream: Kodik) -> Iterator[Desk]:
    """A console, and an engine that searches and decodes at a scripted upstream."""
    settings = Settings(_env_file=None, **upstream.settings)
    options = replace(SWIFT, find=matching)
    with Engine(store, request_services(store, settings, lambda: settings), options):
        try:
            yield consoles(store, **upstream.settings)
        finally:
            upstream.open.set()


# --- the list ---------------------------------------------------------------------------------------


def test_where_there_is_none_it_says_how_to_submit_one(desk: Desk) -> None:
    section = check_page(desk, "/requests").by_id("request-list").text
    assert "No parse requests yet" in section
    assert f"{desk.url}/api/v1/parse/requests" in section
    assert "X-API-KEY" not in section
    assert "no search source is configured" in section


def test_what_is_shown_to_be_typed_works_when_it_is_typed(store: Store, consoles: Callable[..., Desk]) -> None:
    key = "a-key-of-some-length"
    desk = consoles(store, requests_api_key=key, kodik_url="http://127.0.0.1:9")
    section = check_page(desk, "/requests").by_id("request-list").text
    assert key not in section
    assert "X-API-KEY" in section
    assert "no search source" not in section
    body = json.loads(section.partition("-d '")[2].partition("'")[0])
    assert desk.http.post(API, json=body, headers={"X-API-KEY": key}).status_code == 201


def test_a_row_says_all_there_is_to_know(desk: Desk) -> None:
    number = ask(desk, title="Naruto <b>", imdbId="tt0409591")
    assert ask(desk, 200, title="naruto <B>", imdbId=" tt0409591 ") == number
    row = check_page(desk, "/requests").by_id(f"row-{number}")
    for text in ("Naruto <b>", f"#{number}", "IMDb tt0409591", "queued", "shelf", "not asked for"):
        assert text in row.text, text
    page = get(desk, "/requests")
    digest = body_of({"title": "naruto <b>", "imdbId": "tt0409591"}).hash
    (shown,) = page.all("code", title=digest)
    assert shown.text == digest  # cut short by the style alone, so that a click copies all of it
    assert every(desk.store, sa.select(parse_requests.c.hits))[0]["hits"] == 1
    assert "排队" in get(desk, "/requests", CHINESE).by_id(f"row-{number}").text


def finish(store: Store, number: int, status: str = "completed") -> None:
    done = sa.update(jobs).where(jobs.c.id == number)
    store.write("test", lambda tx: tx.conn.execute(done.values(status=status, finished_at=tx.now)))


def rows(desk: Desk, q: str = "", cursor: str = "") -> list[int]:
    page = get(desk, f"/requests?q={quote(q)}&cursor={cursor}" if cursor else f"/requests?q={quote(q)}")
    ids = (element.attributes.get("id", "") for element in page.all("tr"))
    return [int(id.removeprefix("row-")) for id in ids if id.startswith("row-")]


def test_chips_and_filters_find_requests(desk: Desk) -> None:
    naruto = ask(desk, title="Наруто", shikimoriId="20")
    bleach = ask(desk, title="Bleach", by="attic")
    film = ask(desk, imdbId="tt0133093", kinopoiskId="301")
    finish(desk.store, bleach)
    finish(desk.store, film, "failed")
    assert rows(desk) == [film, bleach, naruto]
    assert "Kinopoisk 301 #" in get(desk, "/requests").by_id(f"row-{film}").text
    digest = body_of({"title": "bleach"}).hash
    for q, wanted in {
        "state:pending": [naruto], "state:done": [bleach], "state:failed": [film], "state:done,failed": [film, bleach],
        "by:attic": [bleach], "Наруто": [naruto], "tt0133093": [film], f"hash:{digest}": [bleach],
        f"hash:{digest[:7]}": [bleach], f"hash:{digest[:63]}": [bleach], "hits:>0": [],
        f"request:>={bleach}": [film, bleach],
        "-state:done bleach": [], "age:<1h state:pending": [naruto], "retries:0 20": [naruto],
    }.items():  # fmt: skip
        assert rows(desk, q) == wanted, q
    page = check_page(desk, "/requests?q=state:done")
    chips = {chip.text.split()[0]: chip for chip in page.all("a", class_="chip")}
    assert {name: chip.text.split()[1] for name, chip in chips.items()} == {
        "all": "3", "pending": "1", "running": "0", "done": "1", "failed": "1",
    }  # fmt: skip
    assert [name for name, chip in chips.items() if "aria-current" in chip.attributes] == ["done"]
    assert rows(desk, chips["failed"].attributes["href"].partition("q=")[2].replace("%3A", ":")) == [film]
    assert "No request matches" in check_page(desk, "/requests?q=nothing").source
    assert 'aria-invalid="true"' in check_page(desk, "/requests?q=stat:done").source


def test_pages_are_turned_by_key(desk: Desk) -> None:
    numbers = [ask(desk, title=f"t{number}") for number in range(33)][::-1]
    assert rows(desk) == numbers[:30]
    page = check_page(desk, "/requests?q=state:pending")
    (onward,) = page.all("a", rel="next")
    finish(desk.store, numbers[0])
    ask(desk, title="one more")
    assert rows(desk, "state:pending", onward.attributes["href"].rpartition("cursor=")[2]) == numbers[30:]
    assert get(desk, "/requests?cursor=x", status=422)


# --- one of them ------------------------------------------------------------------------------------


def test_a_request_shows_its_phases_contents_and_variants(parser: Desk, upstream: Kodik) -> None:
    upstream.serial(3, 2, title="Long & Serial")
    upstream.hook = lambda path, _: (404, {}, b"") if path == "/media/2/3.mp4" else None
    number = ask(parser, title="Long & Serial", decodeLinks=True)
    until(parser, number, "DONE")
    page = check_page(parser, f"/requests/{number}")
    head = page.by_id("request-head").text
    for text in ("Long & Serial", "completed, with errors", "5 of 6", "queued", "searching", "decoding", "shelf"):
        assert text in head, text
    assert body_of({"title": "long & serial", "decodeLinks": True}).hash in head
    assert '"decodeLinks": true' in page.source.replace("&#34;", '"')
    (content,) = parser.get(f"{API}/{number}")["resultContentIds"]
    line = " ".join(page.by_id(f"content-{content}").text.split())
    assert "Long & Serial 2002" in line
    assert line.rpartition("kodik")[2].split()[:2] == ["6", "5"]
    failed = [row for row in page.all("tr") if "failed" in row.text and "Serial" in row.text]
    assert len(failed) == 1
    assert "Long & Serial 1×03" in failed[0].text
    assert "Studio 2" in failed[0].text
    assert len([row for row in page.all("a", rel="noreferrer noopener") if row.text == "mp4"]) == 5
    only = check_page(parser, f"/requests/{number}?state=failed")
    assert len([row for row in only.all("tr") if row.attributes.get("id", "").startswith("item-")]) == 1
    assert "No variant is so" in check_page(parser, f"/requests/{number}?state=canceled").source
    card = check_page(parser, f"/requests/contents/{content}").by_id("main").text
    for text in ("Studio 1", "Studio 2", "1–3", "Long & Serial (orig)", f"#{number}", "in the export"):
        assert text in card, text
    assert get(parser, "/requests/contents/999", status=404)


def test_who_asks_by_an_id_is_shown_the_title_that_was_found(parser: Desk, upstream: Kodik) -> None:
    upstream.film("Film & Co", kinopoisk_id="301")
    found, nothing = ask(parser, kinopoiskId="301"), ask(parser, title="no such thing")
    for number in (found, nothing):
        until(parser, number, "DONE")
    page = check_page(parser, "/requests")
    assert "Film & Co" in page.by_id(f"row-{found}").text
    assert "Nothing was found" in page.by_id(f"row-{nothing}").text
    assert "Nothing was found" not in page.by_id(f"row-{found}").text
    assert "Film & Co" in check_page(parser, f"/requests/{found}").by_id("request-head").text


def test_many_contents_and_variants_are_shown_a_page_at_a_time(parser: Desk, upstream: Kodik) -> None:
    upstream.serial(60, 1, title="Part 0")
    for part in range(1, 24):
        upstream.film(f"Part {part}")
    number = ask(parser, title="Part", decodeLinks=True)
    until(parser, number, "DONE")
    page = check_page(parser, f"/requests/{number}")
    shown = [row.attributes["id"] for row in page.all("tr") if "id" in row.attributes]
    assert [sum(id.startswith(kind) for id in shown) for kind in ("content-", "item-")] == [20, 50]
    seen = set(shown)
    for link in [each.attributes["href"] for each in page.all("a") if "Next page" in each.text]:
        more = [row.attributes["id"] for row in get(parser, link).all("tr") if "id" in row.attributes]
        seen |= set(more)
    assert [sum(id.startswith(kind) for id in seen) for kind in ("content-", "item-")] == [24, 83]


def test_what_failed_is_tried_again_from_the_page(parser: Desk, upstream: Kodik) -> None:
    upstream.serial(2, 1)
    upstream.hook = lambda path, _: (404, {}, b"") if path.endswith("/2.mp4") else None
    number = ask(parser, title="Long Serial", decodeLinks=True)
    until(parser, number, "DONE")
    assert check_page(parser, f"/requests/{number}").all("form", action=f"/requests/{number}/retry")
    english, chinese = (
        get(parser, "/requests", language).by_id(f"row-{number}").text for language in (ENGLISH, CHINESE)
    )
    assert "decoding Long Serial 1x2" in english
    assert "来源已没有它" in chinese  # and what was said in English is the details
    assert "decoding Long Serial 1x2" in chinese
    upstream.hook = lambda path, _: None
    answer = post(parser, f"/requests/{number}/retry", back=f"/requests/{number}?state=failed")
    assert f"What failed in request {number} is tried again." in flash(answer)
    assert answer.url.query == b"state=failed"
    wait_until(lambda: parser.get(f"{API}/{number}")["progressDecoded"] == 2, "both to be decoded")
    until(parser, number, "DONE")
    page = check_page(parser, f"/requests/{number}")
    assert page.all("form", action=f"/requests/{number}/retry") == []
    assert "submit it again" in flash(post(parser, f"/requests/{number}/retry"))


def test_a_retry_beside_a_twin_names_it(desk: Desk) -> None:
    number = ask(desk, title="a")
    finish(desk.store, number, "failed")
    twin = ask(desk, title="A")
    page = check_page(desk, f"/requests/{number}")
    assert page.all("a", href=f"/requests/{twin}")
    said = flash(post(desk, f"/requests/{number}/retry"))
    assert "That did not work." in said
    assert str(twin) in said


def test_a_request_is_canceled_from_the_page(parser: Desk, upstream: Kodik) -> None:
    upstream.serial(3, 1)
    upstream.open.clear()
    number = ask(parser, title="Long Serial", decodeLinks=True)
    wait_until(lambda: parser.get(f"{API}/{number}")["phase"] == "DECODING", "it to be decoding")
    assert "decoding" in check_page(parser, f"/requests/{number}").by_id("request-head").text
    answer = post(parser, f"/requests/{number}/cancel", back="/requests?q=state:running")
    assert f"Request {number} is being canceled." in flash(answer)
    assert answer.url.path == "/requests"
    upstream.open.set()
    until(parser, number, "FAILED")
    page = check_page(parser, f"/requests/{number}")
    assert "canceled" in page.by_id("request-head").text
    assert page.all("form", action=f"/requests/{number}/cancel") == []
    (again,) = [each.attributes["href"] for each in page.all("a") if "Submit again" in each.text]
    form = check_page(parser, again)
    assert form.by_id("title").attributes["value"] == "Long Serial"
    assert "checked" in form.by_id("decodeLinks").attributes


def test_what_is_no_request_is_not_found(desk: Desk, songs: Any) -> None:
    job = desk.start()["id"]
    for path in (f"/requests/{job}", "/requests/999"):
        check_page(desk, path, 404)
    check_page(desk, "/requests/x", 422)


# --- the form ---------------------------------------------------------------------------------------


def test_the_form_tells_a_new_request_from_one_that_is_there(desk: Desk) -> None:
    assert "Fill in above" in check_page(desk, "/requests/new").by_id("preview").text
    path = "/requests/new?title=%20NARUTO&decodeLinks=on"
    digest = body_of({"title": "naruto", "decodeLinks": True}).hash
    new = check_page(desk, path).by_id("preview").text
    assert "201" in new
    assert digest in new
    assert every(desk.store, sa.select(jobs)) == []  # to look is not to ask
    number = ask(desk, title="Naruto", decodeLinks=True)
    known = check_page(desk, path).by_id("preview")
    assert "200" in known.text
    assert f"Request {number}" in known.text
    assert digest in known.text
    finish(desk.store, number)
    after = check_page(desk, path).by_id("preview").text
    assert "201" in after
    assert f"The last one like it: Request {number}" in " ".join(after.split())
    part = get(desk, path + "&fragment=preview")
    assert part.elements[0].attributes["id"] == "preview"


def test_the_form_submits_once(desk: Desk) -> None:
    answer = post(desk, "/requests", title=" Naruto ", imdbId="tt0409591", decodeLinks="on", createdBy=" my  shelf ")
    (row,) = every(desk.store, sa.select(parse_requests))
    number = row["job_id"]
    assert answer.url.path == f"/requests/{number}"
    assert f"Request {number} is queued." in flash(answer)
    assert row["body"] == {"title": "Naruto", "imdbId": "tt0409591", "decodeLinks": True}
    assert row["created_by"] == "my shelf"
    again = post(desk, "/requests", title="naruto", imdbId="tt0409591", decodeLinks="on")
    assert again.url.path == f"/requests/{number}"
    assert "asked for before" in flash(again)
    post(desk, "/requests", title="other")
    found = every(desk.store, sa.select(parse_requests).order_by(parse_requests.c.job_id))
    assert [(row["hits"], row["created_by"]) for row in found] == [(1, "my shelf"), (0, "console@127.0.0.1")]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "must say something"),
        ({"title": "  "}, "must say something"),
        ({"title": "a\x07b"}, "control character"),
        ({"imdbId": "tt 1"}, "one word"),
        ({"title": "x" * 501}, "the limit is 500"),
    ],
)
def test_what_cannot_be_asked_for_is_said_and_kept_in_the_form(
    desk: Desk, fields: dict[str, str], said: str
) -> None:  # fmt: skip
    answer = post(desk, "/requests", **fields)
    assert answer.status_code == 400
    assert said in answer.text
    assert every(desk.store, sa.select(jobs)) == []
    for name, text in fields.items():
        assert answer.text.count(text.strip() or 'name="title"'), name


def test_a_cap_is_told_of(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, requests_per_client_max=1)
    assert post(desk, "/requests", title="a").status_code == 200
    refused = post(desk, "/requests", title="b")
    assert refused.status_code == 429
    assert "console@127.0.0.1" in refused.text


def test_a_parse_job_is_started_as_a_request(desk: Desk) -> None:
    number = ask(desk, title="a")
    assert "workflow:parse" not in get(desk, "/jobs/new").source
    for method in ("GET", "POST"):
        path = "/jobs/new?template=workflow:parse" if method == "GET" else "/jobs"
        answer = desk.http.request(method, path, data={"template": "workflow:parse"} if method == "POST" else None)
        assert (answer.status_code, answer.headers["location"]) == (303, "/requests/new")
    finish(desk.store, number)
    answer = post(desk, f"/jobs/{number}/clone")
    clone = int(answer.url.path.rpartition("/")[2])
    assert desk.get(f"{API}/{clone}")["requestHash"] == body_of({"title": "a"}).hash


def test_who_may_only_look_has_nothing_to_press(store: Store, consoles: Callable[..., Desk]) -> None:
    number = ask(consoles(store), title="a")
    desk = consoles(store, console_read_only=True)
    for path in ("/requests", f"/requests/{number}"):
        assert check_page(desk, path).all("form", method="post") == []
    assert desk.http.post("/requests", data={"title": "b"}).status_code == 403
    assert desk.http.post(f"/requests/{number}/cancel").status_code == 403


def test_no_secret_is_shown(store: Store, consoles: Callable[..., Desk]) -> None:
    token = "kodik-token-that-is-secret"
    desk = consoles(store, kodik_url="http://127.0.0.1:9", kodik_token=token)
    number = ask(desk, title=f"title with {token}")
    for path in ("/requests", f"/requests/{number}", f"/requests/new?title={token}"):
        assert token not in check_page(desk, path).source, path
