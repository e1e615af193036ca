"""Passages: the permits of a call to a source, and whose trouble it is when nobody answers.

A source with one host (a Subsonic server) is one provider: when it is away, its songs wait for it. Others name hosts
all over the web: there a dead link is its song's own trouble, and only a host that says so makes us wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from urllib3.exceptions import IncompleteRead, ProtocolError

from dalsegno.clock import SystemClock
from dalsegno.model.breaker import Breaker
from dalsegno.model.signal import Signal, chain_of
from dalsegno.model.trip import Kind
from dalsegno.sources.model import Source

Permit = Callable[[str], AbstractContextManager[Any, None]]
LONGEST = 120
_POLICY = Breaker()
_CLOCK = SystemClock()


def of_the_link(error: Exception) -> bool:
    """Nobody was there, or a proxy says so (502, 503, 504), which it may do for ever. Asking us to wait is another
    matter."""
    trip = _POLICY.judge(error, _CLOCK.now())
    return trip is not None and trip.kind is Kind.OUTAGE and not trip.certain


def unanswered(error: Exception) -> bool:
    """Nobody was there, or nobody who speaks HTTP. A status would be an answer, whatever it says."""
    return of_the_link(error) and Signal.of(error).status is None


def passage(
    permit: Permit, verb: str, source: Source, url: str | None = None, own: Callable[[Exception], bool] = of_the_link
) -> AbstractContextManager[None, None]:
    """For one call: `source:feed`, and `source:feed@host:port` as well where the source has many hosts. What is `own`
    trouble of the item, a host's breaker does not hear of."""
    name = f"{verb}:{source.name}"
    if source.one_host:
        return _Quiet(permit(name), is_gibberish if verb == "transfer" else _never)
    host = _host(url)
    if host is None:
        return _Quiet(permit(name), unanswered)
    # The source's limits hold for all its hosts together; who is in trouble is a matter of each host.
    return _Both(_Quiet(permit(name), _always), _Quiet(permit(f"{name}@{host}"), own))


def is_gibberish(error: Exception) -> bool:
    """Something came, and it was not HTTP."""
    links = [link for link in chain_of(error) if isinstance(link, ProtocolError)]
    return any(link.__cause__ is None and not isinstance(link, IncompleteRead) for link in links)


class _Quiet:
    """The breaker does not hear of an error that is the item's own."""

    def __init__(self, permit: AbstractContextManager[Any, None], own: Callable[[Exception], bool]) -> None:
        self._permit, self._own = permit, own

    def __enter__(self) -> None:
        self._permit.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and self._own(error):
            self._permit.__exit__(None, None, None)
        else:
            self._permit.__exit__(kind, error, trace)


class _Both:
    """One within the other."""

    def __init__(self, outer: _Quiet, inner: _Quiet) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        try:
            self._inner.__enter__()
        except BaseException as error:
            self._outer.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._inner.__exit__(kind, error, trace)
        except BaseException as other:
            self._outer.__exit__(type(other), other, other.__traceback__)
            raise
        self._outer.__exit__(kind, error, trace)


def _always(_error: Exception) -> bool:
    return True


def _never(_error: Exception) -> bool:
    return False


@lru_cache(512)
def _host(url: str | None) -> str | None:
    try:
        place = urlsplit(url or "")
        host, port = place.hostname, place.port
    except ValueError:
        return None
    if not host or len(host) > LONGEST or any(c.isspace() for c in host):
        return None
    return host if port is None else f"{host}:{port}"
