"""What an exception carries of a provider's answer, whichever client library raised it.

By duck typing: no client is imported, and nothing here raises, whatever odd object it meets.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dalsegno.errors import DalSegnoError

BODY_MAX = 64 * 1024


class ProviderError(Exception):
    """What a service raises when it has a bad answer in hand."""

    def __init__(
        self,
        status: int | None = None,
        body: str = "",
        headers: Mapping[str, str] | None = None,
        message: str | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = dict(headers or {})
        self.message = message
        # All of it goes into `args`: that is what pickling hands to __init__ on the other side.
        super().__init__(status, body, self.headers, message)

    def __str__(self) -> str:
        if self.message:
            return self.message
        answer = "an error" if self.status is None else f"HTTP {self.status}"
        return f"The provider answered {answer}" + (f": {str(self.body)[:200]}" if self.body else "")


@dataclass(frozen=True, slots=True)
class Signal:
    """What an error tells about the provider, whichever library raised it. Header names are lower-case."""

    status: int | None
    headers: Mapping[str, str]
    body: str
    error: BaseException | None

    @classmethod
    def of(cls, error: BaseException) -> Signal:
        """By duck typing, so that no client library is imported; the first in the chain that knows anything speaks."""
        for link in chain_of(error):
            status, headers, body = _status(link), _headers(link), _body(link)
            if status is not None or headers or body:
                return cls(status, headers, body, error)
        return cls(None, {}, "", error)


_UNREACHABLE = frozenset(
    {"ConnectionError", "gaierror", "herror", "SSLError", "IncompleteRead", "ContentTooShortError"}  # Python, requests
    | {"ConnectTimeout", "ReadTimeout", "Timeout", "ProxyError", "ChunkedEncodingError"}  # requests, httpx
    | {"ConnectError", "WriteTimeout", "NetworkError", "RemoteProtocolError", "ProtocolError"}  # httpx, urllib3
    | {"NewConnectionError", "NameResolutionError", "MaxRetryError", "ConnectTimeoutError", "ReadTimeoutError"}
    | {"EndpointConnectionError", "ConnectionClosedError"}  # botocore
    | {"ClientConnectionError", "ClientPayloadError", "ServerTimeoutError"}  # aiohttp
    | {"APIConnectionError", "APITimeoutError"}  # openai, anthropic
    | {"ServerUnavailable", "ServiceUnavailable", "GatewayTimeout"}  # google
)
"""Names of classes, because the libraries they come from are not imported here."""
_OUR_FAULT = frozenset({"LocalProtocolError"})
_NETWORK_ERRNOS = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH})
_LOCAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


def chain_of(error: BaseException) -> list[BaseException]:
    """The error and what it wraps, as far as the first that says something."""
    links = [error]
    while len(links) < 6 and not _speaks(links[-1]):
        inner = _inner(links[-1])
        if inner is None or is_local(inner) or any(inner is link for link in links):
            break
        links.append(inner)
    return links


def _speaks(error: BaseException) -> bool:
    if is_local(error) or is_unreachable(error) or _status(error) is not None:
        return True
    return bool(_headers(error) or _body(error))


def _inner(error: BaseException) -> BaseException | None:
    context = None if _get(error, "__suppress_context__") else _get(error, "__context__")
    group = _get(error, "exceptions")
    first = group[0] if isinstance(group, tuple) and group else None
    found = (_get(error, "__cause__"), _get(error, "reason"), first, context)
    return next((inner for inner in found if isinstance(inner, BaseException)), None)


def is_unreachable(error: BaseException) -> bool:
    names = {base.__name__ for base in type(error).__mro__}
    if names & _OUR_FAULT:
        return False
    if isinstance(error, TimeoutError) or names & _UNREACHABLE:
        return True
    return isinstance(error, OSError) and isinstance(error.errno, int) and error.errno in _NETWORK_ERRNOS


def is_local(error: BaseException) -> bool:
    """Trouble of this machine: a full disk, a missing file, our own database. It says nothing about a provider."""
    if isinstance(error, DalSegnoError):
        return True
    if not isinstance(error, OSError) or is_unreachable(error):
        return False
    return isinstance(error, _LOCAL) or (isinstance(error.errno, int) and error.errno in errno.errorcode)


def _status(error: BaseException) -> int | None:
    response = _get(error, "response")
    found = [_get(owner, name) for owner in (error, response) for name in ("status", "status_code", "code")]
    if isinstance(response, Mapping):
        found.append(_meta(response).get("HTTPStatusCode"))
    for value in found:
        number = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{3}", value) else value
        if is_number(number) and 100 <= number <= 999:
            return int(number)
    return None


def _headers(error: BaseException) -> dict[str, str]:
    response = _get(error, "response")
    inner: Any = _meta(response).get("HTTPHeaders") if isinstance(response, Mapping) else _get(response, "headers")
    for headers in (_get(error, "headers"), inner):
        with suppress(Exception):
            found = {_text(key).lower(): _text(value) or str(value) for key, value in islice(headers.items(), 200)}
            if found:
                return found
    return {}


def _body(error: BaseException) -> str:
    response = _get(error, "response")
    if isinstance(response, Mapping):  # botocore
        return _text({key: value for key, value in response.items() if key != "ResponseMetadata"})
    places = ((response, "text"), (response, "content"), (response, "data"), (error, "body"), (error, "details"))
    for owner, name in places:
        text = _text(_get(owner, name))
        if text:
            return text
    if any((base.__module__, base.__name__) == ("urllib.error", "HTTPError") for base in type(error).__mro__):
        with suppress(Exception):
            # Reading uses it up, so it is left on the error for whoever asks next.
            error.body = error.read(BODY_MAX)  # type: ignore[attr-defined]
            return _text(_get(error, "body"))
    return ""


def _meta(response: Mapping[Any, Any]) -> Mapping[Any, Any]:
    meta = response.get("ResponseMetadata")
    return meta if isinstance(meta, Mapping) else {}


def _get(owner: Any, name: str) -> Any:
    """An attribute, or None: a property may raise anything (the text of a stream that was not read)."""
    with suppress(Exception):
        return getattr(owner, name, None)
    return None


def string_of(error: BaseException) -> str:
    with suppress(Exception):
        return str(error)[:BODY_MAX]
    return ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:BODY_MAX]
    if isinstance(value, bytes | bytearray):
        return value[:BODY_MAX].decode("utf-8", "replace")
    if isinstance(value, dict | list) and value:
        with suppress(Exception):
            return json.dumps(value, default=str, ensure_ascii=False)[:BODY_MAX]
    return ""


def is_number(value: Any) -> bool:
    """Finite, and small enough to reckon with; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e15 < value < 1e15
