"""Names: whatever a song is called, its file stays in the library and every filesystem takes it."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.catalog.names import RESERVED, legal, place
from dalsegno.errors import InputInvalid
from dalsegno.model.naming import check_template
from dalsegno.settings import Settings

TEMPLATE = "{artist}/{album}/{title}"
NASTY = st.one_of(
    st.text(max_size=400),
    st.text('./\\ ~:*?"<>|\0\u202e\u200b\ufeffA\u0301é𝄞🎵', max_size=400),
    st.sampled_from(
        ["..", ".", "", "CON", "nul.txt", "com1 .x", "/etc/passwd", "../../x", "~root", "a" * 999, "長" * 200]
    ),
)


def put(
    title: str = "Song", artist: object = "Band", album: str = "Record", suffix: str = ".flac", **more: object
) -> str:
    return str(place(TEMPLATE, {"artist": artist, "album": album, "title": title, **more}, suffix))


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Song", "Song.flac"),
        ("../../etc/passwd", "-..-etc-passwd.flac"),
        ("CON", "_CON.flac"),
        ("con.aux", "_con.aux.flac"),
        ("Lpt¹", "_Lpt¹.flac"),
        ("Wait...", "Wait.flac"),
        ("...And Justice", "And Justice.flac"),
        ("~tilde", "tilde.flac"),
        ("What?", "What.flac"),
        ("???", "___.flac"),
        ("AC/DC", "AC-DC.flac"),
        ('Say "Hi"', "Say 'Hi'.flac"),
        ("a\tb\nc\x00d\x7f", "a b cd.flac"),
        ("evil\u202egpj", "evilgpj.flac"),
        ("e\u0301", "é.flac"),
        ("half \ud800", "half.flac"),
        ("千本桜", "千本桜.flac"),
        ("🎵", "🎵.flac"),
        ("\u200b", "_.flac"),
    ],
)
def test_a_title_becomes_a_name(title: str, name: str) -> None:
    assert put(title) == f"Band/Record/{name}"


@given(NASTY, NASTY, NASTY, st.sampled_from([".flac", ".mp3", "", ".x/../y", ".FLAC"]))
def test_any_text_stays_inside_and_is_legal(artist: str, album: str, title: str, suffix: str) -> None:
    found = place(TEMPLATE, {"artist": artist, "album": album, "title": title}, suffix)
    assert not found.is_absolute()
    assert 1 <= len(found.parts) <= 3
    assert len(str(found).encode()) <= 1000
    for part in found.parts:
        assert part not in ("", ".", "..")
        assert len(part.encode()) <= 240
        assert not set(part) & set('<>:"/\\|?*\0')
        assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in part)
        assert part == part.strip() == unicodedata.normalize("NFC", part)
        assert part[-1] != "."
        assert part[0] not in ".~"
        assert part.partition(".")[0].rstrip().upper() not in RESERVED


@given(NASTY)
def test_a_legal_name_is_left_alone(text: str) -> None:
    once = legal(text)
    assert legal(once) == once


def test_long_names_stay_apart() -> None:
    first, second = put("é" * 300 + "a"), put("é" * 300 + "b")
    assert first != second
    assert len(PurePosixPath(first).name.encode()) <= 240
    assert put("é" * 300 + "a") == first


def test_a_cut_leaves_characters_whole() -> None:
    name = PurePosixPath(put("x" + "a\u0323\u0302\u0301" * 100)).name
    kept = name.rpartition("-")[0]
    assert unicodedata.normalize("NFD", kept).count("\u0323") == kept.count("ậ")


def test_empty_parts_are_left_out() -> None:
    assert put(album="") == "Band/Song.flac"
    assert put(album="", artist=()) == "Song.flac"
    assert put(title="", artist="", album="", id="42") == "42.flac"
    assert put(title="", artist="", album="") == "untitled.flac"


def test_what_joined_an_empty_field_goes_with_it() -> None:
    template = "{albumartist}/({year}) {album}/{disc}-{track} {title}"
    fields = {"albumartist": "Band", "album": "Record", "title": "Song"}
    assert str(place(template, fields, "")) == "Band/Record/Song"
    full = {**fields, "year": 1999, "disc": 1, "track": 3}
    assert str(place(template, full, ".mp3")) == "Band/(1999) Record/1-03 Song.mp3"


def test_several_artists_are_joined() -> None:
    assert put(artist=("One", "Two")) == "One, Two/Record/Song.flac"


def test_an_unknown_field_is_named_with_what_was_meant() -> None:
    with pytest.raises(InputInvalid, match=r"\{artits\}.*artist"):
        check_template("{artits}/{title}")


@pytest.mark.parametrize("template", ["{artist}", "{title", "{title!r}", "{title:>5}", "{}/{title}", "{title.x}", ""])
def test_a_template_that_makes_no_names_is_refused(template: str) -> None:
    with pytest.raises(InputInvalid):
        check_template(template)


def test_the_default_is_sound() -> None:
    check_template(Settings().name_template)


@given(st.text("{}/.abtile ", max_size=40))
def test_any_template_is_refused_or_stays_inside(template: str) -> None:
    try:
        found = place(template, {"title": "../x"}, ".mp3")
    except InputInvalid:
        return
    assert ".." not in found.parts
    assert not found.is_absolute()
