"""Reading what is ready through the client, while others write."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.client import AsyncParseClient, Content, ParseClient
from dalsegno.requests.schema import contents
from tests.client.conftest import run
from tests.helpers import every
from tests.requests.shelf import Shelf, changed, serial
from tests.web.conftest import Desk

TICK = timedelta(microseconds=1)
MANY = 10_000
WRITERS = 4


@pytest.mark.timeout(300)
def test_a_reader_sees_every_change_while_writers_go_on_and_none_twice(
    store: Store, database_url: str, stores: Callable[..., Store], shelf: Shelf, client: ParseClient
) -> None:
    """Several writers, each with its own connections where the database has several, change all contents in any order.

    What the reader saw last of each is what there is at the end, so it missed nothing; it saw nothing twice.
    """
    ids = shelf.fill(MANY)
    homes = [stores(database_url) if store.shared else store for _ in range(WRITERS)]
    done = threading.Event()

    def write(number: int, home: Store) -> None:
        chance = random.Random(number)
        own = ids[number::WRITERS]
        chance.shuffle(own)
        at = 0
        while at < len(own):
            count = chance.randrange(1, 60)
            # Its own, each once, and some that others write as well.
            some = {*own[at : at + count], *chance.sample(ids, 3)}
            home.write("test", lambda tx, s=some, t=f"{number}.{at}": changed(tx, s, title=t))  # type: ignore[misc]
            at += count

    seen: list[Content] = []

    def read() -> None:
        cursor = ""
        while True:
            last = done.is_set()
            ready = client.iter_ready(cursor=cursor, size=200)
            seen.extend(ready)
            cursor = ready.cursor
            if last:
                return

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reader = pool.submit(read)
        writers = [pool.submit(write, number, home) for number, home in enumerate(homes)]
        for writer in writers:
            writer.result()
        done.set()
        reader.result()

    places = [(content.updated_at, content.id) for content in seen]
    assert places == sorted(set(places)), "a version came twice, or out of order"
    latest = {content.id: (content.updated_at, content.title) for content in seen}
    there = {row["id"]: (row["updated_at"], row["title"]) for row in every(store, sa.select(contents))}
    assert len(there) == MANY
    assert latest == there


def test_equal_times_at_the_boundary_of_a_page(store: Store, shelf: Shelf, client: ParseClient) -> None:
    ids = shelf.fill(7)
    moment = max(shelf.versions().values()) + timedelta(seconds=1)
    store.write("test", lambda tx: tx.conn.execute(sa.update(contents).values(updated_at=moment)))
    for size in (1, 2, 3, 7):
        assert [content.id for content in client.iter_ready(size=size)] == ids
        assert [content.id for content in client.iter_ready(since=moment, size=size)] == ids  # inclusive
    assert list(client.iter_ready(since=moment + TICK)) == []
    third = list(client.iter_ready())[2]
    assert [content.id for content in client.iter_ready(cursor=third.cursor, size=2)] == ids[3:]


def test_the_cursor_to_keep_is_that_of_the_content_in_hand(shelf: Shelf, client: ParseClient) -> None:
    ids = shelf.fill(5)
    ready = client.iter_ready(size=2)
    assert ready.cursor == ""
    kept = []
    for content in ready:
        assert ready.cursor == content.cursor
        kept.append(ready.cursor)
        if content.id == ids[2]:
            break
    assert [content.id for content in client.iter_ready(cursor=kept[1])] == ids[2:]
    assert [content.id for content in ready] == ids[3:]  # it goes on where it was
    assert next(ready, None) is None
    rest = client.iter_ready(cursor=ready.cursor)
    assert list(rest) == []
    assert rest.cursor == ready.cursor
    shelf.change([ids[1]], title="new")
    assert [content.title for content in client.iter_ready(cursor=rest.cursor)] == ["new"]


def test_nothing_is_there_yet_and_the_place_is_kept(client: ParseClient, shelf: Shelf) -> None:
    ready = client.iter_ready()
    assert list(ready) == []
    assert ready.cursor
    ids = shelf.fill(2)
    assert [content.id for content in client.iter_ready(cursor=ready.cursor)] == ids


def test_contents_are_typed(shelf: Shelf, client: ParseClient) -> None:
    (number,) = shelf.find(serial("naruto", 2, 2, shikimori_id="20"), ready=False)
    assert list(client.iter_ready()) == []
    shelf.decode(number, translation="61")
    (content,) = client.iter_ready()
    assert (content.id, content.type, content.title, content.year, content.shikimori_id) == (
        number, "anime-serial", "Title of naruto", 2026, "20",
    )  # fmt: skip
    assert (content.variants_found, content.variants_decoded) == (4, 2)
    assert isinstance(content.updated_at, datetime)
    assert content.updated_at.tzinfo is not None
    assert [(season.number, [episode.number for episode in season.episodes]) for season in content.seasons] == [
        (1, [1, 2])
    ]
    assert {(variant.translation_title, variant.mp4_link is None) for variant in content.variants} == {
        ("Voice 1", False)
    }
    assert client.get_content(number) == content
    everything = client.get_content(number, every=True)
    assert [variant.mp4_link is None for variant in everything.variants] == [False, True] * 2
    assert next(client.iter_ready(every=True)) == everything


def test_the_same_without_threads(shelf: Shelf, desk: Desk) -> None:
    ids = shelf.fill(5)

    async def read(client: AsyncParseClient) -> tuple[Sequence[Any], Sequence[Any], Content]:
        ready = client.iter_ready(size=2)
        first = [content.id async for content in ready]
        shelf.change([ids[3]], title="new")
        then = [content.id async for content in client.iter_ready(cursor=ready.cursor)]
        return first, then, await client.get_content(ids[3])

    first, then, content = run(read, desk.url)
    assert (first, then, content.title) == (ids, [ids[3]], "new")


@pytest.mark.parametrize("path", [
    "ready?cursor=x", "ready?cursor=1.2.3", "ready?page=-1", "ready?size=0", "ready?page=x", "ready?updatedSince=soon",
    "ready?variants=some", "ready?updatedSince=9999-12-31T23:59:59-23:00", "0", "x",
])  # fmt: skip
def test_what_is_wrong_is_refused_with_a_reason(desk: Desk, path: str) -> None:
    said = desk.get(f"/api/v1/export/{path}", 400)
    assert said["code"] == "request_invalid"
    assert said["detail"]


def test_pages_as_the_contract_has_them(desk: Desk, shelf: Shelf) -> None:
    ids = shelf.fill(5)
    first = desk.get("/api/v1/export/ready?size=2")
    assert {key: first[key] for key in ("page", "size", "totalElements", "totalPages")} == {
        "page": 0, "size": 2, "totalElements": 5, "totalPages": 3,
    }  # fmt: skip
    assert [content["id"] for content in first["content"]] == ids[:2]
    last = desk.get("/api/v1/export/ready?page=2&size=2")
    assert [content["id"] for content in last["content"]] == ids[4:]
    since = last["content"][0]["updatedAt"]
    for text in (since, since.replace("Z", "+00:00"), since.replace("Z", "%2B00:00"), since.replace("Z", "")):
        assert desk.get(f"/api/v1/export/ready?updatedSince={text}")["totalElements"] == 1
    assert desk.get("/api/v1/export/ready?updatedSince=2026-01-01")["totalElements"] == 5
    assert desk.get("/api/v1/export/ready?updatedSince=0001-01-01T00:00:00Z")["totalElements"] == 5
    on = desk.get(f"/api/v1/export/ready?cursor={first['nextCursor']}&size=2")
    assert "page" not in on
    assert ([content["id"] for content in on["content"]], on["hasMore"]) == (ids[2:4], True)
    assert desk.get("/api/v1/export/ready?page=99")["content"] == []
    assert desk.get("/api/v1/export/ready?size=100000")["size"] == 200
    assert desk.get("/api/v1/export/999", 404)["code"] == "not_found"


def test_no_secret_leaves_with_a_content(store: Store, consoles: Callable[..., Desk], shelf: Shelf) -> None:
    (number,) = shelf.find(serial("a"))
    shelf.change([number], title='the token is "tok-3141592653"')
    desk = consoles(store, kodik_token="tok-3141592653")
    assert desk.get(f"/api/v1/export/{number}")["title"] == 'the token is "***"'
    assert "tok-3141592653" not in desk.http.get("/api/v1/export/ready").text
