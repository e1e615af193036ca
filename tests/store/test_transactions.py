"""Store.write and Store.read: durable, retried, announced after the commit, and never in each other's way."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store, open_store
from dalsegno.errors import DalSegnoError, DatabaseUnavailable
from dalsegno.store.hot import Event
from dalsegno.store.postgres import PostgresStore
from dalsegno.store.schema import events, lanes
from dalsegno.store.store import Tx
from tests.conftest import Postgres
from tests.helpers import events_of, every, types_of, wait_until


def note(kind: str, **fields: object) -> Callable[[Tx], None]:
    return lambda tx: tx.hot.insert_events(tx, [Event(kind, "test", **fields)])  # type: ignore[arg-type]


def add_lane(tx: Tx, name: str) -> None:
    tx.conn.execute(sa.insert(lanes).values(name=name))


def lane_names(store: Store) -> list[str]:
    """The lanes a test has added."""
    found = every(store, sa.select(lanes.c.name).order_by(lanes.c.name))
    return [row["name"] for row in found if row["name"] not in ("catalog", "default")]


def test_a_write_returns_what_its_function_returned(store: Store) -> None:
    assert store.write("test", lambda _tx: {"answer": 42}) == {"answer": 42}


def test_a_write_that_raises_leaves_nothing(store: Store) -> None:
    def work(tx: Tx) -> None:
        add_lane(tx, "half")
        raise KeyError("no")

    with pytest.raises(KeyError):
        store.write("test", work)
    assert lane_names(store) == []
    store.write("test", lambda tx: add_lane(tx, "whole"))
    assert lane_names(store) == ["whole"]


def test_an_exception_in_one_function_does_not_lose_the_others_of_its_group(store: Store) -> None:
    def work(number: int) -> str:
        def inner(tx: Tx) -> str:
            add_lane(tx, f"lane{number:02}")
            if number % 5 == 0:
                raise ValueError(number)
            return f"lane{number:02}"

        return store.write("test", inner)

    gate = threading.Event()
    with ThreadPoolExecutor(40) as pool:
        blocker = pool.submit(store.write, "test", lambda _tx: gate.wait(10))  # SQLite: the others form one group
        answers = [pool.submit(work, number) for number in range(30)]
        gate.set()
        blocker.result()
        for number, answer in enumerate(answers):
            if number % 5 == 0:
                with pytest.raises(ValueError, match=str(number)):
                    answer.result()
            else:
                assert answer.result() == f"lane{number:02}"
    assert lane_names(store) == [f"lane{number:02}" for number in range(30) if number % 5]


def test_a_constraint_broken_by_one_function_is_told_to_that_one_only(store: Store) -> None:
    store.write("test", lambda tx: add_lane(tx, "taken"))
    with ThreadPoolExecutor(8) as pool:
        names = ["taken", "free1", "taken", "free2"]
        answers = [pool.submit(store.write, "test", lambda tx, name=name: add_lane(tx, name)) for name in names]
        outcomes = [answer.exception() is None for answer in answers]
    assert outcomes == [False, True, False, True]
    assert lane_names(store) == ["free1", "free2", "taken"]


def test_concurrent_writers_all_arrive(store: Store) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: store.write("test", note(f"n{n}")), range(200)))
    assert sorted(types_of(store)) == sorted(f"n{n}" for n in range(200))


def test_read_cannot_write(store: Store) -> None:
    with pytest.raises((DalSegnoError, sa.exc.DBAPIError, psycopg.Error, sqlite3.Error)):
        store.read(lambda tx: add_lane(tx, "sneaked in"))
    assert lane_names(store) == []


def test_a_read_sees_one_moment_even_while_others_write(store: Store) -> None:
    store.write("test", lambda tx: add_lane(tx, "first"))

    def look(tx: Tx) -> tuple[int, int]:
        count = sa.select(sa.func.count()).where(lanes.c.name.in_(["first", "second"]))
        before = tx.conn.execute(count).scalar_one()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(store.write, "test", lambda inner: add_lane(inner, "second")).result(timeout=10)
        return before, tx.conn.execute(count).scalar_one()

    assert store.read(look) == (1, 1)
    assert len(lane_names(store)) == 2


def test_a_reader_does_not_wait_for_a_writer(store: Store) -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        add_lane(tx, "slow")
        inside.set()
        leave.wait(10)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.write, "test", slow)
        assert inside.wait(10)
        seen = lane_names(store)
        leave.set()
        writing.result()
    assert seen == []
    assert lane_names(store) == ["slow"]


def test_a_write_inside_a_write_is_not_a_deadlock(sqlite_url: str, stores: Callable[..., Store]) -> None:
    store = stores(sqlite_url)
    with pytest.raises(RuntimeError, match="may not wait"):
        store.write("outer", lambda _tx: store.write("inner", lambda _tx: None))


def test_announcements_come_after_the_commit(store: Store) -> None:
    seen: list[tuple[set[str], list[str]]] = []
    committed = threading.Event()

    def heard(topics: set[str]) -> None:
        with ThreadPoolExecutor(1) as pool:  # from another thread: SQLite announces from its writer
            seen.append((set(topics), pool.submit(lane_names, store).result(timeout=10)))
        committed.set()

    stop = store.listen(heard)

    def work(tx: Tx) -> None:
        tx.announce("jobs")
        tx.announce("work:x")
        add_lane(tx, "there")
        assert not seen

    store.write("test", work)
    assert committed.wait(10)
    assert seen[0] == ({"jobs", "work:x"}, ["there"])
    stop()
    store.write("test", lambda tx: tx.announce("jobs"))
    assert len(seen) == 1


def test_a_write_that_failed_announces_nothing(store: Store) -> None:
    heard: list[set[str]] = []
    store.listen(heard.append)

    def work(tx: Tx) -> None:
        tx.announce("jobs")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - ours, from the line above
        store.write("test", work)
    store.write("test", lambda tx: tx.announce("last"))
    wait_until(lambda: heard, "the announcement")
    assert heard == [{"last"}]


def test_what_one_process_announces_another_hears(
    backend: str, database_url: str, stores: Callable[..., Store]
) -> None:
    here, there = stores(database_url), stores(database_url)
    heard: set[str] = set()
    there.listen(heard.update)
    stop = threading.Event()
    watcher = threading.Thread(target=there.watch, args=(stop,))
    watcher.start()
    try:
        if backend == "postgres":
            wait_until(lambda: heard, "the listener to be connected")  # it says so by announcing everything once
            heard.clear()
        else:
            there.write("test", lambda _tx: None)

        def speak(tx: Tx) -> None:
            note("spoken")(tx)  # on SQLite the change of the file is what is heard
            tx.announce("commands")

        def spoken() -> bool:
            here.write("test", speak)
            return "commands" in heard

        wait_until(spoken, "the announcement to arrive")
    finally:
        stop.set()
        watcher.join()


def test_events_keep_the_order_in_which_they_were_written(store: Store) -> None:
    kinds = [f"kind{number:03}" for number in range(100)]
    for start in range(0, 100, 10):
        some = [Event(kind, "test", data={"é": [1, None]}) for kind in kinds[start : start + 10]]
        store.write("test", lambda tx, some=some: tx.hot.insert_events(tx, some))
    assert types_of(store) == kinds
    first = events_of(store)[0]
    assert (first["level"], first["source"], first["data"]) == ("info", "test", {"é": [1, None]})


def test_tailing_to_the_safe_mark_misses_nothing_beside_an_open_transaction(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    """Ids are given out before the commit: a reader that follows ids alone would pass over the slow one."""
    store = stores(postgres_url)
    seen: list[str] = []
    position = (-1, -1)

    def tail() -> None:
        nonlocal position

        def look(tx: Tx) -> list[sa.RowMapping]:
            after = sa.tuple_(events.c.tx, events.c.id) > sa.tuple_(*position)
            query = sa.select(events).where(after, events.c.tx < tx.hot.safe_tx(tx))
            return tx.rows(query.order_by(events.c.tx, events.c.id))

        for row in store.read(look):
            seen.append(row["type"])
            position = (row["tx"], row["id"])

    store.write("test", note("before"))
    wait_until(lambda: tail() or seen == ["before"], "the first event")
    inside, leave = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        note("slow")(tx)
        inside.set()
        leave.wait(20)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.write, "test", slow)
        assert inside.wait(10)
        for number in range(5):
            store.write("test", note(f"quick{number}"))
            tail()
        early = list(seen)
        leave.set()
        writing.result()
    assert early == ["before"], "the reader went past a writer that was still open"
    store.write("test", note("after"))
    wait_until(lambda: tail() or "after" in seen, "the rest")
    assert sorted(seen) == sorted(["before", "slow", *(f"quick{n}" for n in range(5)), "after"])
    assert len(seen) == len(set(seen))


def test_on_sqlite_every_event_is_safe_to_read_at_once(sqlite_url: str, stores: Callable[..., Store]) -> None:
    store = stores(sqlite_url)
    store.write("test", note("one"))
    rows = store.read(lambda tx: tx.rows(sa.select(events).where(events.c.tx < tx.hot.safe_tx(tx))))
    assert [row["type"] for row in rows] == ["one"]


def test_a_deadlock_is_retried_until_both_are_through(postgres_url: str, stores: Callable[..., Store]) -> None:
    store = stores(postgres_url)
    for name in ("left", "right"):
        store.write("test", lambda tx, name=name: add_lane(tx, name))
    meet = threading.Barrier(2, timeout=10)
    tries = {"left": 0, "right": 0}

    def work(first: str, second: str) -> None:
        def inner(tx: Tx) -> None:
            tries[first] += 1
            for name in (first, second):
                tx.conn.execute(sa.update(lanes).where(lanes.c.name == name).values(max_active=tries[first]))
                if tries[first] == 1 and name == first:
                    meet.wait()

        store.write("test", inner)

    with ThreadPoolExecutor(2) as pool:
        for answer in [pool.submit(work, "left", "right"), pool.submit(work, "right", "left")]:
            answer.result(timeout=30)
    assert sum(tries.values()) > 2


@pytest.mark.parametrize("error", [psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected])
def test_a_serialization_failure_is_tried_again(
    postgres_url: str, stores: Callable[..., Store], error: type[Exception]
) -> None:
    store = stores(postgres_url)
    tries: list[int] = []

    def work(tx: Tx) -> str:
        tries.append(1)
        add_lane(tx, "once")
        if len(tries) < 4:
            raise error("try again")
        return "through"

    assert store.write("test", work) == "through"
    assert len(tries) == 4
    assert lane_names(store) == ["once"]


def test_for_ever_colliding_writes_give_up_with_a_clear_error(postgres_url: str, stores: Callable[..., Store]) -> None:
    def work(_tx: Tx) -> None:
        raise psycopg.errors.SerializationFailure("again and again")

    with pytest.raises(DalSegnoError, match="again and again"):
        stores(postgres_url).write("test", work)


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    if not store.shared:
        with pytest.raises(DalSegnoError, match="closed"):
            store.write("test", lambda _tx: None)


@pytest.mark.parametrize("how", ["core", "raw"])
def test_a_connection_cut_in_the_middle_of_a_write_is_an_outage_whoever_notices_it(
    postgres: Postgres, postgres_url: str, stores: Callable[..., Store], how: str
) -> None:
    """Taken for anything else, the settler would blame the item whose outcome it was writing."""
    store = stores(postgres_url)

    def work(tx: Tx) -> None:
        add_lane(tx, "half")
        raw: psycopg.Connection[object] = tx.raw
        with postgres.admin() as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (raw.info.backend_pid,))
        if how == "core":
            add_lane(tx, "other")
        else:
            raw.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        store.write("test", work)
    assert lane_names(store) == []
    store.write("test", lambda tx: add_lane(tx, "whole"))
    assert lane_names(store) == ["whole"]


def test_what_is_told_while_a_store_closes_leaves_no_connection_behind(postgres_url: str) -> None:
    store = open_store(postgres_url)
    assert isinstance(store, PostgresStore)
    store.close()
    store._tell_others({"jobs"})
    assert store._sender is not None
    store._sender.join(30)
    del store
    gc.collect()  # a connection that is still open would say so
