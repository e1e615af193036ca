"""The guard at the door: who may ask, from which page, and what every answer tells the browser to refuse."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.errors import DalSegnoError, HostRefused, OriginRefused, PayloadTooLarge
from dalsegno.web.problems import UNEXPECTED, problem, problem_of

logger = logging.getLogger("dalsegno.web")

READS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_BODY = 2_000_000
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: browsers would then send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


class Guard:
    """Outermost, so that nothing leaves without its headers: not even an error nobody expected."""

    def __init__(self, app: ASGIApp, host: str, secrets: Sequence[str]) -> None:
        self._app = app
        self._names = {"localhost", "127.0.0.1", "::1", host.lower().strip("[]")}
        # A page that rebinds DNS comes with a name of its own, never with a bare address: those may pass.
        self._open = not is_loopback(host)
        if self._open:
            machine = socket.gethostname().lower()
            self._names |= {machine, f"{machine}.local"}
        self._secrets = secrets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False
        kind = "api" if scope["path"].startswith("/api/") else "console"
        scope.setdefault("state", {}).update(who=f"{kind}@{(scope.get('client') or ['unknown'])[0]}", signed_in=False)

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                # Static files have an ETag: a browser asks, and mostly hears that nothing has changed.
                headers.setdefault("Cache-Control", "no-cache" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        try:
            self._admit(scope["method"], Headers(scope=scope))
            await self._app(scope, _limited(receive), send_guarded)
        except DalSegnoError as error:
            await problem_of(error, self._secrets)(scope, receive, send_guarded)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise
            await problem(500, "internal_error", UNEXPECTED, self._secrets)(scope, receive, send_guarded)

    def _admit(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._ours(host):
            raise HostRefused(host=f"{host:.100}")
        size = headers.get("content-length", "")
        if size.isdecimal() and int(size) > MAX_BODY:
            raise PayloadTooLarge(what="The body", size=int(size), limit=MAX_BODY)
        if method in READS:
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise OriginRefused(origin=f"{origin:.100}")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise OriginRefused(origin="unnamed")

    def _ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and (name in self._names or (self._open and _address(name) is not None))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _limited(receive: Receive) -> Receive:
    """A body without a length is counted as it comes."""
    seen = 0

    async def receive_some() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY:
            raise PayloadTooLarge(what="The body", size=seen, limit=MAX_BODY)
        return message

    return receive_some
