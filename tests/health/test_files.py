"""What is not in the database: stale parts, forgotten uploads, disks and the settings file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.part import Part, part_path
from dalsegno.catalog.schema import object_storage_backends, uploads
from dalsegno.doctor import disks, parts, secrets
from dalsegno.doctor import uploads as forgotten
from dalsegno.doctor.disks import Place
from dalsegno.insight.health.finding import Finding
from dalsegno.model.states import ItemStatus
from dalsegno.settings import Settings
from tests.helpers import admit, claim, command, one_step, register, settle, submitted
from tests.s3 import S3Server, seaweedfs

WEEK = 8 * 86_400


def by_code(findings: list[Finding]) -> dict[str, Finding]:
    return {each.code: each for each in findings}


# --- parts ------------------------------------------------------------------------------------------


def left_part(root: Path, song: int, age: float = WEEK) -> Path:
    """As a process that was killed leaves it."""
    with Part.open(root, f"song-{song}") as part:
        os.write(part.descriptor, b"x" * 1000)
    path = part_path(root, f"song-{song}")
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_part_is_stale_when_it_is_old_and_nobody_goes_on_with_it(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "music"
    assert parts.look(store, root) == []
    left_part(root, 1, age=60)
    assert parts.look(store, root) == [], "it may be under way"
    old = [left_part(root, 2), left_part(root, 3)]
    told = by_code(parts.look(store, root))["part_stale"]
    assert (told.data["count"], told.data["size_bytes"]) == (2, 2000)
    assert set(told.data["things"]) == {str(path) for path in old}
    assert "--list part_stale" in told.fix
    for path in old:
        path.unlink()
    assert parts.look(store, root) == []


def test_a_part_is_kept_for_an_item_that_waits_or_could_be_retried(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "music"
    job = submitted(store, one_step("download", max_attempts=1), items=["song:1", "song:2", "song:3"]).job_id
    for song in (1, 2, 3):
        left_part(root, song)
    assert parts.look(store, root) == [], "all of them wait"
    first, second, third = claim(store, register(store), 3, "download")
    settle(store, [first])
    settle(store, [second], ItemStatus.FAILED)
    told = by_code(parts.look(store, root))["part_stale"]
    assert told.data["things"] == [str(part_path(root, "song-1"))], "the one that is done"
    settle(store, [third])
    (told,) = parts.look(store, root)
    assert told.data["count"] == 2, "but not the one that could be retried"
    command(store, "retry_item", item_id=second.id)
    admit(store)
    settle(store, claim(store, register(store), 1, "download"))
    assert parts.look(store, root)[0].data["count"] == 3
    assert job


def test_every_library_that_was_ever_used_is_looked_at(store: Store, tmp_path: Path) -> None:
    before = tmp_path / "before"
    left_part(before, 1)
    assert parts.look(store, tmp_path / "now") == []
    row = {"kind": "library", "url": str(before), "created_at": store.clock.now()}
    store.write("test", lambda tx: tx.conn.execute(sa.insert(object_storage_backends).values(row)))
    assert parts.look(store, tmp_path / "now")[0].data["root"] == str(before)


def test_half_copies_in_a_folder_are_found(store: Store, tmp_path: Path) -> None:
    copy = tmp_path / "archive" / "a" / ".dalsegno-0123.part"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"half")
    assert parts.look_at_copies(tmp_path, store.clock) == []
    (told,) = parts.look_at_copies(tmp_path, store.clock, old=timedelta(0))
    assert (told.code, told.data["things"]) == ("copy_stale", [str(copy)])


# --- uploads ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


def settings_for(server: S3Server, prefix: str) -> Settings:
    own: dict[str, Any] = {key.lower(): value for key, value in server.config.items()}
    return Settings(_env_file=None, object_store=f"s3://{server.bucket}/{prefix}", **own)


def test_an_upload_that_nobody_remembers_is_told_until_it_is_gone(store: Store, weed: S3Server) -> None:
    settings = settings_for(weed, "music")
    client = weed.client()
    assert forgotten.look(store, settings, old=timedelta(0)) == []
    key = "music/a b.flac"
    begun = client.create_multipart_upload(Bucket=weed.bucket, Key=key)["UploadId"]
    client.upload_part(Bucket=weed.bucket, Key=key, UploadId=begun, PartNumber=1, Body=b"x" * 1000)
    try:
        assert forgotten.look(store, settings) == [], "it may just have been begun"
        (told,) = forgotten.look(store, settings, just_begun=timedelta(0))
        assert (told.code, told.severity, told.data["count"]) == ("upload_recent", "note", 1)
        assert "within the last 24 h and nobody here remembers them" in told.says
        assert f"--key '{key}' --upload-id {begun}" in told.fix
        (told,) = forgotten.look(store, settings, old=timedelta(0))
        assert (told.code, told.severity, told.data["count"]) == ("upload_orphaned", "warning", 1)
        assert told.data["bucket"] == weed.bucket
        assert told.data["things"] == [f"'{key}' {begun}"]
        assert f"--key '{key}' --upload-id {begun}" in told.fix
        assert told.since is not None
        remember(store, settings, begun)
        assert forgotten.look(store, settings, old=timedelta(0)) == [], "an item will go on with it"
        store.write("test", lambda tx: tx.conn.execute(sa.delete(uploads)))
        assert forgotten.look(store, settings, old=timedelta(0)) != []
    finally:
        client.abort_multipart_upload(Bucket=weed.bucket, Key=key, UploadId=begun)
        client.close()
    assert forgotten.look(store, settings, old=timedelta(0)) == []


def remember(store: Store, settings: Settings, upload_id: str) -> None:
    from dalsegno.objects.opening import open_store

    target = open_store(settings.object_store or "", settings.thawed(settings.snapshot()))

    def write(tx: Any) -> None:
        row = {"kind": "s3", "url": target.identity, "created_at": tx.now}
        (backend,) = tx.conn.execute(sa.insert(object_storage_backends).values(row)).inserted_primary_key
        more = {"path": "a b.flac", "sha256": "0" * 64, "size_bytes": 1, "part_size": 1, "created_at": tx.now}
        tx.conn.execute(sa.insert(uploads).values(backend_id=backend, upload_id=upload_id, **more))

    store.write("test", write)
    target.close()


def test_a_store_that_refuses_is_told_without_its_secret(store: Store, weed: S3Server) -> None:
    settings = settings_for(weed, "music").model_copy(update={"object_store": "s3://nowhere/music"})
    (told,) = forgotten.look(store, settings)
    assert (told.code, told.severity) == ("store_unreachable", "error")
    assert weed.secret_key not in str(told)
    folder = Settings(_env_file=None, object_store="file:///nowhere/at/all")
    assert forgotten.look(store, folder) == [], "a folder has no uploads"


# --- disks ------------------------------------------------------------------------------------------


def test_disks_are_judged_by_what_must_stay_free(tmp_path: Path) -> None:
    def judged(keep: int, enough: int = 0, *, used: bool = True, path: Path = tmp_path) -> Finding:
        return disks.look([Place("library", path, keep, enough, used=used)])[0]

    assert (judged(0).code, judged(0).severity) == ("disk_fine", "ok")
    assert (judged(0, enough=1 << 60).code, judged(0, enough=1 << 60).severity) == ("disk_low", "warning")
    full = judged(1 << 60)
    assert (full.code, full.severity) == ("disk_low", "error")
    assert full.data["total_bytes"] > full.data["free_bytes"] > 0
    away = tmp_path / "unmounted"
    assert judged(0, path=away).code == "disk_unseen"
    assert judged(0, path=away, used=False).code == "disk_fine", "it has not been made yet"


def test_every_place_that_the_settings_name_is_looked_at(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dal.db"
    settings = Settings(
        _env_file=None, database_url=url, library_root=tmp_path / "music", object_store=f"file://{tmp_path}/archive"
    )
    found = {(place.what, str(place.path)) for place in disks.places(settings, [tmp_path / "older"])}
    assert found == {
        ("library", f"{tmp_path}/older"),
        ("library", f"{tmp_path}/music"),
        ("database", str(tmp_path)),
        ("object store", f"{tmp_path}/archive"),
    }
    server = Settings(_env_file=None, database_url="postgresql://db/x", object_store="s3://bucket")
    assert [place.what for place in disks.places(server)] == ["library"]


# --- the settings file --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666])
def test_a_file_with_secrets_is_for_its_owner_only(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "my dalsegno.env"
    file.write_text("SUBSONIC_PASSWORD=hunter2hunter2\n")
    file.chmod(mode)
    (told,) = secrets.look(file)
    assert (told.code, told.severity, told.data["mode"]) == ("secrets_readable", "error", f"{mode:04o}")
    assert told.fix == f"`chmod 600 '{file}'`"
    assert "hunter2" not in str(told)
    file.chmod(0o600)
    assert by_code(secrets.look(file)).keys() == {"settings_fine"}


def test_without_secrets_it_is_only_noted(tmp_path: Path) -> None:
    file = tmp_path / "dalsegno.env"
    assert by_code(secrets.look(file)).keys() == {"settings_absent"}
    file.write_text("DRAIN_SEC=5\n")
    file.chmod(0o644)
    (told,) = secrets.look(file)
    assert told.severity == "note"
    key = tmp_path / ".dalsegno.env.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o644)
    assert [each.severity for each in secrets.look(file)] == ["note", "error"], "the key that seals secrets"
    assert by_code(secrets.look(file, "it is wrong"))["settings_invalid"].severity == "error"


def test_every_look_is_a_function_of_what_is_there(store: Store, tmp_path: Path) -> None:
    """Looking twice finds the same, and leaves everything as it was."""
    left_part(tmp_path, 1)
    looks: list[Callable[[], list[Finding]]] = [lambda: parts.look(store, tmp_path)]
    before = sorted(tmp_path.rglob("*"))
    for look in looks:
        assert look() == look()
    assert sorted(tmp_path.rglob("*")) == before
