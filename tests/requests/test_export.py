"""What readers of exports may rely on: nothing is lost, no version comes twice, and a page is a stretch of an index."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.errors import NotFound, RequestInvalid
from dalsegno.requests import export
from dalsegno.requests.export import START, Content, Place, count_ready, one_content, ready_after, ready_page
from dalsegno.requests.schema import content_clock, contents
from dalsegno.store.store import Tx
from tests.helpers import one, wait_until
from tests.insight.test_plans import explained
from tests.requests.shelf import Shelf, changed, serial

TICK = timedelta(microseconds=1)


@pytest.fixture
def shelf(store: Store) -> Shelf:
    return Shelf(store)


def walk(store: Store, after: Place = START, limit: int = 7) -> Iterator[Content]:
    """Everything from a place on, until there is no more."""
    while True:
        page = store.read(lambda tx, a=after: ready_after(tx, a, limit=limit))  # type: ignore[misc]
        yield from page.contents
        after = page.next
        if not page.more:
            return


# --- what is shown ------------------------------------------------------------------------------


def test_a_content_is_ready_once_a_variant_was_decoded(store: Store, shelf: Shelf) -> None:
    first, second = shelf.find(serial("a", 2, 2), serial("b", 1, 1), ready=False)
    assert list(walk(store)) == []
    shelf.decode(first, translation="62")
    (found,) = walk(store)
    assert (found.id, found.found, found.decoded) == (first, 4, 2)
    assert [(season.number, [episode.number for episode in season.episodes]) for season in found.seasons] == [
        (1, [1, 2])
    ]
    shown = [variant for season in found.seasons for episode in season.episodes for variant in episode.variants]
    assert [(each.translation_id, each.translation_title, each.translation_type) for each in shown] == [
        ("62", "Voice 2", "voice")
    ] * 2
    assert all(each.mp4_link and each.mp4_link.startswith("https://cdn.test/") for each in shown)

    everything = store.read(lambda tx: ready_after(tx, START, limit=5, every=True)).contents[0]
    assert [
        [(each.translation_id, each.mp4_link is not None) for each in episode.variants]
        for episode in everything.seasons[0].episodes
    ] == [[("61", False), ("62", True)]] * 2
    other = store.read(lambda tx: one_content(tx, second))
    assert (other.id, other.decoded, other.seasons) == (second, 0, [])


def test_what_was_to_be_found_only_is_ready_when_it_is_found(store: Store, shelf: Shelf) -> None:
    shelf.find(serial("a", 3, 1), ready=True)
    (found,) = walk(store)
    assert (found.found, found.decoded, found.seasons) == (3, 0, [])


def test_what_its_source_no_longer_has_is_not_shown(store: Store, shelf: Shelf) -> None:
    (number,) = shelf.find(serial("a", 3, 1))
    shelf.decode(number)
    before = store.read(lambda tx: one_content(tx, number))
    shelf.find(serial("a", 2, 1))
    after = store.read(lambda tx: one_content(tx, number))
    assert [len(each.seasons[0].episodes) for each in (before, after)] == [3, 2]
    assert (after.found, after.decoded) == (2, 2)
    assert after.updated_at > before.updated_at


def test_parsing_again_with_nothing_new_moves_no_time(store: Store, shelf: Shelf) -> None:
    shelf.fill(5, episodes=2)
    shelf.decode(1, 2)
    before = shelf.versions()
    shelf.fill(5, episodes=2)
    shelf.decode(1, 2)
    assert shelf.versions() == before


def test_a_content_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFound):
        store.read(lambda tx: one_content(tx, 4))


# --- cursors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_equal_times_at_the_boundary_of_a_page_lose_nothing(store: Store, shelf: Shelf, limit: int) -> None:
    """The clock gives no time twice; a database that was written by something else may have them."""
    ids = shelf.fill(9)
    moment = datetime(2026, 5, 4, 18, tzinfo=UTC)
    same = sa.update(contents).where(contents.c.id.in_(ids[2:7])).values(updated_at=moment)
    store.write("test", lambda tx: tx.conn.execute(same))
    seen = [content.id for content in walk(store, limit=limit)]
    assert sorted(seen) == sorted(ids)
    assert len(seen) == len(set(seen))
    assert seen[:5] == sorted(ids[2:7])
    for number in ids[2:7]:  # and from each of them on
        rest = [content.id for content in walk(store, Place(moment, number), limit)]
        assert rest == seen[seen.index(number) + 1 :]
    for since, count in ((moment, 9), (moment + TICK, 4), (moment - TICK, 9)):
        assert len(list(walk(store, Place.before(since), limit))) == count
        assert store.read(lambda tx, s=since: count_ready(tx, s)) == count  # type: ignore[misc]


def test_a_place_stays_good_when_its_content_moves_on(store: Store, shelf: Shelf) -> None:
    ids = shelf.fill(4)
    first = next(walk(store))
    shelf.change([ids[0], ids[2]], title="new")
    assert [content.id for content in walk(store, first.place)] == [ids[1], ids[3], ids[0], ids[2]]


def test_at_the_end_the_place_is_kept(store: Store, shelf: Shelf) -> None:
    assert store.read(lambda tx: ready_after(tx, START, limit=5)).next == START
    shelf.fill(3)
    page = store.read(lambda tx: ready_after(tx, START, limit=3))
    assert not page.more
    again = store.read(lambda tx: ready_after(tx, page.next, limit=3))
    assert (again.contents, again.next, again.more) == ([], page.next, False)
    shelf.change([2], title="new")
    assert [content.id for content in walk(store, again.next)] == [2]


def test_a_page_ends_early_where_contents_are_heavy(
    store: Store, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = shelf.fill(4, episodes=4, translations=2)
    monkeypatch.setattr(export, "ENOUGH", 17)
    page = store.read(lambda tx: ready_after(tx, START, limit=4))
    assert ([content.id for content in page.contents], page.more) == (ids[:2], True)
    monkeypatch.setattr(export, "ENOUGH", 1)
    page = store.read(lambda tx: ready_after(tx, START, limit=4))
    assert ([content.id for content in page.contents], page.more) == (ids[:1], True)
    assert [content.id for content in walk(store, limit=4)] == ids


@pytest.mark.parametrize(
    "text", ["x", "1", "1.", ".1", "1.2.3", "-1.2", "1.-2", "٣.٣", "1e9.1", "9" * 30 + ".1", "1." + "9" * 25, " 1.1"]
)
def test_a_cursor_that_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid, match="not one of ours"):
        Place.parse(text)


def test_a_cursor_is_exact_to_the_microsecond() -> None:
    chance = random.Random(7)
    for _ in range(1_000):
        place = Place(datetime(2026, 1, 1, tzinfo=UTC) + chance.randrange(10**15) * TICK, chance.randrange(1, 2**63))
        assert Place.parse(str(place)) == place
    assert Place.parse("") == START
    assert Place.before(datetime.min.replace(tzinfo=UTC)) == START


# --- writers ------------------------------------------------------------------------------------


def test_who_commits_later_has_the_later_time(store: Store, shelf: Shelf) -> None:
    """One writer has its times and does not commit; another comes, with a clock that is even behind."""
    ids = shelf.fill(3)
    place = store.read(lambda tx: ready_after(tx, START, limit=5)).next
    written, commit = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        changed(tx, ids[:1], title="slow")
        written.set()
        assert commit.wait(30)

    def swift(tx: Tx) -> None:
        tx.now -= timedelta(hours=1)
        changed(tx, ids[1:2], title="swift")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(store.write, "slow", slow)
        assert written.wait(30)
        second = pool.submit(store.write, "swift", swift)
        if store.shared:
            wait_until(lambda: waiting(store), "the second writer to wait for the first")
        assert list(walk(store, place)) == []
        commit.set()
        first.result(30)
        second.result(30)
    assert [(content.id, content.title) for content in walk(store, place)] == [(ids[0], "slow"), (ids[1], "swift")]


def waiting(store: Store) -> int:
    query = sa.text("SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return int(one(store, query)["n"])


def test_a_transaction_that_stays_open_elsewhere_hides_and_delays_nothing(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    """A backup, or somebody at a prompt: one has written to another table, one looks at all of it as it was."""
    store = stores(postgres_url)
    shelf = Shelf(store)
    ids = shelf.fill(3)
    place = store.read(lambda tx: ready_after(tx, START, limit=5)).next
    with psycopg.connect(postgres_url) as writer, psycopg.connect(postgres_url) as looker:
        writer.execute("INSERT INTO system_settings (key, value, updated_at) VALUES ('forgotten', '1', now())")
        looker.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        before = looker.execute("SELECT max(updated_at) FROM contents").fetchone()
        shelf.change(ids[1:2], title="new")
        seen = list(walk(store, place))
        assert [(content.id, content.title) for content in seen] == [(ids[1], "new")]
        assert looker.execute("SELECT max(updated_at) FROM contents").fetchone() == before
        writer.commit()
        shelf.change(ids[:1], title="later")
        assert [content.id for content in walk(store, seen[-1].place)] == ids[:1]


def test_a_reader_in_the_middle_of_a_page_is_not_shown_halves(store: Store, shelf: Shelf) -> None:
    """Contents and their variants are of one moment: who is shown the old time is shown the old links."""
    (number,) = shelf.find(serial("a", 2, 1), ready=True)
    before = shelf.versions()[number]
    asked = threading.Event()

    def look(tx: Tx) -> Content:
        def between(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "FROM contents" in statement and not asked.is_set():
                asked.set()
                pool.submit(shelf.decode, number).result(30)

        sa.event.listen(tx.conn, "after_cursor_execute", between)
        try:
            (found,) = ready_after(tx, START, limit=5).contents
        finally:
            sa.event.remove(tx.conn, "after_cursor_execute", between)
        return found

    with ThreadPoolExecutor(1) as pool:
        found = store.read(look)
    assert asked.is_set()
    assert (found.updated_at, found.decoded, found.seasons) == (before, 0, [])
    (after,) = walk(store, found.place)
    assert (after.decoded, len(after.seasons[0].episodes)) == (2, 2)


# --- pages --------------------------------------------------------------------------------------


def test_pages_have_everything_and_say_how_much_there_is(store: Store, shelf: Shelf) -> None:
    ids = shelf.fill(10)
    shelf.find(serial("not yet"), ready=False)
    pages = [store.read(lambda tx, p=number: ready_page(tx, page=p, size=4)) for number in range(4)]  # type: ignore[misc]
    assert [[content.id for content in page.contents] for page in pages] == [ids[:4], ids[4:8], ids[8:], []]
    assert [(page.total, page.more) for page in pages] == [(10, True), (10, True), (10, False), (10, False)]
    assert pages[1].next == pages[1].contents[-1].place
    newest = pages[2].contents[0].updated_at
    since = store.read(lambda tx: ready_page(tx, page=0, size=4, since=newest))
    assert ([content.id for content in since.contents], since.total) == (ids[8:], 2)


def test_how_many_there_are_since_any_moment(store: Store, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "FEW", 3)
    shelf.fill(100)
    shelf.find(*(serial(f"hidden-{number}") for number in range(5)), ready=False)
    times = sorted(shelf.versions()[number] for number in range(1, 101))
    for at in (0, 1, 2, 3, 4, 35, 50, 60, 96, 97, 98, 99):
        assert store.read(lambda tx, m=times[at]: count_ready(tx, m)) == 100 - at  # type: ignore[misc]
    assert store.read(lambda tx: count_ready(tx, times[-1] + TICK)) == 0
    assert store.read(count_ready) == 100
    assert one(store, sa.select(content_clock))["last"] == max(shelf.versions().values())


# --- what it costs ------------------------------------------------------------------------------

READS: dict[str, Callable[[Tx], Any]] = {
    "after": lambda tx: ready_after(tx, Place(datetime(2026, 1, 1, tzinfo=UTC), 5), limit=5),
    "page": lambda tx: ready_page(tx, page=7, size=5),
    "page since": lambda tx: ready_page(tx, page=0, size=5, since=datetime(2026, 1, 1, tzinfo=UTC)),
    "one": lambda tx: one_content(tx, 17),
}


def test_a_page_takes_few_questions_and_each_goes_by_an_index(
    store: Store, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "FEW", 20)  # small enough beside this table for PostgreSQL to take the index
    shelf.fill(2_000, episodes=2, translations=2)
    shelf.decode(*range(1, 500))
    if store.shared:
        store.write("test", lambda tx: tx.conn.execute(sa.text("ANALYZE")))

    def asked(tx: Tx, read: Callable[[Tx], Any]) -> list[tuple[str, Any]]:
        seen: list[tuple[str, Any]] = []

        def remember(_conn: Any, _cursor: Any, statement: str, params: Any, *_: Any) -> None:
            seen.append((statement, params))

        sa.event.listen(tx.conn, "before_cursor_execute", remember)
        read(tx)
        sa.event.remove(tx.conn, "before_cursor_execute", remember)
        return seen

    def look(tx: Tx) -> None:
        if store.shared:  # small tables are cheaper to read whole
            tx.conn.execute(sa.text("SET LOCAL enable_seqscan = off"))
        for name, read in READS.items():
            statements = asked(tx, read)
            assert len(statements) <= 6, name
            for statement, params in statements:
                plan = "\n".join(explained(tx, statement, params))
                assert not re.search(r"SCAN (contents|seasons|episodes|variants)", plan), plan
                assert not re.search(r"Seq Scan on (contents|seasons|episodes|variants)", plan), plan
                if "WHERE contents.ready" in statement:
                    assert "ix_contents_ready" in plan, plan

    store.read(look)
