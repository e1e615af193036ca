"""Stores on both databases whose time is the test's, the server's clock included, and a provider to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from dalsegno import Store
from dalsegno.clock import ManualClock
from dalsegno.store.hot_postgres import PostgresHot
from tests.flow.provider import Provider


@pytest.fixture
def timed(
    database_url: str, stores: Callable[..., Store], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """A store where it is what `clock` says, also for PostgreSQL."""

    def database_now(_self: Any, _tx: Any) -> datetime:
        return clock.now()

    monkeypatch.setattr(PostgresHot, "database_now", database_now)
    return stores(database_url, clock=clock)


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.close()
