"""SIGINT and SIGTERM: the first asks for an orderly stop, the second ends the process where it stands."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from dalsegno.cli.exits import SIGNALED


class Stopping:
    """Set once a signal came. A second one leaves at once: whatever runs is recovered at the next start."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.signal = 0

    def install(self) -> Stopping:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        return self

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)

    @property
    def asked(self) -> bool:
        return self._event.is_set()

    @property
    def exit_code(self) -> int:
        return SIGNALED + self.signal

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._event.is_set():
            os.write(2, b"\nLeaving at once. The next start continues from the mark.\n")
            os._exit(SIGNALED + number)
        self.signal = number
        self._event.set()
