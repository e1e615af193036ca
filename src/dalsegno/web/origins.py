"""The names this console has, and which pages are its own."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from dalsegno.errors import HostRefused, OriginRefused
from dalsegno.settings.values import HOST

PORTS = {"http": "80", "https": "443"}
OURS = (None, "same-origin", "none")
"""What `Sec-Fetch-Site` says of our own pages, of people who typed an address, and of programs, which say nothing."""


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


class Origins:
    """`host` is where the console listens, `more` are CONSOLE_HOSTS."""

    def __init__(self, host: str, more: Iterable[str] = ()) -> None:
        self._names = {"localhost", "127.0.0.1", "::1", host.lower().strip("[]")}
        # A page that rebinds DNS comes with a name of its own, never with a bare address: those may pass.
        self._open = not is_loopback(host)
        if self._open:
            machine = socket.gethostname().lower()
            self._names |= {machine, f"{machine}.local"}
        self._listed = {name.lower() for name in more}

    def check_host(self, headers: Headers) -> str:
        """The name we were asked by; raises for one that is not ours."""
        given = headers.getlist("host")
        host = given[0].lower() if len(given) == 1 else ""
        found = HOST.fullmatch(host)
        if found is None or not self._answers(host, found[1]):
            raise HostRefused(host=f"{host:.100}")
        return host

    def _answers(self, host: str, name: str) -> bool:
        if name.strip("[]") in self._names or not self._listed.isdisjoint({host, name}):
            return True
        return self._open and _address(name) is not None

    def check_read(self, headers: Headers) -> None:
        """Another site's page may link here; it may not load anything of ours into itself."""
        if headers.get("sec-fetch-site") in OURS:
            return
        if headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document":
            return
        raise OriginRefused(origin=_named(headers))

    def check_write(self, headers: Headers, host: str) -> None:
        """A browser says which page asks. Nothing at all is said by programs: whoever runs those needs no page."""
        origin = headers.get("origin")
        if origin is None and headers.get("sec-fetch-site") is None:
            origin = headers.get("referer")
        if headers.get("sec-fetch-site") not in OURS or not (origin is None or self._own(origin, host)):
            raise OriginRefused(origin=_named(headers))

    def _own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin.lower())
        except ValueError:
            return False
        if parts.scheme not in PORTS:
            return False
        usual = ":" + PORTS[parts.scheme]
        asked = parts.netloc.removesuffix(usual)
        return asked == host.removesuffix(usual) or asked in self._listed


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _named(headers: Headers) -> str:
    return f"{headers.get('origin') or headers.get('referer') or 'unnamed':.100}"
