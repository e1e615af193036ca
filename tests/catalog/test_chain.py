"""The chain of sources asked for a song, as a line has room for it."""

from __future__ import annotations

import pytest

from dalsegno.catalog.candidates import Candidate
from dalsegno.catalog.chain import brief, chain, spoken


def considered(platform: str, verdict: str, reason: str, seconds: float = 0.5) -> Candidate:
    return Candidate(platform, None, None, verdict, reason, seconds)  # type: ignore[arg-type]


def test_the_chosen_one_ends_the_chain() -> None:
    said = [
        considered("kuwo", "chosen", "same title and artist", 2.06),
        considered("qq", "rejected", "HTTP 429: slow down"),
    ]
    assert spoken(chain(said)) == "qq ✗ 429 → kuwo ✓ 2.1 s"


def test_a_source_that_lost_its_own_track_and_found_another_is_there_twice() -> None:
    said = [considered("demo", "chosen", "same title"), considered("demo", "rejected", "gone: it has it no longer")]
    assert spoken(chain(said)) == "demo ✗ gone → demo ✓ 0.5 s"


def test_what_a_search_found_and_refused_does_not_hide_why_it_was_searched() -> None:
    said = [
        considered("qq", "rejected", "gone: 127.0.0.1 no longer has it (HTTP 404)."),
        considered("qq", "rejected", 'other title: "Clock"'),
        considered("qq", "rejected", "no match among 3 found"),
    ]
    assert spoken(chain(said)) == "qq ✗ no match"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("HTTP 503: busy", "503"),
        ("search: HTTP 429", "429"),
        ("hedged away: kuwo answered first", "slower"),
        ("took too long: 30 s", "timeout"),
        ("A web page came instead of audio.", "A web page came instead…"),
        ("Teapot: short and stout", "Teapot"),
    ],
)
def test_a_reason_is_said_in_a_word(reason: str, said: str) -> None:
    assert brief(reason) == said
