"""What monitoring asks: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from dalsegno import Engine, Store, service, submit
from dalsegno.engine.breakers import trip
from dalsegno.engine.item import Item
from dalsegno.engine.limits import set_limit
from dalsegno.engine.meters import EDGES, Histogram, Meters, result_of
from dalsegno.insight import gauges
from dalsegno.model.limit import Limit
from dalsegno.model.outcome import Done, Fail, Outcome, Retry
from dalsegno.store.hot import Settled
from dalsegno.store.schema import metadata
from tests.conftest import Postgres
from tests.helpers import SWIFT, claim, one_step, register, submitted, wait_for_job, wait_until
from tests.web.conftest import Desk

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(desk: Desk) -> Samples:
    answer = desk.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(answer.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


# --- readiness ------------------------------------------------------------------------------------


def test_ready_means_that_an_engine_is_there(desk: Desk) -> None:
    assert desk.get("/healthz") == {"status": "ok"}
    alone = desk.get("/readyz", 503)
    assert alone["status"] == "not_ready"
    assert alone["engine"] == "none"
    assert "No engine" in alone["reasons"][0]
    with Engine(desk.store, [], SWIFT):
        ready = desk.get("/readyz")
    assert (ready["status"], ready["engine"], ready["database"], ready["reasons"]) == ("ready", "alive", "ok", [])
    desk.app.state.console_only = True
    assert desk.get("/readyz")["engine"] == "console only"


def test_a_schema_of_another_time_is_not_ready(desk: Desk) -> None:
    desk.app.state.console_only = True
    desk.store.write("test", lambda tx: tx.conn.execute(sa.text("UPDATE alembic_version SET version_num = '0001'")))
    answer = desk.get("/readyz", 503)
    assert answer["schema_revision"] == "0001"
    assert "0001" in answer["reasons"][0]


def test_without_its_database_it_lives_but_is_not_ready(
    postgres: Postgres, postgres_url: str, stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    desk = consoles(stores(postgres_url))
    postgres.stop()
    try:
        assert desk.get("/healthz") == {"status": "ok"}
        answer = desk.get("/readyz", 503)
        assert answer["database"] == "database_unavailable"
        assert "socket" not in str(answer), "nothing about where it is"
        samples = scrape(desk)
        assert value(samples, "dalsegno_database_up") == 0
        assert value(samples, "dalsegno_stream_subscribers") == 0
        assert value(samples, "dalsegno_processes") is None
    finally:
        postgres.start()
    wait_until(lambda: value(scrape(desk), "dalsegno_database_up") == 1, "it to be back")


# --- metrics --------------------------------------------------------------------------------------


def test_every_number_is_there_while_an_engine_works(desk: Desk) -> None:
    @service("work", workers=2)
    def work(item: Item) -> Any:
        item.transferred(100)
        item.transferred(1100)
        if item.key == "c":
            return Fail("broken", code="broken")
        return Done()

    before = scrape(desk)
    with Engine(desk.store, [work], SWIFT):
        job = submit(desk.store, one_step(), items=["a", "b", "c"]).job_id
        wait_for_job(desk.store, job)
        wait_until(lambda: value(scrape(desk), "dalsegno_workers", service="work", status="idle") == 2, "two workers")
        after = scrape(desk)

    def gained(name: str, **labels: str) -> float:
        return (value(after, name, **labels) or 0) - (value(before, name, **labels) or 0)

    assert gained("dalsegno_outcomes_total", service="work", result="succeeded") == 2
    assert gained("dalsegno_outcomes_total", service="work", result="failed") == 1
    assert gained("dalsegno_items_claimed_total", service="work") == 3
    assert gained("dalsegno_transfer_bytes_total", service="work", direction="in") == 3000
    assert gained("dalsegno_claim_seconds_count") >= 1
    assert gained("dalsegno_settle_seconds_count") >= 1
    assert gained("dalsegno_settle_seconds_bucket", le="+Inf") == gained("dalsegno_settle_seconds_count")
    assert gained("dalsegno_events_total") > 0
    assert value(after, "dalsegno_processes") == 1
    assert [labels for name, labels in after if name == "dalsegno_build_info"]


def test_queues_jobs_limits_and_breakers(desk: Desk) -> None:
    submitted(desk.store, items=5)
    claim(desk.store, register(desk.store), 2)

    def guard(tx: Any) -> None:
        set_limit(tx, "service:work", Limit(concurrent=4, rate=10, window=60), "test")
        trip(tx, "source:qq", "tired", "test")

    desk.store.write("test", guard)
    samples = scrape(desk)
    assert value(samples, "dalsegno_items", service="work", state="pending") == 3
    assert value(samples, "dalsegno_items", service="work", state="claimed") == 2
    assert value(samples, "dalsegno_items_ready", service="work") == 3
    assert value(samples, "dalsegno_jobs", status="running") == 1
    assert value(samples, "dalsegno_jobs", status="paused") == 0
    assert value(samples, "dalsegno_limit_max", limit="service:work", kind="concurrent") == 4
    assert value(samples, "dalsegno_limit_max", limit="service:work", kind="rate") == 10
    assert value(samples, "dalsegno_limit_used", limit="service:work", kind="rate") == 0
    assert value(samples, "dalsegno_breaker_state", breaker="source:qq", state="open") == 1
    assert value(samples, "dalsegno_breaker_state", breaker="source:qq", state="closed") == 0
    assert value(samples, "dalsegno_breaker_changes_total", breaker="source:qq") == 1


def test_openmetrics_where_it_is_asked_for(desk: Desk) -> None:
    answer = desk.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name for family in parse_openmetrics(answer.text)}
    assert {"dalsegno_outcomes", "dalsegno_settle_seconds", "dalsegno_jobs"} <= families


def test_no_secret_in_a_label(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, subsonic_password="hunter2hunter2")
    store.write("test", lambda tx: set_limit(tx, "source:hunter2hunter2", Limit(concurrent=1), "test"))
    text = desk.http.get("/metrics").text
    assert "hunter2hunter2" not in text
    assert 'limit="source:' in text


def test_all_metrics_are_documented(desk: Desk) -> None:
    from pathlib import Path

    told = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
    submitted(desk.store)
    names = {family.name for family in parse(desk.http.get("/metrics").text) if family.name.startswith("dalsegno")}
    assert len(names) > 15
    for name in names:
        assert f"`{name}" in told, name


def test_no_list_of_items_or_events_is_read(store: Store) -> None:
    """A look costs the same with a million items: only tables that stay small are read whole."""
    asked: list[str] = []

    def look(tx: Any) -> None:
        sa.event.listen(tx.conn, "before_cursor_execute", lambda *args: asked.append(str(args[2])))
        gauges.read_gauges(tx)

    store.read(look)
    assert asked
    tables = [name for name in metadata.tables if name in ("items", "leases", "logs")]
    for text in asked:
        assert not [name for name in tables if f"FROM {name}" in text or f"JOIN {name}" in text], text
        if "FROM events" in text:
            assert "LIMIT" in text


# --- meters ---------------------------------------------------------------------------------------


def test_a_histogram_counts_up_to_each_edge() -> None:
    kept = Histogram()
    for seconds in (0.0005, 0.001, 0.002, 99.0):
        kept.add(seconds)
    assert kept.cumulative()[:2] == [2, 3]
    assert kept.cumulative()[-1] == 4
    assert len(kept.cumulative()) == len(EDGES) + 1
    assert kept.total == pytest.approx(99.0035)


def test_a_retry_too_many_has_failed() -> None:
    assert result_of(Retry, "pending") == "retried"
    assert result_of(Retry, "failed") == "failed"
    assert result_of(Done, "succeeded") == "succeeded"


def test_only_what_was_accepted_is_counted() -> None:
    class Some:
        class stage:  # noqa: N801
            service = "work"

    rows = [Settled(number, 1, 1, 1, "succeeded") for number in (1, 2, 3)]
    group: list[tuple[Any, Outcome]] = [(Some, Done())] * 3
    told: list[Any] = []
    meters = Meters()
    meters.listener = lambda *heard: told.append(heard)
    meters.settle(group, rows, {1, 3}, datetime.now(UTC), 0.01)
    assert meters.outcomes() == {("work", "succeeded"): 2}
    assert meters.settles.cumulative()[-1] == 1
    assert len(told) == 1
