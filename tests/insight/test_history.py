"""The script that makes a long history, which pages are measured on, makes one on both databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from scripts.make_history import make

from dalsegno import Store
from dalsegno.requests.schema import parse_requests
from dalsegno.store.schema import events, items, logs
from tests.helpers import every, submitted


@pytest.mark.filterwarnings("ignore:SELECT statement has a cartesian product")  # it is meant to
def test_a_history_has_what_was_asked_for_and_goes_on(store: Store) -> None:
    make(store, item_count=1000, song_count=100, event_count=5000, log_count=100, asked=200)
    assert len(every(store, sa.select(items.c.id))) >= 1000
    assert len(every(store, sa.select(events.c.id))) >= 5000
    assert len(every(store, sa.select(logs.c.id))) == 100
    assert len(every(store, sa.select(parse_requests.c.job_id))) == 200
    assert submitted(store, items=3).job_id
