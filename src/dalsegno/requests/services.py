"""The services of parse requests, made for one store and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dalsegno.requests.decode import Decode
from dalsegno.requests.room import Room
from dalsegno.requests.search import Search
from dalsegno.requests.workflow import DECODE, SEARCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from dalsegno.engine.service import Service
    from dalsegno.settings import Settings
    from dalsegno.store.store import Store

NAMES = (SEARCH, DECODE)


def request_services(
    store: Store, settings: Settings, live: Callable[[], Settings] | None = None
) -> list[Service]:  # fmt: skip
    """`live` are the settings as they are now: where to search and how to decode are read whenever it is done."""
    room = Room(store, settings, live)
    return [Search(room).service(), Decode(room).service()]
