"""The records people read and the tables they are read from agree, field by field."""

from __future__ import annotations

import re
import types
import typing
from datetime import datetime
from enum import StrEnum
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from dalsegno import Store, submit
from dalsegno.catalog.records import RECORDS as OF_THE_CATALOG
from dalsegno.model.records import RECORDS as OF_THE_ENGINE
from dalsegno.requests.records import RECORDS as OF_REQUESTS
from tests.everything import metadata
from tests.helpers import claim, command, every, keys, one_step, register, settle, submitted

RECORDS = {**OF_THE_ENGINE, **OF_THE_CATALOG, **OF_REQUESTS}
FIELDS = [(table.name, column.name) for table in metadata.sorted_tables for column in table.columns]


def parts(annotation: Any) -> tuple[Any, bool]:
    """A field's type without `| None`, and whether None was there."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return inner[0], len(inner) < len(typing.get_args(annotation))
    return annotation, False


def values_of(annotation: Any) -> set[str] | None:
    kind, _ = parts(annotation)
    if typing.get_origin(kind) is typing.Literal:
        return set(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {str(value) for value in kind}
    return None


def python_type(column: sa.Column[Any]) -> type:
    match column.type:
        case sa.JSON():
            return object
        case sa.Boolean():
            return bool
        case sa.Integer():
            return int
        case sa.Float():
            return float
        case sa.Text():
            return str
        case sa.types.TypeDecorator():
            return datetime
    raise AssertionError(f"{column}: a type this test does not know: {column.type!r}")


def allowed_by_checks(table: sa.Table) -> dict[str, set[str]]:
    found = {}
    for constraint in table.constraints:
        if isinstance(constraint, sa.CheckConstraint) and str(constraint.name).endswith("_known"):
            text = str(constraint.sqltext)
            column = re.match(r"\(?(\w+) ", text)
            assert column is not None
            found[column[1]] = set(re.findall(r"'([^']*)'", text))
    return found


def test_every_table_has_a_record_and_every_record_a_table() -> None:
    assert set(RECORDS) == set(metadata.tables)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_record_has_exactly_the_columns_of_its_table_in_their_order(name: str) -> None:
    assert list(RECORDS[name].model_fields) == [column.name for column in metadata.tables[name].columns]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_may_be_null_exactly_where_its_column_may(name: str, field: str) -> None:
    column = metadata.tables[name].columns[field]
    _, optional = parts(RECORDS[name].model_fields[field].annotation)
    assert optional == column.nullable


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_has_the_type_of_its_column(name: str, field: str) -> None:
    kind, _ = parts(RECORDS[name].model_fields[field].annotation)
    expected = python_type(metadata.tables[name].columns[field])
    if expected is object:
        assert kind is Any or typing.get_origin(kind) in (dict, list)
    elif values_of(kind) is not None:
        assert expected is str
    else:
        assert kind is expected


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_the_values_a_field_allows_are_those_its_check_allows(name: str) -> None:
    allowed = allowed_by_checks(metadata.tables[name])
    stated = {
        field: values
        for field, info in RECORDS[name].model_fields.items()
        if (values := values_of(info.annotation)) is not None
    }
    assert stated == allowed


def test_what_the_engine_stores_can_be_read_as_records(store: Store) -> None:
    me = register(store)
    job = submitted(
        store, one_step(timeout=3.5), items=["a", ("b", {"n": 1})], params={"p": 1}, snapshot={"s": 1},
        options={"o": True}, scope=["x"], dedupe=True, requested_by="test",
    ).job_id  # fmt: skip
    settle(store, claim(store, me), result="[1]")
    claim(store, me)
    command(store, "pause", job_id=job)
    submit(store, one_step(), items=keys(1), scheduled_at=store.clock.now())
    read = 0
    for name, record in RECORDS.items():
        for row in every(store, sa.select(metadata.tables[name])):
            found = record.model_validate(dict(row))
            assert isinstance(found, BaseModel)
            for value in row.values():
                if isinstance(value, datetime):
                    assert value.utcoffset() is not None
                    assert value.utcoffset().total_seconds() == 0
            read += 1
    assert read > 10


def test_a_record_refuses_what_it_does_not_know(store: Store) -> None:
    row = dict(every(store, sa.select(metadata.tables["lanes"]))[0])
    with pytest.raises(ValueError, match="extra"):
        RECORDS["lanes"].model_validate({**row, "surprise": 1})
