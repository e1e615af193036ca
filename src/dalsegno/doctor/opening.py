"""Opens the database for a look, without making or changing anything; or says why it cannot be opened."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from dalsegno.doctor.examination import away
from dalsegno.errors import DalSegnoError, DatabaseUnavailable, SchemaMissing, SchemaNewer
from dalsegno.insight.health.finding import Finding, found
from dalsegno.settings import Settings
from dalsegno.settings.masks import masked_url
from dalsegno.store.open import open_store, parse_url
from dalsegno.store.store import Store

PATIENCE = 10.0
"""Seconds that a server has to answer."""


def opened(settings: Settings) -> Store | Finding:
    try:
        url = parse_url(settings.database_url)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
            return found("database_absent", "note", "database", where=masked_url(settings.database_url))
        return _within(settings, PATIENCE)
    except (SchemaMissing, SchemaNewer) as error:
        code = "schema_behind" if isinstance(error, SchemaMissing) else "schema_ahead"
        return found(code, "error", "schema", **error.details)
    except DalSegnoError as error:
        return away(error)


def _within(settings: Settings, patience: float) -> Store:
    """A server that does not even refuse would keep us for minutes."""
    answer: dict[str, Any] = {}
    done = threading.Event()

    def run() -> None:
        try:
            answer["store"] = open_store(
                settings.database_url, channel=settings.notify_channel_prefix,
                listen_url=settings.listen_database_url, migrate=False,
            )  # fmt: skip
        except Exception as error:
            answer["error"] = error
        finally:
            done.set()

    threading.Thread(target=run, name="dalsegno-doctor-open", daemon=True).start()
    if not done.wait(patience):
        raise DatabaseUnavailable(problem=f"it has not answered for {patience:g} s")
    if "error" in answer:
        raise answer["error"]
    store: Store = answer["store"]
    return store
