"""What tables are made of: types that both databases have, columns and constraints that come again and again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql


class UtcTime(sa.types.TypeDecorator[datetime]):
    """timestamptz on PostgreSQL; on SQLite text of fixed width, which sorts and reads as a time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        return dialect.type_descriptor(sa.Text() if dialect.name == "sqlite" else self.impl_instance)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        return to_text(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, _dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return from_text(value) if isinstance(value, str) else value.astimezone(UTC)


@lru_cache(64)
def to_text(moment: datetime) -> str:
    """Four times as fast as strftime, and it runs for every item; the rows of a transaction mostly share a time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def from_text(text: str) -> datetime:
    return datetime.fromisoformat(text)


Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

GOES_WITH_ITEM = {"goes_with": "item"}
"""`info` of a table of any room whose rows are about one item (`item_id`): retention takes them with it."""


def identity() -> sa.Column[int]:
    return sa.Column("id", Id, primary_key=True, autoincrement=True)


def counter(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def flag(name: str, default: bool = False) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true() if default else sa.false())


def required_time(name: str) -> sa.Column[datetime]:
    return sa.Column(name, UtcTime, nullable=False)


def any_of(column: str, values: Iterable[str]) -> str:
    """A chain of comparisons: SQLite builds a small table for every evaluation of an IN list (3 µs a row)."""
    return "(" + " OR ".join(f"{column} = '{value}'" for value in values) + ")"


def one_of(column: str, values: Iterable[str]) -> sa.CheckConstraint:
    return sa.CheckConstraint(any_of(column, values), name=f"{column}_known")


def finished_has_time(finished: Iterable[str]) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"{any_of('status', finished)} = (finished_at IS NOT NULL)", name="finished_has_time")


def pauses_that_end(table: str) -> sa.Index:
    """The scheduler asks at every tick which pause ends next."""
    where = sa.text("pause_until IS NOT NULL")
    return sa.Index(f"ix_{table}_pause_until", "pause_until", sqlite_where=where, postgresql_where=where)
