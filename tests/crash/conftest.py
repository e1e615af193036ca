from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Harness


@pytest.fixture
def harnesses(tmp_path: Path) -> Iterator[Callable[[str], Harness]]:
    """`harnesses(url)`: whatever it starts is gone after the test, however the test ended."""
    made: list[Harness] = []

    def make(url: str) -> Harness:
        made.append(Harness(url, tmp_path))
        return made[-1]

    try:
        yield make
    finally:
        for harness in made:
            harness.end_all()


@pytest.fixture
def harness(database_url: str, harnesses: Callable[[str], Harness]) -> Harness:
    return harnesses(database_url)
