"""Hosts that an operator named, which may therefore be in a private network."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.sources.registry import Config
from dalsegno.sources.urls import host_of


class Hosts:
    """Those of the configured URLs, and those listed in `SOURCE_<NAME>_HOSTS`."""

    def __init__(self, config: Config, source: str, urls: Iterable[str]) -> None:
        listed = config.own(source).get("HOSTS", "")
        self._names = {host_of(url) for url in urls} | {name.strip().lower() for name in listed.split(",")}
        self._names.discard("")

    def trust(self, url: str) -> bool:
        return host_of(url) in self._names
