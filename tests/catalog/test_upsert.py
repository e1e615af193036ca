"""What sources say, however long or large: both databases take it, and the source gets its own words back."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.schema import playlists, songs
from dalsegno.catalog.scope import of_songs, parse_scope
from dalsegno.catalog.upsert import NAME_MAX, keep_songs, known_as, own_id, own_snapshot, track_of, upsert
from dalsegno.sources.model import Track
from tests.helpers import every

LONG = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(5000))
"""Other characters all along, so that no database packs them small."""


def test_long_texts_and_absurd_numbers_fit_both_databases(store: Store) -> None:
    track = Track(id=f"{LONG}1", title=LONG, artists=(LONG, LONG[::-1]), album=LONG, track_no=2**31,
                  disc_no=-(10**30), year=10**12, snapshot={"remote_id": "its own"})  # fmt: skip
    other = Track(id=f"{LONG}2", title="other", year=1999)

    first = store.write("test", lambda tx: keep_songs(tx.conn, "demo", [track, other], tx.now))
    again = store.write("test", lambda tx: keep_songs(tx.conn, "demo", [track, other], tx.now))

    assert len(set(first.ids.values())) == len(first.new) == 2
    assert (again.ids, again.new, again.changed) == (first.ids, set(), set())
    one, two = every(store, sa.select(songs).order_by(songs.c.id))
    assert (one["track_no"], one["disc_no"], one["year"], two["year"]) == (None, None, None, 1999)
    assert len(one["remote_id"].encode()) <= 1000
    back = track_of(one)
    assert (back.id, back.title, back.snapshot) == (track.id, LONG, {"remote_id": "its own"})
    assert [len(name) for name in back.artists] == [NAME_MAX, NAME_MAX]
    scope = parse_scope({"songs": [f"demo:{LONG}2"]})
    assert [row["id"] for row in every(store, sa.select(songs).where(*of_songs(scope)))] == [two["id"]]


def test_long_names_of_playlists_fit_both_databases(store: Store) -> None:
    row = {"remote_id": LONG, "kind": "k", "name": LONG, "description": LONG, "remote_count": 2**40, "snapshot": None}

    for new in ({known_as(LONG)}, set()):
        done = store.write("test", lambda tx: upsert(tx.conn, playlists, "demo", [row], tx.now))
        assert (done.new, done.changed) == (new, set())

    (kept,) = every(store, sa.select(playlists))
    assert (kept["name"], kept["remote_count"]) == (LONG[:NAME_MAX], None)
    assert (own_id(kept), own_snapshot(kept)) == (LONG, {})


def test_an_id_that_fits_is_itself() -> None:
    assert known_as("a" * 1000) == "a" * 1000
    assert known_as("é" * 500) == "é" * 500
    assert known_as("é" * 501) != known_as("é" * 502)
