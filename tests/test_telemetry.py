"""Spans, at an exporter in memory and at a receiver that speaks OTLP over HTTP."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dalsegno import Engine, Store, service, submit, telemetry
from dalsegno.engine.item import Item
from dalsegno.engine.meters import METERS
from dalsegno.model.outcome import Fail, Retry, Skip
from dalsegno.settings import KEYS, Settings
from dalsegno.telemetry import Telemetry
from dalsegno.web.app import create_app
from dalsegno.web.server import ConsoleServer, bind
from tests.helpers import SWIFT, item_of, one_step, run_job, wait_until


@pytest.fixture
def memory() -> Iterator[InMemorySpanExporter]:
    """Spans of this process, kept."""
    exporter = InMemorySpanExporter()
    made = Telemetry(exporter, node="test", secrets=("hunter2hunter2",))
    METERS.listener = made.settled
    exporter.made = made  # type: ignore[attr-defined]
    yield exporter
    METERS.listener = None
    made.close()


def spans(exporter: InMemorySpanExporter) -> list[Any]:
    exporter.made.flush()  # type: ignore[attr-defined]
    return list(exporter.get_finished_spans())


@service("work", workers=2)
def work(item: Item) -> Any:
    match item.key:
        case "b":
            return Skip("had it")
        case "c":
            return Fail("it said hunter2hunter2", code="broken")
        case "d" if item.claimed.attempt == 0:
            return Retry("not yet", code="early")
    return None


def test_every_attempt_is_a_span(store: Store, memory: InMemorySpanExporter) -> None:
    job = submit(store, one_step(), items=["a", "b", "c", "d"]).job_id
    assert run_job(store, [work], job) == "completed_with_errors"
    found = {
        (span.attributes["dalsegno.item.key"], span.attributes["dalsegno.outcome"]): span for span in spans(memory)
    }
    assert set(found) == {("a", "succeeded"), ("b", "skipped"), ("c", "failed"), ("d", "retried"), ("d", "succeeded")}
    item = item_of(store, job, "a")
    span = found["a", "succeeded"]
    assert span.name == "work"
    assert span.attributes["dalsegno.service"] == "work"
    assert span.attributes["dalsegno.job.id"] == job
    assert span.attributes["dalsegno.stage"] == "a"
    assert span.attributes["dalsegno.stage.id"] == item["stage_id"]
    assert span.attributes["dalsegno.item.id"] == item["id"]
    assert span.attributes["dalsegno.worker"].startswith("work-")
    assert span.start_time <= span.end_time
    assert abs(span.start_time / 1e9 - item["started_at"].timestamp()) < 1e-3
    assert span.status.is_ok or span.status.status_code.name == "UNSET"
    failed = found["c", "failed"]
    assert failed.status.status_code.name == "ERROR"
    assert failed.attributes["error.type"] == "broken"
    assert "hunter2hunter2" not in failed.to_json()
    assert found["d", "succeeded"].attributes["dalsegno.failures_before"] == 1


def test_trouble_with_spans_is_not_the_engines(
    store: Store, memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no spans today")

    monkeypatch.setattr(Telemetry, "_attempt", broken)
    job = submit(store, one_step(), items=["a"]).job_id
    assert run_job(store, [work], job) == "completed"
    assert "spans could not be made" in caplog.text


# --- a receiver of our own ------------------------------------------------------------------------


class Receiver(ThreadingHTTPServer):
    """Takes OTLP over HTTP on a loopback port and keeps what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.paths: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[Any]:
        return [span for span in list(self.spans) if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        told = ExportTraceServiceRequest.FromString(body)
        self.server.paths.add(self.path)
        for resource in told.resource_spans:
            self.server.resources.append({each.key: each.value.string_value for each in resource.resource.attributes})
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for key in (*KEYS, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        telemetry.stop()
        server.shutdown()
        thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_attempts_and_requests_arrive(store: Store, receiver: Receiver) -> None:
    settings = Settings(_env_file=None, otel_exporter_otlp_endpoint=receiver.url)
    assert telemetry.start(settings) is telemetry.start(settings)
    with (
        bind("127.0.0.1", 0) as listening,
        ConsoleServer(create_app(store, settings), listening) as console,
        Engine(store, [work], SWIFT) as engine,
    ):
        job = submit(store, one_step(), items=["a"]).job_id
        engine.wait(job, 30)
        caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        assert httpx.get(f"{console.url}/api/jobs/{job}?q=x", headers={"traceparent": caller}).status_code == 200
        assert httpx.get(f"{console.url}/api/jobs/99").status_code == 404
        httpx.get(f"{console.url}/healthz")
        wait_until(lambda: receiver.named("work"), "the attempt")
        wait_until(lambda: len(receiver.named("GET /api/jobs/{job_id}")) == 2, "the requests")
    assert receiver.paths == {"/v1/traces"}
    assert receiver.resources[0]["service.name"] == "dalsegno"
    (attempt,) = receiver.named("work")
    assert attributes(attempt)["dalsegno.job.id"] == job
    request, missed = receiver.named("GET /api/jobs/{job_id}")
    said = attributes(request)
    assert said["http.response.status_code"] == 200
    assert said["url.path"] == f"/api/jobs/{job}"
    assert request.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert request.parent_span_id.hex() == "b7ad6b7169203331"
    assert attributes(missed)["http.response.status_code"] == 404
    assert not [span for span in receiver.spans if "healthz" in str(attributes(span))]


def test_a_receiver_that_is_away_stops_nobody(store: Store, receiver: Receiver) -> None:
    receiver.server_close()
    telemetry.start(Settings(_env_file=None, otel_exporter_otlp_endpoint=receiver.url))
    job = submit(store, one_step(), items=["a"]).job_id
    assert run_job(store, [work], job) == "completed"


def test_off_means_that_nothing_is_loaded() -> None:
    program = """
import sys
import dalsegno.web.app, dalsegno.telemetry
from dalsegno.settings import Settings
assert dalsegno.telemetry.start(Settings(_env_file=None)) is None
assert not [name for name in sys.modules if name.startswith("opentelemetry.sdk")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={"PATH": ""})


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, receiver: Receiver
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.setattr(telemetry, "_warned", False)
    settings = Settings(_env_file=None, otel_exporter_otlp_endpoint=receiver.url)
    for _ in range(2):
        assert telemetry.start(settings) is None
    assert caplog.text.count("pip install 'dalsegno[otel]'") == 1


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://x", "http://", "http://a b"])
def test_an_endpoint_is_an_address(endpoint: str, receiver: Receiver) -> None:
    with pytest.raises(ValueError, match="otel_exporter_otlp_endpoint"):
        Settings(_env_file=None, otel_exporter_otlp_endpoint=endpoint)
