"""The database goes away, or fills up: everything waits, says why, and goes on; nothing that was finished is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dalsegno import Engine, Item, Store, service, submit
from dalsegno.engine import rescuer
from dalsegno.engine.rescuer import rescue_all
from dalsegno.errors import DalSegnoError, DatabaseFull, DatabaseReadOnly, DatabaseUnavailable
from dalsegno.store import outage, postgres
from dalsegno.store.outage import Outages
from dalsegno.store.store import Tx
from tests.helpers import (
    SWIFT,
    assert_sound,
    chain,
    claim,
    keys,
    one_step,
    register,
    statuses_of,
    submitted,
    wait_for_job,
    wait_until,
)
from tests.outages import Server
from tests.proxy import Proxy, proxied
from tests.store.test_bad_databases import as_root, fill
from tests.web.conftest import Desk

pytestmark = pytest.mark.xdist_group("storms")


class Counted:
    """A service whose items wait until they may end."""

    def __init__(self, *, open: bool = False) -> None:
        self.ran: list[str] = []
        self.leave = threading.Event()
        if open:
            self.leave.set()
        self.service = service("work", workers=4)(self._work)

    def _work(self, item: Item) -> None:
        self.ran.append(item.key)
        assert self.leave.wait(60)


def steadily(look: Callable[[], Any]) -> Any:
    """What it says, or nothing while the database is away."""
    with suppress(DalSegnoError):
        return look()
    return None


# --- away -------------------------------------------------------------------------------------------


def test_a_server_that_stops_is_waited_for_and_what_was_finished_meanwhile_counts(
    server: Server, url: str, stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    store = stores(url)
    desk = consoles(store)
    counted = Counted()
    job = submit(store, one_step(), items=keys(4)).job_id
    with Engine(store, [counted.service], SWIFT):
        wait_until(lambda: len(counted.ran) == 4, "all to begin")
        wait_until(lambda: desk.http.get("/readyz").status_code == 200, "the console to be ready")
        server.stop()
        counted.leave.set()
        wait_until(lambda: store.outage, "the engine to notice")
        answer = desk.http.get("/readyz")
        assert (answer.status_code, answer.json()["database"]) == (503, "database_unavailable")
        why = desk.get(f"/api/explain/job/{job}")
        assert why["first_closed"]["code"] == "database"
        assert "does not answer" in why["answer"]
        page = desk.http.get("/jobs", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert "Database" in desk.http.get(f"/explain/job/{job}", headers={"Accept": "text/html"}).text
        server.start()
        wait_until(lambda: steadily(lambda: statuses_of(store, job)) == {"succeeded": 4}, "the outcomes to arrive")
        wait_until(lambda: store.outage is None, "the outage to be over")
        assert desk.http.get("/readyz").status_code == 200
    assert sorted(counted.ran) == keys(4), "what was finished ran again"
    assert_sound(store, job)


KINDS = ("admit", "plan.claim", "plan.chunk", "plan.finish", "claim", "begin", "phase", "settle", "advance", "workers")
CUTS = [(kind, "before") for kind in KINDS] + [(kind, "after") for kind in ("plan.chunk", "claim", "begin", "settle")]


@pytest.mark.parametrize(("kind", "edge"), CUTS)
def test_a_connection_lost_at_the_commit_of_any_kind_of_transaction_strands_nothing(
    server: Server, url: str, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, kind: str, edge: str
) -> None:
    """Before it the connection is cut; after it only the answer is lost."""
    met = threading.Event()

    def cut(name: str) -> None:
        if name != f"{kind}.commit.{edge}" or met.is_set():
            return
        met.set()
        if edge == "after":
            raise DatabaseUnavailable(problem="the answer was lost")
        server.cut()

    ran: list[str] = []

    @service("work", workers=2)
    def work(item: Item) -> None:
        item.phase("working")
        ran.append(item.key)
        time.sleep(0.06 if item.key == "k00001" else 0)

    @work.plan
    def plan(_: Any) -> Iterator[str]:
        yield from keys(40)

    store = stores(url)
    job = submit(store, chain("work", "work", follow="each")).job_id
    monkeypatch.setattr(postgres.faults, "point", cut)
    with Engine(store, [work], SWIFT):
        assert wait_until(lambda: steadily(lambda: statuses_of(store, job)) == {"succeeded": 80}, "all to succeed")
        wait_until(met.is_set, "the cut")
        monkeypatch.undo()
        assert wait_until(lambda: steadily(lambda: wait_for_job(store, job)), "the job to complete") == "completed"
    assert sorted(ran) == sorted(keys(40) * 2), "an item ran twice"
    assert_sound(store, job)


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(
    server: Server, url: str, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores(url)
    with proxied(f"tcp://127.0.0.1:{server.port}") as line:
        store = stores(_through(url, line))
        store.write("test", lambda _: None)
        monkeypatch.setattr(postgres, "ADMITTED", 0.3)
        line.hold_at("down", line.down)
        with pytest.raises(DatabaseUnavailable, match="came free"):
            store.write("test", lambda _: None)
        assert store.outage is not None
        line.let_go()
        wait_until(lambda: steadily(lambda: store.write("test", lambda _: True)), "the store to work again")
        assert store.outage is None


def _through(url: str, line: Proxy) -> str:
    return f"postgresql://postgres@127.0.0.1:{line.url.rpartition(':')[2]}/{url.rpartition('/')[2]}"


def test_after_an_outage_nobody_is_declared_dead_for_having_been_late(
    url: str, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores(url), stores(url)
    monkeypatch.setattr(rescuer, "this_host", lambda: "elsewhere")
    late, own = register(other, seconds=0.0), register(store)
    submitted(store, items=3)
    held = claim(other, late, 3)
    assert len(held) == 3
    store.outages.failed(DatabaseUnavailable(problem="gone"), "test")
    store.write("test", lambda _: None)
    assert rescue_all(store, own) == 0, "its outcomes would be refused"
    monkeypatch.setattr(rescuer, "GRACE", 0.0)
    assert rescue_all(store, own) == 1


# --- full -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed and is not tried again is forgotten sooner."""
    monkeypatch.setattr(outage, "LINGERS", 0.5)


def say_full_and_go_on(store: Store, desk: Desk, fill_up: Callable[[], None], free: Callable[[], None]) -> None:
    """An engine meets a full disk with outcomes in hand."""
    counted = Counted()
    big = [(key, {"x": "y" * 2000}) for key in keys(4)]
    job = submit(store, one_step(), items=big).job_id
    with Engine(store, [counted.service], SWIFT):
        wait_until(lambda: len(counted.ran) == 4, "all to begin")
        fill_up()

        def overflow() -> bool:
            """Whatever room the files themselves have left is used up, until somebody says that it is full."""
            with suppress(DalSegnoError):
                submit(store, one_step("nobody"), items=[(f"{time.monotonic_ns()}", {"x": os.urandom(9000).hex()})])
            return store.outage is not None

        wait_until(overflow, "the disk to be full")
        assert store.outage is not None
        assert store.outage.code == "database_full"
        counted.leave.set()
        answer = desk.http.get("/readyz")
        assert (answer.status_code, answer.json()["database"]) == (503, "database_full")
        why = desk.get(f"/api/explain/job/{job}")
        closed = {gate["code"] for gate in why["gates"] if gate["state"] == "closed"}
        assert why["status"] == "running"
        assert "database" in closed
        free()
        assert wait_until(lambda: steadily(lambda: wait_for_job(store, job)), "the job to complete") == "completed"
        wait_until(lambda: store.outage is None, "the outage to be over")
        assert desk.http.get("/readyz").status_code == 200
    assert sorted(counted.ran) == keys(4), "what was finished ran again"
    assert_sound(store, job)


@as_root
def test_sqlite_on_a_full_disk_says_so_and_goes_on_when_there_is_space(
    home: Path, mounted: Callable[..., Path], stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    point = mounted("4m", home / "disk")
    store = stores(f"sqlite:///{point}/x.db")
    say_full_and_go_on(store, consoles(store), lambda: fill(point / "ballast"), (point / "ballast").unlink)


@as_root
def test_postgresql_on_a_full_disk_says_so_and_goes_on_when_there_is_space(
    home: Path, mounted: Callable[..., Path], stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    """Its log is on another disk: where that one is full, the server itself goes down."""
    point = mounted("160m", home / "disk")
    server = Server(point / "data", wal=home / "wal", settings={"fsync": "off", "full_page_writes": "off"})
    server.start()
    try:
        store = stores(server.create("full"))
        say_full_and_go_on(store, consoles(store), lambda: fill(point / "ballast"), (point / "ballast").unlink)
    finally:
        server.stop("immediate")


# --- what counts as an outage -------------------------------------------------------------------------


def test_an_outage_begins_once_keeps_its_moment_and_ends_with_a_transaction(still: Store) -> None:
    outages = Outages(still.clock)
    outages.failed(ValueError("no outage"))
    assert outages.now is None
    outages.failed(DatabaseUnavailable(problem="gone"), "claim")
    began = outages.now
    assert began is not None
    assert began.code == "database_unavailable"
    outages.failed(DatabaseUnavailable(problem="still gone"), "settle")
    assert outages.now is began
    assert outages.worked(wrote=False), "whoever reads, reaches it"
    assert outages.now is None
    assert not outages.worked()


@pytest.mark.parametrize("error", [DatabaseFull(problem="x"), DatabaseReadOnly(problem="x")])
def test_a_database_that_can_be_read_is_not_yet_one_that_can_be_written(
    still: Store, error: DalSegnoError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "LINGERS", 60.0)
    outages = Outages(still.clock)
    outages.failed(error, "settle")
    assert not outages.worked(wrote=False)
    assert not outages.worked("heartbeat"), "something small found room; what failed has not worked since"
    assert outages.worked("settle")


def test_a_write_in_a_read_or_a_canceled_question_is_no_outage(url: str, stores: Callable[..., Store]) -> None:
    store = stores(url)

    def sneak(tx: Tx) -> None:
        tx.raw.execute("UPDATE lanes SET max_active = 1")

    def slow(tx: Tx) -> None:
        tx.raw.execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)")

    for work in (sneak, slow):
        with pytest.raises(DalSegnoError):
            store.read(work)
        assert store.outage is None
