"""Through PgBouncer in transaction mode: every transaction may meet another backend, and sometimes none is free."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from dalsegno import Engine, Item, Limit, Service, Store, service, submit
from dalsegno.store import postgres
from dalsegno.store.line import is_pooled
from tests.helpers import SWIFT, assert_sound, chain, keys, one_step, statuses_of, wait_for_job, wait_until
from tests.outages import Server
from tests.storms.conftest import ask
from tests.web.conftest import Desk

pytestmark = pytest.mark.xdist_group("storms")


@service("work", workers=4)
def work(item: Item) -> None:
    item.phase("working")


def test_a_job_runs_from_an_empty_database_to_its_end_on_two_backends(
    server: Server, bounced: Callable[..., str], stores: Callable[..., Store]
) -> None:
    """The schema too is made through it."""
    url = server.create("bounced")
    store = stores(bounced(url, default_pool_size="2"))
    limited = Service("limited", lambda _: None, workers=3, limit=Limit(concurrent=2))
    with Engine(store, [work, limited], SWIFT):
        job = submit(store, chain("work", "limited", follow="each"), items=keys(200)).job_id
        assert wait_for_job(store, job) == "completed"
        said = ask(url, "SELECT query FROM pg_stat_activity WHERE datname = current_database()")
    assert not [query for (query,) in said if str(query).startswith("LISTEN")], "nobody would hear it there"
    assert statuses_of(store, job) == {"succeeded": 400}
    assert store.outage is None
    assert_sound(store, job)


def test_a_pooler_is_known_by_the_number_it_makes_up(url: str, bounced: Callable[..., str]) -> None:
    for address, pooled in ((url, False), (bounced(url), True)):
        with psycopg.connect(address, autocommit=True, prepare_threshold=None) as connection:
            assert is_pooled(connection) is pooled


def test_what_others_commit_is_heard_on_the_direct_way(
    url: str, bounced: Callable[..., str], stores: Callable[..., Store]
) -> None:
    through = bounced(url)
    store, other = stores(through, listen_url=url), stores(through)
    heard: set[str] = set()
    store.listen(heard.update)
    over = threading.Event()
    watching = threading.Thread(target=store.watch, args=(over,))
    watching.start()
    try:
        wait_until(lambda: "work" in heard, "the watch to begin")
        heard.clear()
        submit(other, one_step("nobody"), items=keys(1))
        wait_until(lambda: "lane:default" in heard, "the news of the job")
    finally:
        over.set()
        watching.join()


@pytest.mark.parametrize("waits", ["1", "120"], ids=["refused", "left waiting"])
def test_a_pool_without_a_free_connection_is_an_outage_that_ends(
    url: str,
    bounced: Callable[..., str],
    stores: Callable[..., Store],
    consoles: Callable[..., Desk],
    monkeypatch: pytest.MonkeyPatch,
    waits: str,
) -> None:
    """PgBouncer refuses after `query_wait_timeout`; before that, it is we who do not wait for ever."""
    monkeypatch.setattr(postgres, "ADMITTED", 5.0 if waits == "1" else 0.5)
    through = bounced(url, default_pool_size="1", query_wait_timeout=waits)
    store = stores(through)
    desk = consoles(store)
    ran: list[str] = []

    @service("work", workers=2)
    def count(item: Item) -> None:
        ran.append(item.key)

    job = submit(store, one_step(), items=keys(30)).job_id
    with psycopg.connect(through, prepare_threshold=None, application_name="hog") as hog:
        hog.execute("SELECT 1")
        wait_until(lambda: desk.http.get("/readyz").status_code == 503, "the console to notice")
        told = desk.http.get("/readyz").json()
        assert told["database"] == "database_unavailable"
        why = desk.get(f"/api/explain/job/{job}")
        assert (why["status"], why["first_closed"]["code"]) == ("unknown", "database")
        assert why["first_closed"]["since"]
        hog.rollback()
    with Engine(store, [count], SWIFT):
        assert wait_for_job(store, job) == "completed"
        assert desk.http.get("/readyz").status_code == 200
    assert sorted(ran) == keys(30)
    assert_sound(store, job)
