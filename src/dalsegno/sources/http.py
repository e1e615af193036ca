"""The one way out to the web, for sources and downloads.

Only http and https; redirects are followed by hand and each is checked again; whoever answers is looked at before a
byte is sent; what is read whole has a limit. Connections are kept open and shared between threads.
"""

from __future__ import annotations

import ssl
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from urllib3.util.ssl_ import create_urllib3_context

from dalsegno.sources.model import Unusable
from dalsegno.sources.response import DOCUMENT_MAX, MIB, Method, Response
from dalsegno.sources.urls import Target, joined, target
from dalsegno.sources.wire import Headers, Stale, Wire
from dalsegno.version import VERSION

__all__ = ["DOCUMENT_MAX", "MIB", "Document", "Headers", "Http", "Method", "Response"]
REDIRECTS_MAX = 10
"""Podcasts go from one counter of listeners to the next."""
IDLE_MAX = 128
"""Connections kept open while nobody uses them, over all hosts."""
USER_AGENT = f"dalsegno/{VERSION}"
HARMLESS = frozenset(
    {"accept", "accept-language", "user-agent", "range", "if-range", "if-none-match", "if-modified-since", "referer"}
)
"""Headers that a redirect to another host still gets; any other may be a credential."""
Key = tuple[str, str, int, bool]


class Http:
    """Safe to use from many threads at once."""

    def __init__(
        self, *, user_agent: str = USER_AGENT, connect_timeout: float = 10.0, read_timeout: float = 30.0
    ) -> None:
        self.user_agent = user_agent
        self.connect_timeout = connect_timeout
        self.read_timeout = read_timeout
        self._idle: dict[Key, list[Wire]] = {}
        self._count = 0
        self._closed = False
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None

    def open(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        trusted: bool = False,
        method: Method = "GET",
        read_timeout: float | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Response:
        """The answer, whatever its status, with its body still to be read. Close it, or read it to its end.

        `trusted`: the host was named in the settings, so it may be in a private network. `form` is what a POST sends;
        it may hold a token, so it goes nowhere but to the host that was named.
        """
        place = target(url)
        home = place.host
        sent = dict(headers or {})
        seen = set()
        for _ in range(REDIRECTS_MAX + 1):
            timeout = self.read_timeout if read_timeout is None else read_timeout
            answer = self._ask(place, sent, trusted, method, timeout, form)
            where = answer.headers.get("location") if answer.status in (301, 302, 303, 307, 308) else None
            if where is None:
                return answer
            answer.drain()
            seen.add((place, *sent.items()))
            before, place = place, target(joined(place.url, where))
            if form is not None and (place.scheme, place.authority) != (before.scheme, before.authority):
                raise Unusable(f"{home} leads elsewhere with what was meant for it alone.", code="redirect_refused")
            trusted = trusted and place.host == home
            if (place.host, place.port) != (before.host, before.port) or place.scheme < before.scheme:
                sent = {name: value for name, value in sent.items() if name.lower() in HARMLESS}
            elif before.authorization and not place.authorization:
                sent.setdefault("Authorization", before.authorization)
            if (place, *sent.items()) in seen:
                raise Unusable(f"{home} redirects without end: back to where it led from.", code="redirect_loop")
        raise Unusable(f"{home} redirects more than {REDIRECTS_MAX} times.", code="redirect_loop")

    def get(
        self,
        url: str,
        *,
        limit: int = DOCUMENT_MAX,
        headers: Mapping[str, str] | None = None,
        trusted: bool = False,
        check: bool = True,
        within: float = 300.0,
    ) -> Document:
        """A small document, whole. Raises for a status of 400 and above unless `check` is off."""
        with self.open(url, headers=headers, trusted=trusted) as answer:
            if check:
                answer.check()
            body = answer.read(limit, within=within)
            return Document(answer.status, answer.headers, answer.url, _decoded(body, answer.headers, limit))

    def post(
        self,
        url: str,
        form: Mapping[str, str],
        *,
        limit: int = DOCUMENT_MAX,
        trusted: bool = False,
        within: float = 300.0,
    ) -> Document:
        """The answer to a form, whole. For questions only: one that was not answered may be asked again."""
        with self.open(url, trusted=trusted, method="POST", form=form) as answer:
            answer.check()
            body = answer.read(limit, within=within)
            return Document(answer.status, answer.headers, answer.url, _decoded(body, answer.headers, limit))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            wires = [wire for wires in self._idle.values() for wire in wires]
            self._idle.clear()
            self._count = 0
        for wire in wires:
            wire.close()

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        place: Target,
        headers: Mapping[str, str],
        trusted: bool,
        method: Method,
        timeout: float,
        form: Mapping[str, str] | None,
    ) -> Response:
        request = self._request(place, headers, method, form)
        key = (place.scheme, place.host, place.port, trusted)
        while True:
            wire = self._wire(key)
            try:
                status, modern, found = wire.ask(request, timeout)
                return Response(wire, partial(self._release, key), place, method, status, modern, found)
            except Stale:  # nothing was answered, and no question does harm twice
                wire.close()
            except BaseException:
                wire.close()
                raise

    def _request(
        self, place: Target, headers: Mapping[str, str], method: Method, form: Mapping[str, str] | None
    ) -> bytes:
        lines = [f"{method} {place.path} HTTP/1.1", f"Host: {place.authority}"]
        given = set()
        for name, value in headers.items():
            if "\r" in value or "\n" in value or not name.replace("-", "").isalnum():
                raise Unusable("A header for this URL holds what no header may.", code="bad_header")
            given.add(name.lower())
            lines.append(f"{name}: {value}")
        if "user-agent" not in given:
            lines.append(f"User-Agent: {self.user_agent}")
        if "accept" not in given:
            lines.append("Accept: */*")
        if "accept-encoding" not in given:
            lines.append("Accept-Encoding: identity")
        if place.authorization and "authorization" not in given:
            lines.append(f"Authorization: {place.authorization}")
        body = b"" if form is None else urlencode(form, errors="replace").encode()
        if form is not None:
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
        lines.append("\r\n")
        return "\r\n".join(lines).encode("latin-1", "replace") + body

    def _wire(self, key: Key) -> Wire:
        while True:
            with self._lock:
                wires = self._idle.get(key)
                wire = wires.pop() if wires else None
                if wire is not None:
                    self._count -= 1
            if wire is None:
                break
            if wire.idle():
                return wire
            wire.close()
        scheme, host, port, trusted = key
        return Wire(scheme, host, port, trusted=trusted, timeout=self.connect_timeout, tls=self._context(scheme))

    def _context(self, scheme: str) -> ssl.SSLContext | None:
        """Made once: reading the authorities takes longer than many a download."""
        if scheme != "https":
            return None
        with self._lock:
            if self._tls is None:
                self._tls = create_urllib3_context()
                self._tls.load_default_certs()
            return self._tls

    def _release(self, key: Key, wire: Wire) -> None:
        with self._lock:
            if not self._closed:
                self._idle.setdefault(key, []).append(wire)
                self._count += 1
                surplus = self._oldest() if self._count > IDLE_MAX else None
            else:
                surplus = wire
        if surplus is not None:
            surplus.close()

    def _oldest(self) -> Wire:
        """Of the host that was first asked and still has any."""
        for key in [key for key, wires in self._idle.items() if not wires]:
            del self._idle[key]
        self._count -= 1
        return next(iter(self._idle.values())).pop(0)


@dataclass(frozen=True, slots=True)
class Document:
    status: int
    headers: Mapping[str, str]
    url: str
    """Where it was in the end, without user and password."""
    body: bytes


def _decoded(body: bytes, headers: Mapping[str, str], limit: int) -> bytes:
    """Some servers compress though they were asked not to."""
    coding = (headers.get("content-encoding") or "identity").lower()
    if coding in ("identity", ""):
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise Unusable(f"This answer is compressed as {coding[:20]}, which was not asked for.", code="bad_encoding")
    try:
        opener = zlib.decompressobj(zlib.MAX_WBITS | 32)
        plain = opener.decompress(body, limit)
    except zlib.error:
        raise Unusable("This answer is compressed, and broken.", code="bad_encoding") from None
    if opener.unconsumed_tail:
        raise Unusable(f"This answer unpacks to more than {limit // MIB} MiB.", code="too_large")
    return plain
