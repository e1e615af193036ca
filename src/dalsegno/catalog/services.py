"""The catalog's services, made for one store and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dalsegno.catalog.catalog import Catalog
from dalsegno.catalog.collect import Collect
from dalsegno.catalog.download import Download
from dalsegno.catalog.sync import Sync
from dalsegno.catalog.upload import Upload

if TYPE_CHECKING:
    from collections.abc import Callable

    from dalsegno.engine.service import Service
    from dalsegno.settings import Settings
    from dalsegno.store.store import Store

NAMES = ("collect", "sync", "download", "upload")


def catalog_services(
    store: Store, settings: Settings, live: Callable[[], Settings] | None = None
) -> list[Service]:  # fmt: skip
    """`live` are the settings as they are now, for what is read whenever it is used: secrets."""
    catalog = Catalog(store, settings, live)
    made = [kind(catalog).service() for kind in (Collect, Sync, Download, Upload)]
    made[-1].closing = catalog.close
    return made
