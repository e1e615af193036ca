"""One bar for work that is measured in steps: on a terminal it moves, elsewhere each step is a line."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console

QUIET_SECONDS = 5.0
"""Between two plain lines about the same step."""


class Bar:
    """`told` may be called from any thread, and as often as one likes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}
        self._said: dict[str, float] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description:<16}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def told(self, what: str, done: int, total: int) -> None:
        if self._progress is None:
            self._line(what, done, total)
            return
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def _line(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        last = self._said.get(what)
        if last is None or now - last >= QUIET_SECONDS:
            self._said[what] = now
            share = f" {done / total:.0%}" if total and last is not None else ""
            self._console.print(f"{what}{share}", markup=False)
