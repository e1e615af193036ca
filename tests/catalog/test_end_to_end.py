"""Whole runs against servers nobody here wrote: every byte equal to the origin, here and in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape, quoteattr

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.schema import file_assets, playlists, songs
from dalsegno.settings import Settings
from dalsegno.sources.demo_server import DemoServer
from tests import audio
from tests.catalog.studio import (
    HARD_NAMES,
    Subsonic,
    Web,
    assert_clean,
    assert_playlists,
    assert_same,
    audio_in,
    force_retry,
    m3u,
    places,
    quoted,
    run,
    settings_for,
    song,
    tagged,
    tree,
    troubles,
    web,
)
from tests.helpers import assert_sound, every, items_of, status_of, statuses_of
from tests.s3 import S3Server, juicefs, seaweedfs
from tests.servers import rescan, supysonic

pytestmark = pytest.mark.xdist_group("s3")
DATABASE = {f"dalsegno-1.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock", ".engine")}


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="module")
def juice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


def s3_keys(server: S3Server) -> dict[str, str]:
    return {key.lower(): value for key, value in server.config.items()}


@pytest.mark.timeout(300)
def test_500_songs_from_subsonic_to_seaweedfs(
    tmp_path: Path, sqlite_url: str, stores: Callable[..., Store], weed: S3Server
) -> None:
    music = tmp_path / "music"
    for number in range(500):
        band, which = divmod(number, len(HARD_NAMES))
        album = HARD_NAMES[(5 * band + number % 2) % len(HARD_NAMES)]
        content, suffix = tagged(number, HARD_NAMES[which], HARD_NAMES[5 * band % len(HARD_NAMES)], album)
        file = music / f"{band}" / f"{number}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    library = tmp_path / "deep" / "down" / "library"
    library.mkdir(parents=True)
    store = stores(sqlite_url)
    with supysonic(music) as (address, user, password), web(before=address) as front:
        server = Subsonic(address, user, password)
        origin = {id: music / path for id, path in server.songs().items()}
        assert len(origin) == 500
        some = list(origin)[::7]
        lists = {"Rain 雨": some, "../../escape": some[::-1][:30], "CON": some[5:6]}
        for name, ids in lists.items():
            server.call("createPlaylist", name=name, songId=ids)
        settings = settings_for(library, subsonic_url=front.url, subsonic_user=user, subsonic_password=password,
                                object_store=f"s3://{weed.bucket}/subsonic", **s3_keys(weed))  # fmt: skip
        before = tree(tmp_path, but=library)

        first = run(store, settings)

        assert status_of(store, first) == "completed"
        assert statuses_of(store, first, "download") == statuses_of(store, first, "upload") == {"succeeded": 500}
        assert_same(store, origin, weed, "subsonic")
        assert_clean(library)
        assert tree(tmp_path, but=library).keys() - before.keys() <= DATABASE
        exported = assert_playlists(store, library)
        numbers = {place.remote_id: Path(place.url, place.path) for place in places(store) if place.kind == "library"}
        for name, ids in lists.items():
            assert exported["playlist", name] == [numbers[id].resolve() for id in ids]
        assert_sound(store, first)
        asked = front.asked()
        assert asked["/rest/download.view"] == 500

        second = run(store, settings)

        assert status_of(store, second) == "completed"
        assert statuses_of(store, second, "download") == statuses_of(store, second, "upload") == {"skipped": 500}
        again = front.asked()
        assert again["/rest/download.view"] == 500
        assert again["/rest/getSong.view"] == asked["/rest/getSong.view"]


def file_name(title: str) -> str:
    """As near to the title as this filesystem can have it."""
    name = title.replace("/", "\u2215").encode()[:200].decode("utf-8", "ignore")
    return f"{name}{'_' if set(name) <= {'.'} else ''}"


def rss(title: str, entries: list[tuple[str, str]]) -> str:
    items = "".join(
        f"<item><title>{escape(name)}</title><guid>{number}</guid>"
        f"<enclosure url={quoteattr(url)} type='audio/mpeg' length='1'/></item>"
        for number, (name, url) in enumerate(entries)
    )
    return f"<rss version='2.0'><channel><title>{title}</title>{items}</channel></rss>"


def origin_of(store: Store, root: Path) -> dict[str, Path]:
    """The file each song of a web server comes from, by its remote id."""
    found = {}
    for row in every(store, sa.select(songs)):
        own = row["snapshot"]["own"]
        found[row["remote_id"]] = root / unquote(urlsplit(own.get("place") or own["url"]).path).lstrip("/")
    return found


def test_lists_and_feeds_from_caddy_to_juicefs(
    tmp_path: Path, postgres_url: str, stores: Callable[..., Store], juice: S3Server
) -> None:
    www, library = tmp_path / "www", tmp_path / "deep" / "down" / "library"
    library.mkdir(parents=True)
    entries: list[tuple[str, Path]] = []
    for number, title in enumerate((*HARD_NAMES, *HARD_NAMES[:26])):
        content, suffix = tagged(number, "", "", "")
        file = www / f"{number // len(HARD_NAMES)}" / f"{file_name(title)}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        entries.append((title, file))
    twin = www / "1" / "twin.flac"
    twin.write_bytes(entries[0][1].read_bytes())
    listed, told = [*entries[: len(HARD_NAMES)], ("Twin", twin)], entries[len(HARD_NAMES) :]

    def lines(some: list[tuple[str, Path]]) -> list[tuple[str, str]]:
        return [(f"Bänd - {title.strip().replace(chr(10), ' ')}", quoted(file, www)) for title, file in some]

    (www / "all 全部.m3u8").write_text(m3u(lines(listed), "ignored"))
    (www / "few.m3u8").write_text(m3u(lines(listed[::-5])))
    store = stores(postgres_url)
    with web(www) as server:
        feed = [(title, server.url + quoted(file, www)) for title, file in told]
        (www / "feed.xml").write_text(rss("Pod/cast", feed))
        files = (f"{server.url}/all%20%E5%85%A8%E9%83%A8.m3u8", f"{server.url}/few.m3u8")
        settings = settings_for(library, playlist_files=files, feed_urls=(f"{server.url}/feed.xml",),
                                object_store=f"s3://{juice.bucket}/caddy", **s3_keys(juice))  # fmt: skip
        before = tree(tmp_path, but=library)

        first = run(store, settings)

        assert status_of(store, first) == "completed"
        origin = origin_of(store, www)
        assert set(origin.values()) == {file for _, file in (*listed, *told)}
        assert len(items_of(store, first, "download")) == len(listed) + len(told)  # a song in two lists is one item
        assert_same(store, origin, juice, "caddy")
        assert len(every(store, sa.select(file_assets))) == len(origin) - 1  # the twin is linked, not stored twice
        assert_clean(library)
        assert len(audio_in(library)) == len(origin) - 1
        assert tree(tmp_path, but=library).keys() == before.keys()
        exported = assert_playlists(store, library)
        assert sorted(map(len, exported.values())) == sorted((len(listed), len(listed[::-5]), len(told)))
        asked = server.asked()
        assert {path: count for path, count in asked.items() if path[1].isdigit()} == {
            f"/{file.relative_to(www)}": 1 for file in origin.values()
        }
        assert_sound(store, first)

        second = run(store, settings)

        assert status_of(store, second) == "completed"
        assert set(statuses_of(store, second, "download")) == set(statuses_of(store, second, "upload")) == {"skipped"}
        assert {path: count for path, count in server.asked().items() if path[1].isdigit()} == {
            f"/{file.relative_to(www)}": 1 for file in origin.values()
        }


# --- what changes between two runs ----------------------------------------------------------------


class Stall(NamedTuple):
    """A web server with one playlist, and a catalog that uploads to a folder."""

    www: Path
    server: Web
    library: Path
    archive: Path
    settings: Settings

    def put(self, name: str, content: bytes) -> None:
        (self.www / name).write_bytes(content)

    def list(self, *names: str, file: str = "list.m3u") -> None:
        (self.www / file).write_text(m3u([(f"Band - {Path(name).stem}", name) for name in names]))

    def stored(self, store: Store, title: str, kind: str = "library") -> bytes:
        (place,) = [place for place in places(store) if place.title == title and place.kind == kind]
        return (self.library if kind == "library" else self.archive).joinpath(place.path).read_bytes()


@pytest.fixture
def stall(tmp_path: Path) -> Iterator[Stall]:
    www, library, archive = (tmp_path / name for name in ("www", "library", "archive"))
    www.mkdir()
    with web(www) as server:
        lists = (f"{server.url}/list.m3u", f"{server.url}/other.m3u")
        settings = settings_for(library, playlist_files=lists, object_store=f"file://{archive}")
        yield Stall(www, server, library, archive, settings)


def test_what_changed_is_told_and_nothing_is_deleted(stall: Stall, store: Store) -> None:
    for number, name in enumerate(("a.flac", "b.flac", "c.flac", "d.flac")):
        stall.put(name, audio.flac(0.02, number))
    stall.list("a.flac", "b.flac", "c.flac")
    stall.list("b.flac", file="other.m3u")
    run(store, stall.settings)
    before = tree(stall.library)
    stall.list("c.flac", "d.flac", "a.flac")

    job = run(store, stall.settings)

    assert status_of(store, job) == "completed"
    rows = {row["name"]: row for row in every(store, sa.select(playlists))}
    assert (rows["list"]["songs_added"], rows["list"]["songs_removed"]) == (1, 1)
    assert (rows["other"]["songs_added"], rows["other"]["songs_removed"]) == (0, 0)
    (result,) = [item["result"] for item in items_of(store, job, "sync") if item["result"]["added"]]
    assert result == {"songs": 3, "added": 1, "removed": 1, "moved": 2}
    assert {name: size for name, size in tree(stall.library).items() if name in before and "m3u" not in name} == {
        name: size for name, size in before.items() if "m3u" not in name
    }
    exported = assert_playlists(store, stall.library)
    assert [path.stem for path in exported["file", "list"]] == ["c", "d", "a"]
    assert [path.stem for path in exported["file", "other"]] == ["b"]
    assert statuses_of(store, job, "download") == {"skipped": 3, "succeeded": 1}


def test_a_list_that_lost_its_songs_says_so_in_its_file(stall: Stall, store: Store) -> None:
    stall.put("a.flac", audio.flac(0.02, 1))
    stall.list("a.flac")
    stall.list(file="other.m3u")
    run(store, stall.settings)
    assert [path.stem for path in assert_playlists(store, stall.library)["file", "list"]] == ["a"]
    stall.list()

    job = run(store, stall.settings, "sync")

    assert status_of(store, job) == "completed"
    assert assert_playlists(store, stall.library)["file", "list"] == []
    assert len(audio_in(stall.library)) == 1


def test_a_song_gone_upstream_is_marked_missing_and_can_come_back(stall: Stall, store: Store) -> None:
    stall.put("a.flac", audio.flac(0.02, 1))
    stall.list("a.flac", "b.flac")
    stall.list(file="other.m3u")

    job = run(store, stall.settings)

    assert status_of(store, job) == "completed_with_errors"
    gone = troubles(store, job)["b"]
    assert (gone.status, gone.code) == ("failed", "song_gone")
    assert song(store, "b")["missing_at"] is not None
    assert song(store, "a")["missing_at"] is None
    assert statuses_of(store, job, "upload") == {"succeeded": 1}
    stall.put("b.flac", audio.flac(0.02, 2))
    assert status_of(store, run(store, stall.settings)) == "completed"
    assert song(store, "b")["missing_at"] is None


def test_a_song_deleted_on_a_subsonic_server_is_marked_missing(
    tmp_path: Path, sqlite_url: str, stores: Callable[..., Store]
) -> None:
    music, store = tmp_path / "music", stores(sqlite_url)
    music.mkdir()
    for number, title in enumerate(("stays", "goes")):
        content, suffix = tagged(number, title, "Band", "Album")
        (music / f"{title}{suffix}").write_bytes(content)
    home = tmp_path / "supysonic"
    home.mkdir()
    with supysonic(music, home=home) as (address, user, password):
        settings = settings_for(
            tmp_path / "library", subsonic_url=address, subsonic_user=user, subsonic_password=password
        )
        assert status_of(store, run(store, settings, "collect")) == "completed"
        assert status_of(store, run(store, settings, "sync")) == "completed"
        next(music.glob("goes*")).unlink()
        rescan(home)

        job = run(store, settings, "download")

        assert status_of(store, job) == "completed_with_errors"
        assert troubles(store, job)["stays"].status == "succeeded"
        assert (troubles(store, job)["goes"].status, troubles(store, job)["goes"].code) == ("failed", "song_gone")
        assert song(store, "goes")["missing_at"] is not None


def test_lyrics_and_covers_come_with_the_songs(tmp_path: Path, store: Store) -> None:
    library = tmp_path / "library"
    with DemoServer(pace=0, songs=20, playlists=3, faults=False) as server:
        settings = settings_for(library, demo_url=server.url, object_store=f"file://{tmp_path / 'archive'}")
        job = run(store, settings)
        assert status_of(store, job) == "completed"
        for place in places(store):
            if place.kind == "library":
                known = server.catalog.song(place.remote_id)
                assert known is not None
                file = library / place.path
                assert file.read_bytes() == server.audio(place.remote_id)
                assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
                assert (known.lyrics is not None) == any(file.with_suffix(s).exists() for s in (".lrc", ".txt"))
    assert_clean(library)
    assert_playlists(store, library)


# --- again, because somebody asked ----------------------------------------------------------------


def item_of(store: Store, job_id: int, title: str, step: str = "download") -> int:
    key = f"song:{song(store, title)['id']}"
    return next(int(item["id"]) for item in items_of(store, job_id, step) if item["key"] == key)


def test_force_retry_fetches_and_uploads_one_song_anew(stall: Stall, store: Store) -> None:
    old, new = audio.flac(0.02, 1), audio.flac(0.03, 2)
    stall.put("a.flac", old)
    stall.put("b.flac", audio.flac(0.02, 3))
    stall.list("a.flac", "b.flac")
    stall.list(file="other.m3u")
    job = run(store, stall.settings)
    stall.put("a.flac", new)

    force_retry(store, stall.settings, item_of(store, job, "a"))

    assert status_of(store, job) == "completed"
    assert stall.stored(store, "a") == new
    assert stall.stored(store, "a", "file") == new
    assert stall.server.asked()["/a.flac"] == 2
    assert stall.server.asked()["/b.flac"] == 1
    assert len(audio_in(stall.library)) == 2
    assert_clean(stall.library)
    assert_playlists(store, stall.library)


def test_force_retry_of_the_same_bytes_mends_a_damaged_copy(stall: Stall, store: Store) -> None:
    content = audio.flac(0.02, 1)
    stall.put("a.flac", content)
    stall.list("a.flac")
    stall.list(file="other.m3u")
    job = run(store, stall.settings)
    (here,) = audio_in(stall.library)
    (there,) = audio_in(stall.archive)
    for file in (here, there):
        file.write_bytes(bytes(len(content)))

    force_retry(store, stall.settings, item_of(store, job, "a"))

    assert status_of(store, job) == "completed"
    assert here.read_bytes() == content
    assert there.read_bytes() != content  # what was downloaded has not changed, so nothing follows from it

    force_retry(store, stall.settings, item_of(store, job, "a", "upload"))

    assert status_of(store, job) == "completed"
    assert there.read_bytes() == content
    assert audio_in(stall.library) == [here]
    assert audio_in(stall.archive) == [there]


@pytest.mark.parametrize("trouble", ["corrupt", "html", "gone"])
def test_the_old_file_stays_until_the_new_one_is_verified(stall: Stall, store: Store, trouble: str) -> None:
    old = audio.flac(0.05, 1)
    stall.put("a.flac", old)
    stall.list("a.flac")
    stall.list(file="other.m3u")
    job = run(store, stall.settings)
    if trouble == "gone":
        (stall.www / "a.flac").unlink()
    else:
        stall.put("a.flac", old[:4000] + bytes(50) + old[4050:] if trouble == "corrupt" else b"<html>sign in</html>")

    force_retry(store, stall.settings, item_of(store, job, "a"))

    assert status_of(store, job) == "completed_with_errors"
    assert troubles(store, job)["a"].status == "failed"
    assert stall.stored(store, "a") == old
    assert stall.stored(store, "a", "file") == old
    assert_clean(stall.library)
    assert_playlists(store, stall.library)
    assert status_of(store, run(store, stall.settings, "download")) == "completed"
