"""A PostgreSQL with two months of events and logs, and settings that put months away in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.archive.keeper import Keeper
from dalsegno.clock import ManualClock
from dalsegno.engine.pruner import one_round
from dalsegno.model.retention import Policy
from dalsegno.settings import Settings
from dalsegno.store.hot import Event
from dalsegno.store.months import Month, months
from dalsegno.store.schema import events, logs
from dalsegno.store.store import Tx

DATA: list[Any] = [None, {"n": 1.50, "big": 12345678901234567890, "text": 'a "b" \\ c\n\t–🎵'}, [], "x", 0, False]


@dataclass
class Shelf:
    url: str
    store: Store
    clock: ManualClock
    settings: Settings

    def fill(self, rows: int = 40) -> None:
        def work(tx: Tx) -> None:
            tx.hot.insert_events(
                tx,
                [
                    Event("said", "test", n, n * 2, None if n % 2 else n * 3, ("info", "error")[n % 2],
                          None if n % 3 else f"line {n} \\ 'quoted' \u2028", DATA[n % len(DATA)])
                    for n in range(rows)
                ],
            )  # fmt: skip
            line = {"at": tx.now, "level": "warn", "logger": "x", "message": "said\nand done", "traceback": None}
            tx.conn.execute(sa.insert(logs), [{**line, "job_id": n} for n in range(rows)])

        self.store.write("test", work)

    def old(self, table: str = "events") -> Month:
        return self.store.read(lambda tx: months(tx, table))[0]

    def dump(self, name: str, where: str = "true") -> bytes:
        """A table as PostgreSQL itself writes it."""
        with psycopg.connect(self.url) as conn, conn.cursor() as cursor:
            order = "tx, id" if name.startswith("events") else "id"
            with cursor.copy(f'COPY (SELECT * FROM "{name}" WHERE {where} ORDER BY {order}) TO STDOUT') as copy:
                return b"".join(bytes(each) for each in copy)

    def names(self) -> set[str]:
        return {month.name for month in self.store.read(months)}

    def keeper(self) -> Keeper:
        return Keeper(self.store, lambda: self.settings)

    def prune(self) -> None:
        for _ in one_round(self.store, lambda _lanes: Policy(), keep=self.keeper()):
            pass

    def count(self) -> tuple[int, int]:
        def read(tx: Tx) -> tuple[int, int]:
            counts = (sa.select(sa.func.count()).select_from(table) for table in (events, logs))
            first, second = (int(tx.conn.execute(query).scalar_one()) for query in counts)
            return first, second

        return self.store.read(read)


@pytest.fixture
def shelf(postgres_url: str, stores: Callable[..., Store], tmp_path: Path) -> Shelf:
    clock = ManualClock(datetime.now(UTC))
    settings = Settings(_env_file=None, library_root=tmp_path / "library")
    made = Shelf(postgres_url, stores(postgres_url, clock), clock, settings)
    made.fill()
    clock.advance(130 * 86_400.0)
    return made
