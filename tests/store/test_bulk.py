"""Many rows past SQLAlchemy, and glances: the same answers as through it, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.schema import playlists, songs
from dalsegno.store.bulk import run_many

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def add(store: Store, count: int) -> None:
    rows = [
        {"platform": "demo", "remote_id": str(number), "title": f"歌 {number}", "created_at": NOW, "updated_at": NOW,
         "snapshot": {"artists": ["雨"]}}
        for number in range(count)
    ]  # fmt: skip
    store.write("test", lambda tx: tx.conn.execute(sa.insert(songs), rows) and None)


def test_a_glance_reads_times_and_json_as_a_read_does(store: Store) -> None:
    add(store, 2)
    query = sa.select(songs).where(songs.c.remote_id == sa.bindparam("wanted"))
    glanced = store.glance(query, {"wanted": "1"})
    read = store.read(lambda tx: [dict(row) for row in tx.rows(query, {"wanted": "1"})])
    assert glanced == read
    assert glanced[0]["snapshot"] == {"artists": ["雨"]}
    assert glanced[0]["created_at"] == NOW
    assert store.glance(query, {"wanted": "none"}) == []


def test_many_rows_are_updated_by_one_statement(store: Store) -> None:
    add(store, 3)
    statement = (
        sa.update(songs)
        .where(songs.c.remote_id == sa.bindparam("which"))
        .values(missing_at=sa.bindparam("at", type_=songs.c.missing_at.type), album="fixed", isrc=sa.null())
    )
    rows = [{"which": "0", "at": NOW}, {"which": "2", "at": None}]
    store.write("test", lambda tx: run_many(tx.conn, statement, rows))
    store.write("test", lambda tx: run_many(tx.conn, statement, []))
    query = sa.select(songs.c.remote_id, songs.c.missing_at, songs.c.album).order_by(songs.c.remote_id)
    found = store.read(lambda tx: [tuple(row) for row in tx.conn.execute(query)])
    assert found == [("0", NOW, "fixed"), ("1", None, ""), ("2", None, "fixed")]


def test_a_glance_sees_what_was_committed_before_it(store: Store) -> None:
    query = (
        sa.select(sa.func.count().label("n")).select_from(playlists).where(playlists.c.platform == sa.bindparam("p"))
    )
    row = {"platform": "demo", "remote_id": "x", "created_at": NOW, "updated_at": NOW}
    for expected in (0, 1):
        assert store.glance(query, {"p": "demo"})[0]["n"] == expected
        if not expected:
            store.write("test", lambda tx: tx.conn.execute(sa.insert(playlists).values(**row)) and None)
