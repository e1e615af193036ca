"""What else a client does: submit, count, list, and wait when it is told to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from dalsegno import Store
from dalsegno.client import (
    AsyncParseClient,
    ClientError,
    NotFound,
    ParseClient,
    Patience,
    Refused,
    TooMany,
    Unexpected,
    Unreachable,
)
from dalsegno.client.patience import retry_after
from dalsegno.engine.scheduler import cancel_some
from tests.client.conftest import run, scripted
from tests.helpers import command
from tests.web.conftest import Desk

BUSY = b'{"type":"urn:x","title":"x","status":503,"detail":"not now","code":"database_unavailable"}'


def test_what_is_submitted_twice_is_one_request(client: ParseClient) -> None:
    assert client.pending_count() == 0
    first = client.submit(title="Naruto", shikimori_id="20", decode_links=True)
    again = client.submit(title="  NARUTO ", shikimori_id="20", decode_links=True)
    other = client.submit(title="Naruto")
    assert (first.created, again.created, other.created) == (True, False, True)
    assert first.id == again.id != other.id
    assert (first.request.status, first.request.phase) == ("PENDING", "QUEUED")
    assert client.pending_count() == 2


def test_the_same_without_threads(desk: Desk) -> None:
    async def ask(client: AsyncParseClient) -> tuple[bool, bool, int]:
        first = await client.submit(imdb_id="tt0409591")
        again = await client.submit(imdb_id="tt0409591")
        return first.created, again.created, await client.pending_count()

    assert run(ask, desk.url, created_by="観測") == (True, False, 1)


def test_a_refusal_says_why(client: ParseClient) -> None:
    with pytest.raises(Refused, match="At least one of title") as caught:
        client.submit()
    assert (caught.value.status, caught.value.code) == (400, "request_invalid")
    with pytest.raises(NotFound):
        client.get_content(4711)
    with pytest.raises(Refused, match="not one of ours"):
        list(client.iter_ready(cursor="yesterday"))
    with pytest.raises(Refused) as unknown:
        client.list("nowhere")
    assert unknown.value.code == "upstream_unknown"


def test_a_key_where_one_is_needed(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, requests_api_key="sesame-1234567890", console_password="another-1234")
    with ParseClient(desk.url) as stranger, pytest.raises(Refused) as caught:
        stranger.pending_count()
    assert caught.value.status == 401
    with ParseClient(desk.url, api_key="sesame-1234567890") as friend:
        assert friend.pending_count() == 0


def test_a_client_with_too_many_requests_waits_as_long_as_it_is_told(
    store: Store, consoles: Callable[..., Desk]
) -> None:
    desk = consoles(store, requests_per_client_max=1)
    waited: list[float] = []
    first = 0

    def sleep(seconds: float) -> None:
        """Meanwhile, its first request is over."""
        waited.append(seconds)
        command(store, "cancel", job_id=first)
        cancel_some(store)

    with ParseClient(desk.url, created_by="discovery", sleep=sleep) as client:
        first = client.submit(title="first").id
        second = client.submit(title="second")
    assert second.created
    assert len(waited) == 1
    assert 15 <= waited[0] <= 20


def test_who_is_to_wait_for_too_long_hears_of_it(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, requests_per_client_max=1)
    waited: list[float] = []
    with ParseClient(desk.url, patience=Patience(longest=5), sleep=waited.append) as client:
        client.submit(title="first")
        with pytest.raises(TooMany) as caught:
            client.submit(title="second")
    assert waited == []
    assert caught.value.retry_after == 15


def test_what_is_not_there_for_a_moment_is_asked_again() -> None:
    count = {"X-Total-Count": "7"}
    gateway = b"<html>Bad Gateway</html>"
    with scripted(
        (503, {"Retry-After": "3"}, BUSY), (429, {}, BUSY), (502, {}, gateway), (200, count, b"[]")
    ) as script:
        waited: list[float] = []
        with ParseClient(script.url + "/", sleep=waited.append) as client:
            assert client.pending_count() == 7

        async def ask(patient: AsyncParseClient) -> int:
            return await patient.pending_count()

        assert run(ask, script.url) == 7
    told, second, third = waited
    assert 3 <= told <= 3.75
    assert 1 <= second <= 1.25
    assert 2 <= third <= 2.5
    assert script.asked[0][1] == "/api/v1/parse/requests?status=PENDING&limit=0"


def test_patience_ends() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def ask(client: AsyncParseClient) -> int:
        return await client.pending_count()

    with scripted((503, {"Retry-After": "0"}, BUSY)) as script:
        client = ParseClient(script.url, patience=Patience(attempts=3), sleep=waited.append)
        with client, pytest.raises(Refused, match="not now"):
            client.pending_count()
        with pytest.raises(Refused, match="not now"):
            run(ask, script.url, patience=Patience(attempts=3), sleep=sleep)
    assert len(script.asked) == 6
    assert waited == [0.0] * 4


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        waited: list[float] = []
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = ParseClient(url, patience=Patience(attempts=2), sleep=waited.append)
        with client, pytest.raises(Unreachable, match=url):
            client.submit(title="x")
    assert len(waited) == 1


def test_connections_are_closed_with_the_client_unless_they_are_the_callers_own() -> None:
    async def ask(client: AsyncParseClient) -> httpx.AsyncClient:
        await client.pending_count()
        return client._http

    async def ask_with_own(url: str) -> bool:
        async with httpx.AsyncClient() as own:
            async with AsyncParseClient(url, http=own) as client:
                await client.pending_count()
            return own.is_closed

    with scripted((200, {"X-Total-Count": "0"}, b"[]")) as script:
        with ParseClient(script.url) as client:
            client.pending_count()
        assert client._http.is_closed
        with httpx.Client() as own:
            with ParseClient(script.url, http=own) as guest:
                guest.pending_count()
            assert not own.is_closed
        assert run(ask, script.url).is_closed
        assert not asyncio.run(ask_with_own(script.url))


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"<html>Welcome!</html>"),
        (200, {"X-Total-Count": "many"}, b"[]"),
        (404, {}, b"<html>Not here</html>"),
        (500, {}, b"[]"),
        (302, {"Location": "https://elsewhere.test"}, b""),
        (200, {"X-Total-Count": "1", "Content-Encoding": "gzip"}, b"this is not packed"),
    ],
)
def test_somebody_else_answers(answer: tuple[int, dict[str, str], bytes]) -> None:
    async def ask(client: AsyncParseClient) -> int:
        return await client.pending_count()

    with scripted(answer) as script:
        with ParseClient(script.url) as client:
            with pytest.raises(Unexpected):
                client.pending_count()
            with pytest.raises(ClientError):
                next(client.iter_ready())
            with pytest.raises(ClientError):
                client.submit(title="x")
            with pytest.raises(Unexpected):
                client.list()
        with pytest.raises(Unexpected):
            run(ask, script.url)
        assert len(script.asked) == 5, "what is not ours is not asked again"


def test_a_list_is_passed_on_with_its_warning() -> None:
    body = json.dumps({"results": [{"id": "serial-1", "odd": 1}], "total": 1, "nextPage": "abc", "prevPage": None})
    with scripted((200, {"Warning": '199 dalsegno "odd"'}, body.encode())) as script, ParseClient(script.url) as client:
        found = client.list("kodik", types="anime-serial", year=2026, next_page=None)
    assert (found.results, found.total, found.next_page) == (({"id": "serial-1", "odd": 1},), 1, "abc")
    assert found.warning == '199 dalsegno "odd"'
    assert script.asked[0][1] == "/api/v1/kodik/list?types=anime-serial&year=2026"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Mon, 04 May 2026 18:00:30 GMT", "Date": "Mon, 04 May 2026 18:00:10 GMT"}, 20.0),
        ({"Retry-After": "Mon, 04 May 2026 18:00:00 GMT", "Date": "Mon, 04 May 2026 18:00:10 GMT"}, 0.0),
        ({"Retry-After": "Mon, 04 May 2026 18:00:30 GMT"}, None),
        ({"Retry-After": "soon", "Date": "Mon, 04 May 2026 18:00:10 GMT"}, None),
        ({"Retry-After": "-1", "Date": "Mon, 04 May 2026 18:00:10 GMT"}, None),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(httpx.Response(503, headers=headers)) == seconds


@pytest.mark.parametrize("url", ["127.0.0.1:8765", "ftp://x", "", "http://", "http://x:port"])
@pytest.mark.parametrize("kind", [ParseClient, AsyncParseClient])
def test_an_address_that_is_none(kind: type[ParseClient | AsyncParseClient], url: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        kind(url)


@pytest.mark.parametrize("kind", [ParseClient, AsyncParseClient])
def test_a_name_that_no_header_can_have(kind: type[ParseClient | AsyncParseClient]) -> None:
    with pytest.raises(ValueError, match="X-Created-By"):
        kind("http://127.0.0.1:8765", created_by="one\r\nX-API-KEY: two")


def test_a_moment_needs_a_zone(client: ParseClient) -> None:
    naive: Any = datetime(2026, 5, 4)  # noqa: DTZ001
    with pytest.raises(ValueError, match="no time zone"):
        client.iter_ready(since=naive)


def test_nobody_can_poll_with_it() -> None:
    """What a client can do is a short list, and looking at one request again is not on it."""
    verbs = {name for name in vars(ParseClient) if not name.startswith("_")}
    assert verbs == {"submit", "pending_count", "iter_ready", "get_content", "list", "close"}
    assert verbs == {name for name in vars(AsyncParseClient) if not name.startswith("_")}
