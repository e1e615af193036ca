"""Is this the same song? A table of pairs as sources really write them, and what must hold for any two tracks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.catalog.matching import USABLE, off_by, score
from dalsegno.catalog.performers import split_artists
from dalsegno.catalog.titles import normal, version
from dalsegno.sources.model import Track
from tests.growth import growth


def track(title: str, artists: str = "", duration: float | None = None, **rest: Any) -> Track:
    return Track(id="1", title=title, artists=tuple(artists.split("|")) if artists else (), duration=duration, **rest)


SAME = [
    (track("Harbour Lights", "The Tide", 215), track("Harbour Lights", "The Tide", 215)),
    (track("Harbour Lights", "The Tide", 215), track("HARBOUR LIGHTS", "TIDE", 216.4)),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Remastered 2011)", "The Tide")),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights - 2011 Remaster", "The Tide")),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights - Remastered", "The Tide")),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights - Single Version", "The Tide")),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Album Version) [Explicit]", "The Tide")),
    (track("Harbour Lights", "The Tide", 215), track("The Tide - Harbour Lights [Official Video]", "", 217)),
    (
        track("Harbour Lights", "The Tide", 215),
        track("The Tide - Harbour Lights (Official Audio)", "Tide Channel", 216),
    ),
    (track("Harbour Lights", "The Tide"), track("Harbor Lights", "The Tide")),
    (track("Harbour Lights", "The Tide|The Gulls"), track("Harbour Lights (feat. The Gulls)", "The Tide")),
    (track("Harbour Lights", "The Tide|The Gulls"), track("Harbour Lights ft. The Gulls", "The Tide")),
    (track("Harbour Lights", "The Tide feat. The Gulls"), track("Harbour Lights [with The Gulls]", "The Tide")),
    (track("Harbour Lights", "The Tide & The Gulls"), track("Harbour Lights", "The Gulls / The Tide")),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights", "The Tide|The Gulls|The Buoys")),
    (track("Café Société", "Les Réverbères"), track("Cafe Societe", "Les Reverberes")),
    (track("Ørsted", "Blåbær"), track("Orsted", "Blabaer")),
    (track("Straße im Regen", "Die Laternen"), track("STRASSE IM REGEN", "Die Laternen")),
    (track("Don't Stop the Rain", "Gutter"), track("Dont Stop The Rain", "Gutter")),
    (track("Salt & Stone", "Quarry"), track("Salt and Stone", "Quarry")),
    (track("Night Fall", "Owl Clock"), track("Nightfall", "Owl Clock")),
    (track("The Long Stair", "Attic"), track("Long Stair", "Attic")),
    (track("Stair, Pt. 2", "Attic"), track("Stair Part II", "Attic")),
    (track("Live and Let Dry", "Laundry"), track("Live And Let Dry (2003 Remaster)", "Laundry")),
    (track("Olive Tree", "Orchard"), track("Olive Tree", "The Orchard")),
    (track("Run for Cover", "Umbrella"), track("Run For Cover", "Umbrella")),
    (track("(Can't Find) The Key", "Locksmith"), track("Can't Find the Key", "Locksmith")),
    (track("夜航", "灯塔乐队", 240), track("夜航", "灯塔乐队", 243)),
    (track("夜航", "灯塔乐队"), track("夜航 (Night Flight)", "灯塔乐队")),
    (track("夜航", "灯塔乐队"), track("夜航 (电影《海》主题曲)", "灯塔乐队")),
    (track("夜航", "灯塔乐队"), track("夜航【高清】", "灯塔乐队 (Lighthouse)")),
    (track("夜航", "灯塔乐队、潮汐"), track("夜航", "潮汐/灯塔乐队")),
    (track("ABC 123", "Chalk"), track("\uff21\uff22\uff23\u3000\uff11\uff12\uff13", "Chalk")),
    (track("夜の港", "灯台"), track("「夜の港」", "灯台")),
    (track("がらくた", "倉庫"), track("がらくた", "倉庫")),
    (track("バス停", "待合室"), track("ﾊﾞｽ停", "待合室")),
    (track("밤의 항구", "등대"), track("밤의항구", "등대")),
    (track("Ночной трамвай", "Северный Маяк"), track("НОЧНОЙ ТРАМВАЙ", "Северный маяк")),
    (track("Harbour Lights (Live)", "The Tide"), track("Harbour Lights - Live at the Pier, 2009", "The Tide")),
    (track("Harbour Lights (Live)", "The Tide"), track("Harbour Lights", "The Tide", album="Live at the Pier")),
    (track("夜航 (Live)", "灯塔乐队"), track("夜航 (现场版)", "灯塔乐队")),
    (track("夜の港 (ライブ)", "灯台"), track("夜の港 -Live-", "灯台")),
    (track("夜航 伴奏", "灯塔乐队"), track("夜航 (Instrumental)", "灯塔乐队")),
    (track("Harbour Lights (Remix)", "The Tide"), track("Harbour Lights - Remix", "The Tide")),
    (track("Dust", "Attic", isrc="QZ-AAA-26-00001"), track("Poussière", "Grenier", isrc="qzaaa2600001")),
    (track("!!!", "???"), track("!!!", "???")),
    (track("Harbour Lights"), track("Harbour Lights")),
    (track("Harbour Lights", "", 215), track("Harbour Lights", "The Tide", 215)),
    (track("Harbour Lights", "Various Artists", 215), track("Harbour Lights", "The Tide", 215)),
]

OTHER = [
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Live)", "The Tide"), "live version, wanted studio"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights - Live at the Pier", "The Tide"), "live version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights Live", "The Tide"), "live version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights", "The Tide", album="Live in Winter"), "live version"),
    (track("Harbour Lights (Live)", "The Tide"), track("Harbour Lights", "The Tide"), "studio version, wanted live"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Owl Clock Remix)", "The Tide"), "remix version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Club Mix)", "The Tide"), "remix version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Cover)", "The Tide"), "cover version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Acoustic)", "The Tide"), "acoustic version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights - Radio Edit", "The Tide"), "edit version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Karaoke Version)", "The Tide"), "karaoke version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (sped up)", "The Tide"), "sped up version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (slowed + reverb)", "The Tide"), "slowed version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Orchestral Version)", "The Tide"), "orchestral"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights [Demo]", "The Tide"), "demo version"),
    (track("Harbour Lights", "The Tide"), track("Harbour Lights (Midnight Version)", "The Tide"), "midnight version"),
    (
        track("Harbour Lights (Live)", "The Tide"),
        track("Harbour Lights (Live Acoustic)", "The Tide"),
        "acoustic + live",
    ),
    (track("夜航", "灯塔乐队"), track("夜航 (Live版)", "灯塔乐队"), "live version"),
    (track("夜航", "灯塔乐队"), track("夜航现场版", "灯塔乐队"), "live version"),
    (track("夜航", "灯塔乐队"), track("夜航 (2019演唱会)", "灯塔乐队"), "live version"),
    (track("夜航", "灯塔乐队"), track("夜航 (翻唱)", "灯塔乐队"), "cover version"),
    (track("夜航", "灯塔乐队"), track("夜航 DJ版", "灯塔乐队"), "remix version"),
    (track("夜航", "灯塔乐队"), track("夜航(女声版)", "灯塔乐队"), "female version"),
    (track("夜航", "灯塔乐队"), track("夜航【伴奏】", "灯塔乐队"), "instrumental version"),
    (track("夜航", "灯塔乐队"), track("夜航 (纯音乐)", "灯塔乐队"), "instrumental version"),
    (track("夜航", "灯塔乐队"), track("夜航 (粤语版)", "灯塔乐队"), "cantonese version"),
    (track("夜の港", "灯台"), track("夜の港 (カバー)", "灯台"), "cover version"),
    (track("夜の港", "灯台"), track("夜の港〜リミックス〜", "灯台"), "remix version"),
    (track("夜の港", "灯台"), track("夜の港 インスト", "灯台"), "instrumental version"),
    (track("Night Train", "Owl Clock"), track("Night Rain", "Owl Clock"), "other title"),
    (track("Sunrise", "Window"), track("Sunset", "Window"), "other title"),
    (track("Night and Day", "Window"), track("Day and Night", "Window"), "other title"),
    (track("Stair, Pt. 1", "Attic"), track("Stair, Pt. 2", "Attic"), "other title"),
    (track("Stair II", "Attic"), track("Stair III", "Attic"), "other title"),
    (track("夜航(上)", "灯塔乐队"), track("夜航(下)", "灯塔乐队"), "other title"),
    (track("夜航", "灯塔乐队"), track("夜行", "灯塔乐队"), "other title"),
    (track("がらくた", "倉庫"), track("からくた", "倉庫"), "other title"),
    (track("犯罪现场", "灯塔乐队"), track("犯罪", "灯塔乐队"), "other title"),
    (track("Home", "Attic"), track("Home", "Cellar"), "other artist: Cellar, wanted Attic"),
    (track("夜航", "灯塔乐队"), track("夜航", "Lighthouse Band"), "cannot be known"),
    (track("Home", "Attic", 200), track("Home", "Attic", 320), "runs 5:20, wanted 3:20"),
    (track("Home", "Attic", 200), track("Home", "Attic", 219.9), "too unsure"),
    (track("Home", "Attic"), track("Home"), "artist unknown"),
    (
        track("Home", "Attic", 200, isrc="QZAAA2600001"),
        track("Home", "Attic", 30, isrc="QZAAA2600001"),
        "same ISRC, but runs 0:30, wanted 3:20",
    ),
    (track(""), track(""), "no title"),
]


@pytest.mark.parametrize(("wanted", "found"), SAME, ids=[f"{a.title} = {b.title}" for a, b in SAME])
def test_the_same_song_is_known_however_it_is_written(wanted: Track, found: Track) -> None:
    match = score(wanted, found)
    assert match.usable, match
    assert match.score >= USABLE


@pytest.mark.parametrize(("wanted", "found", "why"), OTHER, ids=[f"{a.title} ≠ {b.title}" for a, b, _ in OTHER])
def test_another_song_is_refused_and_the_reason_says_why(wanted: Track, found: Track, why: str) -> None:
    match = score(wanted, found)
    assert not match.usable, match
    assert why in match.reason
    assert match.score < USABLE


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Harbour Lights (feat. The Gulls) [Remastered 2011]", "harbour lights"),
        ("Harbour Lights - Live - 2009 Remaster", "harbour lights"),
        ("「夜の港」", "夜の港"),
        ("../../etc/passwd", "etc passwd"),
        ("(Live)", "live"),
        ("Live", "live"),
        ("!!!", "!!!"),
        ("Cover Me", "cover me"),
        ("Remix", "remix"),
        ("Harbour: Live in Winter", "harbour"),
    ],
)
def test_what_is_left_of_a_title_is_its_name(title: str, expected: str) -> None:
    assert normal(title) == expected


INNOCENT = [
    "Live and Let Dry", "Olive Tree", "The Way We Live", "Long Live", "Where I Live", "Live", "Delivery", "Alive",
    "Run for Cover", "Cover Me", "Editions", "Demolition", "Mixture", "犯罪现场", "ライブラリ", "Instinct",
]  # fmt: skip


@pytest.mark.parametrize(
    "title",
    INNOCENT,
)
def test_a_word_inside_a_name_is_no_version(title: str) -> None:
    assert version(title) == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tide feat. Gulls", ("Tide", "Gulls")),
        ("Tide ft. Gulls & Buoys", ("Tide", "Gulls", "Buoys")),
        ("潮汐、灯塔", ("潮汐", "灯塔")),
        ("潮汐/灯塔", ("潮汐", "灯塔")),
        ("Tide × Gulls", ("Tide", "Gulls")),
        ("Tide x Gulls", ("Tide", "Gulls")),
        ("Tide with Gulls", ("Tide", "Gulls")),
        ("Tide; Gulls", ("Tide", "Gulls")),
        ("Tide, Gulls", ("Tide", "Gulls")),
        ("Kettle, The Loud", ("Kettle, The Loud",)),
        ("10,000 Waves", ("10,000 Waves",)),
        ("AB/CD", ("AB/CD",)),
        ("Oxen", ("Oxen",)),
        ("", ()),
    ],
)
def test_artists_are_split_where_sources_join_them(text: str, expected: tuple[str, ...]) -> None:
    assert split_artists(text) == expected


def test_lengths_lower_the_score_before_they_refuse() -> None:
    near, middle = track("Home", "Attic", 200), track("Home", "Attic", 210)
    assert score(near, track("Home", "Attic", 203)).score == 1.0
    assert USABLE <= score(near, middle).score < 1.0
    assert off_by(200, None) is None
    assert off_by(0, 200) is None


PIECES = [
    "Harbour", "Night", "夜航", "がらくた", "Live", "(Live)", "- Live", "[Remix]", "feat.", "(", ")", "-", "2", "II",
    "é", "Version", "伴奏", "版", "(上)", "&", "/", "\x00", "'", "the", "Cover", "〜", "【", "】", "ﾊﾞ",
]  # fmt: skip
titles = st.one_of(
    st.text(min_size=1, max_size=40).filter(str.strip),
    st.lists(
        st.sampled_from(
            PIECES,
        ),
        min_size=1,
        max_size=7,
    ).map(" ".join),
)
tracks = st.builds(
    Track,
    id=st.just("1"),
    title=titles,
    artists=st.lists(titles, max_size=3).map(tuple),
    album=st.one_of(st.just(""), titles),
    duration=st.one_of(st.none(), st.floats(0, 5000)),
    isrc=st.one_of(st.none(), st.sampled_from(["QZAAA2600001", "qz-aaa-26-00001", "QZAAA2600002"])),
)


@given(tracks)
def test_a_track_is_itself(one: Track) -> None:
    match = score(one, one)
    assert match.score == 1.0, match
    assert match.usable


@given(tracks, tracks)
def test_the_score_is_bounded_and_the_same_both_ways(one: Track, other: Track) -> None:
    match = score(one, other)
    assert 0.0 <= match.score <= 1.0
    assert match.usable == (match.score >= USABLE)
    assert match.reason
    back = score(other, one)
    assert (back.score, back.usable) == (match.score, match.usable)


@given(titles)
def test_taking_a_title_apart_never_leaves_nothing(title: str) -> None:
    if title.replace("\x00", " ").strip():
        assert normal(title) or not title.isprintable()
    assert normal(title) == normal(title.upper()) or not title.isascii()


@given(titles, st.sampled_from(["(Live)", "[Remix]", "- Acoustic", "(Cover)", "(伴奏)"]))
def test_a_version_in_brackets_is_always_kept_apart(title: str, tag: str) -> None:
    if title.isalnum() and not version(title):
        assert not score(track(title, "Attic"), track(f"{title} {tag}", "Attic")).usable


@pytest.mark.parametrize("piece", [" ", "(", "a, ", "feat a ", " & ", "a - ", "~a", "x "])
def test_no_text_takes_more_work_than_it_is_long(piece: str) -> None:
    assert growth(lambda size: split_artists(f"a{piece * size}!"), 60) < 30
    assert growth(lambda size: score(track(f"a{piece * size}!"), track("a")), 1000) < 30


def test_of_artists_without_end_only_the_first_are_looked_at() -> None:
    one = track("a", "b")
    assert growth(lambda size: score(one, track("a", "|".join(map(str, range(size))))), 1000) < 30
