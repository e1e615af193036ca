"""A library or a store that is not where it was: a disk that is not mounted, or another machine's folder."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog import upload
from dalsegno.catalog.catalog import _backend
from dalsegno.catalog.presence import STORE_MARKER, Presence, StorePresence
from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.catalog.templates import order
from dalsegno.cli.ask import ask
from tests import audio
from tests.catalog.studio import ENDED, at_work, audio_in, run
from tests.catalog.test_troubles import Desk, desk
from tests.helpers import items_of, job_of, status_of, statuses_of, wait_for_job, wait_until
from tests.sources.hostile import ok

__all__ = ["desk"]


def test_nothing_is_fetched_again_while_the_disk_is_not_mounted(desk: Desk, store: Store) -> None:
    for number in range(4):
        desk.song(f"song {number}", ok(audio.wav(0.1, number)))
    settings = desk.settings(object_store=None)
    run(store, settings, "collect")
    assert status_of(store, run(store, settings, "sync-download")) == "completed"
    aside = desk.library.rename(desk.library.with_name("aside"))
    desk.library.mkdir()
    desk.song("song 4", ok(audio.wav(0.1, 4)))

    job = run(store, settings, "sync-download")

    row = job_of(store, job)
    assert row["status"] == "paused"
    assert row["pause_reason"].startswith(f"library_missing: the library at {desk.library} is not there on ")
    assert "Is its disk mounted?" in row["pause_reason"]
    assert list(desk.library.iterdir()) == []
    desk.library.rmdir()
    aside.rename(desk.library)
    assert ask(store, "resume", job_id=job).status == "applied"
    with at_work(store, settings):
        wait_for_job(store, job, ENDED, 60)
    assert status_of(store, job) == "completed"
    assert statuses_of(store, job, "download") == {"skipped": 4, "succeeded": 1}
    assert all(len(desk.asked(f"song {number}")) == 1 for number in range(5))


def test_another_disk_in_its_place_is_told(desk: Desk, store: Store, tmp_path: Path) -> None:
    desk.song("song", ok(audio.wav(0.1, 1)))
    assert status_of(store, run(store, desk.settings())) == "completed"
    (desk.library / ".dalsegno" / "library-id").write_text("another\n")
    job = run(store, desk.settings(), "download")
    assert job_of(store, job)["pause_reason"].startswith(f"library_missing: another library is at {desk.library} on ")


def test_a_library_that_another_worker_is_making_is_not_taken_for_a_strange_one(store: Store, tmp_path: Path) -> None:
    presence = Presence(store, "node")

    def made(root: Path) -> None:
        store.write("backend", lambda tx: _backend(tx, "library", str(root)))
        start.wait()
        presence.mark(root)

    def looked_at(root: Path) -> None:
        start.wait()
        while not root.is_dir() or not presence.is_here(root):
            presence.check(root)

    for number in range(40):
        start = threading.Barrier(4)
        with ThreadPoolExecutor(4) as workers:
            root = tmp_path / str(number)
            asked = [workers.submit(each, root) for each in (made, looked_at, looked_at, looked_at)]
            for each in asked:
                each.result()


@pytest.mark.parametrize("kind", [Presence, StorePresence])
def test_two_databases_that_begin_one_folder_at_once_agree_on_its_id(
    store: Store, stores: Callable[..., Store], tmp_path: Path, kind: type[Presence]
) -> None:
    root, other = tmp_path / "music", stores(f"sqlite:///{tmp_path}/other.db")
    faster = kind(other, "node")

    class Slower(kind):  # type: ignore[misc, valid-type]
        def check_unmarked(self, root: Path) -> None:
            faster.mark(root)

    slower = Slower(store, "node")
    for each in (store, other):
        each.write("backend", lambda tx: _backend(tx, kind.kind, faster.url(root)))
    slower.mark(root)
    for presence in (slower, faster, kind(store, "node"), kind(other, "node")):
        presence.check(root)
        assert presence.is_proven(root)
    assert [path.name for path in faster.marker(root).parent.iterdir()] == [faster.marker(root).name]


def test_an_upload_is_left_to_the_machine_that_has_the_file(
    desk: Desk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two machines on one database, only one has the library's folder."""
    monkeypatch.setattr(upload, "HAND_ON", 0.01)
    for number in range(3):
        desk.song(f"song {number}", ok(audio.wav(0.1, number)))
    settings = desk.settings(node_name="one")
    run(store, settings, "collect")
    assert status_of(store, run(store, settings, "sync-download")) == "completed"
    aside = desk.library.rename(desk.library.with_name("aside"))
    other = desk.settings(node_name="two")

    job = order(store, other, "upload").job_id
    if store.shared:
        monkeypatch.setattr(upload, "HANDED_ON", 3)
    with at_work(store, other):
        wait_for_job(store, job, ENDED, 60)

    assert audio_in(desk.archive) == []
    if not store.shared:  # there is no other machine
        assert job_of(store, job)["pause_reason"].startswith("library_missing: ")
        return
    ends = items_of(store, job, "upload")
    assert [(item["status"], item["error_code"]) for item in ends] == [("failed", "file_elsewhere")] * 3
    assert "which is not on two" in ends[0]["error_message"]
    aside.rename(desk.library)
    for item in ends:
        assert ask(store, "retry_item", item_id=item["id"]).status == "applied"
    with at_work(store, settings):
        wait_until(lambda: status_of(store, job) == "completed", "the job to complete", 60)
    assert len(audio_in(desk.archive)) == 3


# --- a folder that files go to --------------------------------------------------------------------


def test_nothing_is_stored_into_an_empty_mount_point(desk: Desk, store: Store) -> None:
    for number in range(3):
        desk.song(f"song {number}", ok(audio.wav(0.1, number)))
    assert status_of(store, run(store, desk.settings())) == "completed"
    aside = desk.archive.rename(desk.archive.with_name("aside"))
    desk.archive.mkdir()
    desk.song("song 3", ok(audio.wav(0.1, 3)))

    job = run(store, desk.settings())

    row = job_of(store, job)
    assert row["status"] == "paused"
    assert row["pause_reason"].startswith(f"store_missing: the store at {desk.archive} is not there on ")
    assert "Is its disk mounted?" in row["pause_reason"]
    assert list(desk.archive.iterdir()) == []
    desk.archive.rmdir()
    aside.rename(desk.archive)
    assert ask(store, "resume", job_id=job).status == "applied"
    with at_work(store, desk.settings()):
        wait_for_job(store, job, ENDED, 60)
    assert status_of(store, job) == "completed"
    assert len(audio_in(desk.archive)) == 4


def test_a_store_that_lost_its_files_gets_them_again(desk: Desk, store: Store) -> None:
    for number in range(3):
        desk.song(f"song {number}", ok(audio.wav(0.1, number)))
    assert status_of(store, run(store, desk.settings())) == "completed"
    first, second, _ = audio_in(desk.archive)
    first.unlink()
    second.write_bytes(b"somebody else's")

    job = run(store, desk.settings(), "upload")

    assert statuses_of(store, job, "upload") == {"succeeded": 2, "skipped": 1}
    assert second.read_bytes() == b"somebody else's"
    stored = {file.read_bytes() for file in audio_in(desk.archive)}
    assert stored == {*(audio.wav(0.1, number) for number in range(3)), b"somebody else's"}
    assert statuses_of(store, run(store, desk.settings(), "upload"), "upload") == {"skipped": 3}


def test_a_store_that_was_emptied_is_filled_again_when_its_id_is_put_back(desk: Desk, store: Store) -> None:
    desk.song("song", ok(audio.wav(0.1, 1)))
    assert status_of(store, run(store, desk.settings())) == "completed"
    known = (desk.archive / STORE_MARKER).read_text()
    shutil.rmtree(desk.archive)

    job = run(store, desk.settings(), "upload")

    reason = job_of(store, job)["pause_reason"]
    assert reason.startswith("store_missing: ")
    assert f"write {known.strip()} into {desk.archive / STORE_MARKER}" in reason
    desk.archive.mkdir()
    (desk.archive / STORE_MARKER).write_text(known)
    assert ask(store, "resume", job_id=job).status == "applied"
    with at_work(store, desk.settings()):
        wait_for_job(store, job, ENDED, 60)
    assert statuses_of(store, job, "upload") == {"succeeded": 1}
    assert len(audio_in(desk.archive)) == 1


@pytest.mark.parametrize("mounted", [True, False])
def test_a_store_of_an_earlier_version_is_known_by_its_files(desk: Desk, store: Store, mounted: bool) -> None:
    desk.song("song", ok(audio.wav(0.1, 1)))
    assert status_of(store, run(store, desk.settings())) == "completed"
    (desk.archive / STORE_MARKER).unlink()
    forget = sa.update(backends).where(backends.c.kind == "file").values(capabilities={"metadata": True})
    store.write("test", lambda tx: tx.conn.execute(forget).rowcount)
    if not mounted:
        desk.archive.rename(desk.archive.with_name("aside"))

    job = run(store, desk.settings(), "upload")

    if mounted:
        assert statuses_of(store, job, "upload") == {"skipped": 1}
        assert (desk.archive / STORE_MARKER).is_file()
    else:
        assert job_of(store, job)["pause_reason"].startswith("store_missing: ")
        assert not desk.archive.exists()
