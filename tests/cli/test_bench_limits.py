"""`dalsegno bench limits`: what it prints."""

from __future__ import annotations

from tests.cli.tool import say


def test_it_prints_how_much_of_a_rate_was_used(empty_database_url: str) -> None:
    words = ("bench", "limits", "--database", empty_database_url, "--rate", 5, "--window", 0.2, "--workers", 2)
    answer = say(*words, "--json")
    assert answer.data["granted"] == 55
    assert answer.data["most_in_a_window"] == 5
    assert 0 < answer.data["utilisation"] <= 1
