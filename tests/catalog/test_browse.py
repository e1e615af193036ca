"""Playlists by query, from one look at all of them."""

from __future__ import annotations

import pytest

from dalsegno import Store
from dalsegno.catalog.browse import PLAYLISTS, Found, find_playlists, matching
from dalsegno.catalog.judged import Shelves as Looked
from dalsegno.catalog.judged import look, shelves
from dalsegno.catalog.schema import playlists
from dalsegno.catalog.status import list_pools
from dalsegno.errors import InputInvalid, QueryInvalid
from dalsegno.insight.query import parse
from tests.catalog.shelves import Shelves


@pytest.fixture
def stocked(still: Store) -> Store:
    """Four playlists in two pools: two complete, one lacking a song, one never synced."""
    made = Shelves(still)
    charts, radio = made.pool("Charts"), made.pool("Radio", platform="other", kind="channel")
    there, lacking = made.song("Rain"), made.song("Snow")
    made.download(there)
    made.playlist("Amber", there, pools=(charts,))
    made.playlist("Blue", there, lacking, pools=(charts, radio))
    made.playlist("Clear", there, platform="other", kind="album", pools=(radio,))
    made.playlist("Dark [1]", platform="other", synced_at=None)
    return still


def ask(store: Store, text: str, **options: object) -> Found:
    query = parse(text, PLAYLISTS)
    return store.read(lambda tx: find_playlists(tx, look(tx, None), query, None, **options))  # type: ignore[arg-type]


def names(store: Store, text: str) -> list[str]:
    return [line.name for line in ask(store, text).lines]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["Amber", "Blue", "Clear", "Dark [1]"]),
        ("status:complete", ["Amber", "Clear"]),
        ("-status:complete", ["Blue", "Dark [1]"]),
        ("status:incomplete,error platform:demo", ["Blue"]),
        ("source:other kind:album", ["Clear"]),
        ("pool:Charts", ["Amber", "Blue"]),
        ("pool:Charts pool:Rad*", ["Blue"]),
        ("ARK", ["Dark [1]"]),
        ("-pool:* [1]", ["Dark [1]"]),
    ],
)
def test_a_query_finds_what_it_asks_for(stocked: Store, query: str, found: list[str]) -> None:
    assert names(stocked, query) == found


def test_pages_follow_each_other_and_count_all(stocked: Store) -> None:
    first = ask(stocked, "", limit=3)
    assert ([line.name for line in first.lines], first.total) == (["Amber", "Blue", "Clear"], 4)
    second = ask(stocked, "", limit=3, cursor=first.next_cursor)
    assert ([line.name for line in second.lines], second.next_cursor) == (["Dark [1]"], None)
    with pytest.raises(InputInvalid):
        ask(stocked, "", cursor="999")


def test_facets_say_what_another_choice_would_find(stocked: Store) -> None:
    facets = ask(stocked, "platform:other status:complete").facets
    assert facets["status"] == [("error", 0), ("active", 0), ("incomplete", 1), ("complete", 1)]
    assert facets["platform"] == [("demo", 1), ("other", 1)]
    assert facets["pool"] == [("Radio", 1)]


def test_what_changed_since_the_look_is_not_listed_as_what_it_was(stocked: Store) -> None:
    before: Looked = stocked.read(lambda tx: look(tx, None))
    amber = before.playlists[0]
    Shelves(stocked).change(playlists, amber.id, synced_at=None)
    query = parse("status:complete", PLAYLISTS)
    assert amber in matching(before, query)
    lines = stocked.read(lambda tx: find_playlists(tx, before, query, None)).lines
    assert [line.name for line in lines] == ["Clear"]


def test_an_unknown_key_gets_a_suggestion(stocked: Store) -> None:
    with pytest.raises(QueryInvalid, match="status"):
        ask(stocked, "stats:error")


def test_one_look_serves_all_and_agrees_with_the_list_of_pools(stocked: Store) -> None:
    looked = shelves(stocked, None, patience=30)
    assert looked is not None
    assert looked.pools == stocked.read(list_pools)
    assert shelves(stocked, None) is not None
