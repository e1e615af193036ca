"""Which decoders there are, and in which order they are tried.

A plug-in is an entry point of the group `dalsegno.decoders`: a callable that takes a `Config` and returns a `Decoder`.
"""

from __future__ import annotations

import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean
from dalsegno.requests.catalog_search import CatalogDecoder
from dalsegno.requests.decoders.direct import Direct
from dalsegno.requests.decoders.external import ExternalDecoder
from dalsegno.requests.decoders.model import Decoder, Link
from dalsegno.requests.decoders.ytdlp import YtDlp, is_installed
from dalsegno.sources.hosts import Hosts

if TYPE_CHECKING:
    from dalsegno.sources.http import Http
    from dalsegno.sources.registry import Config, Sources

GROUP = "dalsegno.decoders"


class Decoders:
    def __init__(self, config: Config, http: Http, sources: Sources, processes: int) -> None:
        self._config, self._http, self._sources, self._processes = config, http, sources, processes
        self._external = dict(config.values.get("EXTERNAL_DECODERS") or {})
        self._plugins = {each.name: each for each in entry_points(group=GROUP)}
        self._open: dict[str, Decoder] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """REQUESTS_DECODERS in its order; else programs and plug-ins, then what is built in."""
        chosen = self._config.list("REQUESTS_DECODERS")
        if chosen:
            return chosen
        return [*self._external, *self._plugins, Direct.name, *([YtDlp.name] if is_installed() else ())]

    def of(self, link: Link) -> list[Decoder]:
        """Those worth asking, in order. What the catalog found, the catalog alone can resolve."""
        own = self._get(CatalogDecoder.name)
        return [own] if own.can(link) else [each for each in map(self._get, self.names()) if each.can(link)]

    def close(self) -> None:
        with self._lock:
            for each in self._open.values():
                each.close()
            self._open.clear()

    def _get(self, name: str) -> Decoder:
        with self._lock:
            if name not in self._open:
                self._open[name] = self._make(name)
            return self._open[name]

    def _make(self, name: str) -> Decoder:
        if name in self._external:
            return ExternalDecoder(name, self._external[name], self._config, self._processes)
        if name in self._plugins:
            return self._plugins[name].load()(self._config)  # type: ignore[no-any-return]
        hosts = Hosts(self._config, "kodik", [self._config.text("KODIK_URL")])
        match name:
            case Direct.name:
                return Direct(self._http, hosts)
            case YtDlp.name:
                return YtDlp(hosts)
            case CatalogDecoder.name:
                return CatalogDecoder(self._sources)
        known = [*self._external, *self._plugins, Direct.name, YtDlp.name]
        raise InputInvalid(problem=f'There is no decoder "{name}".{did_you_mean(name, known)}')
