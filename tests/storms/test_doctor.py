"""The doctor in bad weather: through PgBouncer, and while the database is away or may not be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno import Store
from dalsegno.config.current import Current
from dalsegno.doctor.examination import examine
from dalsegno.doctor.rounds import Rounds
from dalsegno.doctor.subjects import subjects
from dalsegno.errors import DatabaseReadOnly
from dalsegno.insight.health.finding import Finding
from dalsegno.settings import Settings
from dalsegno.store.store import Tx
from tests.helpers import register, wait_until
from tests.outages import Server


def looked(store: Store, root: Path) -> dict[str, Finding]:
    settings = Settings(_env_file=None, library_root=root, min_free_space=0)
    told, looks = examine(subjects(store, settings, None, thorough=True), 60.0)
    assert not [look.subject for look in looks if look.cut]
    return {each.code: each for each in told}


def test_through_pgbouncer_everything_is_looked_at_and_the_pooler_is_noted(
    url: str, bounced: Callable[..., str], stores: Callable[..., Store], tmp_path: Path
) -> None:
    told = looked(stores(bounced(url)), tmp_path)
    assert told["pooler_between"].severity == "note"
    assert "LISTEN_DATABASE_URL" in told["pooler_between"].fix
    assert "database_fine" in told
    assert not told.keys() & {"look_failed", "look_cut", "database_away"}
    assert "pooler_between" not in looked(stores(url), tmp_path)


def test_a_database_that_goes_away_is_told_until_it_is_back(
    server: Server, url: str, stores: Callable[..., Store], tmp_path: Path
) -> None:
    rounds = Rounds(stores(url), Current.fixed(Settings(_env_file=None, library_root=tmp_path, min_free_space=0)))

    def codes() -> set[str]:
        return {each.code for each in rounds.health(30.0).findings}

    wait_until(lambda: "database_fine" in codes(), "the first look")
    server.stop()
    wait_until(lambda: "database_away" in codes(), "the outage to be told", 60)
    assert "look_failed" not in codes(), "it is said once, not for every subject"
    server.start()
    wait_until(lambda: "database_fine" in codes() and "database_away" not in codes(), "its end", 60)


def test_a_database_that_may_not_be_written_is_told_until_it_may(
    server: Server, url: str, stores: Callable[..., Store], tmp_path: Path
) -> None:
    name = url.rpartition("/")[2]
    store = stores(url)
    register(store)
    with server.admin() as admin:
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')  # type: ignore[arg-type]
        server.cut()

        def write(tx: Tx) -> None:
            tx.conn.exec_driver_sql("UPDATE nodes SET last_seen = last_seen")

        with pytest.raises(DatabaseReadOnly):
            store.write("heartbeat", write)
        told = looked(store, tmp_path)["database_unwritable"]
        assert told.severity == "error"
        assert told.since is not None
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = off')  # type: ignore[arg-type]
        server.cut()
    store.write("heartbeat", write)
    assert "database_unwritable" not in looked(store, tmp_path)
