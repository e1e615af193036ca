"""Calling `dalsegno`: in this process where only answers matter, as a real one where signals and kills do."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from dalsegno.cli import main
from dalsegno.settings import KEYS
from tests.helpers import wait_until

ROOT = Path(__file__).parents[2]
STUDIO = ("--services", "tests.cli.studio")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """One JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """What went wrong, as a program reads it: the last line on stderr."""
        document = json.loads(self.err.splitlines()[-1])
        assert document.keys() == {"error"}
        assert document["error"].keys() == {"code", "message", "details"}
        return document["error"]


def say(*words: object, fine: bool = True) -> Answer:
    """`dalsegno words…` in this process, as `main` runs it. `fine`: it must have ended with 0."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    root = logging.getLogger()
    level, listeners = root.level, root.handlers[:]
    code = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["dalsegno", *map(str, words)]),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            root.setLevel(level)
            root.handlers[:] = listeners
    answer = Answer(code, _STYLE.sub("", out.getvalue()), _STYLE.sub("", err.getvalue()))
    assert "Traceback" not in answer.err + answer.out, answer.err
    assert code == 0 or not fine, answer
    return answer


def environment(**more: object) -> dict[str, str]:
    """This one's, without what would set anything, and with the tests' own services to import."""
    kept = {key: value for key, value in os.environ.items() if key not in KEYS and key != "COLUMNS"}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "dumb", **{key: str(value) for key, value in more.items()}}


def _hear_interrupts() -> None:
    """A shell that starts the tests in the background makes them, and so their children, deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """`python -m dalsegno words…`, with what it says in files."""

    def __init__(self, folder: Path, *words: object, **more: object) -> None:
        number = sum(1 for _ in folder.glob("*.out"))
        self._out, self._err = folder / f"p{number}.out", folder / f"p{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dalsegno", *map(str, words)],
                cwd=folder, env=environment(**more), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                preexec_fn=_hear_interrupts,  # noqa: PLW1509 - it takes no lock and runs no Python of ours but one call
            )  # fmt: skip

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for(self, text: str, timeout: float = 30.0) -> None:
        """Until it has said this, on either side."""

        def look() -> bool:
            return text in self.out + self.err or self.process.poll() is not None

        wait_until(look, f"{text!r} in {self.out!r} {self.err!r}", timeout)
        assert text in self.out + self.err, (self.process.poll(), self.out, self.err)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = 40.0) -> Answer:
        """Waits until it has ended by itself."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; it said {self.out!r} {self.err!r}") from None
        assert "Traceback" not in self.err, self.err
        return Answer(code, self.out, self.err)

    def kill(self) -> None:
        """As a power cut would."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
