"""Files that were downloaded or stored and are gone: it is written down, and no list says that all is done."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.overview import upload_backend
from dalsegno.catalog.schema import file_locations
from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.catalog.status import PlaylistLine, PlaylistStatus, list_playlists
from dalsegno.cli.check import _proven_by, look
from dalsegno.settings import Settings
from tests import audio
from tests.catalog.studio import audio_in, run
from tests.catalog.test_troubles import Desk, desk
from tests.helpers import every, job_of, status_of, statuses_of
from tests.sources.hostile import ok

__all__ = ["desk"]


@pytest.fixture
def settings(desk: Desk, store: Store) -> Settings:
    """Two songs, downloaded and stored."""
    for number in range(2):
        desk.song(f"song {number}", ok(audio.wav(0.1, number)))
    settings = desk.settings()
    assert status_of(store, run(store, settings)) == "completed"
    return settings


def line(store: Store, settings: Settings) -> PlaylistLine:
    backend = upload_backend(store, settings)
    (found,) = store.read(lambda tx: list_playlists(tx, upload_backend_id=backend)).lines
    (same,) = store.read(lambda tx: list_playlists(tx, upload_backend_id=backend, status=found.status)).lines
    assert same == found
    return found


def gone(store: Store) -> list[tuple[str, str]]:
    """Kind of place and file name, of all that is written down as gone."""
    query = (
        sa.select(backends.c.kind, file_locations.c.path)
        .join(backends, backends.c.id == file_locations.c.backend_id)
        .where(file_locations.c.missing_at.is_not(None))
        .order_by(backends.c.kind, file_locations.c.path)
    )
    return [(row["kind"], Path(row["path"]).name) for row in every(store, query)]


def check(store: Store) -> dict[str, int]:
    return dict(look(store, proven=_proven_by(store)).found)


def test_a_check_tells_what_is_gone_and_what_is_there_again(desk: Desk, store: Store, settings: Settings) -> None:
    (first, second) = audio_in(desk.library)
    content = first.read_bytes()
    first.unlink()
    second.unlink()

    assert check(store) == {"file_missing": 2}

    found = line(store, settings)
    assert (found.status, found.downloaded) == (PlaylistStatus.INCOMPLETE, 0)
    assert found.because == "the files of 2 of 2 songs are not in the library any more"
    first.write_bytes(content)
    second.write_bytes(b"\0" * len(content))
    assert check(store) == {"file_changed": 1}
    assert gone(store) == [("library", second.name)]
    assert line(store, settings).because == "the files of 1 of 2 songs are not in the library any more"


def test_a_download_that_cannot_be_had_again_leaves_the_file_gone(desk: Desk, store: Store, settings: Settings) -> None:
    (first, _) = audio_in(desk.library)
    first.unlink()
    address = f"/{quote(first.stem)}"
    answer = desk.server.answers.pop(address)

    job = run(store, settings, "download")

    assert statuses_of(store, job, "download") == {"failed": 1, "skipped": 1}
    assert gone(store) == [("library", first.name)]
    desk.server.answers[address] = answer
    assert statuses_of(store, run(store, settings, "download"), "download") == {"succeeded": 1, "skipped": 1}
    assert gone(store) == []
    assert line(store, settings).status == PlaylistStatus.COMPLETE
    assert len(audio_in(desk.library)) == 2


def test_a_file_that_was_put_back_is_not_fetched_again(desk: Desk, store: Store, settings: Settings) -> None:
    (first, _) = audio_in(desk.library)
    aside = first.rename(first.with_name("aside"))
    check(store)
    aside.rename(first)

    assert statuses_of(store, run(store, settings, "download"), "download") == {"skipped": 2}

    assert gone(store) == []
    assert [len(desk.asked(f"song {number}")) for number in range(2)] == [1, 1]


def test_an_upload_tells_what_is_gone_from_both_places(desk: Desk, store: Store, settings: Settings) -> None:
    (first, _), (stored, _) = audio_in(desk.library), audio_in(desk.archive)
    first.unlink()
    stored.unlink()

    job = run(store, settings, "upload")

    assert statuses_of(store, job, "upload") == {"failed": 1, "skipped": 1}
    assert gone(store) == [("file", stored.name), ("library", first.name)]
    assert statuses_of(store, run(store, settings, "download-upload"), "upload") == {"succeeded": 1, "skipped": 1}
    assert gone(store) == []
    assert line(store, settings).status == PlaylistStatus.COMPLETE


@pytest.mark.parametrize("mount_point", [True, False])
def test_nothing_is_gone_from_a_disk_that_is_not_mounted(
    desk: Desk, store: Store, settings: Settings, mount_point: bool
) -> None:
    for folder in (desk.library, desk.archive):
        folder.rename(folder.with_name(f"{folder.name} aside"))
        if mount_point:
            folder.mkdir()

    check(store)
    for template in ("download", "upload"):
        assert job_of(store, run(store, settings, template))["status"] == "paused"

    assert gone(store) == []
    found = line(store, settings)
    assert (found.downloaded, found.uploaded) == (2, 2)
