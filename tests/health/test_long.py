"""With the patience that the house really has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from dalsegno import Store
from tests.helpers import wait_until
from tests.web.conftest import Desk, consoles, plain

__all__ = ["consoles", "plain"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_transaction_that_is_held_for_five_minutes_has_a_name(
    postgres_url: str, stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    desk = consoles(stores(postgres_url))

    def told(severity: str) -> Any:
        found = desk.get("/api/system/health")["findings"]
        return next(
            (each for each in found if (each["code"], each["severity"]) == ("transaction_held", severity)), None
        )

    def on_dashboard() -> Any:
        return [each for each in desk.get("/api/dashboard")["attention"] if each["code"] == "transaction_held"]

    with psycopg.connect(postgres_url, application_name="monthly report") as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT count(*) FROM items")
        assert "monthly report" in wait_until(lambda: told("warning"), "a word", 120)["says"]
        wait_until(on_dashboard, "a word on the dashboard", 120)
        assert wait_until(lambda: told("error"), "five minutes", 400)["data"]["held_seconds"] >= 300
        session.rollback()
    wait_until(lambda: not told("error") and not on_dashboard(), "it to be gone", 60)
