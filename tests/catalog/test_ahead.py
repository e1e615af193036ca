"""Reading ahead: fewer questions, and never an answer that is older than the item it is for."""

from __future__ import annotations

from typing import Any

from dalsegno import Store
from dalsegno.catalog.ahead import WIDTH, Ahead
from dalsegno.catalog.downloader import described
from dalsegno.catalog.library import Filed, file_songs, look
from dalsegno.engine.item import Item, StageInfo
from dalsegno.store.hot import Claimed
from tests.catalog.shelves import Shelves

STAGE = StageInfo(1, 1, "download", "download", {}, {}, {}, None, (), 3, 20, None)


def item(song: int) -> Item:
    return Item(Claimed(song, 1, 1, song, f"song:{song}", 1, 0, 0, False, None, None), STAGE)


class Counted:
    """A store that counts what it is asked at a glance."""

    def __init__(self, store: Store) -> None:
        self._store, self.asked = store, 0

    def glance(self, *asked: Any) -> Any:
        self.asked += 1
        return self._store.glance(*asked)


def file(store: Store, shelves: Shelves, song: int) -> None:
    library = shelves.backend("library", "/library")
    row = Filed(song, library, f"{song}.flac", f"{song:064}", 3, described({}), "demo", "1", shelves.now)
    store.write("test", lambda tx: file_songs(tx.conn, [row]))


def test_songs_asked_for_in_their_order_are_read_many_at_a_time(store: Store) -> None:
    shelves = Shelves(store)
    numbers = shelves.songs(10 * WIDTH)
    file(store, shelves, numbers[7])
    counted = Counted(store)
    ahead = Ahead(counted)  # type: ignore[arg-type]
    claimed = [item(number) for number in numbers]
    found = [ahead.look(each, number) for each, number in zip(claimed, numbers, strict=True)]
    assert found == [look(store, number) for number in numbers]
    assert counted.asked < 10 + 7


def test_songs_far_apart_are_read_one_by_one(store: Store) -> None:
    numbers = Shelves(store).songs(6 * WIDTH)
    ahead = Ahead(store)
    for number in numbers[:: 2 * WIDTH]:
        found = ahead.look(item(number), number)
        assert found is not None
        assert found.song["id"] == number
    assert ahead._read == {}
    assert ahead.look(item(0), max(numbers) + 1) is None


def test_what_changed_before_an_item_was_claimed_is_seen(store: Store) -> None:
    shelves = Shelves(store)
    first, second, third = shelves.songs(3)
    ahead = Ahead(store)
    ahead.look(item(first), first)
    ahead.look(item(second), second)  # and the third with it
    file(store, shelves, third)
    found = ahead.look(item(third), third)
    assert found is not None
    assert found.sha256 == f"{third:064}"
