"""PostgreSQL's own programs, from the wheel that has the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Postgres


@pytest.fixture(scope="session")
def pg_bin(postgres: Postgres) -> Path:
    return Path(postgres.server.bin_path)


@pytest.fixture(autouse=True)
def _tools(pg_bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every command that a test says."""
    monkeypatch.setenv("PG_BIN", str(pg_bin))
