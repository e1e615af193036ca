"""Items by what they are about: sources, playlists, songs, titles."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.find import ITEMS
from dalsegno.catalog.schema import playlist_pools, playlist_songs, playlists, songs
from dalsegno.insight.finding import find_items
from dalsegno.insight.query import parse
from dalsegno.store.store import Tx
from tests.helpers import chain, submitted


@pytest.fixture
def shelf(store: Store) -> Store:
    """Two playlists of three songs each, one of which both have, and a job about all of them."""

    def work(tx: Tx) -> None:
        seen = {"created_at": tx.now, "updated_at": tx.now}
        named = [("qq", "夜曲"), ("qq", "七里香"), ("kuwo", "Rain 100%"), ("kuwo", "Sno\u0308w"), ("file", "Rain")]
        rows = [
            {"id": n, "platform": platform, "remote_id": str(n), "title": title, **seen}
            for n, (platform, title) in enumerate(named, 1)
        ]
        tx.conn.execute(sa.insert(songs), rows)
        lists = [("qq", "周杰伦 精选"), ("kuwo", "17")]
        tx.conn.execute(
            sa.insert(playlists),
            [
                {"id": n, "platform": p, "remote_id": str(n), "name": name, **seen}
                for n, (p, name) in enumerate(lists, 1)
            ],
        )
        pool = {"id": 1, "platform": "qq", "remote_id": "1", "name": "charts", **seen}
        tx.conn.execute(sa.insert(playlist_pools), [pool])
        inside = {1: (1, 2, 3), 2: (3, 4, 5)}
        tx.conn.execute(
            sa.insert(playlist_songs),
            [
                {"playlist_id": playlist, "song_id": song, "position": song, "added_at": tx.now,
                 "removed_at": tx.now if song == 5 else None}
                for playlist, own in inside.items()
                for song in own
            ],
        )  # fmt: skip

    store.write("test", work)
    about = {"a": ["pool:1", "playlist:1", "playlist:2", "playlist:x"], "b": [f"song:{n}" for n in range(1, 6)]}
    submitted(store, chain("sync", "download"), items=about)
    return store


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("source:qq", ["song:2", "song:1", "playlist:1", "pool:1"]),
        ("source:qq,file stage:b", ["song:5", "song:2", "song:1"]),
        ("-source:qq,kuwo", ["song:5", "playlist:x"]),
        ('playlist:"周杰伦 精选"', ["song:3", "song:2", "song:1", "playlist:1"]),
        ("playlist:1 -source:qq", ["song:3"]),
        ("playlist:17", ["song:4", "song:3", "playlist:2"]),
        ("playlist:周*", ["song:3", "song:2", "song:1", "playlist:1"]),
        ("playlist:1 playlist:17", ["song:3"]),
        ("-playlist:1 stage:b", ["song:5", "song:4"]),
        ("playlist:none", []),
        ("song:3", ["song:3"]),
        ("song:3,4 -song:4", ["song:3"]),
        ("七里", ["song:2"]),
        ("rain", ["song:5", "song:3"]),
        ('"100%"', ["song:3"]),
        ("精选", ["playlist:1"]),
        ("sn\u00f6w", ["song:4"]),
        ("-rain stage:b", ["song:4", "song:2", "song:1"]),
    ],
)
def test_items_are_found_by_what_they_are_about(shelf: Store, text: str, expected: list[str]) -> None:
    page = shelf.read(lambda tx: find_items(tx, parse(text, ITEMS), among=ITEMS))
    assert [line.item.key for line in page.lines] == expected
    assert page.next_cursor is None
