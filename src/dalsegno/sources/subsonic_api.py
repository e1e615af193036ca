"""Calls to a Subsonic server: how it is signed in to, and what its answers mean."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote_plus, urlencode

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from dalsegno.model.signal import ProviderError
from dalsegno.sources.http import Document, Http
from dalsegno.sources.model import Gone, Unusable
from dalsegno.sources.urls import host_of, secrets_of, target, without_login

CLIENT = "dalsegno"
VERSION = "1.16.1"
Way = Literal["key", "token", "password"]
ANOTHER_WAY = frozenset({10, 40, 41, 42, 43, 44})
"""Answers to a way of signing in after which the next is tried: a parameter is missing (what servers say to tokens and
keys they have never heard of), wrong credentials, and every form of "not like this"."""


class Refused(ProviderError):
    """The server understood, and said no; `code` is Subsonic's."""

    def __init__(self, code: int, status: int | None, message: str) -> None:
        super().__init__(status, message=message)
        self.refusal = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refusal, self.status, self.message)


class Api:
    def __init__(self, http: Http, url: str, *, user: str, password: str, key: str) -> None:
        self.http = http
        self.host = host_of(url)
        self.user = user
        self._password, self._key = password, key
        base = without_login(url).partition("?")[0].rstrip("/").removesuffix("/rest")
        self._base = f"{base}/rest/"
        login = target(url).authorization
        self.headers: Mapping[str, str] = {"Authorization": login} if login else {}
        """For a proxy that asks for a login of its own in front of the server."""
        self._hidden = secrets_of(url)
        self._version = VERSION
        self._way: Way | None = None
        self._lock = threading.Lock()

    def call(self, method: str, **params: str | int) -> dict[str, Any]:
        """The answer's content. Raises Gone for what is not there, and ProviderError for every other refusal."""
        way = self._way
        if way is not None:
            return self._call(method, params, way)
        with self._lock:  # one thread finds the way in, the others wait and take it
            if self._way is None:
                return self._find_way(method, params)
            way = self._way
        return self._call(method, params, way)

    def address(self, method: str, **params: str | int) -> tuple[str, tuple[str, ...]]:
        """Where bytes are, signed in; and the texts in it that may not be shown."""
        if self._way is None:
            self.call("ping")
        return self._url(method, params, self._way or "password")

    def _find_way(self, method: str, params: Mapping[str, str | int]) -> dict[str, Any]:
        ways: list[Way] = ["key"] if self._key else []
        if self.user and self._password:
            ways += ["token", "password"]
        if not ways:
            raise ProviderError(401, message="Set SUBSONIC_USER and SUBSONIC_PASSWORD, or SUBSONIC_API_KEY.")
        for way in ways:
            try:
                answer = self._call(method, params, way)
            except Gone:
                self._way = way
                raise
            except Refused as refusal:
                if refusal.refusal in ANOTHER_WAY and way != ways[-1]:
                    continue
                raise
            self._way = way
            return answer
        raise AssertionError("unreachable")

    def _call(self, method: str, params: Mapping[str, str | int], way: Way) -> dict[str, Any]:
        for _ in range(2):
            url, _ = self._url(method, params, way)
            answer = self._read(self.http.get(url, headers=self.headers, trusted=True, check=False))
            if answer.get("status") != "failed":
                return answer
            error = _first(answer.get("error"))
            code = whole(error.get("code")) or 0
            version = str(answer.get("version") or "")
            if code == 30 and version and version != self._version:  # "server must upgrade": speak as it does
                self._version = version
                continue
            break
        raise self._refusal(code, str(error.get("message") or "it does not say why"), way)

    def _refusal(self, code: int, message: str, way: Way) -> Exception:
        said = f"{self.host}: {self._cleaned(message)[:300]}"
        if code == 70:
            return Gone(said)
        if code in ANOTHER_WAY - {10} or (code == 10 and self._way is None):
            self._way = None
            what = "the API key" if way == "key" else "user and password"
            return Refused(code, 401, f"{self.host} does not accept {what} ({self._cleaned(message)[:300]}).")
        return Refused(code, {50: 403, 60: 402}.get(code), said)

    def _read(self, document: Document) -> dict[str, Any]:
        """Servers may answer an error with any HTTP status, so the body speaks first."""
        answer = _json(document.body) or _xml(document.body)
        if answer is not None:
            return answer
        if document.status >= 400:
            if document.status in (404, 410):
                raise ProviderError(document.status, message=f"{self.host} has no Subsonic API at SUBSONIC_URL.")
            body = self._cleaned(document.body[:2000].decode("utf-8", "replace"))
            raise ProviderError(
                document.status, body, document.headers, f"{self.host} answered HTTP {document.status}."
            )
        raise Unusable(f"{self.host} did not answer as a Subsonic server does.", code="not_subsonic")

    def _url(self, method: str, params: Mapping[str, str | int], way: Way) -> tuple[str, tuple[str, ...]]:
        signed = self._signed(way)
        query = urlencode({**params, **signed, "v": self._version, "c": CLIENT, "f": "json"})
        hidden = [signed[name] for name in ("apiKey", "t", "s", "p") if name in signed]
        encoded = [quote_plus(text) for text in (*hidden, self._password, self._key) if text]
        return f"{self._base}{method}.view?{query}", tuple(dict.fromkeys((*hidden, *encoded, *self._secrets())))

    def _signed(self, way: Way) -> dict[str, str]:
        if way == "key":
            return {"apiKey": self._key}
        if way == "token":
            salt = secrets.token_hex(8)
            token = hashlib.md5(f"{self._password}{salt}".encode(), usedforsecurity=False).hexdigest()
            return {"u": self.user, "t": token, "s": salt}
        return {"u": self.user, "p": f"enc:{self._password.encode().hex()}"}

    def _secrets(self) -> tuple[str, ...]:
        own = (self._password, self._password.encode().hex(), self._key, *self._hidden, *self.headers.values())
        return tuple(text for text in own if text)

    def _cleaned(self, text: str) -> str:
        for secret in self._secrets():
            text = text.replace(secret, "***")
        return text


def _json(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)["subsonic-response"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _xml(body: bytes) -> dict[str, Any] | None:
    """For servers that know no JSON; the same shape, with every child in a list."""
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, DefusedXmlException, ValueError):
        return None
    return _plain(root) if root.tag.rpartition("}")[2] == "subsonic-response" else None


def _plain(element: Any) -> dict[str, Any]:
    found: dict[str, Any] = dict(element.attrib)
    if element.text and element.text.strip():
        found["value"] = element.text.strip()
    for child in element:
        found.setdefault(child.tag.rpartition("}")[2], []).append(_plain(child))
    return found


def _first(value: Any) -> dict[str, Any]:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, dict) else {}


def whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def part(answer: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object inside an answer; empty where it is missing."""
    return _first(answer.get(name))


def parts(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list inside an answer: some servers leave an empty one out, and make a lone element no list."""
    value = answer.get(name)
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, dict)]


def number(answer: Mapping[str, Any], name: str) -> int | None:
    """A positive number; 0 is how servers say that they do not know."""
    found = whole(answer.get(name))
    return found if found is not None and found > 0 else None


def text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    return "" if value is None or isinstance(value, dict | list) else str(value)
