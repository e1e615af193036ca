"""Lines logged while an item runs are kept with it, and go to stdout as JSON."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import sqlalchemy as sa

from dalsegno import EngineOptions, Item, Store, service, submit
from dalsegno.engine.logbridge import JsonLines, LogBridge
from dalsegno.store.schema import logs
from tests.helpers import SWIFT, every, items_of, keys, one_step, run_job

library = logging.getLogger("some.library")


def lines(store: Store) -> list[sa.RowMapping]:
    return every(store, sa.select(logs).order_by(logs.c.id))


def test_lines_of_an_item_are_stored_with_it_wherever_they_were_logged(store: Store, caplog: Any) -> None:
    caplog.set_level(logging.INFO)

    @service("work")
    def talk(item: Item) -> None:
        item.log.info("by the item, %d%%", 50)
        library.warning("by a library")

    job = submit(store, one_step(), items=["k"]).job_id
    run_job(store, [talk], job)
    item = items_of(store, job)[0]
    found = [row for row in lines(store) if row["item_id"] == item["id"]]
    assert [(row["level"], row["logger"], row["message"]) for row in found] == [
        ("info", "dalsegno.item", "by the item, 50%"),
        ("warn", "some.library", "by a library"),
    ]
    assert {(row["job_id"], row["stage_id"], row["worker"]) for row in found} == {(job, item["stage_id"], "work-1")}


def test_lines_of_an_async_item_are_stored_with_it(store: Store) -> None:
    @service("work", workers=3)
    async def talk(item: Item) -> None:
        item.log.warning("I am %s", item.key)

    job = submit(store, one_step(), items=keys(5)).job_id
    run_job(store, [talk], job)
    names = {item["id"]: item["key"] for item in items_of(store, job)}
    assert sorted(row["message"] for row in lines(store)) == sorted(f"I am {key}" for key in keys(5))
    assert all(row["message"] == f"I am {names[row['item_id']]}" for row in lines(store))


def test_a_traceback_is_kept_and_secrets_are_not(store: Store) -> None:
    @service("work")
    def leak(item: Item) -> None:
        try:
            raise ValueError("token hunter2 refused")
        except ValueError:
            item.log.exception("login with hunter2 failed")

    job = submit(store, one_step(), items=["k"]).job_id
    options = EngineOptions(node="test", backoff=SWIFT.backoff, secrets=("hunter2",))
    run_job(store, [leak], job, options=options)
    (row,) = [row for row in lines(store) if row["item_id"]]
    assert (row["level"], row["message"]) == ("error", "login with *** failed")
    assert "ValueError: token *** refused" in row["traceback"]
    assert "hunter2" not in row["traceback"]


def test_chatter_outside_items_is_kept_from_warnings_up(store: Store) -> None:
    bridge = LogBridge(store)
    bridge.start()
    library.info("chatter")
    library.warning("trouble")
    bridge.stop(5)
    assert [row["message"] for row in lines(store)] == ["trouble"]
    library.warning("after the end")
    assert len(lines(store)) == 1


def test_thousands_of_lines_arrive_in_order(store: Store) -> None:
    @service("work")
    def chatty(item: Item) -> None:
        for number in range(3000):
            item.log.warning("line %d", number)

    job = submit(store, one_step(), items=["k"]).job_id
    run_job(store, [chatty], job)
    assert [row["message"] for row in lines(store)] == [f"line {number}" for number in range(3000)]


def test_lines_wait_in_memory_while_the_database_is_away(store: Store) -> None:
    bridge = LogBridge(store)
    logging.getLogger().addHandler(bridge.handler)
    try:
        library.warning("before")
        real, store.write = store.write, _away  # type: ignore[method-assign]
        bridge._tick_safely()
        library.warning("during")
        store.write = real  # type: ignore[method-assign]
        bridge.tick()
    finally:
        logging.getLogger().removeHandler(bridge.handler)
    texts = [row["message"] for row in lines(store)]
    assert [text for text in texts if text in ("before", "during")] == ["before", "during"]


def _away(*_: Any) -> None:
    from dalsegno.errors import DatabaseUnavailable

    raise DatabaseUnavailable(problem="gone")


def test_no_logs_are_kept_when_nobody_wants_them(store: Store) -> None:
    job = submit(store, one_step(), items=["k"]).job_id
    options = EngineOptions(node="test", keep_logs=False)
    run_job(store, [service("work")(lambda item: item.log.warning("psst"))], job, options=options)
    assert lines(store) == []


def test_json_lines_are_one_object_a_line() -> None:
    stream = io.StringIO()
    handler = JsonLines(stream, secrets=["hunter2"])
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "two\nlines, %s and é", ("hunter2",), None)
    handler.handle(record)
    handler.handle(record)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == second
    assert (first["level"], first["logger"], first["message"]) == ("error", "x", "two\nlines, *** and é")
    assert first["at"].endswith("+00:00")
