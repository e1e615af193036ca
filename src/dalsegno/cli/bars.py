"""A job's progress while it runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from dalsegno.cli.words import duration, escaped

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.insight.progress import JobProgress, StageProgress

QUIET_SECONDS = 2.0
"""Between two plain lines about the same stage."""


class Display(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, progress: JobProgress, now: float) -> None: ...


def display(console: Console) -> Display:
    return Bars(console) if sys.stderr.isatty() else Lines(console)


class Bars:
    """One bar a stage."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
        )
        self._tasks: dict[str, Any] = {}
        self._head: str | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, progress: JobProgress, now: float) -> None:  # noqa: ARG002 - bars move at once
        for stage in progress.stages:
            if stage.key not in self._tasks:
                self._tasks[stage.key] = self._progress.add_task(stage.key, start=False, total=None, note="")
            task = self._tasks[stage.key]
            if stage.status != "pending":
                self._progress.start_task(task)
            total = stage.expected if stage.expected is not None or not stage.done else stage.done
            self._progress.update(task, completed=stage.done, total=total, note=_note(stage))
            if stage.fraction >= 1.0:
                self._progress.stop_task(task)
        head = f"{progress.status}: {progress.reason}" if progress.reason else None
        if head not in (None, self._head):
            self._progress.console.print(head, markup=False)
        self._head = head


class Lines:
    """A line where something changed, and now and then in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: dict[str, tuple[str, float]] = {}
        self._counted: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: JobProgress, now: float) -> None:
        state = f"{progress.status}: {progress.reason}" if progress.reason else str(progress.status)
        self._say("job", state, f"job {progress.job_id} {state}", now)
        for stage in progress.stages:
            if stage.status == "pending":
                continue
            of = "" if stage.expected is None else f"/{stage.expected}"
            line = f"  {stage.key}: {stage.status} {stage.done}{of} {_note(stage)}".rstrip()
            status, at = self._said.get(stage.key, ("", 0.0))
            moved = stage.done != self._counted.get(stage.key) and now - at >= QUIET_SECONDS
            if status != stage.status or moved:
                self._counted[stage.key] = stage.done
                self._say(stage.key, stage.status, line, now, again=True)

    def _say(self, what: str, state: str, line: str, now: float, *, again: bool = False) -> None:
        if again or self._said.get(what, ("", 0.0))[0] != state:
            self._said[what] = (state, now)
            self._console.print(line, markup=False)


def _note(stage: StageProgress) -> str:
    parts = [f"{stage.failed} failed"] if stage.failed else []
    if stage.rate:
        parts.append(f"{stage.rate:.1f}/s")
    if stage.seconds_left:
        parts.append(f"{duration(stage.seconds_left)} left")
    if stage.last_error:
        parts.append(escaped(stage.last_error))
    return " · ".join(parts)
