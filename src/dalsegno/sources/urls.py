"""URLs as they are sent, and as they may be kept: without credentials, and only while they do not expire."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, unquote_plus, urljoin, urlsplit, urlunsplit

from dalsegno.settings.masks import hidden_in, masked_url
from dalsegno.sources.model import Unusable
from dalsegno.sources.signed import is_short_lived

PORTS = {"http": 80, "https": 443}
_SENDABLE = re.compile(r"[!#-;=?-Z_a-z~\[\]|@%]*").fullmatch
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+(?:%[a-z0-9._-]+)?").fullmatch
_PRIVATE = re.compile(
    r"token|sig|expir|auth|key|pass|pwd|secret|policy|hash|hmac|session|credential|ticket|nonce", re.IGNORECASE
).search
"""In names of parameters whose values are not shown: `author` too, which does no harm."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart for sending."""

    scheme: str
    host: str
    """A name or an address, in small letters, without brackets."""
    port: int
    path: str
    """With its query, percent-encoded."""
    authorization: str
    """The header its user and password become; empty where it has none."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Without user and password."""
        return f"{self.scheme}://{self.authority}{self.path}"


@lru_cache(512)
def target(url: str) -> Target:
    """Raises Unusable for anything but a sound http or https URL."""
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in PORTS:
            what = f"{parts.scheme[:20]} URLs are" if parts.scheme else "Something without http:// is"
            raise Unusable(f"{what} not fetched: only http and https are.", code="bad_url")
        port = parts.port
        host = _host(parts.hostname or "")
    except (ValueError, UnicodeError):
        raise Unusable("This is not a URL that can be asked.", code="bad_url") from None
    path = parts.path or "/"
    path = f"{path}?{parts.query}" if parts.query else path
    if not _SENDABLE(path):
        path = quote(path, safe="!#$%&'()*+,/:;=?@[]|~")
    return Target(parts.scheme, host, PORTS[parts.scheme] if port is None else port, path, _basic(parts.netloc))


def _host(name: str) -> str:
    host = name if name.isascii() else name.encode("idna").decode()
    if not _HOST(host):
        raise ValueError(name)
    return host


def _basic(netloc: str) -> str:
    login, at, _ = netloc.rpartition("@")
    if not at:
        return ""
    user, _, password = login.partition(":")
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


@lru_cache(512)
def host_of(url: str) -> str:
    """In small letters; empty where it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def path_of(url: str) -> str:
    """Its path; of what is no URL, all of it."""
    try:
        return urlsplit(url).path
    except ValueError:
        return url


def joined(base: str, url: str) -> str:
    """Where `url` leads from `base`; empty where that is no URL."""
    try:
        return urljoin(base, url)
    except ValueError:
        return ""


@lru_cache(512)
def without_login(url: str) -> str:
    """The URL without user and password; the rest as it was."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@lru_cache(512)
def named(url: str) -> str:
    """The URL as a name: fit to be stored and shown."""
    return masked_url(without_login(url))


def lasting(url: str) -> bool:
    """Whether it may be stored: no credentials in it, and no signature that ends some day."""
    try:
        return "@" not in urlsplit(url).netloc and not is_short_lived(url)
    except ValueError:
        return False


@lru_cache(512)
def secrets_of(url: str) -> tuple[str, ...]:
    """The texts in a URL that may not be shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ()
    login = parts.netloc.rpartition("@")[0]
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    signed = [value for name, _, value in pairs if _PRIVATE(name)]
    found = [text for value in (*signed, *hidden_in(url)) for text in (value, unquote(value), unquote_plus(value))]
    if login:
        found += [login.partition(":")[2], unquote(login.partition(":")[2]), _basic(parts.netloc)]
    return tuple(dict.fromkeys(each for each in found if each))
