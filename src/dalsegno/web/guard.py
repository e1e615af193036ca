"""The guard at the door: who may ask, from which page, and what every answer tells the browser to refuse."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.errors import DalSegnoError, HostRefused, LoginNeeded, PayloadTooLarge, ReadOnly
from dalsegno.web.door import Door
from dalsegno.web.origins import Origins
from dalsegno.web.problems import FIRST, UNEXPECTED, Page, problem, problem_of

logger = logging.getLogger("dalsegno.web")

READS = frozenset({"GET", "HEAD", "OPTIONS"})
ENDLESS = "/api/events/stream"
"""Never asked for its head alone: its body has no end that could be left out."""
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
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
OPEN = frozenset({"/healthz", "/readyz", "/login"})
"""Answered without a password, as are static files: whoever watches a process has none."""
SIGNING = frozenset({"/login", "/logout"})
"""Writes that a console which only shows takes too."""
PREVIEWS = frozenset({"/api/bulk/preview", "/api/config/env/check", "/api/plan", "/config/check"})
"""What is asked with a body, and only read."""


class Guard:
    """Outermost, so that nothing leaves without its headers: not even an error nobody expected."""

    def __init__(
        self, app: ASGIApp, *, origins: Origins, door: Door, read_only: bool, secrets: Sequence[str], page: Page
    ) -> None:  # fmt: skip
        self._app = app
        self._origins = origins
        self._door = door
        self._read_only = read_only
        self._secrets = secrets
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

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

        headers = Headers(scope=scope)
        try:
            self._admit(scope, headers)
            await self._recognise(scope, headers)
            if self._read_only and scope["method"] not in READS and scope["path"] not in SIGNING | PREVIEWS:
                raise ReadOnly
            # The server leaves the body out: it goes by the scope that it made.
            asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" and scope["path"] != ENDLESS else scope
            await self._app(asked, _limited(receive), send_guarded)
        except LoginNeeded as error:
            await self._to_login(scope, headers, error)(scope, receive, send_guarded)
        except HostRefused as error:  # whoever calls us by another name sees nothing of ours
            await problem_of(error, self._secrets)(scope, receive, send_guarded)
        except DalSegnoError as error:
            page = self._page(Request(scope), error.status, error.code, str(error))
            await (page or problem_of(error, self._secrets))(scope, receive, send_guarded)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise
            page = self._page(Request(scope), 500, "internal_error", UNEXPECTED)
            await (page or problem(500, "internal_error", UNEXPECTED, self._secrets))(scope, receive, send_guarded)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        host = self._origins.check_host(headers)
        size = headers.get("content-length", "")
        if size.isdecimal() and int(size) > MAX_BODY:
            raise PayloadTooLarge(what="The body", size=int(size), limit=MAX_BODY)
        if scope["method"] in READS:
            self._origins.check_read(headers)
            return
        self._origins.check_write(headers, host)

    async def _recognise(self, scope: Scope, headers: Headers) -> None:
        """Raises where the password is needed and was not given."""
        address = str((scope.get("client") or ("unknown",))[0])
        state = scope.setdefault("state", {})
        state.update(who=f"{_kind(scope)}@{address}", signed_in=False)
        if scope["path"] in OPEN or scope["path"].startswith("/static/"):
            return
        if scope["path"].startswith(FIRST) and self._door.key_shown(headers):
            return
        caller = self._door.caller(headers, address)
        if caller is None:
            caller = await run_in_threadpool(self._door.ask, headers, address)
        state["signed_in"] = caller.session is not None
        if caller.name:
            state["who"] = f"{caller.name}@{address}"

    def _to_login(self, scope: Scope, headers: Headers, error: LoginNeeded) -> Response:
        """People are led to the sign-in and from there back to where they were; programs are told."""
        path = quote(scope["path"])
        if scope["method"] not in READS:
            path = _path(headers.get("referer"))
        elif scope["query_string"]:
            path += "?" + scope["query_string"].decode("ascii", "ignore")
        if headers.get("hx-request"):
            where = f"/login?next={quote(_path(headers.get('hx-current-url')), safe='')}"
            return Response(status_code=error.status, headers={"HX-Redirect": where})
        if scope["path"].startswith("/api/") or "text/html" not in headers.get("accept", ""):
            return problem_of(error, self._secrets)
        return RedirectResponse(f"/login?next={quote(path, safe='')}", status_code=303)


def _kind(scope: Scope) -> str:
    return "api" if scope["path"].startswith("/api/") else "console"


def _path(url: str | None) -> str:
    """Where somebody was, without the host: what leads there is checked again after the sign-in."""
    try:
        parts = urlsplit(url or "/")
    except ValueError:
        return "/"
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


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
