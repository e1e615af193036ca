"""Which sources there are, and what is said of one that cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.errors import InputInvalid
from dalsegno.sources.model import Track, Unusable
from dalsegno.sources.registry import Config, Sources
from tests.sources.test_docs import CODE

TRACK = Track(id="1", title="Rain")


@pytest.fixture
def radio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documentation's own plug-in, installed."""
    (tmp_path / "radio_source.py").write_text(CODE)
    about = tmp_path / "radio_source-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: radio-source\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dalsegno.sources]\nradio = radio_source:Radio\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_plug_in_that_lacks_its_settings_is_installed_and_no_more(radio: None, tmp_path: Path) -> None:
    found = Sources(Config({"FOLDER_ROOTS": [str(tmp_path)]}))
    assert found.names() == ["folder"]
    assert "radio" in found.known()
    assert Sources(Config({"SOURCE_RADIO_BASE": "http://nas"})).names() == ["radio"]


def test_a_plug_in_that_was_named_says_what_it_lacks(radio: None) -> None:
    found = Sources(Config({"SOURCES": ["radio"]}))
    assert found.names() == ["radio"]
    with pytest.raises(Unusable, match=r"radio .*BASE.* SOURCE_RADIO_<KEY>") as caught:
        found.get("radio")
    assert caught.value.code == "source_setting"


@pytest.mark.parametrize(
    ("values", "name", "key"),
    [
        ({"SUBSONIC_URL": "nas:4533"}, "subsonic", "SUBSONIC_URL"),
        ({"EXTERNAL_SOURCES": {"radio": "python3 'my radio.py"}}, "radio", "EXTERNAL_SOURCES"),
    ],
)
def test_a_source_that_cannot_be_opened_names_its_setting_whatever_it_is_asked(
    values: dict[str, object], name: str, key: str
) -> None:
    found = Sources(Config(values))
    with pytest.raises(Unusable, match=key):
        found.get(name)
    closed = found.at_hand(name)
    assert closed.name == name
    for ask in (closed.pools, lambda: closed.search(TRACK), lambda: closed.resolve(TRACK)):
        with pytest.raises(Unusable, match=key):
            ask()


def test_a_name_that_no_source_has_is_another_matter() -> None:
    found = Sources(Config())
    for ask in (lambda: found.get("subsonik"), lambda: found.check(["subsonik"]), lambda: found.at_hand("subsonik")):
        with pytest.raises(InputInvalid, match="subsonic"):
            ask()
