"""The two sides of a move: a database that is read from, and one that is filled in one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from dalsegno.moves.values import Row
from dalsegno.store.notes import MOVED
from dalsegno.store.schema import system_settings

BATCH = 2_000


class Side(ABC):
    """One database, while everything is read from it or brought into it."""

    name: str
    """Its address without a password."""

    @abstractmethod
    def count(self, table: sa.Table) -> int:
        """How many rows `rows` gives."""

    @abstractmethod
    def rows(self, table: sa.Table) -> Iterator[list[Row]]:
        """Every row of a table, some at a time."""

    @abstractmethod
    def fill(self, table: sa.Table) -> Callable[[list[Row]], None]:
        """Empties a table; rows given to the answer are put in, an empty list ends it."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def prepare(self) -> None:
        """Before the first table: what would act on rows by itself is put to rest."""

    @abstractmethod
    def finish(self) -> None:
        """After the last: new numbers go on after the highest, and what rested is back."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def note(self, value: dict[str, Any]) -> None:
        """That everything has moved away from here."""


SUMMED = "request_counts"
"""Its rows are one number each, in as many rows as a database has slots: what they add up to is moved."""
EVENTS = "events"
"""Its numbers of transactions mean nothing elsewhere: all are 0 there, before any other."""


def question(table: sa.Table, spell: Callable[[sa.Column[Any]], str]) -> str:
    """What is read of a table. Of one a row stays behind: that an earlier move left from there."""
    if table.name == SUMMED:
        sums = ", ".join(f'coalesce(sum("{column.name}"), 0)' for column in table.columns if not column.primary_key)
        return f"SELECT 0, {sums} FROM {SUMMED}"  # noqa: S608
    columns = ", ".join(
        "0" if (table.name, column.name) == (EVENTS, "tx") else spell(column) for column in table.columns
    )
    where = f" WHERE key <> '{MOVED}'" if table is system_settings else ""
    return f'SELECT {columns} FROM "{table.name}"{where}'  # noqa: S608


def quoted(table: sa.Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)
