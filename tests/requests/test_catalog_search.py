"""The catalog's own sources are asked as well."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dalsegno.requests.catalog_search import CatalogDecoder
from dalsegno.requests.decoders.model import Link
from dalsegno.sources.demo_server import DemoServer
from dalsegno.sources.model import Media, Source, Track, Unusable
from dalsegno.sources.registry import Config, Sources
from tests.requests.conftest import Studio
from tests.requests.upstream import Kodik


def test_songs_of_the_catalog_are_found_and_resolved(studios: Callable[..., Studio]) -> None:
    with DemoServer(pace=0) as server:
        studio = studios(demo_url=server.url)
        done = studio.carry_out(title="Clock", decodeLinks=True)
        assert done.status == "DONE"
        found = studio.contents()
        assert found
        assert {row["source"] for row in found} == {"demo"}
        assert {row["type"] for row in found} == {"song"}
        rows = studio.variants()
        assert all(row["link"].startswith("catalog:demo:") for row in rows)
        assert all(row["mp4_link"] or row["error_code"] for row in rows)
        assert any(row["mp4_link"].startswith(server.url) and row["expires_at"] for row in rows if row["mp4_link"])


class Guarded(Source):
    name = "guarded"

    def resolve(self, track: Track) -> Media:
        return Media(url=f"https://music.example/{track.id}?u=me&t=0123456789", secrets=("0123456789",), trusted=True)


def test_an_address_with_a_login_in_it_is_not_given_out() -> None:
    sources = Sources(Config({}))
    sources._open["guarded"] = Guarded()
    link = Link(url=f"catalog:guarded:{json.dumps({'id': 'a:b', 'title': 'Song'})}")
    with pytest.raises(Unusable, match="credentials"):
        CatalogDecoder(sources).decode(link)


def test_only_those_that_are_named_are_asked(studios: Callable[..., Studio], upstream: Kodik) -> None:
    with DemoServer(pace=0) as server:
        studio = studios(demo_url=server.url, requests_sources=("kodik",), **upstream.settings)
        done = studio.carry_out(title="Clock")
        assert (done.status, studio.contents()) == ("DONE", [])
        assert upstream.calls["/search"] == 1


def test_where_one_of_two_does_not_know_the_answer_of_the_other_counts(
    studios: Callable[..., Studio], upstream: Kodik
) -> None:
    upstream.hook = lambda path, count: (452, {}, b"")
    with DemoServer(pace=0) as server:
        studio = studios(demo_url=server.url, **upstream.settings)
        done = studio.carry_out(title="Clock")
    assert done.status == "DONE"
    assert done.content_ids
    assert upstream.calls["/search"] == 3, "it was tried again, but not to the bitter end"
