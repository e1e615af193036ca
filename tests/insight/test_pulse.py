"""What the live stream asks four times a second goes by an index on both databases, however long the log is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.insight import pulse
from dalsegno.insight.events import Cursor
from dalsegno.store.asked import for_postgres, for_sqlite
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


def plans(store: Store, look: Callable[[], Any]) -> list[tuple[str, str]]:
    """All that `look` asks past SQLAlchemy, with its plan."""
    asked: list[tuple[sa.Select[Any], dict[str, Any]]] = []
    glance = store.glance

    def note(statement: sa.Select[Any], params: dict[str, Any]) -> list[dict[str, Any]]:
        asked.append((statement, params))
        return glance(statement, params)

    with mock.patch.object(store, "glance", note):
        look()

    def explain(tx: Tx) -> list[tuple[str, str]]:
        found = []
        for statement, params in asked:
            question = for_postgres(statement) if store.shared else for_sqlite(statement)
            given: Any = question.given | params
            words = "EXPLAIN" if store.shared else "EXPLAIN QUERY PLAN"
            rows = tx.raw.execute(
                f"{words} {question.text}", given if store.shared else [given[name] for name in question.places]
            ).fetchall()
            found.append((question.text, "\n".join(str(row) for row in rows)))
        return found

    return store.read(explain)


def read_whole(plan: str) -> list[str]:
    """Tables that are read from end to end, but for months that are still empty."""
    scans = re.findall(r"Seq Scan on ((?:events|logs)\w*) .*?cost=\S+?\.\.(\S+) ", plan)
    return [name for name, cost in scans if float(cost) > 1]


def test_no_look_reads_the_whole_log(long_log: Store) -> None:
    end = long_log.read(pulse.position)
    last = long_log.read(lambda tx: pulse.between(tx, Cursor(), end, LONG))
    near = Cursor(last[-50].tx, last[-50].id)

    def look() -> None:
        found, _ = pulse.look(long_log, near, near, {3, LONG - 5})
        assert found.kinds == [("item_claimed", 1)]
        assert found.items == [LONG - 5]

    told = plans(long_log, look)
    assert len(told) == 1
    for text, plan in told:
        assert not read_whole(plan), plan
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan
        if "low_id" in text:
            assert "SEARCH events USING" in plan or "Index" in plan, plan
    assert len(long_log.read(lambda tx: pulse.between(tx, near))) == 49
    assert long_log.read(lambda tx: pulse.known(tx, near))


def test_marks_are_read_from_the_ends_of_logs(long_log: Store) -> None:
    def write(tx: Tx) -> None:
        line = {"at": tx.now, "level": "info", "logger": "test", "message": "x" * 50}
        tx.conn.execute(sa.insert(logs), [line] * 5000)

    long_log.write("test", write)
    long_log.write("test", lambda tx: tx.conn.execute(sa.text("ANALYZE")))
    told = plans(long_log, lambda: pulse.look(long_log, None, Cursor(), slowly=True))
    assert len(told) == 1
    for _, plan in told:
        assert not read_whole(plan), plan
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
