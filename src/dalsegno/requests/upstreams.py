"""Which search sources there are: Kodik, plug-ins, and the catalog's sources that can search.

A plug-in is an entry point of the group `dalsegno.search_sources`: a callable that takes a `Config` and returns a
`SearchSource`.
"""

from __future__ import annotations

import logging
import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean
from dalsegno.requests.catalog_search import CatalogSearch
from dalsegno.requests.kodik import Kodik
from dalsegno.requests.upstream import SearchSource

if TYPE_CHECKING:
    from dalsegno.sources.http import Http
    from dalsegno.sources.registry import Config, Sources

log = logging.getLogger(__name__)
GROUP = "dalsegno.search_sources"


class Upstreams:
    """The search sources of one configuration, opened when they are first asked for."""

    def __init__(self, config: Config, http: Http, sources: Sources | None = None) -> None:
        """`sources` are the catalog's; those that can search are asked as well."""
        self._config = config
        self._http = http
        self._sources = sources
        self._plugins = {each.name: each for each in entry_points(group=GROUP)}
        self._open: dict[str, SearchSource] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Those in use: REQUESTS_SOURCES in its order, else every one that is configured."""
        chosen = self._config.list("REQUESTS_SOURCES")
        if chosen:
            return chosen
        own = [Kodik.name] if self._config.text("KODIK_URL") else []
        return [*own, *self._plugins, *(name for name in self._catalog() if name not in self._plugins)]

    def get(self, name: str) -> SearchSource:
        with self._lock:
            if name not in self._open:
                self._open[name] = self._make(name)
                self._open[name].name = name
            return self._open[name]

    def close(self) -> None:
        with self._lock:
            for each in self._open.values():
                each.close()
            self._open.clear()

    def known(self) -> list[str]:
        """Configured or not."""
        return [Kodik.name, *self._plugins, *(self._sources.known() if self._sources is not None else ())]

    def _catalog(self) -> list[str]:
        return [] if self._sources is None else [name for name in self._sources.names() if self._can_search(name)]

    def _can_search(self, name: str) -> bool:
        assert self._sources is not None
        try:
            return self._sources.get(name).can("search")
        except Exception as error:  # one that cannot be opened is told of where the catalog asks it
            log.warning("%s is not searched: %s", name, error)
            return False

    def _make(self, name: str) -> SearchSource:
        if name == Kodik.name:
            return Kodik(self._config, self._http)
        if name in self._plugins:
            return self._plugins[name].load()(self._config)  # type: ignore[no-any-return]
        if self._sources is not None and name in self._sources.known():
            return CatalogSearch(self._sources.get(name))
        raise InputInvalid(problem=f'There is no search source "{name}".{did_you_mean(name, self.known())}')
