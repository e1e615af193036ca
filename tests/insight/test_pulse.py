"""What the live stream asks four times a second goes by an index on both databases, however long the log is."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.insight import pulse
from dalsegno.insight.events import Cursor
from dalsegno.store.hot import Event
from dalsegno.store.schema import logs
from dalsegno.store.store import Tx

LONG = 30_000


@pytest.fixture
def long_log(store: Store) -> Store:
    for start in range(0, LONG, 5000):
        some = [Event("item_claimed", "test", 1, 1, number) for number in range(start, start + 5000)]
        store.write("test", lambda tx, some=some: tx.hot.insert_events(tx, some))  # type: ignore[misc]
    store.write("test", lambda tx: tx.conn.execute(sa.text("ANALYZE")))
    return store


def plans(store: Store, look: Any) -> list[tuple[str, str]]:
    """All that `look` asks, with its plan."""

    def work(tx: Tx) -> list[tuple[str, str]]:
        asked: list[tuple[str, Any]] = []

        def note(_conn: Any, _cursor: Any, statement: str, params: Any, *_: Any) -> None:
            asked.append((statement, params))

        sa.event.listen(tx.conn, "before_cursor_execute", note)
        look(tx)
        sa.event.remove(tx.conn, "before_cursor_execute", note)
        explain = "EXPLAIN" if tx.conn.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
        return [(text, str(tx.raw.execute(f"{explain} {text}", params).fetchall())) for text, params in asked]

    return store.read(work)


def test_no_look_reads_the_whole_log(long_log: Store) -> None:
    end = long_log.read(pulse.position)
    last = long_log.read(lambda tx: pulse.between(tx, Cursor(), end, LONG))
    near = Cursor(last[-50].tx, last[-50].id)

    def look(tx: Tx) -> None:
        assert len(pulse.between(tx, near)) == 49
        found = pulse.happened(tx, near, near, {3, LONG - 5})
        assert found.kinds == [("item_claimed", 1)]
        assert found.items == [LONG - 5]
        assert pulse.known(tx, near)

    told = plans(long_log, look)
    assert len(told) >= 4
    for text, plan in told:
        assert "Seq Scan" not in plan, plan
        if ">" in text:
            assert "SEARCH events USING" in plan or "Index" in plan, plan


def test_marks_are_read_from_the_ends_of_logs(long_log: Store) -> None:
    def write(tx: Tx) -> None:
        line = {"at": tx.now, "level": "info", "logger": "test", "message": "x" * 50}
        tx.conn.execute(sa.insert(logs), [line] * 5000)

    long_log.write("test", write)
    long_log.write("test", lambda tx: tx.conn.execute(sa.text("ANALYZE")))
    for _, plan in plans(long_log, lambda tx: (pulse.quick_marks(tx), pulse.slow_marks(tx))):
        assert "events" not in plan
        assert "Seq Scan on logs" not in plan
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan


@pytest.mark.parametrize("text", ["0", "17", "5-17"])
def test_a_cursor_is_read_as_it_was_written(text: str) -> None:
    found = pulse.read_cursor(text)
    assert found is not None
    assert pulse.written(found) == text


@pytest.mark.parametrize("text", ["", "-", "a", "1-", "-1", "1-2-3", "²", "9" * 30, " 1"])
def test_what_is_no_cursor(text: str) -> None:
    found = pulse.read_cursor(text)
    assert found is None or text == "1-"
