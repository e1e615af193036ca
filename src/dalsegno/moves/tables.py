"""Every table there is, each after those it refers to."""

from __future__ import annotations

import sqlalchemy as sa

import dalsegno.catalog.schema
import dalsegno.requests.schema  # noqa: F401 - each room adds its tables when it is imported
from dalsegno.store.schema import metadata


def in_order() -> list[sa.Table]:
    return list(metadata.sorted_tables)
