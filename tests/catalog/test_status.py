"""The status of a playlist: spec 000's four, in its order, each with its because; and what asking costs."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.schema import playlists, songs
from dalsegno.catalog.status import (
    TITLES,
    Page,
    PlaylistLine,
    PlaylistStatus,
    list_playlists,
    list_pools,
    playlist_detail,
)
from dalsegno.clock import ManualClock
from dalsegno.errors import NotFound
from dalsegno.store.store import Tx
from tests.catalog.shelves import Shelves
from tests.helpers import begin, claim, command, one_step, register, settle, status_of, submitted

ERROR, ACTIVE, INCOMPLETE, COMPLETE = PlaylistStatus
MAKE_CATALOG = Path(__file__).parents[2] / "scripts" / "make_catalog.py"


@pytest.fixture
def shelves(still: Store) -> Shelves:
    return Shelves(still)


def detail(store: Store, playlist: int, **options: Any) -> PlaylistLine:
    return store.read(lambda tx: playlist_detail(tx, playlist, **options))


def page(store: Store, **options: Any) -> Page[PlaylistLine]:
    return store.read(lambda tx: list_playlists(tx, **options))


def told(store: Store, playlist: int, **options: Any) -> tuple[str, str]:
    """Its status and because; a page filtered by that status must agree, and no other may hold it."""
    line = detail(store, playlist, **options)
    holding = [
        status
        for status in PlaylistStatus
        if playlist in [each.id for each in page(store, status=status, **options).lines]
    ]
    assert holding == [line.status]
    return line.status, line.because


def work(store: Store, service: str, *keys: str) -> Any:
    """A running job of one service with these items, all of them claimed."""
    submitted(store, one_step(service), items=list(keys))
    return claim(store, register(store), len(keys), service)


def fail(store: Store, service: str, *keys: str, code: str = "html_instead_of_audio") -> list[int]:
    claimed = work(store, service, *keys)
    begin(store, claimed)
    settle(store, claimed, "failed", error_code=code, error_message=f"{code}, in words")
    return [item.id for item in claimed]


# --- the four ---------------------------------------------------------------------------------------


def test_the_statuses_have_the_names_of_the_spec() -> None:
    assert [TITLES[status] for status in PlaylistStatus] == ["异常", "进行中", "未完成", "已完成"]


def test_a_playlist_that_was_never_synced_is_incomplete(still: Store, shelves: Shelves) -> None:
    assert told(still, shelves.playlist("P", synced_at=None)) == (INCOMPLETE, "never synced")


def test_songs_without_a_file_keep_it_incomplete(still: Store, shelves: Shelves) -> None:
    first, *rest = shelves.songs(4)
    shelves.download(first)
    number = shelves.playlist("P", first, *rest)
    assert told(still, number) == (INCOMPLETE, "3 of 4 songs not downloaded yet")


def test_it_is_complete_when_every_song_has_its_file(still: Store, shelves: Shelves) -> None:
    both = shelves.songs(2)
    for song in both:
        shelves.download(song)
    assert told(still, shelves.playlist("P", *both)) == (COMPLETE, "all 2 songs downloaded")
    assert told(still, shelves.playlist("Q", both[0])) == (COMPLETE, "its song is downloaded")
    assert told(still, shelves.playlist("R")) == (COMPLETE, "no songs")


def test_uploads_count_only_where_they_are_in_scope(still: Store, shelves: Shelves) -> None:
    store, other = shelves.backend("s3", "s3://music"), shelves.backend("file", "file:///nas")
    library = shelves.backend("library", "/library")
    one, two = shelves.songs(2)
    shelves.place(shelves.download(one, library, "1.mp3"), store, "1.mp3")
    asset = shelves.download(two, library, "2.mp3")
    shelves.place(asset, other, "2.mp3")
    number = shelves.playlist("P", one, two)
    assert told(still, number) == (COMPLETE, "all 2 songs downloaded")
    assert told(still, number, upload_backend_id=store) == (INCOMPLETE, "1 of 2 songs not uploaded yet")
    assert [detail(still, number).uploaded, detail(still, number, upload_backend_id=store).uploaded] == [2, 1]
    lost = shelves.place(asset, store, "lost.mp3", missing_at=shelves.now)
    assert lost
    assert told(still, number, upload_backend_id=store) == (INCOMPLETE, "1 of 2 songs not uploaded yet")
    shelves.place(asset, store, "2.mp3")
    assert told(still, number, upload_backend_id=store) == (COMPLETE, "all 2 songs downloaded and uploaded")


def test_a_song_gone_upstream_keeps_nothing_open_and_is_told(still: Store, shelves: Shelves) -> None:
    here, gone = shelves.songs(2)
    shelves.download(here)
    shelves.change(songs, gone, missing_at=shelves.now)
    number = shelves.playlist("P", here, gone)
    assert told(still, number) == (COMPLETE, "1 of 2 songs downloaded; 1 song is gone upstream")
    assert detail(still, number).gone == 1
    more = shelves.playlist("Q", here, gone, shelves.song("Another"))
    assert told(still, more) == (INCOMPLETE, "1 of 3 songs not downloaded yet; 1 song is gone upstream")


def test_a_download_that_found_its_song_gone_is_an_error_like_any_other(still: Store, shelves: Shelves) -> None:
    song = shelves.song()
    fail(still, "download", f"song:{song}", code="song_gone")
    shelves.change(songs, song, missing_at=shelves.now)
    assert told(still, shelves.playlist("P", song)) == (ERROR, "1 song failed: song_gone")


def test_a_song_gone_upstream_after_its_download_is_like_any_other(still: Store, shelves: Shelves) -> None:
    song = shelves.song()
    shelves.download(song)
    shelves.change(songs, song, missing_at=shelves.now)
    assert told(still, shelves.playlist("P", song)) == (COMPLETE, "its song is downloaded")


def test_a_playlist_gone_before_its_first_sync_has_nothing_left_to_do(still: Store, shelves: Shelves) -> None:
    number = shelves.playlist("P", synced_at=None, missing_at=shelves.now)
    assert told(still, number) == (COMPLETE, "no songs; the playlist is gone upstream")


def test_songs_that_left_the_playlist_do_not_count(still: Store, shelves: Shelves) -> None:
    stays, left = shelves.songs(2)
    shelves.download(stays)
    number = shelves.playlist("P", stays, left)
    fail(still, "download", f"song:{left}")
    statement = sa.text("UPDATE playlist_songs SET removed_at = added_at WHERE song_id = :left")
    still.write("test", lambda tx: tx.conn.execute(statement, {"left": left}).rowcount)
    assert told(still, number) == (COMPLETE, "its song is downloaded")
    assert detail(still, number).song_count == 1


# --- errors -----------------------------------------------------------------------------------------


def test_a_failed_song_is_an_error_in_each_of_its_playlists(still: Store, shelves: Shelves, clock: ManualClock) -> None:
    one, two, fine = shelves.songs(3)
    shelves.download(fine)
    lists = [shelves.playlist("P", one, two, fine), shelves.playlist("Q", two)]
    apart = shelves.playlist("R", fine)
    fail(still, "download", f"song:{one}", code="not_found")
    clock.advance(60)
    (item,) = fail(still, "download", f"song:{two}")
    assert told(still, lists[0]) == (ERROR, "2 songs failed: html_instead_of_audio, not_found")
    assert told(still, lists[1]) == (ERROR, "1 song failed: html_instead_of_audio")
    assert told(still, apart) == (COMPLETE, "its song is downloaded")
    error = detail(still, lists[0]).latest_error
    assert error is not None
    assert (error.item_id, error.code) == (item, "html_instead_of_audio")
    assert error.message == "html_instead_of_audio, in words"
    assert detail(still, lists[0]).last_processed_at == error.at


def test_only_the_first_codes_are_told(still: Store, shelves: Shelves) -> None:
    five = shelves.songs(5)
    for song, code in zip(five, "abcde", strict=True):
        fail(still, "download", f"song:{song}", code=code)
    assert told(still, shelves.playlist("P", *five)) == (ERROR, "5 songs failed: a, b, c, …")


def test_a_song_that_failed_in_two_jobs_is_one_song(still: Store, shelves: Shelves) -> None:
    song = shelves.song()
    fail(still, "download", f"song:{song}", code="a")
    fail(still, "download", f"song:{song}", code="b")
    number = shelves.playlist("P", song)
    assert told(still, number) == (ERROR, "1 song failed: a, b")
    assert detail(still, number).failed == 1


def test_a_later_download_answers_a_failed_one(still: Store, shelves: Shelves, clock: ManualClock) -> None:
    song = shelves.song()
    number = shelves.playlist("P", song)
    shelves.download(song)
    clock.advance(60)
    fail(still, "download", f"song:{song}")
    assert told(still, number) == (ERROR, "1 song failed: html_instead_of_audio")
    clock.advance(60)
    shelves.download(song)
    assert told(still, number) == (COMPLETE, "its song is downloaded")
    assert detail(still, number).latest_error is None


def test_a_later_upload_answers_a_failed_one_and_a_download_does_not(
    still: Store, shelves: Shelves, clock: ManualClock
) -> None:
    store, song = shelves.backend("s3", "s3://music"), shelves.song()
    library = shelves.backend("library", "/library")
    number = shelves.playlist("P", song)
    fail(still, "upload", f"song:{song}", code="access_denied")
    clock.advance(60)
    asset = shelves.download(song, library, "1.mp3")
    assert told(still, number, upload_backend_id=store) == (ERROR, "1 song failed: access_denied")
    shelves.place(asset, store, "1.mp3")
    assert told(still, number, upload_backend_id=store) == (COMPLETE, "its song is downloaded and uploaded")
    assert told(still, number) == (COMPLETE, "its song is downloaded")


def test_a_later_sync_answers_a_failed_one(still: Store, shelves: Shelves, clock: ManualClock) -> None:
    number = shelves.playlist("P")
    fail(still, "sync", f"playlist:{number}", code="unreachable")
    assert told(still, number) == (ERROR, "the sync failed: unreachable")
    error = detail(still, number).latest_error
    assert error is not None
    assert error.code == "unreachable"
    clock.advance(60)
    shelves.change(playlists, number, synced_at=shelves.now)
    assert told(still, number) == (COMPLETE, "no songs")


def test_a_retried_item_is_no_failure_any_more(still: Store, shelves: Shelves) -> None:
    song = shelves.song()
    number = shelves.playlist("P", song)
    (item,) = fail(still, "download", f"song:{song}")
    assert detail(still, number).status == ERROR
    command(still, "retry_item", item_id=item)
    assert told(still, number) == (INCOMPLETE, "1 of 1 song not downloaded yet")


def test_items_of_other_services_with_such_keys_are_none_of_its_business(still: Store, shelves: Shelves) -> None:
    song = shelves.song()
    shelves.download(song)
    number = shelves.playlist("P", song)
    fail(still, "describe", f"song:{song}", f"playlist:{number}")
    fail(still, "download", "song:", "song:x1", "song:99999999999999999999", "song", f"song:{song} ")
    work(still, "describe", f"song:{song}")
    work(still, "upload", "song:x1", "playlist:1")
    assert told(still, number) == (COMPLETE, "its song is downloaded")


# --- at work ----------------------------------------------------------------------------------------


def test_leases_make_it_active(still: Store, shelves: Shelves) -> None:
    one, two, three = shelves.songs(3)
    number = shelves.playlist("P", one, two, three)
    work(still, "download", f"song:{one}", f"song:{two}")
    begin(still, work(still, "upload", f"song:{three}"))
    assert told(still, number) == (ACTIVE, "downloading 2 songs; uploading 1 song")
    line = detail(still, number)
    assert (line.running, line.stage) == (3, "download")


def test_a_sync_makes_it_active(still: Store, shelves: Shelves) -> None:
    number, other = shelves.playlist("P", synced_at=None), shelves.playlist("Q", synced_at=None)
    work(still, "sync", f"playlist:{number}")
    assert told(still, number) == (ACTIVE, "syncing")
    assert (detail(still, number).running, detail(still, number).stage) == (1, "sync")
    assert told(still, other) == (INCOMPLETE, "never synced")


def test_an_error_outranks_work(still: Store, shelves: Shelves) -> None:
    one, two = shelves.songs(2)
    number = shelves.playlist("P", one, two)
    fail(still, "download", f"song:{one}")
    work(still, "download", f"song:{two}")
    assert told(still, number) == (ERROR, "1 song failed: html_instead_of_audio")


def test_while_a_job_is_being_paused_its_unfinished_songs_are_active(still: Store, shelves: Shelves) -> None:
    one, two = shelves.songs(2)
    held, waiting = shelves.playlist("P", one), shelves.playlist("Q", two)
    job = submitted(still, one_step("download"), items=[f"song:{one}", f"song:{two}"]).job_id
    claimed = claim(still, register(still), 1, "download")
    begin(still, claimed)
    assert told(still, waiting) == (INCOMPLETE, "1 of 1 song not downloaded yet")
    command(still, "pause", job_id=job)
    assert status_of(still, job) == "pause_requested"
    assert told(still, held) == (ACTIVE, "downloading 1 song; pausing with 1 song unfinished")
    assert told(still, waiting) == (ACTIVE, "pausing with 1 song unfinished")
    settle(still, claimed)
    assert status_of(still, job) == "paused"
    assert told(still, waiting) == (INCOMPLETE, "1 of 1 song not downloaded yet")


def test_unfinished_items_keep_it_incomplete(still: Store, shelves: Shelves) -> None:
    song = shelves.song()
    shelves.download(song)
    number = shelves.playlist("P", song)
    submitted(still, one_step("download"), items=[f"song:{song}"])
    assert told(still, number) == (INCOMPLETE, "1 song unfinished in a job")
    settle(still, claim(still, register(still), 1, "download"), "skipped")
    assert told(still, number) == (COMPLETE, "its song is downloaded")
    submitted(still, one_step("sync"), items=[f"playlist:{number}"])
    assert told(still, number) == (INCOMPLETE, "its sync is unfinished in a job")


# --- lists ------------------------------------------------------------------------------------------


def test_pages_miss_and_repeat_nothing(still: Store, shelves: Shelves) -> None:
    names = ["Rain", "雨", "Rain", "été", "Zug", "Rain", "", "a%b", "A_B"]
    made = {shelves.playlist(name) for name in names}
    seen: list[int] = []
    after = None
    while True:
        found = page(still, after=after, limit=2)
        seen += [line.id for line in found.lines]
        after = found.next
        if after is None:
            break
    assert len(seen) == len(set(seen))
    assert set(seen) == made
    assert seen == [line.id for line in page(still).lines]


def test_a_page_after_a_playlist_that_never_was_says_so(still: Store) -> None:
    with pytest.raises(NotFound, match="no playlist 7"):
        page(still, after=7)
    with pytest.raises(NotFound, match="no playlist 7"):
        detail(still, 7)


def test_playlists_are_found_by_platform_pool_and_part_of_their_name(still: Store, shelves: Shelves) -> None:
    tops, more = shelves.pool("Tops", kind="toplist"), shelves.pool("More")
    rain = shelves.playlist("Rain songs", pools=(tops, more), songs_added=12, songs_removed=3)
    sun = shelves.playlist("100% sun", platform="other", pools=(more,))
    plain = shelves.playlist("1000 suns")

    def ids(**options: Any) -> set[int]:
        return {line.id for line in page(still, **options).lines}

    assert ids(platform="other") == {sun}
    assert ids(pool_id=more) == {rain, sun}
    assert ids(pool_id=tops) == {rain}
    assert ids(name="SUN") == {sun, plain}
    assert ids(name="0% s") == {sun}
    assert ids() == {rain, sun, plain}
    line = detail(still, rain)
    assert [(pool.kind, pool.name) for pool in line.pools] == [("toplist", "Tops"), ("square", "More")]
    assert (line.songs_added, line.songs_removed) == (12, 3)
    assert detail(still, plain).pools == []


def test_a_pool_is_as_bad_as_its_worst_playlist(still: Store, shelves: Shelves, clock: ManualClock) -> None:
    pools = {name: shelves.pool(name) for name in ("bad", "busy", "empty", "fine", "open")}
    song, other, third, broken = shelves.songs(4)
    shelves.download(song)
    shelves.playlist("fine", song, pools=tuple(pools[name] for name in ("bad", "busy", "fine", "open")))
    shelves.playlist("open", other, pools=(pools["open"], pools["busy"]))
    shelves.playlist("busy", third, pools=(pools["busy"],))
    shelves.playlist("bad", broken, pools=(pools["bad"],))
    work(still, "download", f"song:{third}")
    fail(still, "download", f"song:{broken}")

    def told_of_pools() -> dict[str, tuple[str, str]]:
        return {line.name: (line.status, line.because) for line in still.read(list_pools)}

    assert told_of_pools() == {
        "bad": (ERROR, "1 of 2 playlists with errors"),
        "busy": (ACTIVE, "1 of 3 playlists at work"),
        "empty": (COMPLETE, "no playlists"),
        "fine": (COMPLETE, "its playlist is complete"),
        "open": (INCOMPLETE, "1 of 2 playlists not complete"),
    }
    fail(still, "collect", f"pool:{pools['fine']}", code="unreachable")
    work(still, "collect", f"pool:{pools['open']}")
    found = told_of_pools()
    assert found["fine"] == (ERROR, "collecting failed: unreachable")
    assert found["open"] == (ACTIVE, "collecting")
    fail(still, "collect", "source:demo", code="forbidden")
    assert told_of_pools()["empty"] == (ERROR, "collecting failed: forbidden")
    clock.advance(60)
    shelves.pool("new", collected_at=None)
    assert told_of_pools()["new"][0] == ERROR, "its source failed, and it was never collected since"


# --- what it costs ----------------------------------------------------------------------------------


@pytest.fixture
def catalog(database_url: str, stores: Callable[..., Store]) -> Store:
    store = stores(database_url)
    runpy.run_path(str(MAKE_CATALOG))["fill"](store, song_count=10_000, playlist_count=1_000)
    return store


def test_counted_one_by_one_or_all_at_once_the_statuses_agree(catalog: Store) -> None:
    options = {"upload_backend_id": 2, "limit": 2000}
    everything = page(catalog, **options).lines
    assert len(everything) == 1000
    for status in PlaylistStatus:
        some = {line.id for line in page(catalog, status=status, **options).lines}
        assert some
        assert some == {line.id for line in everything if line.status == status}
    in_pools = catalog.read(lambda tx: list_pools(tx, upload_backend_id=2))
    for status in PlaylistStatus:
        assert sum(pool.counts[status] for pool in in_pools) == sum(line.status == status for line in everything)


class Watched:
    """A transaction that explains what it is asked, with the values it was asked with."""

    def __init__(self, store: Store, ask: Callable[[Tx], object]) -> None:
        self.statements = 0
        self.plan: list[str] = []
        store.read(lambda tx: self._watch(tx, ask))

    def _watch(self, tx: Tx, ask: Callable[[Tx], object]) -> None:
        seen: list[tuple[str, Any]] = []

        def listen(_conn: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
            seen.append((statement, parameters))

        sa.event.listen(tx.conn, "before_cursor_execute", listen)
        ask(tx)
        sa.event.remove(tx.conn, "before_cursor_execute", listen)
        self.statements = len(seen)
        how = "EXPLAIN QUERY PLAN " if tx.conn.dialect.name == "sqlite" else "EXPLAIN (FORMAT JSON) "
        for statement, parameters in seen:
            rows = tx.raw.cursor().execute(how + statement, parameters).fetchall()
            self.plan += [row[3] for row in rows] if "QUERY" in how else list(_scans(rows[0][0][0]["Plan"]))

    def walks(self, table: str) -> list[str]:
        """Steps that read a table from end to end, or build an index over it first."""
        return [step for step in self.plan if _walks(step.split(), table)]


def _walks(words: list[str], table: str) -> bool:
    if words[-1].startswith("ix_items_trouble"):  # holds only what failed
        return False
    return words[:2] == ["SCAN", table] or (words[:2] == ["SEARCH", table] and "AUTOMATIC" in words)


def _scans(plan: dict[str, Any]) -> Iterator[str]:
    if "Relation Name" in plan:
        kind = "SCAN" if plan["Node Type"] == "Seq Scan" else "SEARCH"
        yield f"{kind} {plan['Relation Name']} {plan.get('Index Name', '')}"
    for inner in plan.get("Plans", ()):
        yield from _scans(inner)


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "with statistics"])
def test_a_page_is_two_queries_that_do_not_walk_the_items(catalog: Store, analysed: bool) -> None:
    if analysed:
        catalog.write("test", lambda tx: tx.conn.exec_driver_sql("ANALYZE").close())
    for backend in (None, 2):
        asked = Watched(catalog, lambda tx, backend=backend: list_playlists(tx, upload_backend_id=backend, after=50))
        assert asked.statements == 2, "which they are, and all about them"
        assert any(step.split()[1] == "items" for step in asked.plan), "it was the right plan"
        assert asked.walks("items") == []


@pytest.mark.parametrize("status", [ERROR, ACTIVE])
def test_troubled_and_busy_playlists_are_found_without_walking_the_items(
    catalog: Store, backend: str, status: PlaylistStatus
) -> None:
    if backend == "postgres":  # as it does by itself; SQLite is never told to
        catalog.write("test", lambda tx: tx.conn.exec_driver_sql("ANALYZE").close())
    asked = Watched(catalog, lambda tx: list_playlists(tx, status=status, upload_backend_id=2))
    assert asked.statements == 2
    assert asked.walks("items") == []
