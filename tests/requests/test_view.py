"""A request as clients see it, at every step of its job; pages and counts that go by an index."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from bench.requests import fill

from dalsegno import Store
from dalsegno.engine import scheduler
from dalsegno.engine.planner import advance
from dalsegno.engine.submit import number_items
from dalsegno.errors import NotFound
from dalsegno.requests import view
from dalsegno.requests.ask import ask, ask_in
from dalsegno.requests.body import body_of
from dalsegno.requests.schema import contents, request_contents
from dalsegno.requests.view import RequestView, count_requests, list_requests, new_request, one_request
from dalsegno.requests.workflow import DECODE, SEARCH
from dalsegno.settings import Settings
from dalsegno.store.hot import Claimed, Delta
from dalsegno.store.schema import processes, stages
from tests.helpers import admit, begin, claim, register, settle

BODY = body_of({"title": "Naruto", "decodeLinks": True})


def asked(store: Store, title: str = "Naruto") -> int:
    return ask(store, Settings(_env_file=None), body_of({"title": title, "decodeLinks": True}), created_by="shelf").id


def look(store: Store, number: int) -> RequestView:
    return store.read(lambda tx: one_request(tx, number))


def plan(store: Store, number: int, *keys: str) -> None:
    """As the planner would after a search."""
    (stage,) = store.read(
        lambda tx: tx.rows(sa.select(stages).where(stages.c.job_id == number, stages.c.key == "decode"))
    )

    def work(tx: Any) -> None:
        tx.hot.insert_items(tx, number, stage["id"], number_items(list(keys)))
        values = {"planned": True, "high_seq": len(keys)}
        tx.conn.execute(sa.update(stages).where(stages.c.id == stage["id"]).values(**values))
        delta = Delta()
        delta.total = delta.ready = len(keys)
        delta.counts["pending"] = len(keys)  # type: ignore[index]
        tx.hot.adjust(tx, {stage["id"]: delta})
        advance(tx, [number])

    store.write("plan", work)


def fail(store: Store, claimed: list[Claimed], why: str) -> None:
    """As the settler would: a stage keeps what its last failure said."""
    said = sa.update(stages).where(stages.c.id == claimed[0].stage_id).values(last_error=why)
    store.write("test", lambda tx: tx.conn.execute(said))
    settle(store, claimed, "failed", error_message=why)


def test_a_new_request_is_what_a_look_at_it_says(store: Store) -> None:
    done = ask(store, Settings(_env_file=None), BODY, created_by="shelf")
    assert new_request(done.id, BODY, "shelf", done.at) == look(store, done.id)


def test_a_request_at_every_step(store: Store) -> None:
    number = asked(store)
    me = register(store)
    assert (look(store, number).status, look(store, number).phase) == ("PENDING", "QUEUED")
    admit(store)
    running = look(store, number)
    assert (running.status, running.phase) == ("RUNNING", "SEARCHING")
    assert running.started_at is not None
    found = claim(store, me, service=SEARCH)
    begin(store, found)
    assert look(store, number).phase == "SEARCHING"
    settle(store, found)
    searched = look(store, number)
    assert (searched.phase, searched.total) == ("DECODING", 0)
    plan(store, number, "variant:1", "variant:2", "variant:3")
    decodes = claim(store, me, 3, service=DECODE)
    settle(store, decodes[:1])
    settle(store, decodes[1:2], "skipped")
    half = look(store, number)
    assert (half.status, half.phase, half.decoded, half.total) == ("RUNNING", "DECODING", 2, 3)
    fail(store, decodes[2:], "no video here")
    done = look(store, number)
    assert (done.status, done.phase, done.decoded, done.total, done.failed) == ("DONE", "DONE", 2, 3, 1)
    assert (done.error, done.failed_items, done.job_status) == ("no video here", 1, "completed_with_errors")
    assert done.finished_at is not None


def test_one_whose_search_failed_says_why(store: Store) -> None:
    number = asked(store)
    me = register(store)
    admit(store)
    fail(store, claim(store, me, service=SEARCH), "nobody answers")
    failed = look(store, number)
    assert (failed.status, failed.phase, failed.error, failed.failed_items) == ("FAILED", "FAILED", "nobody answers", 1)


def test_the_heartbeat_is_that_of_whoever_holds_it_and_needs_no_progress(store: Store) -> None:
    number = asked(store)
    assert look(store, number).heartbeat_at is None
    me = register(store)
    admit(store)
    begin(store, claim(store, me, service=SEARCH))
    before = look(store, number).heartbeat_at
    assert before is not None
    later = store.clock.now()
    beat = sa.update(processes).where(processes.c.id == me).values(heartbeat_at=later)
    store.write("test", lambda tx: tx.conn.execute(beat))
    assert look(store, number).heartbeat_at == later > before


def test_what_it_found_is_in_its_order(store: Store) -> None:
    number = asked(store)

    def work(tx: Any) -> None:
        row = {"source": "x", "created_at": tx.now, "updated_at": tx.now}
        tx.conn.execute(sa.insert(contents), [{**row, "id": each, "remote_id": str(each)} for each in (1, 2, 3)])
        links = [{"job_id": number, "content_id": each, "position": -each} for each in (1, 2, 3)]
        tx.conn.execute(sa.insert(request_contents), links)

    store.write("test", work)
    assert look(store, number).content_ids == [3, 2, 1]


def test_lists_have_pages_and_states(store: Store) -> None:
    numbers = [asked(store, f"t{each}") for each in range(5)]
    me = register(store)
    admit(store)
    settle(store, claim(store, me, 2, service=SEARCH), "failed")

    def ids(**wanted: Any) -> list[int]:
        return [view.id for view in store.read(lambda tx: list_requests(tx, **wanted))]

    assert ids() == numbers[::-1]
    assert ids(limit=2, offset=1) == numbers[::-1][1:3]
    assert ids(state="FAILED") == numbers[:2][::-1]
    assert ids(state="RUNNING", limit=2) == numbers[::-1][:2]
    assert ids(state="DONE") == ids(limit=0) == []
    counts = {
        state: store.read(lambda tx, s=state: count_requests(tx, state=s)) for state in (None, "FAILED", "RUNNING")
    }
    assert counts == {None: 5, "FAILED": 2, "RUNNING": 3}


@pytest.mark.parametrize("state", [None, "DONE"])
def test_pages_are_the_same_from_whichever_end_they_are_looked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    fill(store, 20, done=True)
    asked(store)
    monkeypatch.setattr(view, "FAR", 2)
    numbers = [each.id for each in store.read(lambda tx: list_requests(tx, state=state, limit=50))]
    assert len(numbers) == (21 if state is None else 20)
    for limit in (1, 4, 30):
        for offset in range(25):
            found = store.read(lambda tx, o=offset, n=limit: list_requests(tx, state=state, limit=n, offset=o))  # type: ignore[misc]
            assert [each.id for each in found] == numbers[offset : offset + limit], (limit, offset)


def test_a_job_that_is_no_request_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="parse request 7"):
        look(store, 7)


# --- plans ------------------------------------------------------------------------------------------

MANY = 5000


def executed(store: Store, work: Callable[[Any], Any]) -> list[tuple[str, Any]]:
    """Everything that a piece of work asks the database, statement by statement; it may write."""
    seen: list[tuple[str, Any]] = []

    def note(_conn: Any, _cursor: Any, statement: str, params: Any, _context: Any, _many: bool) -> None:
        seen.append((statement, params))

    def run(tx: Any) -> None:
        sa.event.listen(tx.conn, "before_cursor_execute", note)
        try:
            work(tx)
        finally:
            sa.event.remove(tx.conn, "before_cursor_execute", note)

    store.write("test", run)
    return seen


def scans(store: Store, statement: str, params: Any) -> set[str]:
    """The tables that it would look through from one end to the other."""
    word = "EXPLAIN " if store.shared else "EXPLAIN QUERY PLAN "

    def read(tx: Any) -> str:
        if store.shared:  # where there is an index, a small table could still be cheaper to read whole
            tx.conn.execute(sa.text("SET LOCAL enable_seqscan = off"))
        return "\n".join(str(row[-1]) for row in tx.conn.exec_driver_sql(word + statement, params))

    return {
        one or other for one, other in re.findall(r"Seq Scan on (\w+)|^SCAN (\w+)$", store.read(read), re.MULTILINE)
    }


@pytest.mark.parametrize("done", [True, False], ids=["all done", "all waiting"])
def test_nothing_that_is_asked_all_day_looks_through_all_requests(store: Store, done: bool) -> None:
    fill(store, MANY, done=done)
    if store.shared:
        store.write("test", lambda tx: tx.conn.execute(sa.text("ANALYZE")))
    state = "DONE" if done else "PENDING"
    chosen = Settings(_env_file=None, requests_per_client_max=3)
    day: dict[str, Callable[[Any], Any]] = {
        "ask": lambda tx: ask_in(tx, chosen, body_of({"title": "new"}), created_by="shelf"),
        "ask again": lambda tx: ask_in(tx, chosen, body_of({"title": "new"}), created_by="shelf"),
        "one": lambda tx: one_request(tx, MANY // 2),
        "page": lambda tx: list_requests(tx, state=state, limit=10),
        "page far on": lambda tx: list_requests(tx, state=state, limit=10, offset=MANY - 20),
        "count": lambda tx: count_requests(tx, state=state),
        "look": scheduler.look,
    }
    for name, work in day.items():
        for statement, params in executed(store, work):
            found = scans(store, statement, params) & {"jobs", "stages", "items", "parse_requests", "commands"}
            assert not found, (name, statement)
