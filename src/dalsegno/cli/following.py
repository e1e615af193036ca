"""An operation followed to its end: a bar, and Ctrl-C asks whether to stop it or to leave it running."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import typer

from dalsegno.catalog.find import matching
from dalsegno.cli.ask import NOBODY
from dalsegno.cli.stopping import Stopping
from dalsegno.engine.bulk import apply_bulk, stop_bulk
from dalsegno.engine.rescuer import rescue_all
from dalsegno.errors import CommandRefused, EngineAlreadyRunning
from dalsegno.insight.operations import Operation, get_operation
from dalsegno.insight.workers import engine_alive

if TYPE_CHECKING:
    from dalsegno.cli.desk import Desk
    from dalsegno.store.store import Store

LOOK_EVERY = 0.2
LINE_EVERY = 10
"""Looks between two lines where there is no terminal."""


def follow(desk: Desk, store: Store, number: int, expected: int | None) -> bool:
    """Until it is over; True: somebody left before."""
    stopping = Stopping().install()
    hand = Hand(store)
    screen = Bar(desk, expected) if sys.stderr.isatty() else Lines(desk, expected)
    with screen:
        while True:
            found = store.read(lambda tx: get_operation(tx, number))
            screen.show(found)
            if found.over:
                return False
            if stopping.asked:
                with screen.hidden():
                    if not _stop(desk, store, number):
                        return True
                stopping = Stopping().install()
            if not hand.work():
                stopping.wait(LOOK_EVERY)


class Hand:
    """Where no engine runs, the work is done here: a bit at a time, and between two bits one may start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked = False

    def work(self) -> bool:
        """True: there is more to do here."""
        try:
            release = self._store.hold_engine()
        except EngineAlreadyRunning:
            return False
        try:
            if not self._looked:
                rescue_all(self._store, NOBODY, alone=not self._store.shared)
                self._looked = True
            return not self._store.read(engine_alive) and apply_bulk(self._store, matching)
        finally:
            release()


def _stop(desk: Desk, store: Store, number: int) -> bool:
    """What Ctrl-C meant. False: leave it running."""
    if not sys.stdin.isatty() or desk.as_json:
        return False
    answer = typer.prompt("\nStop it (s), leave it running (l), or go on watching (w)?", default="l", err=True)
    if answer.strip().lower().startswith("s"):
        with contextlib.suppress(CommandRefused):  # it has just come to its end
            store.write("stop", lambda tx: stop_bulk(tx, number))
        return True
    return bool(answer.strip().lower().startswith("w"))


class Lines:
    """For a pipe: a line now and then."""

    def __init__(self, desk: Desk, expected: int | None) -> None:
        self._desk = desk
        self._of = "" if expected is None else f" of {expected:,}"
        self._looks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, found: Operation) -> None:
        if self._looks % LINE_EVERY == 0 and not found.over:
            told = f"{found.seen:,}{self._of} looked at, {found.done:,} changed"
            self._desk.say(f"{found.verb} waits for an engine" if found.state == "waiting" else told)
        self._looks += 1

    def hidden(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Bar(Lines):
    def __init__(self, desk: Desk, expected: int | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        super().__init__(desk, expected)
        self._expected = expected
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=desk.aside)
        self._task = self._progress.add_task("…", total=expected)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, found: Operation) -> None:
        told = "waits for an engine" if found.state == "waiting" else found.state
        total = found.seen if found.over else self._expected
        self._progress.update(self._task, description=f"{found.verb} {told}", completed=found.seen, total=total)

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        self._progress.stop()
        yield
        self._progress.start()
