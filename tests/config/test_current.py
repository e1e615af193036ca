"""The settings in force follow the file; while it is wrong or gone, what it said before holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dalsegno.config.current import Current
from dalsegno.errors import SettingInvalid
from dalsegno.settings import Settings


def test_an_edit_counts_at_once(file: Path, current: Current) -> None:
    file.write_text("LIBRARY_ROOT=/mnt/other\n")
    assert current.settings.library_root == Path("/mnt/other")
    assert current.loaded.origins == {"LIBRARY_ROOT": ("file", 1)}
    assert current.started.settings.library_root == Path("/mnt/music")


def test_a_file_that_is_wrong_is_not_used(file: Path, current: Current) -> None:
    file.write_text("LIBRARY_ROT=/mnt/other\n")
    assert current.settings.library_root == Path("/mnt/music")
    assert "LIBRARY_ROT" in (current.problem or "")
    file.write_text("LIBRARY_ROOT=/mnt/third\n")
    assert current.problem is None
    assert current.settings.library_root == Path("/mnt/third")


def test_a_file_that_is_gone_does_not_take_its_settings_along(file: Path, current: Current) -> None:
    file.unlink()
    assert current.settings.library_root == Path("/mnt/music")
    assert "no such file" in (current.problem or "")


def test_a_file_may_come_later(tmp_path: Path) -> None:
    current = Current.of()
    assert current.settings.library_root == Path("library")
    assert current.problem is None
    (tmp_path / "dalsegno.env").write_text("LIBRARY_ROOT=/mnt/new\n")
    assert current.settings.library_root == Path("/mnt/new")


def test_it_stays_with_its_file_when_the_process_goes_elsewhere(file: Path, tmp_path: Path) -> None:
    current = Current.of(Path(file.name))
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    file.write_text("LIBRARY_ROOT=/mnt/other\n")
    assert current.settings.library_root == Path("/mnt/other")


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(SettingInvalid, match="no such file"):
        Current.of(Path("missing.env"))


def test_every_secret_that_was_ever_read_is_known_longest_first(file: Path, current: Current) -> None:
    held = current.secrets
    file.write_text("SUBSONIC_PASSWORD=winter\nCONSOLE_PASSWORD=winter-river-2\n")
    assert current.settings.subsonic_password.get_secret_value() == "winter"
    assert "winter%20river" in held
    assert [each for each in held if not {*"%+"} & {*each}] == ["winter-river-2", "winter river", "autumn1", "winter"]
    assert (len(held), held[0], held[-1:]) == (6, "winter%20river", ("winter",))


def test_who_asks_often_hears_of_it_too(file: Path, current: Current) -> None:
    current._looked_at = 0.0
    file.write_text("LIBRARY_ROOT=/mnt/other\n")
    assert current.steady().library_root == Path("/mnt/other")


def test_settings_from_nowhere_stay() -> None:
    current = Current.fixed(Settings(_env_file=None, console_password="a long one"))
    assert current.file is None
    assert current.problem is None
    assert set(current.secrets) == {"a long one", "a%20long%20one", "a+long+one"}


@pytest.mark.parametrize("line", ["NAME_TEMPLATE={artist}", "OBJECT_STORE=ftp://nas/x", "SOURCES=nobody"])
def test_what_means_nothing_is_not_taken_up(tmp_path: Path, line: str) -> None:
    file = tmp_path / "dalsegno.env"
    file.write_text("MIN_FREE_SPACE=1GB\n")
    current = Current.of(file)
    file.write_text(f"MIN_FREE_SPACE=2GB\n{line}\n")
    assert current.settings.min_free_space == 1_000_000_000
    assert current.problem is not None
    assert line.partition("=")[0] in current.problem
