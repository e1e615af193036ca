"""`/metrics` for Prometheus: what the database says about everybody's work, and what this process did itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from dalsegno.engine.logbridge import masked
from dalsegno.engine.meters import EDGES, METERS, Histogram, Meters
from dalsegno.errors import DalSegnoError
from dalsegno.insight.gauges import Gauges, read_gauges
from dalsegno.store.store import Store
from dalsegno.version import VERSION
from dalsegno.web.live import Live
from dalsegno.web.room import Here

router = APIRouter(tags=["health"])

UPLOADS = frozenset({"upload"})
"""Services whose bytes leave the house; those of all others come in."""
STATES = ("closed", "half_open", "open")


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}, "example": "dalsegno_database_up 1.0"}}}},
)
def metrics(here: Here, request: Request) -> Response:
    """Numbers for Prometheus, in its text format or as OpenMetrics. docs/metrics.md says what each means."""
    live: Live = request.app.state.live
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(here.store, live))
    registry.register(ProcessCollector(registry=None))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    text = masked(encode(registry).decode(), here.config.secrets)
    return Response(text, headers={"Content-Type": content_type})


class _Collector(Collector):
    """Made for one answer."""

    def __init__(self, store: Store, live: Live, meters: Meters = METERS) -> None:
        self._store = store
        self._live = live
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("dalsegno_build_info", "What runs here.", labels=["version", "python", "database"])
        python = ".".join(map(str, sys.version_info[:3]))
        build.add_metric([VERSION, python, self._store.url.partition(":")[0]], 1)
        yield build
        yield _gauge("dalsegno_stream_subscribers", "Open event streams of this console.", self._live.listening)
        yield from _of_process(self._meters)
        try:
            gauges = self._store.read(read_gauges)
        except DalSegnoError:
            yield _gauge("dalsegno_database_up", "Whether the database answers.", 0)
            return
        yield _gauge("dalsegno_database_up", "Whether the database answers.", 1)
        yield from _of_database(gauges)


def _of_process(meters: Meters) -> Iterator[Metric]:
    yield _histogram("dalsegno_claim_seconds", "Claims that found items: how long the write took.", meters.claims)
    yield _histogram("dalsegno_settle_seconds", "Batches of outcomes: how long the write took.", meters.settles)
    claimed = CounterMetricFamily("dalsegno_items_claimed", "Items claimed by this process.", labels=["service"])
    for service, count in sorted(meters.claimed.items()):
        claimed.add_metric([service], count)
    yield claimed
    about = "Attempts that this process settled, by what they came to."
    ended = CounterMetricFamily("dalsegno_outcomes", about, labels=["service", "result"])
    for key, count in sorted(meters.outcomes().items()):
        ended.add_metric(list(key), count)
    yield ended
    about = "Bytes moved by services of this process."
    moved = CounterMetricFamily("dalsegno_transfer_bytes", about, labels=["service", "direction"])
    for service, count in sorted(meters.moved.items()):
        moved.add_metric([service, "out" if service in UPLOADS else "in"], count)
    yield moved


def _of_database(gauges: Gauges) -> Iterator[Metric]:
    items = GaugeMetricFamily("dalsegno_items", "Items of unfinished jobs.", labels=["service", "state"])
    for key, count in sorted(gauges.items.items()):
        items.add_metric(list(key), count)
    yield items
    ready = GaugeMetricFamily("dalsegno_items_ready", "Items that could be claimed now.", labels=["service"])
    for service, count in sorted(gauges.ready.items()):
        ready.add_metric([service], count)
    yield ready
    jobs = GaugeMetricFamily("dalsegno_jobs", "Unfinished jobs.", labels=["status"])
    for status, count in gauges.jobs.items():
        jobs.add_metric([status], count)
    yield jobs
    workers = GaugeMetricFamily("dalsegno_workers", "Workers of live processes.", labels=["service", "status"])
    for key, count in sorted(gauges.workers.items()):
        workers.add_metric(list(key), count)
    yield workers
    yield _gauge("dalsegno_processes", "Engine processes that live.", gauges.processes)
    yield from _of_flow(gauges)
    last = CounterMetricFamily("dalsegno_events", "The id of the last event in the log.")
    last.add_metric([], gauges.event_id)
    yield last


def _of_flow(gauges: Gauges) -> Iterator[Metric]:
    about = "Whether a breaker is in this state."
    state = GaugeMetricFamily("dalsegno_breaker_state", about, labels=["breaker", "state"])
    about = "How often a breaker has opened or closed."
    changes = CounterMetricFamily("dalsegno_breaker_changes", about, labels=["breaker"])
    for breaker in gauges.breakers:
        for each in STATES:
            state.add_metric([breaker.name, each], breaker.state == each)
        changes.add_metric([breaker.name], breaker.changes)
    yield state
    yield changes
    kinds = ["limit", "kind"]
    used = GaugeMetricFamily("dalsegno_limit_used", "How much of a limit is used.", labels=kinds)
    most = GaugeMetricFamily("dalsegno_limit_max", "How much a limit allows.", labels=kinds)
    granted = CounterMetricFamily("dalsegno_permits_granted", "Permits granted so far.", labels=["limit"])
    for limit in gauges.limits:
        for kind, now, top in (("concurrent", limit.in_use, limit.concurrent), ("rate", limit.used, limit.rate)):
            if top is not None and now is not None:
                used.add_metric([limit.name, kind], now)
                most.add_metric([limit.name, kind], top)
        granted.add_metric([limit.name], limit.granted)
    yield from (used, most, granted)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _histogram(name: str, about: str, kept: Histogram) -> Metric:
    edges = [*(f"{edge:g}" for edge in EDGES), "+Inf"]
    buckets = [(edge, float(count)) for edge, count in zip(edges, kept.cumulative(), strict=True)]
    return HistogramMetricFamily(name, about, buckets=buckets, sum_value=kept.total)
