"""A catalog in full swing, backed up, restored elsewhere, and gone on with: every file and every state agrees."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno.store.manifest import beside
from tests.cli.tool import say
from tests.conftest import DATABASES
from tests.crash.catalog_harness import Catalog, FolderShelf, audio_of
from tests.crash.harness import eventually
from tests.crash.test_catalog import MakeCatalog, catalogs

__all__ = ["catalogs"]


def halfway(catalog: Catalog, file: Path) -> None:
    """A backup while it runs; then its machine loses power, with songs on the disk that the backup knows nothing of."""
    catalog.settings = {"DOWNLOAD_WORKERS": "1"}
    child = catalog.start()
    eventually("some songs", lambda: catalog.statuses("download")["succeeded"] >= 5 or child.ends_within(0), 90)
    say("backup", file, "--database", catalog.url)
    known = catalog.statuses("download")["succeeded"]
    eventually("more", lambda: catalog.statuses("download")["succeeded"] > known or child.ends_within(0), 90)
    child.kill()
    child.wait()
    catalog.settings = {}


def elsewhere(catalog: Catalog, url: str, folder: Path) -> Catalog:
    """The same files in another place."""
    assert isinstance(catalog.shelf, FolderShelf)
    shutil.copytree(catalog.library, folder / "library", symlinks=True)
    shutil.copytree(catalog.shelf.root, folder / "store")
    return Catalog(url, folder, source=catalog.source, shelf=FolderShelf(folder / "store"))


def places(here: Catalog, there: Catalog) -> list[str]:
    assert isinstance(here.shelf, FolderShelf)
    assert isinstance(there.shelf, FolderShelf)
    pairs = ((here.library, there.library), (here.shelf.root, there.shelf.root))
    return [word for old, new in pairs for word in ("--moved", f"{old}={new}")]


def contents(catalog: Catalog) -> tuple[list[str], list[str]]:
    assert catalog.shelf is not None
    return sorted(audio_of(catalog.library).values()), sorted(catalog.shelf.objects().values())


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", DATABASES)
def test_a_backup_taken_during_a_run_goes_on_elsewhere(
    kind: str, catalogs: MakeCatalog, fresh_database: Callable[..., str], tmp_path: Path
) -> None:
    here = catalogs(kind, songs=24)
    file = tmp_path / "taken"
    halfway(here, file)
    there = elsewhere(here, fresh_database(kind), tmp_path / "other")
    restored = say("restore", file, "--database", there.url, "--json", *places(here, there), fine=False).data
    assert restored["restored"]["rescued"] == json.loads(beside(file).read_text())["tables"]["processes"]
    assert restored["check"]["agrees"], restored["check"]["named"]
    for catalog in (here, there):
        catalog.finish()
        catalog.judge()
        told = say("check", "--deep", "--database", catalog.url, "--json").data["check"]
        assert told["agrees"], told["named"]
        assert told["looked"]["files read"] > 0
    assert contents(here) == contents(there)


@pytest.mark.timeout(400)
def test_a_catalog_moves_to_postgresql_in_the_middle_of_a_run(
    catalogs: MakeCatalog, fresh_database: Callable[..., str], tmp_path: Path
) -> None:
    """The machine lost power; the next start is on PostgreSQL, with the same library."""
    catalog = catalogs("sqlite", songs=24)
    halfway(catalog, tmp_path / "taken")
    there = fresh_database("postgres", empty=True)
    say("migrate", "--to", there, "--database", catalog.url)
    catalog.url = there
    catalog.finish()
    catalog.judge()
    assert say("check", "--deep", "--database", there, "--json").data["check"]["agrees"]
