"""The system page over real HTTP, on both databases."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.store.schema import processes
from dalsegno.store.store import Tx
from tests.helpers import wait_until
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, check_page, get


def test_without_an_engine_it_says_so(desk: Desk) -> None:
    page = check_page(desk, "/system")
    assert "No engine is at work" in page.by_id("processes").text
    assert "up to date" in page.by_id("database").text
    assert "没有引擎" in get(desk, "/system", CHINESE).by_id("processes").text


def test_loops_tell_when_they_last_came_round(desk: Desk, songs: Songs) -> None:
    wait_until(lambda: "settler" in get(desk, "/system").by_id("processes").text, "the loops")
    page = check_page(desk, "/system")
    text = page.by_id("processes").text
    assert "alive" in text
    assert "claimer" in text
    assert "late" not in text
    assert "test" in page.by_id("nodes").text


def test_the_database_is_told_about(desk: Desk, store: Store) -> None:
    page = check_page(desk, "/system")
    postgres = store.read(lambda tx: tx.conn.dialect.name) == "postgresql"
    assert ("PostgreSQL" if postgres else "SQLite") in page.by_id("database").text
    assert ("Largest tables" in page.by_id("database").text) == postgres
    assert "Slow queries" in page.by_id("keeping").text
    links = {link.attributes["href"] for link in page.all("a")}
    assert {"/docs", "/metrics", "/readyz"} <= links
    for path in ("/docs", "/metrics", "/readyz"):
        assert desk.http.get(path).status_code in (200, 503)


def test_who_keeps_old_rows_is_named(desk: Desk, store: Store) -> None:
    if store.read(lambda tx: tx.conn.dialect.name) != "postgresql":
        assert "SQLite has no such thing" in get(desk, "/system").by_id("keeping").text
        return

    def look(tx: Tx) -> str:
        tx.conn.execute(sa.select(processes))
        return get(desk, "/system").by_id("keeping").text

    assert "session" in store.read(look)
