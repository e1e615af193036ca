"""A provider that answers by a script: a real HTTP server on loopback, and a service that calls it."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

GOOD = (200, {}, "{}")
Answer = tuple[int, Mapping[str, str], str]


def google(*quota_ids: str, retry: str | None = None) -> Answer:
    """429 as Google's APIs say it."""
    details: list[dict[str, Any]] = []
    if quota_ids:
        violations = [{"quotaMetric": "generate_requests", "quotaId": quota} for quota in quota_ids]
        details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations})
    if retry is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": retry})
    error = {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": details}
    return 429, {}, json.dumps({"error": error})


PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"


@dataclass
class Provider:
    """Answers from `script` while it lasts, then `otherwise`; `gate` can keep a call on the line."""

    script: deque[Answer] = field(default_factory=deque)
    otherwise: Answer = GOOD
    calls: int = 0
    most: int = 0
    gate: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._live = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with provider._lock:
                    provider.calls += 1
                    provider._live += 1
                    provider.most = max(provider.most, provider._live)
                    status, headers, body = provider.script.popleft() if provider.script else provider.otherwise
                if provider.gate is not None:
                    provider.gate(self.path)
                with provider._lock:
                    provider._live -= 1
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                """Silent: its calls are counted."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def call(self, path: str = "") -> str:
        with urlopen(f"http://127.0.0.1:{self._server.server_address[1]}/{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
