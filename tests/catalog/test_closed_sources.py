"""A source that cannot be opened is its own trouble, and no other's."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.schema import songs
from tests.catalog.studio import audio_in, candidates, run, settings_for
from tests.helpers import every, items_of, status_of
from tests.servers import wav


def test_it_fails_alone_with_its_setting_and_the_others_go_on(tmp_path: Path, store: Store) -> None:
    wav(tmp_path / "music" / "Rain.wav", title="Rain", artist="The Tide")
    roots = (str(tmp_path / "music"),)
    settings = settings_for(tmp_path / "library", folder_roots=roots, subsonic_url="nas:4533")

    job = run(store, settings)

    assert status_of(store, job) == "completed_with_errors"
    (failed,) = [item for item in items_of(store, job, "collect") if item["status"] == "failed"]
    assert (failed["key"], failed["error_code"]) == ("source:subsonic", "source_setting")
    assert "SUBSONIC_URL cannot be used" in failed["error_message"]
    assert len(audio_in(tmp_path / "library")) == 1


def test_its_songs_are_fetched_elsewhere_and_the_reason_is_kept(tmp_path: Path, store: Store) -> None:
    wav(tmp_path / "music" / "Rain.wav", title="Rain", artist="The Tide")
    (tmp_path / "list.csv").write_text("title,artist\nRain,The Tide\n")
    settings = settings_for(
        tmp_path / "library",
        playlist_files=(str(tmp_path / "list.csv"),),
        folder_roots=(str(tmp_path / "music"),),
        external_sources={"radio": "python3 'my radio.py"},
        download_sources=("radio", "folder"),
    )
    settings = settings.model_copy(update={"sources": ("playlist-file",)})

    job = run(store, settings)

    assert status_of(store, job) == "completed"
    (found,) = every(store, sa.select(songs))
    assert found["found_on"] == "folder"
    kept = {each["platform"]: each["reason"] for each in candidates(store, "Rain") if each["verdict"] == "rejected"}
    assert "EXTERNAL_SOURCES cannot be used" in kept["radio"]
