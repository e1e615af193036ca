"""A scripted upstream, and requests that are carried out by a real engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, EngineOptions, Store
from dalsegno.requests.ask import ask
from dalsegno.requests.body import body_of
from dalsegno.requests.schema import contents, episodes, seasons, variants
from dalsegno.requests.services import request_services
from dalsegno.requests.view import RequestView, one_request
from dalsegno.settings import Settings
from tests.helpers import SWIFT, every, wait_until
from tests.requests.upstream import Kodik, kodik


@pytest.fixture
def upstream() -> Iterator[Kodik]:
    with kodik() as running:
        yield running


@dataclass
class Studio:
    """A store, what it is configured with, and what happens in it."""

    store: Store
    settings: Settings

    def ask(self, **body: Any) -> int:
        return ask(self.store, self.settings, body_of(body)).id

    def engine(self, options: EngineOptions = SWIFT) -> Engine:
        return Engine(self.store, request_services(self.store, self.settings, lambda: self.settings), options)

    def view(self, job_id: int) -> RequestView:
        return self.store.read(lambda tx: one_request(tx, job_id))

    def finished(self, job_id: int, timeout: float = 60.0) -> RequestView:
        def look() -> RequestView | None:
            view = self.view(job_id)
            return view if view.status in ("DONE", "FAILED") else None

        return wait_until(look, f"request {job_id} to finish", timeout)

    def carry_out(self, *, timeout: float = 60.0, **body: Any) -> RequestView:
        """From asking to the end."""
        job_id = self.ask(**body)
        with self.engine():
            return self.finished(job_id, timeout)

    def variants(self) -> list[sa.RowMapping]:
        return every(
            self.store,
            sa.select(
                variants, seasons.c.content_id, seasons.c.number.label("season"), episodes.c.number.label("episode")
            )
            .join(episodes, episodes.c.id == variants.c.episode_id)
            .join(seasons, seasons.c.id == episodes.c.season_id)
            .order_by(seasons.c.content_id, seasons.c.number, episodes.c.number, variants.c.translation_id),
        )

    def contents(self) -> list[sa.RowMapping]:
        return every(self.store, sa.select(contents).order_by(contents.c.id))


@pytest.fixture
def studios(store: Store) -> Callable[..., Studio]:
    return lambda **settings: Studio(store, Settings(_env_file=None, **settings))


@pytest.fixture
def studio(studios: Callable[..., Studio], upstream: Kodik) -> Studio:
    """On both databases, searching and decoding at the scripted upstream."""
    return studios(**upstream.settings)
