"""Reads with a time limit: cut off in the middle, and their transaction goes on."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.store.patience import TimeUp, at_most
from dalsegno.store.schema import lanes
from dalsegno.store.store import Tx

FOREVER = sa.text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000000) SELECT max(i) FROM n"
)


def test_a_question_without_end_is_cut_off_and_the_next_is_answered(store: Store) -> None:
    def work(tx: Tx) -> int:
        before = len(tx.rows(sa.select(lanes)))
        with pytest.raises(TimeUp), at_most(tx, 0.05):
            tx.rows(FOREVER)
        assert len(tx.rows(sa.select(lanes))) == before
        with at_most(tx, 30):
            return len(tx.rows(sa.select(lanes)))

    assert store.read(work) == 2
    assert store.read(lambda tx: len(tx.rows(sa.select(lanes)))) == 2


def test_what_was_written_before_stays(store: Store) -> None:
    def work(tx: Tx) -> None:
        tx.conn.execute(sa.insert(lanes).values(name="slow"))
        with pytest.raises(TimeUp), at_most(tx, 0.05):
            tx.rows(FOREVER)
        tx.conn.execute(sa.insert(lanes).values(name="late"))

    store.write("test", work)
    names = store.read(lambda tx: set(tx.conn.execute(sa.select(lanes.c.name)).scalars()))
    assert {"slow", "late"} <= names


def test_the_limit_ends_with_what_it_was_set_for(store: Store) -> None:
    """Afterwards a question may take as long as it needs."""
    many = sa.text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT max(i) FROM n"
    )

    def work(tx: Tx) -> int:
        with at_most(tx, 0.001):
            pass
        return int(tx.conn.execute(many).scalar_one())

    assert store.read(work) == 300_000


def test_other_errors_are_what_they_are(store: Store) -> None:
    def work(tx: Tx) -> None:
        with at_most(tx, 5):
            tx.rows(sa.text("SELECT nothing_such FROM lanes"))

    with pytest.raises(Exception, match="nothing_such") as caught:
        store.read(work)
    assert not isinstance(caught.value, TimeUp)
