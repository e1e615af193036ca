"""What takes long on a file is remembered by name."""

from __future__ import annotations

import time
from collections.abc import Callable

from dalsegno import Store
from dalsegno.insight.system import read_system
from dalsegno.store import slowest
from dalsegno.store.slowest import LEAST, NAMES, Slowest
from dalsegno.store.store import Tx


def slow(_: Tx) -> None:
    time.sleep(LEAST)


def quick(_: Tx) -> None:
    pass


def test_slow_reads_and_writes_are_named(sqlite_url: str, stores: Callable[..., Store]) -> None:
    store = stores(sqlite_url)
    for _ in range(2):
        store.read(slow)
    store.read(quick)
    store.write("tidy", slow)
    told = {each.text: each for each in read_system(store).database.slow or ()}
    assert told["tests.store.test_slowest.slow"].calls == 2
    assert told["tests.store.test_slowest.slow"].mean_ms >= 1000 * LEAST
    assert told["tidy"].calls == 1
    assert "tests.store.test_slowest.quick" not in told


def test_only_the_worst_are_kept() -> None:
    kept, now = Slowest(), time.perf_counter()
    kept.note("worst", now - 1000)
    for number in range(2 * NAMES):
        kept.note(f"n{number}", now - 10 - number)
    assert len(kept.worst(1000)) == NAMES
    assert kept.worst(1)[0].name == "worst"
    kept.note("quick", time.perf_counter())
    assert "quick" not in {each.name for each in kept.worst(1000)}


def test_a_function_is_named_after_where_it_was_made() -> None:
    assert slowest.name_of(lambda: None) == (
        "tests.store.test_slowest.test_a_function_is_named_after_where_it_was_made"
    )
