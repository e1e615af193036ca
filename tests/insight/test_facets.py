"""What a list could be narrowed to, and how many of each: also where most of the history is not read."""

from __future__ import annotations

import pytest

from dalsegno import Store
from dalsegno.insight import facets
from dalsegno.insight.facets import Facet, item_facets
from dalsegno.insight.finding import ITEMS
from dalsegno.insight.query import parse
from tests.helpers import claim, one_step, register, settle, submitted

NEWEST = 3


@pytest.fixture
def buried(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two items failed, one was interrupted and two wait, behind more jobs that are through than are read."""
    monkeypatch.setattr(facets, "STAGES", NEWEST)
    process = register(store)
    submitted(store, one_step(max_attempts=1), items=3)
    done = claim(store, process, 3)
    settle(store, done[:1], "succeeded")
    settle(store, done[1:], "failed", attempt=1, error_code="Timeout")
    submitted(store, one_step(), items=3)
    settle(store, claim(store, process, 1), "interrupted", error_code="worker_lost")
    waiting = claim(store, process, 2)
    for _ in range(NEWEST + 1):
        submitted(store, one_step(), items=2)
        settle(store, claim(store, process, 2), "succeeded")
    settle(store, waiting, "pending")
    return store


def asked(store: Store, text: str) -> facets.Facets:
    return store.read(lambda tx: item_facets(tx, parse(text, ITEMS)))


@pytest.mark.parametrize("text", ["", "state:failed", "service:work", "stage:a,b", "-stage:b"])
def test_what_failed_or_waits_is_counted_however_much_is_done_since(buried: Store, text: str) -> None:
    states = {each.value: (each.count, each.more) for each in asked(buried, text).state}
    assert states == {"failed": (2, False), "interrupted": (1, False), "pending": (2, False), "succeeded": (6, True)}


def test_a_count_of_some_says_so(buried: Store) -> None:
    assert asked(buried, "state:failed").stage == [Facet("a", 2)]
    assert asked(buried, "state:succeeded").service == [Facet("work", 6, more=True)]
    assert asked(buried, "state:failed,succeeded").stage == [Facet("a", 8, more=True)]


def test_all_of_a_job_is_counted(buried: Store) -> None:
    assert asked(buried, "job:1").state == [Facet("succeeded", 1), Facet("failed", 2)]
    assert asked(buried, "job:2").stage == [Facet("a", 3)]
