"""Settings that a job is resumed with, and those it is started with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.overrides import checked
from dalsegno.catalog.templates import order
from dalsegno.errors import InputInvalid
from dalsegno.settings import Settings
from dalsegno.store.schema import jobs
from tests.catalog.studio import settings_for
from tests.helpers import every


@pytest.fixture
def lite(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    return stores(sqlite_url)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path / "library", folder_roots=(str(tmp_path),))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"MIN_FREE_SPACE": "1GB"}, {"MIN_FREE_SPACE": 1_000_000_000}),
        ({"MIN_FREE_SPACE": 5}, {"MIN_FREE_SPACE": 5}),
        ({"SUBSONIC_USER": 123}, {"SUBSONIC_USER": "123"}),
        ({"SOURCES": "folder, demo"}, {"SOURCES": ["folder", "demo"]}),
        ({"LIBRARY_ROOT": "bigger"}, {"LIBRARY_ROOT": "/home/olga/bigger"}),
        ({"LIBRARY_ROOT": "/mnt/bigger"}, {"LIBRARY_ROOT": "/mnt/bigger"}),
        (
            {"PLAYLIST_FILES": "a.m3u,https://radio.example/b.m3u"},
            {"PLAYLIST_FILES": ["/home/olga/a.m3u", "https://radio.example/b.m3u"]},
        ),
        ({"OBJECT_STORE": "s3://music/all"}, {"OBJECT_STORE": "s3://music/all"}),
    ],
)
def test_overrides_are_read_like_settings(
    lite: Store, settings: Settings, given: dict[str, Any], kept: dict[str, Any]
) -> None:
    job = order(lite, settings, "full").job_id
    assert checked(lite, settings, job, given, base=Path("/home/olga")) == kept


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"LIBARY_ROOT": "/mnt"}, 'Did you mean "LIBRARY_ROOT"?'),
        ({"DOWNLOAD_WORKERS": 3}, "no setting DOWNLOAD_WORKERS that a resume can change"),
        ({"S3_SECRET_KEY": "x"}, "write it into dalsegno.env"),
        ({"SUBSONIC_URL": "http://olga:secret@nas"}, "SUBSONIC_URL holds a secret"),
        ({"FEED_URLS": "https://a.example/f?token=x"}, "FEED_URLS holds a secret"),
        ({"MIN_FREE_SPACE": "plenty"}, '"plenty" is not a size'),
        ({"LIBRARY_ROOT": "bigger"}, "must be a whole path"),
        ({"LIBRARY_ROOT": ""}, "must be a whole path"),
        ({"NAME_TEMPLATE": "{artist}"}, "needs {title} or {id}"),
        ({"SOURCES": "fodler"}, 'Did you mean "folder"?'),
        ({"OBJECT_STORE": "ftp://nas/music"}, 'cannot begin with "ftp://"'),
    ],
)
def test_overrides_that_mean_nothing_are_refused(
    lite: Store, settings: Settings, given: dict[str, Any], says: str
) -> None:
    job = order(lite, settings, "full").job_id
    with pytest.raises(InputInvalid if "SOURCES" not in given else Exception) as caught:
        checked(lite, settings, job, given)
    assert says in str(caught.value)


def test_a_store_that_cannot_be_is_told_before_a_job_is_stored(lite: Store, tmp_path: Path) -> None:
    for url in ("ftp://nas/music", "music", "file://nas/music"):
        with pytest.raises(InputInvalid, match=r"OBJECT_STORE|three slashes"):
            order(lite, settings_for(tmp_path, object_store=url), "collect")
    assert every(lite, sa.select(jobs.c.id)) == []


def test_feeds_that_differ_only_in_their_token_stay_two(tmp_path: Path) -> None:
    feeds = ("https://a.example/f?token=one", "https://b.example/g", "https://a.example/f?token=two")
    settings = settings_for(tmp_path, feed_urls=feeds)
    snapshot = settings.snapshot()
    assert "one" not in str(snapshot)
    assert settings.thawed(snapshot)["FEED_URLS"] == list(feeds)
