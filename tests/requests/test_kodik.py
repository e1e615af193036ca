"""Kodik's answers: read as they are documented, and however else they may come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.model.signal import ProviderError, Signal
from dalsegno.requests.drift import Reader
from dalsegno.requests.kodik import Kodik as Client
from dalsegno.requests.kodik_shape import RESULT, address, works
from dalsegno.requests.upstream import Wanted, Work
from dalsegno.sources.http import Http
from dalsegno.sources.model import Unusable
from dalsegno.sources.registry import Config
from tests.requests.upstream import TOKEN, Kodik


@pytest.fixture
def client(upstream: Kodik) -> Iterator[Client]:
    with Http(read_timeout=5) as http:
        yield Client(Config({"KODIK_URL": f"{upstream.url}/", "KODIK_TOKEN": TOKEN}), http)


def read(*results: Any) -> tuple[tuple[Work, ...], tuple[str, ...]]:
    reader = Reader()
    return works(reader, results), reader.drift


FILM = {"id": "movie-1", "type": "foreign-movie", "title": "Film", "link": "//player.example/1", "year": 1999,
        "translation": {"id": 7, "title": "Dub", "type": "voice"}, "quality": "720p"}  # fmt: skip


def test_only_what_is_asked_for_is_sent(client: Client, upstream: Kodik) -> None:
    client.search(Wanted(kinopoisk_id="283290"))
    (asked,) = upstream.asked
    assert asked == {
        "path": "/search", "token": TOKEN, "kinopoisk_id": "283290", "with_episodes": "true", "limit": "100",
    }  # fmt: skip


def test_a_page_is_asked_for_by_what_the_answer_said(client: Client, upstream: Kodik) -> None:
    upstream.serial(episodes=1, translations=3)
    upstream.page = 2
    first = client.search(Wanted(shikimori_id="20"))
    assert first.next_page == "next=2"
    second = client.search(Wanted(shikimori_id="20"), first.next_page)
    assert (second.next_page, len(second.works[0].offers)) == (None, 1)


@pytest.mark.parametrize(
    ("said", "page"),
    [("https://elsewhere.example/list?token=x&page=2&limit=3", "page=2&limit=3"), ("/list?page=2", "page=2"),
     ("?next=abc", "next=abc"), ("abc", "next=abc"), (None, None), ("", None), (False, None), ("https://x/list", None),
     (7, None), ("x" * 5000, None)],
)  # fmt: skip
def test_where_the_next_page_is(client: Client, upstream: Kodik, said: Any, page: str | None) -> None:
    upstream.more = {"next_page": said}
    assert client.search(Wanted(title="x")).next_page == page


def test_it_refuses_in_words(client: Client, upstream: Kodik) -> None:
    upstream.hook = lambda path, count: (200, {}, json.dumps({"error": "Слишком много"}).encode())
    with pytest.raises(ProviderError, match="Слишком много"):
        client.search(Wanted(title="x"))
    upstream.hook = lambda path, count: (200, {}, b'{"error": "bad token"}')
    with pytest.raises(ProviderError) as caught:
        client.search(Wanted(title="x"))
    assert Signal.of(caught.value).status == 401


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1", b"[" * 5000, b"\xff\xfe"])
def test_what_is_no_json_is_unusable(client: Client, upstream: Kodik, body: bytes) -> None:
    upstream.hook = lambda path, count: (200, {}, body)
    with pytest.raises(Unusable):
        client.search(Wanted(title="x"))


def test_results_of_one_work_are_put_together() -> None:
    first = {**FILM, "shikimori_id": "20", "kinopoisk_id": "1"}
    second = {**FILM, "shikimori_id": "20", "kinopoisk_id": None, "title_orig": "The Film",
              "translation": {"id": 8, "title": "Sub", "type": "subtitles"}}  # fmt: skip
    other = {**FILM, "shikimori_id": "21", "kinopoisk_id": "1"}
    (film, sequel), drift = read(first, second, other)
    assert drift == ()
    assert (film.id, film.kinopoisk_id, film.title_orig) == ("shikimori:20", "1", "The Film")
    assert [offer.translation_id for offer in film.offers] == ["7", "8"]
    assert sequel.id == "shikimori:21", "seasons share the other ids"


@pytest.mark.parametrize(
    ("ids", "id"),
    [({"kinopoisk_id": 5, "imdb_id": "tt1"}, "kinopoisk:5"), ({"imdb_id": "tt1"}, "imdb:tt1"),
     ({}, "title:foreign-movie:film:1999"), ({"title": None}, "movie-1"),
     ({"title": "  FILM  "}, "title:foreign-movie:film:1999")],
)  # fmt: skip
def test_which_work_it_is(ids: dict[str, Any], id: str) -> None:
    (film,), _ = read({**FILM, **ids})
    assert film.id == id


def test_a_link_gets_its_scheme_and_only_http_is_taken() -> None:
    assert address("//player.example/1") == "https://player.example/1"
    for odd in ("javascript:alert(1)", "file:///etc/passwd", "player", "", "http://", "//"):
        assert address(odd) == ""


def test_seasons_in_any_order_and_shape() -> None:
    seasons = {
        "2": {"link": "//p/2", "episodes": {"10": "//p/2-10", "9": {"link": "//p/2-9", "title": "Nine"}}},
        "0": {"episodes": {"1": "//p/special"}},
        "x": {"episodes": {"1": "//p/?"}},
        "3": None,
        "4": {"episodes": ["//p/4-1", {"episode": "7", "link": "//p/4-7"}, 5]},
    }
    (serial,), drift = read({**FILM, "type": "anime-serial", "seasons": seasons})
    found = {(offer.season, offer.episode): offer.link for offer in serial.offers}
    assert found == {(2, 10): "https://p/2-10", (2, 9): "https://p/2-9", (0, 1): "https://p/special",
                     (4, 1): "https://p/4-1", (4, 7): "https://p/4-7"}  # fmt: skip
    assert "episodes are a list, not an object" in drift
    assert not serial.whole


def test_a_serial_without_its_seasons_says_nothing_about_what_is_gone() -> None:
    (serial,), drift = read({**FILM, "type": "anime-serial"})
    assert (drift, serial.whole) == ((), False)
    (film,), _ = read({**FILM, "brand_new": 1})
    assert film.whole, "a field too many loses nothing"


def test_oddities_are_told_once_each_and_not_without_end() -> None:
    _, drift = read(*[{**FILM, "year": [], "new": 1}] * 50)
    assert drift == (
        'unknown field "new" in a result (50 times)', "result.year is a list, not a whole number (50 times)",
    )  # fmt: skip
    _, drift = read({**FILM, **{f"new{number}": 1 for number in range(100)}})
    assert len(drift) == 21
    assert drift[-1] == "and 80 other things"


NAMES = st.sampled_from(sorted(RESULT))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | NAMES, inner, max_size=6),
    max_leaves=20,
)  # fmt: skip
RESULTS = st.lists(st.dictionaries(NAMES, JSON, max_size=12) | JSON, max_size=5)


@given(results=RESULTS)
def test_whatever_comes_it_is_read(results: list[Any]) -> None:
    found, drift = read(*results)
    for work in found:
        assert work.id
        for text in (work.title, work.title_orig, work.other_title, work.type):
            assert "\0" not in text
            text.encode()
        for offer in work.offers:
            assert offer.link.startswith(("http://", "https://", "HTTP"))
            assert 0 <= offer.season < 2**31
    for said in drift:
        assert len(said) < 300
