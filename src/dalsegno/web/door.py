"""The door: who comes in, by the password or by an earlier sign-in, and under which name."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import cookie_parser

from dalsegno.errors import ApiKeyNeeded, LoginFailed, LoginNeeded
from dalsegno.web.password import Password
from dalsegno.web.sessions import Session, Sessions
from dalsegno.web.throttle import Throttle

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from dalsegno.config.current import Current
    from dalsegno.store.store import Store

PROVEN = 64
"""Passwords found right that need not be hashed again: programs send theirs with every request."""
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    session: Session | None = None


class Door:
    def __init__(self, store: Store, current: Current) -> None:
        settings = current.settings
        said = settings.console_password.get_secret_value()
        self.locked = bool(said)
        """There is a password, and everybody needs it: behind a proxy even strangers come from loopback."""
        self.sessions = Sessions(store, said)
        self._throttle = Throttle(store.clock.monotonic)
        self._password = Password(said) if said else None
        self._current = current
        self._secret = secrets.token_bytes(32)
        self._proven: OrderedDict[bytes, None] = OrderedDict()

    def caller(self, headers: Headers, address: str) -> Caller | None:
        """Who asks, where that is known at once; None where `ask` has to find out. Raises where nothing was shown."""
        if not self.locked:
            return Caller("")
        if self.sessions.fresh:
            return self._shown(headers, address, may_wait=False)
        return None

    def key_shown(self, headers: Headers) -> bool:
        """Whether somebody showed the key to the API of parse requests. Raises where it is needed, or is wrong."""
        key = self._current.steady().requests_api_key.get_secret_value()
        given = headers.get("x-api-key")
        if not key:
            return False
        if given is not None:
            if not hmac.compare_digest(given.encode("latin-1"), key.encode("utf-8")):
                raise ApiKeyNeeded(problem="This is not the API key.")
            return True
        if not self.locked:
            raise ApiKeyNeeded(problem="This needs an API key.")
        return False

    def ask(self, headers: Headers, address: str) -> Caller:
        """The same, where it may take a moment."""
        self.sessions.look()
        found = self._shown(headers, address, may_wait=True)
        assert found is not None
        return found

    def _shown(self, headers: Headers, address: str, *, may_wait: bool) -> Caller | None:
        session = self.session(headers)
        if session is not None:
            return Caller(session.name, session)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip()
        match scheme.lower():
            case "bearer" if (token := self.sessions.known(given)) is not None:
                return Caller(token.name, token)
            case "bearer":
                name, password = "", given
            case "basic":
                name, password = _basic(given)
            case _:
                raise LoginNeeded
        if self._digest(password) not in self._proven:
            if self.sessions.shaped(password):  # a token that has ended is nobody's guess at the password
                raise LoginNeeded
            if not may_wait:
                return None
            self.try_password(password, address)
        return Caller(tidy_name(name))

    def session(self, headers: Headers) -> Session | None:
        text = cookie_parser(headers.get("cookie", "")).get(self.sessions.cookie)
        return self.sessions.known(text) if text else None

    def try_password(self, given: str, address: str) -> None:
        """Raises when it is wrong, or comes too soon after others that were."""
        if self._password is None:
            return
        self._throttle.admit(address)
        if not self._password.is_(given):
            raise LoginFailed
        self._throttle.forgive(address)
        self._proven[self._digest(given)] = None
        while len(self._proven) > PROVEN:
            self._proven.popitem(last=False)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode("utf-8", "surrogatepass"), hashlib.sha256)


def tidy_name(text: str) -> str:
    """A name as it may stand in lists: short, on one line, and without the @ that an address follows."""
    return " ".join("".join(each if each.isprintable() and each != "@" else " " for each in text).split())[
        :LONGEST_NAME
    ]


def _basic(given: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(given, validate=True).decode("utf-8", "replace").partition(":")
    except (binascii.Error, ValueError):
        raise LoginNeeded from None
    return name, password
