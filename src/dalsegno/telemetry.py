"""Spans for OpenTelemetry: one for every attempt of an item and one for every request of the console.

They are sent where OTEL_EXPORTER_OTLP_ENDPOINT says; without it nothing of OpenTelemetry is even imported. A span of an
attempt is made when its outcome is durable, so it says what counts and not what was hoped for.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dalsegno.clock import this_host
from dalsegno.engine.logbridge import masked
from dalsegno.engine.meters import METERS, Ended, result_of
from dalsegno.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dalsegno.settings import Settings
    from dalsegno.store.hot import Settled

logger = logging.getLogger("dalsegno.telemetry")

MISSING = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed: pip install 'dalsegno[otel]'"
TROUBLE = frozenset({"failed", "retried", "interrupted"})
UNTRACED = ("/healthz", "/readyz", "/metrics", "/static/", "/api/events/stream")


class Telemetry:
    """Where spans are made. `close` sends what is left."""

    def __init__(self, exporter: SpanExporter, *, node: str = "", secrets: Sequence[str] = ()) -> None:
        from opentelemetry import propagate, trace  # noqa: PLC0415 - only where it is wanted
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        about = {"service.version": VERSION, "service.instance.id": f"{node or this_host()}:{os.getpid()}"}
        if "OTEL_SERVICE_NAME" not in os.environ:
            about["service.name"] = "dalsegno"
        self._provider = TracerProvider(resource=Resource.create(about))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("dalsegno", VERSION)
        self._secrets = secrets
        self._trace = trace
        self.extract = propagate.extract

    def settled(
        self, group: Sequence[Ended], rows: Sequence[Settled], accepted: Collection[int], now: datetime
    ) -> None:
        """What the meters tell; trouble here must never be the engine's."""
        try:
            for (item, outcome), row in zip(group, rows, strict=True):
                if row.id in accepted and row.started_at is not None:
                    self._attempt(item, result_of(type(outcome), row.status), row, row.started_at, now)
        except Exception:
            logger.exception("spans could not be made")

    def _attempt(self, item: Any, result: str, row: Settled, began: datetime, ended: datetime) -> None:
        said: dict[str, Any] = {
            "dalsegno.service": item.stage.service,
            "dalsegno.job.id": row.job_id,
            "dalsegno.stage": item.stage.key,
            "dalsegno.stage.id": row.stage_id,
            "dalsegno.item.id": row.id,
            "dalsegno.item.key": masked(item.key, self._secrets),
            "dalsegno.lease": row.lease,
            "dalsegno.worker": item.worker,
            "dalsegno.outcome": result,
        }
        if item.claimed.attempt:
            said["dalsegno.failures_before"] = item.claimed.attempt
        span = self.tracer.start_span(
            item.stage.service, kind=self._trace.SpanKind.CONSUMER, start_time=_nanoseconds(began), attributes=said
        )
        if result in TROUBLE:
            span.set_attribute("error.type", row.error_code or result)
            text = masked(row.error_message or result, self._secrets)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text))
        span.end(_nanoseconds(max(began, ended)))

    def flush(self) -> None:
        self._provider.force_flush()

    def close(self) -> None:
        self._provider.shutdown()


class Traced:
    """The console's requests as spans, each a child of its caller's where that says who it is."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(UNTRACED):
            await self._app(scope, receive, send)
            return
        told = self._telemetry
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope["method"]
        said = {"http.request.method": method, "url.path": scope["path"], "url.scheme": scope["scheme"]}
        with told.tracer.start_as_current_span(
            method, context=told.extract(headers), kind=told._trace.SpanKind.SERVER, attributes=said
        ) as span:

            async def send_noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(told._trace.Status(told._trace.StatusCode.ERROR))
                await send(message)

            try:
                await self._app(scope, receive, send_noted)
            finally:
                if route := _route(scope):
                    span.set_attribute("http.route", route)
                    span.update_name(f"{method} {route}")


def _route(scope: Scope) -> str | None:
    """The address with the names of what varies in it; None where nothing is there."""
    if scope.get("endpoint") is None:
        return None
    varies = {str(value): f"{{{name}}}" for name, value in scope.get("path_params", {}).items()}
    return "/".join(varies.get(part, part) for part in scope["path"].split("/"))


_starting = threading.Lock()
_current: Telemetry | None = None
_warned = False


def start(settings: Settings) -> Telemetry | None:
    """Of this process, as often as it is asked for; None where no endpoint is configured."""
    global _current, _warned  # noqa: PLW0603 - one process, one exporter
    endpoint = settings.otel_exporter_otlp_endpoint
    if not endpoint:
        return None
    with _starting:
        if _current is None:
            try:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            except ImportError:
                if not _warned:
                    _warned = True
                    logger.warning(MISSING)
                return None
            more_exact = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" in os.environ
            where = None if more_exact else f"{endpoint.rstrip('/')}/v1/traces"
            _current = Telemetry(OTLPSpanExporter(where), node=settings.node_name, secrets=settings.secrets())
            METERS.listener = _current.settled
    return _current


def stop() -> None:
    """Send what is left and start over."""
    global _current
    with _starting:
        found, _current = _current, None
        METERS.listener = None
    if found is not None:
        found.close()


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
