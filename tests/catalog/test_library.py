"""The library over many runs: what is written down about files stays true, and what owners do to them is theirs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.downloader import described
from dalsegno.catalog.library import Filed, file_songs
from dalsegno.catalog.schema import file_assets, file_locations, playlist_pools, playlists, pool_playlists
from dalsegno.catalog.status import list_playlists, playlist_detail
from dalsegno.settings import Settings
from dalsegno.sources.folder import Folders
from tests import audio
from tests.catalog.shelves import Shelves
from tests.catalog.studio import audio_in, force_retry, run, settings_for, song
from tests.helpers import every, items_of, status_of, statuses_of

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


# --- a folder as source ---------------------------------------------------------------------------


class Folder:
    """Songs in folders, each of which is a playlist; a library and an archive beside them."""

    def __init__(self, store: Store, home: Path) -> None:
        self.store, self.home = store, home
        self.music, self.library, self.archive = home / "music", home / "library", home / "archive"

    def settings(self, **keys: Any) -> Settings:
        known = {"folder_roots": (str(self.music),), "object_store": f"file://{self.archive}"}
        return settings_for(keys.pop("library_root", self.library), **{**known, **keys})

    def put(self, path: str, content: bytes) -> Path:
        file = self.music / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def run(self, template: str = "full", **keys: Any) -> int:
        return run(self.store, self.settings(**keys), template)

    def item(self, job_id: int, title: str, step: str = "download") -> int:
        key = f"song:{song(self.store, title)['id']}"
        return next(int(item["id"]) for item in items_of(self.store, job_id, step) if item["key"] == key)


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Folder:
    return Folder(store, tmp_path)


ONE, TWO = audio.flac(0.02, 1), audio.flac(0.02, 2)


def test_a_file_is_uploaded_though_the_first_song_that_had_it_left(folder: Folder, store: Store) -> None:
    folder.put("A/one.flac", ONE)
    folder.put("B/two.flac", ONE)
    assert status_of(store, folder.run("collect")) == "completed"
    assert statuses_of(store, folder.run("sync-download"), "download") == {"succeeded": 2}
    (folder.music / "A/one.flac").unlink()
    folder.put("A/other.flac", TWO)
    folder.run("sync")

    job = folder.run("upload")

    assert statuses_of(store, job, "upload") == {"succeeded": 1}
    assert len(audio_in(folder.archive)) == 1


def test_a_playlist_that_is_gone_fails_once_and_is_left_alone_until_it_is_back(folder: Folder, store: Store) -> None:
    folder.put("A/one.flac", ONE)
    folder.put("B/two.flac", TWO)
    assert status_of(store, folder.run("collect")) == "completed"
    shutil.move(folder.music / "B", folder.home / "B")
    assert statuses_of(store, folder.run("sync"), "sync") == {"succeeded": 1, "failed": 1}

    again = folder.run("sync")

    assert (status_of(store, again), statuses_of(store, again, "sync")) == ("completed", {"succeeded": 1})
    named = run(store, folder.settings(), "sync", scope={"playlists": ["B"]})
    assert statuses_of(store, named, "sync") == {"failed": 1}
    full = folder.run()
    assert (status_of(store, full), statuses_of(store, full, "sync")) == ("completed", {"succeeded": 1})
    shutil.move(folder.home / "B", folder.music / "B")
    assert statuses_of(store, folder.run(), "sync") == {"succeeded": 2}


def test_the_playlists_of_a_pool_that_is_gone_are_left_alone_until_it_is_back(folder: Folder, store: Store) -> None:
    folder.put("A/one.flac", ONE)
    more = folder.home / "more"
    folder.put("../more/B/two.flac", TWO)
    both = (str(folder.music), str(more))
    assert statuses_of(store, folder.run(folder_roots=both), "sync") == {"succeeded": 2}

    job = folder.run()

    assert (status_of(store, job), statuses_of(store, job, "sync")) == ("completed", {"succeeded": 1})
    assert status_of(store, folder.run("sync")) == "completed"
    gone = {row["name"]: row["missing_at"] is not None for row in every(store, sa.select(playlist_pools))}
    assert gone == {"music": False, "more": True}
    assert [row["removed_at"] for row in every(store, sa.select(pool_playlists))] == [None, None]
    part = run(store, folder.settings(folder_roots=both), "collect", scope={"pools": ["music"]})
    assert statuses_of(store, part, "collect") == {"succeeded": 1}
    assert statuses_of(store, folder.run(folder_roots=both), "sync") == {"succeeded": 2}
    assert all(row["missing_at"] is None for row in every(store, sa.select(playlist_pools)))


def test_a_folder_that_is_source_and_library_keeps_its_files_where_they_are(folder: Folder, store: Store) -> None:
    file = folder.put("A/01 - one.flac", ONE)
    written = file.stat()
    folder.archive = folder.music / "archive"
    jobs = [folder.run(library_root=folder.music) for _ in range(2)]
    assert [status_of(store, job) for job in jobs] == ["completed"] * 2
    both = [file, folder.archive / "A/01 - one.flac"]
    assert audio_in(folder.music) == both
    assert [row["name"] for row in every(store, sa.select(playlists))] == ["A"]

    force_retry(store, folder.settings(library_root=folder.music), folder.item(jobs[1], "one"))

    assert audio_in(folder.music) == both
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


# --- what owners do to their files ----------------------------------------------------------------


def test_a_file_that_its_owner_changed_is_left_alone(folder: Folder, store: Store) -> None:
    folder.put("A/one.flac", ONE)
    folder.run("collect")
    first = folder.run("sync-download")
    (file,) = audio_in(folder.library)
    file.write_bytes(ONE + b"tags")

    job = folder.run()

    (item,) = items_of(store, job, "download")
    assert item["status"] == "skipped"
    assert audio_in(folder.library) == [file]
    (failed,) = items_of(store, job, "upload")
    assert (failed["status"], failed["error_code"]) == ("failed", "source_changed")
    assert str(file) in failed["error_message"]

    force_retry(store, folder.settings(), folder.item(first, "one"))

    (beside,) = (path for path in audio_in(folder.library) if path != file)
    assert (file.read_bytes(), beside.read_bytes()) == (ONE + b"tags", ONE)
    assert status_of(store, folder.run()) == "completed"
    assert [path.read_bytes() for path in audio_in(folder.archive)] == [ONE]
    assert len(audio_in(folder.library)) == 2


def test_words_of_a_twin_stand_beside_its_file_wherever_that_is(
    folder: Folder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("A/one.flac", ONE)
    folder.run()
    folder.put("A/two.flac", ONE)
    plain = Folders.resolve
    monkeypatch.setattr(Folders, "resolve", lambda self, track: replace(plain(self, track), lyrics="la la"))
    old, folder.library = folder.library, folder.home / "new"

    assert status_of(store, folder.run()) == "completed"

    (file,) = audio_in(old)
    assert file.with_suffix(".txt").read_text() == "la la"
    assert audio_in(folder.library) == list(folder.library.rglob("*.txt")) == []


@pytest.mark.parametrize("why", ["shared", "older root"])
def test_after_a_forced_download_beside_a_rotten_copy_the_new_one_is_uploaded(
    folder: Folder, store: Store, why: str
) -> None:
    folder.put("A/one.flac", ONE)
    if why == "shared":
        folder.put("A/two.flac", ONE)
    folder.run("collect")
    job = folder.run("sync-download")
    (rotten,) = audio_in(folder.library)
    rotten.write_bytes(ONE[:-1] + bytes([ONE[-1] ^ 1]))
    keys = {"library_root": folder.home / "new"} if why == "older root" else {}
    again = folder.run("download", **keys)
    assert set(statuses_of(store, again, "download")) == {"skipped"}

    force_retry(store, folder.settings(), folder.item(job if why == "shared" else again, "one"))

    uploads = folder.run("upload", **keys)
    assert status_of(store, uploads) == "completed"
    assert [file.read_bytes() for file in audio_in(folder.archive)] == [ONE]
    (sheet,) = (folder.home / ("library" if why == "shared" else "new")).glob("Playlists/*.m3u8")
    listed = [line for line in sheet.read_text().splitlines() if not line.startswith("#")]
    assert {(sheet.parent / line).read_bytes() for line in listed} == {ONE}


# --- failures that a later run answers ------------------------------------------------------------


def standing_of(store: Store, name: str) -> tuple[str, str]:
    (row,) = every(store, sa.select(playlists.c.id).where(playlists.c.name == name))
    line = store.read(lambda tx: playlist_detail(tx, row["id"]))
    listed = store.read(lambda tx: list_playlists(tx, status=line.status))
    assert row["id"] in [each.id for each in listed.lines]
    return line.status, line.because


def test_a_song_that_is_found_whole_answers_a_failed_download(folder: Folder, store: Store) -> None:
    origin = folder.put("A/one.flac", ONE)
    folder.put("A/two.flac", TWO)
    job = folder.run()
    content = origin.read_bytes()
    origin.unlink()
    force_retry(store, folder.settings(), folder.item(job, "one"))
    assert standing_of(store, "A")[0] == "error"
    assert statuses_of(store, folder.run("download"), "download") == {"skipped": 2}
    assert standing_of(store, "A") == ("complete", "all 2 songs downloaded")
    before = places_checked(store)
    assert statuses_of(store, folder.run("download"), "download") == {"skipped": 2}
    assert places_checked(store) == before

    force_retry(store, folder.settings(), folder.item(job, "one"))
    (file,) = (path for path in audio_in(folder.library) if path.read_bytes() == content)
    file.write_bytes(bytes(len(content)))
    assert statuses_of(store, folder.run("download"), "download") == {"skipped": 2}
    assert standing_of(store, "A")[0] == "error"


def test_a_song_that_is_found_in_the_store_answers_a_failed_upload(folder: Folder, store: Store) -> None:
    folder.put("A/one.flac", ONE)
    job = folder.run()
    (file,) = audio_in(folder.library)
    file.rename(folder.home / "away.flac")
    force_retry(store, folder.settings(), folder.item(job, "one", "upload"))
    assert standing_of(store, "A")[0] == "error"
    (folder.home / "away.flac").rename(file)

    assert statuses_of(store, folder.run("upload"), "upload") == {"skipped": 1}

    assert standing_of(store, "A")[0] == "complete"


def places_checked(store: Store) -> list[Any]:
    query = sa.select(file_locations.c.path, file_locations.c.verified_at).order_by(file_locations.c.id)
    return [tuple(row.values()) for row in every(store, query)]
