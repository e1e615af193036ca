"""The library over many runs: what is written down about files stays true, and what owners do to them is theirs."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.download import described
from dalsegno.catalog.library import Filed, file_songs
from dalsegno.catalog.schema import file_assets
from tests.catalog.shelves import Shelves
from tests.helpers import every

FLAC = {"format": "flac", "codec": "flac", "quality": "lossless", "duration": 1.5, "lossless": True}


# --- what is written down -------------------------------------------------------------------------


def test_a_twin_that_knows_nothing_of_its_file_does_not_blank_it(store: Store) -> None:
    shelves = Shelves(store)
    library = shelves.backend("library", "/library")
    one, two, three = shelves.songs(3)

    def filed(song: int, **audio: Any) -> Filed:
        return Filed(song, library, "a.flac", "a" * 64, 3, described(audio), "demo", "1", shelves.now)

    def settled(*rows: Filed) -> str:
        store.write("test", lambda tx: file_songs(tx.conn, rows))
        (asset,) = every(store, sa.select(file_assets))
        return f"{asset['quality']} {asset['duration']}"

    assert settled(filed(one)) == " None"
    assert settled(filed(one), filed(two, **FLAC), filed(three)) == "lossless 1.5"
    assert settled(filed(three)) == "lossless 1.5"
    assert settled(filed(two, **{**FLAC, "duration": 9.0})) == "lossless 1.5"
