"""Pages that are cut off: what was found stays, and the cursor says how far everything was looked at."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.scope import parse_scope
from dalsegno.catalog.songs import find_songs
from dalsegno.insight.walk import FIRST, Condition, Page, Walk, begin, page_of, place_of, walk
from dalsegno.store.schema import items
from dalsegno.store.store import Tx
from tests.helpers import one_step, submitted

ENDLESS = sa.text(
    "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000000) SELECT max(i) FROM n) > 0"
)


def ask(store: Store, wanted: Condition, cursor: str | None = None, limit: int = 1000) -> Page[int]:
    path = Walk(sa.select(items), (items.c.stage_id, items.c.seq), wanted=[wanted], forward=True)

    def read(tx: Tx) -> Page[int]:
        found = walk(tx, path, after=place_of(cursor, 2), limit=limit + 1, budget=begin(tx, 0.2))
        rows = {row["seq"]: row["stage_id"] for row in found.rows}
        return page_of(list(rows), found, limit, lambda seq: (rows[seq], seq))

    return store.read(read)


def test_a_page_that_is_cut_off_keeps_what_it_has_and_goes_on_where_it_stood(store: Store) -> None:
    submitted(store, one_step(), items=700)
    seqs = ask(store, sa.true()).lines
    early, late = seqs[10], seqs[650]
    slow = sa.case((items.c.seq == late, ENDLESS), else_=items.c.seq == early)
    page = ask(store, slow)
    assert page.partial
    assert page.lines == [early]
    assert ask(store, sa.true(), page.next_cursor).lines == seqs[FIRST:]


def test_a_page_that_got_nowhere_says_so_and_begins_again(store: Store) -> None:
    submitted(store, one_step(), items=3)
    page = ask(store, sa.and_(items.c.seq > 0, ENDLESS))
    assert (page.partial, page.lines, page.looked) == (True, [], 0)
    again = ask(store, sa.true(), page.next_cursor)
    assert (again.partial, len(again.lines)) == (False, 3)


def test_a_page_found_in_a_moment_is_whole(store: Store) -> None:
    submitted(store, one_step(), items=3)
    page = ask(store, items.c.seq > 0, limit=2)
    assert (page.partial, len(page.lines)) == (False, 2)
    last = ask(store, items.c.seq > 0, page.next_cursor, limit=2)
    assert (last.partial, len(last.lines), last.next_cursor) == (False, 1, None)


def test_songs_of_nobody_are_a_whole_page(store: Store) -> None:
    page = store.read(lambda tx: find_songs(tx, parse_scope({"query": "nothing such"})))
    assert (page.lines, page.next_cursor, page.partial) == ([], None, False)
