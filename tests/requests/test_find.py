"""Requests are found by index, however many there are, and pages are turned without a gap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from bench.requests import fill

from dalsegno import Store
from dalsegno.insight.query import parse
from dalsegno.insight.walk import Page, by_index
from dalsegno.requests.ask import ask
from dalsegno.requests.body import body_of
from dalsegno.requests.find import REQUESTS, find_requests, newest_with
from dalsegno.requests.parts import contents_of, variants_of
from dalsegno.requests.subjects import names_of
from dalsegno.requests.view import RequestView
from dalsegno.settings import Settings
from dalsegno.store.schema import jobs
from dalsegno.store.store import Tx
from tests.requests.conftest import Studio
from tests.requests.upstream import Kodik

MANY = 3000


@pytest.fixture
def crowd(store: Store) -> Store:
    """Thousands of requests that are done, and one that waits."""
    fill(store, MANY, done=True)
    ask(store, Settings(_env_file=None), body_of({"title": "t"}))
    store.write("test", lambda tx: tx.conn.execute(sa.text("ANALYZE")))
    return store


def some(store: Store, q: str, cursor: str | None = None, limit: int = 20) -> Page[RequestView]:
    return store.read(lambda tx: find_requests(tx, parse(q, REQUESTS), cursor=cursor, limit=limit))


def plans(store: Store, q: str) -> str:
    """What the databases do for a page of it."""
    seen: list[str] = []

    def look(tx: Tx) -> None:
        by_index(tx)
        if store.shared:  # a small table is cheaper to read whole
            tx.conn.execute(sa.text("SET LOCAL enable_seqscan = off"))
            tx.conn.execute(sa.text("SET LOCAL enable_bitmapscan = off"))

        def explained(conn: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
            if "parse_requests" in statement and "LIMIT" in statement and "EXPLAIN" not in statement:
                word = "EXPLAIN" if conn.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
                rows = conn.exec_driver_sql(f"{word} {statement}", values).all()
                seen.extend(str(row[-1]) for row in rows)

        sa.event.listen(tx.conn, "after_cursor_execute", explained)
        try:
            find_requests(tx, parse(q, REQUESTS), limit=20)
        finally:
            sa.event.remove(tx.conn, "after_cursor_execute", explained)

    store.read(look)
    return "\n".join(seen)


@pytest.mark.parametrize(
    ("q", "index"),
    [
        ("state:pending", "ix_parse_requests_state"),
        ("state:done", ""),  # nearly all are: the newest are as good as an index
        (f"hash:{'0' * 63}7", "ix_parse_requests_hash"),
        ("", ""),
    ],
)
def test_a_page_is_a_piece_of_an_index(crowd: Store, q: str, index: str) -> None:
    plan = plans(crowd, q)
    assert plan
    assert index in plan or crowd.shared  # PostgreSQL may walk the key as well, by what it thinks of the states
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan
    assert "Seq Scan" not in plan


def test_every_request_is_on_one_page(crowd: Store) -> None:
    for q, count in (("", MANY + 1), ("state:done", MANY), ("state:pending", 1), ("t -state:done", 1)):
        page = some(crowd, q, limit=500)
        seen = [line.id for line in page.lines]
        while page.next_cursor is not None:
            page = some(crowd, q, page.next_cursor, limit=500)
            seen += [line.id for line in page.lines]
        assert len(seen) == count, q
        assert seen == sorted(set(seen), reverse=True), q


def test_a_hash_finds_the_newest(studios: Callable[..., Studio]) -> None:
    studio = studios()
    digest = body_of({"title": "a"}).hash
    assert studio.store.read(lambda tx: newest_with(tx, digest)) is None
    first = studio.ask(title="a")
    over = sa.update(jobs).values(status="canceled", finished_at=jobs.c.created_at)
    studio.store.write("test", lambda tx: tx.conn.execute(over))
    second = studio.ask(title="A")
    assert first != second
    newest = studio.store.read(lambda tx: newest_with(tx, digest))
    assert newest is not None
    assert newest.id == second
    assert [line.id for line in some(studio.store, f"hash:{digest}").lines] == [second, first]


def test_parts_of_a_request_have_names(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(2, 1, title="Serial")
    upstream.film("Serial: the film")
    view = studio.carry_out(title="Serial", decodeLinks=True)
    store = studio.store
    contents = store.read(lambda tx: contents_of(tx, view.id))
    assert sorted((line.content.title, line.variants, line.decoded) for line in contents.lines) == [
        ("Serial", 2, 2), ("Serial: the film", 1, 1),
    ]  # fmt: skip
    variants = store.read(lambda tx: variants_of(tx, view.id))
    assert sorted(line.name for line in variants.lines) == ["Serial 1×01", "Serial 1×02", "Serial: the film"]
    keys = [line.item.key for line in variants.lines]
    names = store.read(lambda tx: names_of(tx, [*keys, "request", "variant:999", "song:1", "variant:x"]))
    assert sorted(names.values()) == ["Serial 1×01 · Studio 1", "Serial 1×02 · Studio 1", "Serial: the film · Dub"]
    assert store.read(lambda tx: variants_of(tx, view.id, state="failed")).lines == []
