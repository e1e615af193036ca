"""A listener at the stream: a real connection, read by a thread of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import httpx

from tests.helpers import wait_until


class Message(NamedTuple):
    name: str
    id: str | None
    data: Any


class Listener:
    """What arrived, in order. Reading goes on until the stream ends or `stop`."""

    def __init__(self, url: str, *, after: str | None = None, **params: str) -> None:
        self.messages: list[Message] = []
        self.comments: list[str] = []
        self.ended = threading.Event()
        self.status = 0
        self.headers: httpx.Headers = httpx.Headers()
        self._client = httpx.Client(timeout=60)
        self._headers = {} if after is None else {"Last-Event-ID": after}
        self._url, self._params = f"{url}/api/events/stream", params
        self._response: httpx.Response | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._client.stream("GET", self._url, params=self._params, headers=self._headers) as response:
                self._response = response
                self.status, self.headers = response.status_code, response.headers
                self._parse(response)
        except (httpx.HTTPError, httpx.StreamError, OSError, ValueError, AttributeError):
            pass  # closed under us
        finally:
            self.ended.set()

    def _parse(self, response: httpx.Response) -> None:
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            if line.startswith(":"):
                self.comments.append(line)
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                self.messages.append(Message(fields["event"], fields.get("id"), json.loads(fields["data"])))
                fields = {}

    def names(self) -> list[str]:
        return [message.name for message in self.messages]

    def named(self, name: str) -> list[Message]:
        return [message for message in self.messages if message.name == name]

    def wait_for(self, *names: str, timeout: float = 30.0) -> None:
        wait_until(lambda: set(names) <= set(self.names()), f"{names} among {self.names()}", timeout)

    def wait_while(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: not condition(), "the stream to go on")

    @property
    def last_id(self) -> str | None:
        return next((message.id for message in reversed(self.messages) if message.id), None)

    def stop(self) -> None:
        if self._response is not None:
            stream: Any = self._response.extensions["network_stream"]
            with suppress(OSError):  # the other side has ended it
                stream.get_extra_info("socket").shutdown(2)
        self.ended.wait(5)
        self._client.close()

    def __enter__(self) -> Listener:
        self.wait_for("hello")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
