"""Items across jobs, by query: what is found, in which order, page by page, and by which index."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.errors import InputInvalid
from dalsegno.insight.finding import ITEMS, find_items
from dalsegno.insight.query import parse
from dalsegno.insight.walk import Page
from dalsegno.store.schema import items
from tests.helpers import begin, chain, claim, keys, one_step, register, settle, submitted


@pytest.fixture
def history(store: Store) -> Store:
    """Three jobs: the first is done but for two that failed, the second is at work, the third waits in two stages."""
    process = register(store)
    submitted(store, one_step(max_attempts=1), items=6)
    done = claim(store, process, 6)
    begin(store, done)
    settle(store, done[:4], "succeeded")
    settle(store, done[4:], "failed", attempt=1, error_code="Timeout", error_message="no answer after 30 s, status 429")
    submitted(store, one_step(), items=4)
    held = claim(store, process, 2)
    begin(store, held[:1], "work-7")
    submitted(store, chain("work", "late"), items={"a": keys(3), "b": [f"song:{n}" for n in (17, 18, 170)]})
    return store


def found(store: Store, text: str, **how: object) -> list[tuple[int, str]]:
    page = ask(store, text, **how)
    assert not page.partial
    return [(line.item.job_id, line.item.key) for line in page.lines]


def ask(store: Store, text: str, **how: object) -> Page:
    return store.read(lambda tx: find_items(tx, parse(text, ITEMS), **how))  # type: ignore[arg-type]


def test_without_a_query_everything_newest_first(history: Store) -> None:
    everything = found(history, "")
    assert everything[:3] == [(3, "song:170"), (3, "song:18"), (3, "song:17")]
    assert everything[-1] == (1, "k00001")
    assert len(everything) == 16
    assert found(history, "", forward=True) == everything[::-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state:failed", [(1, "k00006"), (1, "k00005")]),
        ("state:failed job:2,3", []),
        ("state:running", [(2, "k00001")]),
        ("state:running,claimed", [(2, "k00002"), (2, "k00001")]),
        ("state:running state:claimed", []),
        ("worker:work-7", [(2, "k00001")]),
        ("worker:work-*", [(2, "k00001")]),
        ("error:timeout", [(1, "k00006"), (1, "k00005")]),
        ("error:Timeout -key:k00006", [(1, "k00005")]),
        ("error:429", [(1, "k00006"), (1, "k00005")]),
        ("-error:429 job:1 key:k00001,k00006", [(1, "k00001")]),
        ("attempt:>=1", [(1, "k00006"), (1, "k00005")]),
        ("stage:b", [(3, "song:170"), (3, "song:18"), (3, "song:17")]),
        ("stage:b -key:song:17", [(3, "song:170"), (3, "song:18")]),
        ("service:late key:song:17*", [(3, "song:170"), (3, "song:17")]),
        ("key:song:17", [(3, "song:17")]),
        ("key:k00003 -job:1", [(3, "k00003"), (2, "k00003")]),
        ("-state:succeeded,pending,claimed,running", [(1, "k00006"), (1, "k00005")]),
        ("30", [(1, "k00006"), (1, "k00005")]),
        ("SONG:18", [(3, "song:18")]),
        ('"NO ANSWER"', [(1, "k00006"), (1, "k00005")]),
        ("-k0 job:3", [(3, "song:170"), (3, "song:18"), (3, "song:17")]),
        ("age:>1d", []),
        ("age:<1d state:succeeded key:k00002", [(1, "k00002")]),
        ("job:>2 stage:a", [(3, "k00003"), (3, "k00002"), (3, "k00001")]),
    ],
)
def test_a_query_finds_what_it_says(history: Store, text: str, expected: list[tuple[int, str]]) -> None:
    text = f'"{text}"' if text.startswith("SONG") else text
    assert found(history, text) == expected
    assert found(history, text, forward=True) == expected[::-1]


@pytest.mark.parametrize("text", ["", "state:pending", "state:failed,succeeded", "key:k00001,k00002,song:17", "k0"])
@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("forward", [False, True])
def test_pages_follow_each_other_without_a_gap(history: Store, text: str, limit: int, forward: bool) -> None:
    everything = found(history, text, forward=forward)
    assert list(pages(history, text, limit, forward=forward)) == everything


def pages(store: Store, text: str, limit: int, **how: object) -> Iterator[tuple[int, str]]:
    cursor = None
    while True:
        page = ask(store, text, cursor=cursor, limit=limit, **how)
        assert len(page.lines) <= limit
        yield from ((line.item.job_id, line.item.key) for line in page.lines)
        cursor = page.next_cursor
        if cursor is None:
            return


@pytest.mark.parametrize("text", ["", "k0", "state:failed", "state:succeeded -key:k00001", "error:429"])
def test_when_the_time_is_up_a_page_says_so_and_the_next_goes_on(history: Store, text: str) -> None:
    everything = found(history, text)
    seen: list[tuple[int, str]] = []
    cursor, partial = None, 0
    for _ in range(100):
        page = ask(history, text, cursor=cursor, seconds=1e-9)
        seen += [(line.item.job_id, line.item.key) for line in page.lines]
        partial += page.partial
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == everything


def test_small_stages_are_asked_together(store: Store) -> None:
    for _ in range(40):
        submitted(store, one_step(), items=3)
    assert len(found(store, "k00002")) == 40
    assert list(pages(store, "k00002", 7)) == found(store, "k00002")


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.2.3", "-1.2", "1.99999999999999999999", "1.x"])
def test_a_cursor_of_somebody_else_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InputInvalid, match="cursor"):
        ask(store, "", cursor=cursor)


def test_an_error_group_is_found_by_its_index(history: Store) -> None:
    history.write(
        "test",
        lambda tx: tx.conn.execute(sa.update(items).where(items.c.error_code == "Timeout").values(fingerprint="abc")),
    )
    assert found(history, "group:abc") == [(1, "k00006"), (1, "k00005")]
    assert found(history, "group:abc state:failed job:1 -key:k00006") == [(1, "k00005")]
    assert found(history, "group:other") == []
    assert list(pages(history, "group:abc", 1)) == [(1, "k00006"), (1, "k00005")]
