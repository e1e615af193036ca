"""What an upload may overwrite, which store is which, and whose trouble a refusal is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno import Store
from dalsegno.catalog.upload import _refused
from dalsegno.model.outcome import Fail, PauseJob, Retry
from dalsegno.objects import StoreRefused, open_store
from tests import audio
from tests.catalog.studio import audio_in, force_retry, items_of, run, settings_for
from tests.helpers import status_of


def test_another_server_with_the_same_bucket_is_another_store() -> None:
    urls = ("http://nas:9000", "http://nas:9001", "https://user@s3.example", None)
    found = [open_store("s3://music/all", {"S3_ENDPOINT": url}) for url in urls]
    assert [each.url for each in found] == ["s3://music/all"] * 4
    assert [each.identity for each in found] == [
        "s3://music/all@nas:9000",
        "s3://music/all@nas:9001",
        "s3://music/all@s3.example",
        "s3://music/all",
    ]


@pytest.mark.parametrize("edited", [True, False])
def test_only_what_we_stored_ourselves_gives_way(tmp_path: Path, store: Store, edited: bool) -> None:
    origin, archive = tmp_path / "music" / "album" / "song.wav", tmp_path / "archive"
    origin.parent.mkdir(parents=True)
    origin.write_bytes(audio.wav(0.1, 1))
    settings = settings_for(
        tmp_path / "library", folder_roots=(str(tmp_path / "music"),), object_store=f"file://{archive}"
    )
    job = run(store, settings)
    (there,) = audio_in(archive)
    if edited:
        there.write_bytes(b"precious")
    origin.write_bytes(audio.wav(0.1, 2))

    force_retry(store, settings, items_of(store, job, "download")[0]["id"])

    assert status_of(store, job) == "completed"
    assert {file.read_bytes() for file in audio_in(archive)} == {audio.wav(0.1, 2), *([b"precious"] if edited else [])}
    assert not edited or there.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("bucket_missing", PauseJob),
        ("wrong_credentials", PauseJob),
        ("access_denied", PauseJob),
        ("wrong_region", PauseJob),
        ("clock_skew", PauseJob),
        ("too_large", Fail),
        ("key_invalid", Fail),
        ("verification_failed", Retry),
        ("conflict", Retry),
        ("not_found", Retry),
        ("store_refused", Retry),
    ],
)
def test_only_what_every_file_would_meet_pauses_the_job(tmp_path: Path, code: str, kind: type) -> None:
    outcome = _refused(StoreRefused(code, "No."), open_store(str(tmp_path), {}))
    assert isinstance(outcome, kind)
