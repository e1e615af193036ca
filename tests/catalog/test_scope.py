"""What a job is about: each template with each key of a scope, and names that nothing has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.schema import playlist_pools, playlist_songs, playlists, pool_playlists, songs
from dalsegno.catalog.scope import check_names, of_playlists, of_songs, parse_scope
from dalsegno.catalog.templates import TITLES, order
from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.settings import Settings
from dalsegno.sources.demo_server import DemoServer
from dalsegno.store.schema import stages
from dalsegno.store.store import Tx
from tests.catalog.studio import ENDED, at_work, audio_in, run, settings_for
from tests.helpers import every, items_of, job_of, status_of, wait_for_job


@pytest.fixture(scope="module")
def demo() -> Iterator[DemoServer]:
    with DemoServer(pace=0, songs=24, playlists=4, faults=False) as server:
        yield server


@pytest.fixture
def known(demo: DemoServer, store: Store, tmp_path: Path) -> Settings:
    """The demo catalog, collected and synced; nothing is downloaded yet."""
    settings = settings_for(tmp_path / "library", demo_url=demo.url, object_store=f"file://{tmp_path / 'archive'}")
    assert status_of(store, run(store, settings, "collect")) == "completed"
    assert status_of(store, run(store, settings, "sync")) == "completed"
    return settings


def job_for(store: Store, settings: Settings, template: str, scope: dict[str, Any]) -> int:
    """A job of the engine that is at work, once it has ended."""
    job_id = order(store, settings, template, scope=scope).job_id
    wait_for_job(store, job_id, ENDED, 60)
    return job_id


def keys_of(store: Store, job_id: int, step: str) -> set[str]:
    return {item["key"] for item in items_of(store, job_id, step)}


def members(store: Store, *lists: int) -> set[str]:
    query = sa.select(playlist_songs.c.song_id).where(playlist_songs.c.playlist_id.in_(lists))
    return {f"song:{row['song_id']}" for row in every(store, query)}


STAGES = {
    "full": ["collect", "sync", "download", "upload"],
    "collect": ["collect"],
    "sync": ["sync"],
    "sync-download": ["sync", "download"],
    "download": ["download"],
    "upload": ["upload"],
    "download-upload": ["download", "upload"],
}


@pytest.mark.parametrize("name", [*STAGES, *TITLES.values()])
def test_each_template_has_its_stages(
    name: str, demo: DemoServer, sqlite_url: str, stores: Callable[..., Store], tmp_path: Path
) -> None:
    store = stores(sqlite_url)
    settings = settings_for(tmp_path / "library", demo_url=demo.url, object_store=f"file://{tmp_path / 'archive'}")
    job = run(store, settings, name)
    assert status_of(store, job) == "completed"
    id = next((id for id, title in TITLES.items() if title == name), name)
    rows = every(store, sa.select(stages.c.key).where(stages.c.job_id == job).order_by(stages.c.seq))
    assert [row["key"] for row in rows] == STAGES[id]
    if id == "full":
        assert len(audio_in(tmp_path / "archive")) == len(audio_in(tmp_path / "library")) > 10


def test_each_key_of_a_scope_narrows_each_step(known: Settings, store: Store) -> None:
    pools = {row["name"]: row for row in every(store, sa.select(playlist_pools))}
    lists = {row["id"]: row for row in every(store, sa.select(playlists).order_by(playlists.c.id))}
    inside: dict[int, set[int]] = {}
    for row in every(store, sa.select(pool_playlists)):
        inside.setdefault(row["pool_id"], set()).add(row["playlist_id"])
    pool = pools["Charts"]
    one, other = list(lists.values())[:2]
    every_song = {f"song:{row['id']}" for row in every(store, sa.select(songs))}
    a_song = every(store, sa.select(songs).where(songs.c.remote_id == "song-9"))[0]

    with at_work(store, known):
        for scope in ([pool["id"]], [str(pool["id"])], ["Charts"], [f"demo:{pool['remote_id']}"]):
            job = job_for(store, known, "collect", {"pools": scope})
            assert keys_of(store, job, "collect") == {f"pool:{pool['id']}"}
            job = job_for(store, known, "sync", {"pools": scope})
            assert keys_of(store, job, "sync") == {f"playlist:{number}" for number in inside[pool["id"]]}
            assert _planned(store, known, {"pools": scope}) == members(store, *inside[pool["id"]])

        for scope in ([one["id"]], [one["name"]], [f"demo:{one['remote_id']}"]):
            job = job_for(store, known, "sync", {"playlists": scope})
            assert keys_of(store, job, "sync") == {f"playlist:{one['id']}"}
            assert _planned(store, known, {"playlists": scope}) == members(store, one["id"])
        both = [one["name"], other["id"]]
        assert _planned(store, known, {"playlists": both}) == members(store, one["id"], other["id"])

        for scope in ([a_song["id"]], ["demo:song-9"]):
            assert _planned(store, known, {"songs": scope}) == {f"song:{a_song['id']}"}
        assert _planned(store, known, {"sources": ["demo"]}) == every_song & members(store, *lists)
        assert _planned(store, known, {"query": "etc/PASSWD"}) == {f"song:{a_song['id']}"}
        assert _planned(store, known, {"query": "100%"}) == set()
        job = job_for(store, known, "sync", {"query": one["name"].upper()})
        assert keys_of(store, job, "sync") == {f"playlist:{one['id']}"}


def _planned(store: Store, settings: Settings, scope: dict[str, Any]) -> set[str]:
    """The songs that a download with this scope is about."""
    return keys_of(store, job_for(store, settings, "download", scope), "download")


def test_a_full_run_of_one_playlist_touches_no_other(known: Settings, store: Store) -> None:
    (one, *_) = every(store, sa.select(playlists).order_by(playlists.c.id))
    job = run(store, known, "full", scope={"playlists": [one["name"]]})
    assert status_of(store, job) == "completed"
    assert keys_of(store, job, "sync") == {f"playlist:{one['id']}"}
    assert keys_of(store, job, "download") == keys_of(store, job, "upload") == members(store, one["id"])


@pytest.mark.parametrize(
    ("template", "scope", "says"),
    [
        ("fulll", None, '"fulll"'),
        ("全连路", None, '"全连路"'),
        ("full", {"song": [1]}, 'A scope has no "song". Did you mean "songs"?'),
        ("full", ["demo"], "A scope is an object such as"),
        ("full", {"songs": "all"}, "scope.songs: "),
        ("full", {"songs": [True]}, "scope.songs.0: "),
        ("full", {"sources": ["dmeo"]}, 'There is no source "dmeo". Did you mean "demo"?'),
    ],
)
def test_a_wrong_name_is_refused_in_words(
    template: str, scope: Any, says: str, sqlite_url: str, stores: Callable[..., Store], tmp_path: Path
) -> None:
    with pytest.raises(DalSegnoError) as caught:
        order(stores(sqlite_url), settings_for(tmp_path), template, scope=scope)
    assert says in str(caught.value)


NAMELESS: list[tuple[str, dict[str, Any], str]] = [
    ("full", {"sources": ["feed"]}, 'Source "feed" is not configured here; configured: demo.'),
    ("sync", {"sources": ["feed"]}, 'Source "feed" is not configured here; configured: demo.'),
    ("download", {"sources": ["feed"]}, 'Source "feed" is not configured here; configured: demo.'),
    ("collect", {"pools": ["Chart"]}, 'There is no pool "Chart". Did you mean "Charts"?'),
    ("sync", {"playlists": ["No such list"]}, 'playlist "No such list"'),
    ("download", {"playlists": [99999]}, "playlist 99999"),
    ("download", {"songs": ["demo:song-99999"]}, 'song "demo:song-99999"'),
    ("download", {"songs": [99999]}, "song 99999"),
    ("upload", {"songs": [99999]}, "song 99999"),
]
"""Names that nothing has, and what is said about each."""


def test_a_scope_that_names_nothing_says_so(known: Settings, store: Store) -> None:
    with at_work(store, known):
        for template, scope, says in NAMELESS:
            row = job_of(store, job_for(store, known, template, scope))
            assert (row["status"], says in (row["error_message"] or "")) == ("failed", True), dict(row)


@pytest.mark.parametrize("kept", ["NFC", "NFD"])
def test_a_name_is_found_however_its_accents_and_syllables_are_written(
    store: Store, kept: Literal["NFC", "NFD"]
) -> None:
    """Names of files from a Mac come in pieces (NFD), and people type them whole."""
    names = ["Café Müller", "봄날"]

    def work(tx: Tx) -> None:
        for number, name in enumerate((normalize(kept, name) for name in names), 1):
            row = {"id": number, "platform": "folder", "remote_id": name, "created_at": tx.now, "updated_at": tx.now}
            tx.conn.execute(sa.insert(playlists), {**row, "name": name})
            tx.conn.execute(sa.insert(songs), {**row, "title": name})

    store.write("test", work)
    forms: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
    for number, name in enumerate(names, 1):
        for text in (normalize(form, name) for form in forms):
            in_lists, in_songs = {"playlists": [text]}, ({"songs": [f"folder:{text}"]}, {"query": text})
            check_names(store, parse_scope(in_lists), ["folder"])
            queries = [sa.select(playlists.c.id).where(*of_playlists(parse_scope(in_lists)))]
            queries += [sa.select(songs.c.id).where(*of_songs(parse_scope(scope))) for scope in in_songs]
            assert [[row["id"] for row in every(store, query)] for query in queries] == [[number]] * 3


def test_a_scope_may_name_thousands_and_says_when_that_is_too_many(known: Settings, store: Store) -> None:
    all_songs = every(store, sa.select(songs))
    named = [f"demo:{row['remote_id']}" for row in all_songs]
    fill = [row["id"] for row in all_songs] * 200
    check_names(store, parse_scope({"songs": named * 200 + fill}), ["demo"])
    found = every(store, sa.select(songs.c.id).where(*of_songs(parse_scope({"songs": named * 200}))))
    assert len(found) == len(all_songs)
    many = [f"demo:{row['remote_id']}" for row in all_songs] + [f"demo:none-{number}" for number in range(9000)]
    assert len(every(store, sa.select(songs.c.id).where(*of_songs(parse_scope({"songs": many}))))) == len(all_songs)
    with pytest.raises(InputInvalid, match='There is no song "demo:none-0"'):
        check_names(store, parse_scope({"songs": many}), ["demo"])
    lists = [f"mix {number}: rain" for number in range(5000)]
    assert every(store, sa.select(playlists.c.id).where(*of_playlists(parse_scope({"playlists": lists})))) == []
    for scope, problem in (
        ({"songs": list(range(1, 70_000))}, "names 10,000 things at most, not 69,999"),
        ({"playlists": [10**30]}, "Nothing has the number 1000"),
        ({"songs": [f"s{number}:1" for number in range(2000)]}, "of 100 sources at most"),
        ({"query": "x" * 60_000}, "1000 characters at most"),
    ):
        with pytest.raises(InputInvalid, match=problem):
            parse_scope(scope)
