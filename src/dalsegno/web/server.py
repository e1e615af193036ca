"""The server under the app: a socket bound before anything else starts, and a thread that answers on it."""

from __future__ import annotations

import errno
import socket
import threading
import time
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from dalsegno.doctor.rounds import Rounds
from dalsegno.errors import SettingInvalid
from dalsegno.requests.room import Room as ParseTools
from dalsegno.web.live import Live
from dalsegno.web.origins import is_loopback

GRACE = 3
"""Seconds that open requests have to finish when the server stops."""
KEPT = 75
"""Seconds that a connection stays open with nothing to do: longer than clients keep theirs (httpx: 5), or they would
send into connections that are being closed."""
SETTLED = 3.0
"""Seconds after which the server has nothing better to do than to describe its API."""


def bind(host: str, port: int, *, guarded: bool = False) -> socket.socket:
    """A listening socket, or an error that says what to change. `guarded`: by a password, or by somebody's word."""
    if not is_loopback(host) and not guarded:
        problem = (
            f'"{host}" can be reached from other machines, and the console has no password. Set CONSOLE_PASSWORD, '
            "use 127.0.0.1, or say --insecure if everyone who can reach it may use it."
        )
        raise SettingInvalid(key="CONSOLE_HOST", problem=problem)
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address, family=family, backlog=512)
        # What it accepts inherits it. Else the body of an answer waits 40 ms for word that its head has come.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except socket.gaierror as error:
        raise SettingInvalid(key="CONSOLE_HOST", problem=f'there is no address "{host}": {error.strerror}.') from None
    except OSError as error:
        raise _unusable(error, host, port) from None


def _unusable(error: OSError, host: str, port: int) -> SettingInvalid:
    match error.errno:
        case errno.EADDRINUSE:
            problem = f"port {port} on {host} is taken by another program. Choose another one: --port {_next(port)}"
            return SettingInvalid(key="CONSOLE_PORT", problem=problem)
        case errno.EACCES:
            problem = f"this user may not listen on port {port}. Choose one above 1023: --port 8765"
            return SettingInvalid(key="CONSOLE_PORT", problem=problem)
        case _:
            return SettingInvalid(key="CONSOLE_HOST", problem=f'cannot listen on "{host}": {error.strerror}.')


def _next(port: int) -> int:
    return port + 1 if port < 65535 else 8765


def _describe(app: FastAPI) -> None:
    # FastAPI silences a warning of pydantic's by a filter of the whole process, which another thread may undo. Where
    # warnings are errors it is raised here, and the description is made when somebody asks for it.
    with suppress(Warning):
        app.openapi()


class ConsoleServer:
    """Answers on a socket until it is stopped."""

    def __init__(self, app: FastAPI, listening: socket.socket) -> None:
        self._live: Live = app.state.live
        self._parse_tools: ParseTools = app.state.parse_tools
        self._rounds: Rounds = app.state.room.rounds
        self._socket = listening
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="off",
            ws="none", loop="asyncio", timeout_graceful_shutdown=GRACE, timeout_keep_alive=KEPT,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), name="console", daemon=True)
        # It takes most of a second: better before somebody waits for it.
        self._described = threading.Timer(SETTLED, _describe, [app])
        self._described.daemon = True

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> ConsoleServer:
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            time.sleep(0.005)
        self._described.start()
        return self

    def stop(self) -> None:
        self._described.cancel()
        self._server.should_exit = True
        self._live.close()  # a stream has no end of its own
        self._thread.join(GRACE + 5)
        self._parse_tools.close()
        self._rounds.close()
        self._socket.close()

    def __enter__(self) -> ConsoleServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
