"""What the services of parse requests share: search sources and decoders, opened once per configuration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.model.breaker import Breaker
from dalsegno.model.identity import identity
from dalsegno.requests.decoders.registry import Decoders
from dalsegno.requests.schema import parse_requests
from dalsegno.requests.upstreams import Upstreams
from dalsegno.sources.http import Http
from dalsegno.sources.registry import Config, Sources

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.settings import Settings
    from dalsegno.store.store import Store, Tx

BREAKER = Breaker()
"""How upstreams are told to be in trouble: a ban or an outage stops that one alone."""
KEYS = ("kodik_url", "requests_sources", "requests_decoders", "external_decoders")


@dataclass(frozen=True, slots=True)
class Tools:
    key: str
    sources: Sources
    upstreams: Upstreams
    decoders: Decoders

    def close(self) -> None:
        self.upstreams.close()
        self.decoders.close()
        self.sources.close()


class Room:
    """Safe to use from many threads at once."""

    def __init__(self, store: Store, settings: Settings, live: Callable[[], Settings] | None = None) -> None:
        """`live` are the settings as they are now: requests follow them, a finished one is never run again anyway."""
        self.store = store
        self._live = live or (lambda: settings)
        self._http = Http()
        self._seen: Settings | None = None
        self._tools: list[Tools] = []
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        return self._live()

    @property
    def upstreams(self) -> Upstreams:
        return self._now().upstreams

    @property
    def decoders(self) -> Decoders:
        return self._now().decoders

    def permit(self, item: Item) -> Callable[[str], Any]:
        return lambda name: item.permit(name, breaker=BREAKER)

    def begin(self, item: Item) -> None:
        """How often a request was taken up again is that of the item of it that was so most often."""
        again = item.attempt + item.claimed.interruptions
        if not again:
            return
        most = sa.update(parse_requests).where(
            parse_requests.c.job_id == item.job_id, parse_requests.c.retry_count < again
        )

        def work(tx: Tx) -> None:
            tx.conn.execute(most.values(retry_count=again))

        self.store.write("begin.again", work)

    def close(self) -> None:
        with self._lock:
            for each in self._tools:
                each.close()
            self._tools.clear()
            self._seen = None
        self._http.close()

    def _now(self) -> Tools:
        settings = self._live()
        with self._lock:
            if settings is not self._seen or not self._tools:
                self._renew(settings)
                self._seen = settings
            return self._tools[-1]

    def _renew(self, settings: Settings) -> None:
        values = settings.thawed(settings.snapshot())
        values |= {name.upper(): getattr(settings, name) for name in KEYS}
        key = identity(values)
        if self._tools and self._tools[-1].key == key:
            return
        config, sources = Config(values), Sources(Config(values))
        decoders = Decoders(config, self._http, sources, settings.requests_decode_workers)
        self._tools.append(Tools(key, sources, Upstreams(config, self._http, sources), decoders))
        while len(self._tools) > 2:  # whoever still works has those of the settings before
            self._tools.pop(0).close()
