"""A child process that answers questions in JSON lines: started when first asked, restarted after it died.

Several threads may ask at once; lines find their question by its number. A child that dies, falls silent or sends lines
without end fails the questions that were open, and nothing waits for ever.
"""

from __future__ import annotations

import io
import json
import logging
import os
import queue
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

from dalsegno.model.signal import ProviderError
from dalsegno.sources.model import Unusable

log = logging.getLogger(__name__)
LINE_MAX = 1024 * 1024
WAITING_MAX = 20_000
"""Items of one answer that nobody has taken yet; then the child is made to wait."""
FAREWELL_SEC = 2.0
Line = dict[str, Any]


class Child:
    def __init__(
        self,
        name: str,
        command: str,
        *,
        env: Mapping[str, str],
        hello: Mapping[str, Any],
        timeout: float,
        what: str = "source",
    ) -> None:
        self.name = name
        self._what = what
        self._words = shlex.split(command)
        self._env = dict(env)
        self._hello = dict(hello)
        self._timeout = timeout
        self._life: _Life | None = None
        self._closed = False
        self._lock = threading.Lock()
        self.greeting: Line | None = None
        """What it last said of itself."""

    def ask(self, method: str, params: Mapping[str, Any]) -> Iterator[Line]:
        """The items of its answer, as they arrive. Raises `Answered` with what it says went wrong."""
        return self._alive().ask(method, params, self._timeout)

    def greet(self) -> Line:
        """What it says of itself; starts it if need be."""
        if self.greeting is None:
            self._alive()
        return self.greeting or {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            life, self._life = self._life, None
        if life is not None:
            life.end()

    def _alive(self) -> _Life:
        with self._lock:
            if self._closed:
                raise ProviderError(message=f"The {self._what} {self.name} is closed.")
            if self._life is not None and self._life.over:
                self._life.end()
                self._life = None
            if self._life is None:
                life = _Life(self.name, self._words, self._env, self._what)
                try:
                    self.greeting = next(iter(list(life.ask("hello", self._hello, self._timeout))), {})
                except BaseException:
                    life.end()
                    raise
                self._life = life
            return self._life


class Answered(Exception):
    """The child's own account of what went wrong."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message") or "it does not say why"))
        self.code = str(error.get("code") or "")
        self.retry_after = error.get("retry_after")


class _Life:
    """One run of the process."""

    def __init__(self, name: str, words: list[str], env: Mapping[str, str], what: str) -> None:
        self.name = name
        self._what = what
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(env),
                start_new_session=True,  # its own group, so that it and all it started can be ended, and nothing else
            )
        except (OSError, IndexError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no command"
            raise ProviderError(message=f"The program of the {what} {name} cannot be started: {reason}.") from None
        self.over = False
        self._numbers = 0
        self._open: dict[int, queue.Queue[Line | Exception]] = {}
        self._heard = time.monotonic()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._ending = threading.Lock()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin: IO[bytes] = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        outputs = [io.BufferedReader(each) for each in (self._process.stdout, self._process.stderr)]  # type: ignore[type-var]
        self._threads = [
            threading.Thread(target=self._read, args=(outputs[0],), name=f"{name}-answers", daemon=True),
            threading.Thread(target=self._overhear, args=(outputs[1],), name=f"{name}-log", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, method: str, params: Mapping[str, Any], timeout: float) -> Iterator[Line]:
        number, lines = self._register()
        try:
            self._send({"id": number, "method": method, "params": params}, timeout)
            while True:
                line = self._next(lines, timeout)
                if isinstance(line, Exception):
                    raise line
                if "error" in line:
                    raise Answered(line["error"] if isinstance(line["error"], dict) else {"message": line["error"]})
                if isinstance(line.get("item"), dict):
                    yield line["item"]
                if line.get("done"):
                    return
        finally:
            self._forget(number)

    def end(self) -> None:
        """Closing its input asks it to go; then it is made to, with everything it started."""
        self.over = True
        self._hang_up()
        self._finish(FAREWELL_SEC)
        self._hang_up()
        self._fail(ProviderError(message=f"The {self._what} {self.name} was closed."))
        for thread in self._threads:
            thread.join(FAREWELL_SEC)

    def _hang_up(self) -> None:
        if self._writing.acquire(timeout=FAREWELL_SEC):  # someone may be writing to a child that does not read
            with suppress(OSError):
                self._stdin.close()
            self._writing.release()

    def _finish(self, patience: float) -> None:
        """Ends the whole group, after its leader had some time to go by itself.

        The leader is waited for last: until then its number is nobody else's, and no signal can hit a stranger.
        """
        with self._ending:
            if self._process.returncode is not None:
                return
            self._gone(patience)
            self._signal(signal.SIGTERM)
            self._gone(FAREWELL_SEC)
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, how: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # nobody left; or only what has already died
            os.killpg(self._process.pid, how)

    def _gone(self, patience: float) -> None:
        """Returns when the leader has ended, or after so many seconds."""
        until = time.monotonic() + patience
        while time.monotonic() < until and not self._exited():
            time.sleep(0.005)

    def _exited(self) -> bool:
        """Whether the leader has ended, without waiting for it."""
        if not hasattr(os, "waitid"):
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _register(self) -> tuple[int, queue.Queue[Line | Exception]]:
        with self._lock:
            if self.over:
                raise self._died()
            self._numbers += 1
            lines: queue.Queue[Line | Exception] = queue.Queue(WAITING_MAX)
            self._open[self._numbers] = lines
            return self._numbers, lines

    def _forget(self, number: int) -> None:
        """What still comes for a question that was given up is dropped, and the child may as well stop."""
        with self._lock:
            given_up = self._open.pop(number, None) is not None
        if given_up and not self.over:
            with suppress(ProviderError, TimeoutError):
                self._send({"method": "cancel", "params": {"id": number}}, FAREWELL_SEC)

    def _send(self, message: Mapping[str, Any], timeout: float) -> None:
        text = json.dumps(message, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
        try:
            with self._writing:
                self._write(memoryview(text), timeout)
        except (OSError, ValueError) as error:
            self.over = True
            if isinstance(error, TimeoutError):
                self._finish(0)
                raise
            raise self._died() from None

    def _write(self, rest: memoryview, timeout: float) -> None:
        """A child that does not read must not hold us for ever."""
        room = select.poll()
        room.register(self._stdin.fileno(), select.POLLOUT)
        while rest:
            if not room.poll(timeout * 1000):
                raise TimeoutError(f"The {self._what} {self.name} took no question for {timeout:g} s.")
            with suppress(BlockingIOError):
                rest = rest[os.write(self._stdin.fileno(), rest) :]

    def _next(self, lines: queue.Queue[Line | Exception], timeout: float) -> Line | Exception:
        """The next line; a child from which nothing at all has come for so long is ended."""
        asked = time.monotonic()
        while True:
            try:
                return lines.get(timeout=min(timeout, 1.0))
            except queue.Empty:
                if self._exited() and lines.empty():  # though what it started may still hold its output open
                    self.over = True
                    return self._died()
                now = time.monotonic()
                if now - max(asked, self._heard) < timeout and now - asked < 10 * timeout:
                    continue
                silent = TimeoutError(f"The {self._what} {self.name} said nothing for {timeout:g} s.")
                self.over = True
                self._finish(0)
                return silent

    def _read(self, stdout: IO[bytes]) -> None:
        """Closes what it reads itself: from elsewhere that would wait for whoever still holds the other end."""
        wrong: Exception | None = None
        with stdout:
            while line := stdout.readline(LINE_MAX + 1):
                self._heard = time.monotonic()
                if len(line) > LINE_MAX:
                    wrong = Unusable(
                        f"The {self._what} {self.name} sends lines longer than 1 MiB.", code="line_too_long"
                    )
                    break
                self._hand_over(line)
        self.over = True
        self._finish(0 if wrong else FAREWELL_SEC)
        self._fail(wrong or self._died())

    def _hand_over(self, text: bytes) -> None:
        try:
            line = json.loads(text)
            number = line["id"]
        except (ValueError, KeyError, TypeError, RecursionError):  # libraries print where they should not
            if text.strip():
                log.info("%s: %s", self.name, text[:500].decode("utf-8", "replace").rstrip())
            return
        with self._lock:
            lines = self._open.get(number) if isinstance(number, int) else None
            if lines is not None and (line.get("done") or "error" in line):
                del self._open[number]
        if lines is not None:
            try:
                lines.put(line, timeout=60)
            except queue.Full:
                self._give_up(number, lines)

    def _give_up(self, number: int, lines: queue.Queue[Line | Exception]) -> None:
        """Nobody takes what it sends, and others wait behind it."""
        with self._lock:
            self._open.pop(number, None)
        with suppress(queue.Empty):
            lines.get_nowait()
        lines.put_nowait(
            Unusable(f"The answer of the {self._what} {self.name} was not taken for a minute.", code="not_taken")
        )

    def _overhear(self, stderr: IO[bytes]) -> None:
        with stderr:
            while line := stderr.readline(8192):
                log.info("%s: %s", self.name, line.decode("utf-8", "replace").rstrip())

    def _fail(self, error: Exception) -> None:
        with self._lock:
            waiting = list(self._open.values())
            self._open.clear()
        for lines in waiting:
            while True:
                try:
                    lines.put_nowait(error)
                    break
                except queue.Full:
                    with suppress(queue.Empty):
                        lines.get_nowait()

    def _died(self) -> ProviderError:
        self._finish(FAREWELL_SEC)
        code = self._process.returncode
        how = (
            "ended" if code is None else f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        )
        return ProviderError(message=f"The program of the {self._what} {self.name} {how} before it had answered.")
