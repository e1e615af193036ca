"""Whose hand does the work of `dalsegno run`: an engine here, or the one that already has the database file."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

from dalsegno.errors import EngineAlreadyRunning
from dalsegno.insight.workers import list_processes

if TYPE_CHECKING:
    from dalsegno.cli.desk import Desk
    from dalsegno.engine.engine import Engine
    from dalsegno.store.store import Store


class Hand:
    """Starts the engine here, or leaves the job to the one that runs, and takes over when that one stops."""

    def __init__(self, desk: Desk, engine: Engine, store: Store, needed: set[str]) -> None:
        self.here = False
        self._desk = desk
        self._engine = engine
        self._store = store
        self._needed = needed
        self._handed_to = ""
        logging.getLogger().setLevel(logging.INFO)  # what services say is kept with their items
        remarks = Remarks(desk)
        remarks.setLevel(logging.WARNING)
        logging.getLogger().addHandler(remarks)

    def start(self) -> None:
        """Cheap to call again and again while another engine works."""
        try:
            self._engine.start()
        except EngineAlreadyRunning as error:
            pid = str(error.details["pid"])
            if pid != self._handed_to:
                self._handed_to = pid
                self._hand_over(pid)
        else:
            self.here = True
            if self._handed_to:
                self._desk.say("The other engine has stopped; going on here.")

    def stop(self) -> None:
        if self.here:
            self._engine.stop()

    def _hand_over(self, pid: str) -> None:
        self._desk.say(f"Handed to the engine that runs already (process {pid}).")
        lines = self._store.read(list_processes)
        offered = {worker.service for line in lines if str(line.process.pid) == pid for worker in line.workers}
        missing = sorted(self._needed - offered)
        if offered and missing:
            names = ", ".join(missing)
            self._desk.say(f"It does not offer {names}: that part waits until an engine does (--services).")


class Remarks(logging.Handler):
    """The engine's troubles, each said once; tracebacks are kept in the log, and shown with --debug."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() if error is None else f"{record.getMessage()}: {error}"
        # A database that is away troubles every loop of the engine: "claimer waits: …", "settler waits: …".
        trouble = text.partition(": ")[2] or text
        if trouble not in self._said:
            self._said.add(trouble)
            self._desk.say(text)
        if self._desk.debug and error is not None:
            traceback.print_exception(error)
