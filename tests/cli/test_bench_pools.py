"""`dalsegno bench pools`: what it prints, and how it measures."""

from __future__ import annotations

import pytest

from dalsegno.bench.pools import steady
from tests.cli.tool import say

FIGURES = {"mixed_per_s", "fixed_per_s", "elastic_per_s", "elastic_equal_per_s", "limit_per_s"}


def test_it_prints_the_documented_figures(empty_database_url: str) -> None:
    words = ("bench", "pools", "--resolve-s", 0.01, "--transfer-s", 0.01, "--workers", 4, "--items", 60)
    answer = say(*words, "--database", empty_database_url, "--json")
    assert answer.data.keys() >= FIGURES
    assert answer.data["limit_per_s"] == pytest.approx(400)
    assert all(answer.data[name] > 0 for name in FIGURES)
    assert (answer.data["workers"], answer.data["resolvers_max"], answer.data["items"]) == (4, 16, 60)
    assert "elastic" in answer.err


def test_it_speaks_to_people_and_needs_no_database() -> None:
    text = say("bench", "pools", "--resolve-s", 0.01, "--transfer-s", 0.01, "--workers", 2, "--items", 8).out
    names = [line.split()[0] for line in text.splitlines()]
    assert names == ["mixed", "fixed", "elastic_equal", "elastic", "limit"]


def test_the_steady_state_is_found_in_waves_and_without_the_first() -> None:
    waves = [wave + n / 10_000 for wave in range(1, 11) for n in range(10 if wave == 1 else 40)]
    assert steady(waves, 1.0) == pytest.approx(40, rel=0.01)
    assert steady([0.5, 1.0], 1.0) == 2.0
    assert steady([], 1.0) == 0.0
