"""One question at a time: a database that hangs must not keep a thread for everyone who asks how it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from dalsegno.errors import DatabaseUnavailable

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds that an answer may take."""


class Probe:
    """While a question is not answered, who asks the next one is told so at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hangs_since: float | None = None

    def ask(self, work: Callable[[], T]) -> T:
        with self._lock:
            since = self._hangs_since
        if since is not None:
            raise DatabaseUnavailable(problem=f"it has not answered for {time.monotonic() - since:.0f} s")
        answer: dict[str, Any] = {}
        done = threading.Event()
        began = time.monotonic()

        def run() -> None:
            try:
                answer["value"] = work()
            except Exception as error:
                answer["error"] = error
            finally:
                with self._lock:
                    self._hangs_since = None
                done.set()

        threading.Thread(target=run, name="dalsegno-probe", daemon=True).start()
        if not done.wait(PATIENCE):
            with self._lock:
                if not done.is_set():
                    self._hangs_since = began
            if not done.is_set():
                raise DatabaseUnavailable(problem=f"it has not answered for {PATIENCE:g} s")
        if "error" in answer:
            raise answer["error"]
        value: T = answer["value"]
        return value
