"""Events and logs by the month: made ahead, found by their indexes, dropped whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from dalsegno import Store, open_store
from dalsegno.clock import ManualClock
from dalsegno.store import months as module
from dalsegno.store.hot import Event
from dalsegno.store.migrate import upgrade
from dalsegno.store.months import (
    AHEAD,
    KEYS,
    Month,
    add_month,
    drop_month,
    ensure_ahead,
    lock_month,
    month_of,
    months,
    next_month,
)
from dalsegno.store.open import parse_url
from dalsegno.store.schema import events
from tests.helpers import every, strays


@pytest.fixture
def months_of(postgres_url: str, stores: Callable[..., Store], clock: ManualClock) -> Store:
    return stores(postgres_url, clock)


def tell(store: Store, message: str) -> None:
    store.write("test", lambda tx: tx.hot.insert_events(tx, [Event("said", "test", message=message)]))


def where(store: Store) -> dict[str, str]:
    """In which month each event is."""
    rows = every(store, sa.select(events.c.message, sa.literal_column("tableoid::regclass::text").label("name")))
    return {row["message"]: row["name"] for row in rows}


def test_months_follow_each_other() -> None:
    december = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    assert next_month(month_of(december)) == datetime(2027, 1, 1, tzinfo=UTC)
    east = datetime.fromisoformat("2027-01-01T03:00:00+08:00")
    assert month_of(east) == datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize("table", sorted(KEYS))
def test_a_fresh_database_has_three_months_ahead_and_a_net(months_of: Store, table: str) -> None:
    found = months_of.read(lambda tx: months(tx, table))
    begins = next_month(month_of(datetime.now(UTC)))
    ahead = [begins]
    while len(ahead) < AHEAD:
        ahead.append(next_month(ahead[-1]))
    assert [(month.first, month.until) for month in found if not month.default] == [
        (None, begins), *((first, next_month(first)) for first in ahead)
    ]  # fmt: skip
    assert [month.name for month in found if month.default] == [f"{table}_default"]


def test_months_are_made_ahead_of_their_time(months_of: Store, clock: ManualClock) -> None:
    assert months_of.write("test", ensure_ahead) == []
    clock.advance(70 * 86_400.0)
    made = months_of.write("test", ensure_ahead)
    assert len(made) in (4, 6)  # two or three for each table, by the length of the months
    assert months_of.write("test", ensure_ahead) == []
    tell(months_of, "now")
    assert where(months_of)["now"] == f"events_{clock.now():%Y_%m}"
    indexes = every(months_of, sa.text(f"SELECT indexname FROM pg_indexes WHERE tablename = '{made[0]}'"))
    assert len(indexes) == 4


def test_what_no_month_is_there_for_is_caught_and_told(
    months_of: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert strays(months_of) == {}
    clock.advance(3000 * 86_400.0)
    tell(months_of, "far ahead")
    assert where(months_of) == {"far ahead": "events_default"}
    assert strays(months_of) == {"events": 1}
    monkeypatch.setattr(module, "FEW", 0)
    # That month cannot be made while its rows are elsewhere; all others can.
    made = months_of.write("test", ensure_ahead)
    assert f"events_{clock.now():%Y_%m}" not in made
    assert f"logs_{clock.now():%Y_%m}" in made


def test_what_was_caught_moves_when_its_month_is_made(months_of: Store, clock: ManualClock) -> None:
    clock.advance(200 * 86_400.0)
    tell(months_of, "first")
    before = every(months_of, sa.select(events))
    name = f"events_{clock.now():%Y_%m}"
    assert name in months_of.write("test", ensure_ahead)
    assert where(months_of) == {"first": name}
    assert every(months_of, sa.select(events)) == before
    assert strays(months_of) == {}


def test_months_of_a_clock_that_was_far_ahead_do_not_stand_for_those_before(
    months_of: Store, clock: ManualClock
) -> None:
    clock.advance(3000 * 86_400.0)
    months_of.write("test", ensure_ahead)
    clock.advance(-2800 * 86_400.0)
    assert f"events_{clock.now():%Y_%m}" in months_of.write("test", ensure_ahead)


def test_a_month_that_is_there_in_part_is_not_made_over_it(months_of: Store, clock: ManualClock) -> None:
    clock.advance(2000 * 86_400.0)
    first = month_of(clock.now())
    half, until = first + timedelta(days=15), next_month(first)
    months_of.write("test", lambda tx: add_month(tx, "events", half, until, "events_half"))
    made = months_of.write("test", ensure_ahead)
    assert f"events_{until:%Y_%m}" in made
    assert f"events_{first:%Y_%m}" not in made


def test_a_dropped_month_takes_only_its_own(months_of: Store, clock: ManualClock) -> None:
    tell(months_of, "old")
    clock.advance(40 * 86_400.0)
    tell(months_of, "new")

    def drop(tx: object) -> Month:
        first = months(tx, "events")[0]  # type: ignore[arg-type]
        lock_month(tx, first)  # type: ignore[arg-type]
        drop_month(tx, first)  # type: ignore[arg-type]
        return first

    assert months_of.write("test", drop).label.startswith("before-")
    assert set(where(months_of)) == {"new"}
    tell(months_of, "newer")
    assert set(where(months_of)) == {"new", "newer"}


def test_an_older_database_keeps_its_rows_as_the_first_month(
    fresh_database: Callable[..., str], stores: Callable[..., Store]
) -> None:
    url = fresh_database("postgres", empty=True)
    upgrade(parse_url(url), "0006")
    engine = sa.create_engine(parse_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    ahead = datetime.now(UTC) + timedelta(days=400)
    with engine.begin() as conn:
        for at in (datetime(2024, 2, 29, tzinfo=UTC), datetime.now(UTC), ahead):
            conn.execute(
                sa.text("INSERT INTO events (at, type, source, message) VALUES (:at, 'said', 'test', :text)"),
                {"at": at, "text": at.isoformat()},
            )
        before = conn.execute(sa.text("SELECT * FROM events ORDER BY tx, id")).fetchall()
    with engine.connect() as conn:
        filenode = conn.execute(sa.text("SELECT pg_relation_filenode('events')")).scalar()
    store = stores(url)
    with engine.connect() as conn:
        assert conn.execute(sa.text("SELECT * FROM events ORDER BY tx, id")).fetchall() == before
        first = store.read(lambda tx: months(tx, "events"))[0]
        assert first.until is not None
        assert first.until > ahead  # a clock was ahead once: the month reaches so far
        # The rows and their indexes are where they were.
        assert conn.execute(sa.text(f"SELECT pg_relation_filenode('{first.name}')")).scalar() == filenode
        query = sa.text(f"SELECT count(*) FROM pg_indexes WHERE tablename = '{first.name}'")
        assert conn.execute(query).scalar() == 4
    engine.dispose()
    tell(store, "after")
    assert every(store, sa.select(events.c.id).where(events.c.message == "after"))[0]["id"] > before[-1].id
    open_store(url).close()
