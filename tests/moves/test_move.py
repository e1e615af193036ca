"""Moving everything to another database: every row arrives as it meant, or nothing does."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from dalsegno import Engine, Store, open_store, service, submit
from dalsegno.errors import EngineAtWork, MoveFailed, RestoreRefused, SchemaMissing
from dalsegno.moves import move as moving
from dalsegno.moves.move import move
from dalsegno.moves.sides import Side
from dalsegno.moves.sides_postgres import PostgresSide
from dalsegno.moves.values import Row, Tally
from dalsegno.requests.schema import parse_requests, request_counts
from dalsegno.store.notes import MOVED, read_note
from dalsegno.store.open import parse_url
from dalsegno.store.schema import events, items, logs, metadata, system_settings
from tests.cli.tool import Process, say
from tests.helpers import (
    SWIFT,
    assert_sound,
    begin,
    claim,
    every,
    keys,
    one_step,
    register,
    submitted,
    wait_for_job,
    wait_until,
)
from tests.store.test_migrate import _is_no_month, dump, engine_for, stamp

Make = Callable[..., str]
ODD = [
    ("tab\tnew\nline\r", {"back": "\\", "n": 1.0, "deep": [{"z": None, "a": [1e-7, -0.5, True]}]}),
    ("雨 \\. \\N \\t", {"text": "\\u00e9 \x1f \u2028"}),
    ("  spaces  ", None),
]


@service("work")
def work(item: object) -> None:
    logging.getLogger("work").warning("a line of its own")


@pytest.fixture(params=[("sqlite", "postgres"), ("postgres", "sqlite")], ids=["to postgres", "to sqlite"])
def ends(request: pytest.FixtureRequest, fresh_database: Make) -> tuple[str, str]:
    source, target = request.param
    return fresh_database(source), fresh_database(target, empty=True)


def meant(store: Store) -> dict[str, list[str]]:
    """Every row of every table as the code reads it, whatever database it is in."""
    told = {}
    for table in metadata.sorted_tables:
        rows = [dict(row) for row in every(store, sa.select(table))]
        for row in rows:
            if table is events:
                row["tx"] = 0
        told[table.name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    counted = every(store, sa.select(*(sa.func.sum(column) for column in request_counts.c if column.name != "slot")))
    told["request_counts"] = [str(list(map(int, row.values()))) for row in counted]
    told["system_settings"] = []
    return told


def compared(url: str) -> list[Any]:
    """What the database has that the schema has not, and the other way round: keys, indexes, references."""
    engine = engine_for(url)
    with engine.connect() as conn:
        options = {"compare_type": True, "include_name": _is_no_month}
        found = compare_metadata(MigrationContext.configure(conn, opts=options), metadata)
    engine.dispose()
    return found


def filled(url: str) -> None:
    with closing(open_store(url)) as store:
        submit(store, one_step(), items=[*ODD, *keys(50)])
        job = submitted(store, one_step(max_attempts=1), 6, scope=2).job_id
        begin(store, claim(store, register(store, 0.0), 4)[:2])
        now = datetime(2026, 3, 29, 1, 30, 0, 123, tzinfo=UTC)

        def more(tx: Any) -> None:
            request = {"job_id": job, "hash": "f" * 64, "body": {"title": "x"}, "created_at": now, "state": "DONE"}
            tx.conn.execute(sa.insert(parse_requests).values(**request))
            line = {"at": now, "level": "info", "logger": "x", "message": "a\tline"}
            tx.conn.execute(sa.insert(logs), [line] * 3)
            tx.conn.execute(sa.insert(system_settings).values(key="x", value={"a": 1}, updated_at=now))

        store.write("test", more)


def test_everything_arrives_and_goes_on(ends: tuple[str, str], stores: Callable[..., Store]) -> None:
    source, target = ends
    filled(source)
    origin = stores(source)
    before = meant(origin)
    origin.close()
    told = say("migrate", "--to", target, "--database", source, "--json").data
    assert told["tables"]["items"]["rows"] == 59
    there = stores(target)
    assert meant(there) == before
    again = stores(source)
    assert meant(again) == before
    note = again.read(lambda tx: read_note(tx, MOVED))
    assert note is not None
    assert note["to"] == told["target"]
    assert there.read(lambda tx: read_note(tx, MOVED)) is None
    assert compared(target) == []
    with Engine(there, [work], SWIFT):
        assert wait_for_job(there, 1, timeout=90) == wait_for_job(there, 2) == "completed"
    assert_sound(there, 1, 2)
    for table in (events, logs):
        numbers = [row["id"] for row in every(there, sa.select(table.c.id))]
        assert len(numbers) == len(set(numbers)), "a number was given a second time"
    found = submit(there, one_step(), items=keys(1), scope=3).job_id
    assert every(there, sa.select(items.c.id).where(items.c.job_id == found))[0]["id"] == 60


def test_triggers_do_not_count_a_second_time_and_count_on_afterwards(
    ends: tuple[str, str], stores: Callable[..., Store]
) -> None:
    source, target = ends
    filled(source)
    move(parse_url(source), parse_url(target))
    there = stores(target)
    done = sa.select(sa.func.sum(request_counts.c.done))
    assert there.read(lambda tx: tx.conn.execute(done).scalar()) == 1
    there.write("test", lambda tx: tx.conn.execute(sa.update(parse_requests).values(state="FAILED")) and None)
    assert there.read(lambda tx: tx.conn.execute(done).scalar()) == 0


def test_a_start_on_the_database_that_was_left_says_where_everything_is(
    sqlite_url: str, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(sqlite_url)
    move(parse_url(sqlite_url), parse_url(postgres_url))
    with closing(open_store(sqlite_url)) as store, Engine(store, [work], SWIFT):
        pass
    assert "was moved to postgresql" in caplog.text


def test_whoever_hands_in_work_where_everything_was_moved_away_is_told(sqlite_url: str, tmp_path: Path) -> None:
    filled(sqlite_url)
    target = f"sqlite:///{tmp_path}/new.db"
    move(parse_url(sqlite_url), parse_url(target))
    said = say("submit", "scale", "--database", sqlite_url)
    assert f"moved to {target}. Set DATABASE_URL" in said.err
    assert "Start one" not in said.err
    assert "Start one" in say("submit", "scale", "--database", target).err


def test_events_with_one_number_are_numbered_anew_and_others_keep_theirs(
    postgres_url: str, tmp_path: Path, stores: Callable[..., Store]
) -> None:
    """As where a month came back from the archive after numbers had begun anew."""
    source = stores(postgres_url)
    rows = [{"id": n, "tx": tx, "at": source.clock.now(), "type": "said", "source": "x"} for n, tx in ((7, 1), (9, 1))]
    for number, (more, ids) in enumerate((([], [7, 9]), ([{**rows[0], "tx": 2}], [1, 2, 3]))):
        added = more or rows
        source.write("test", lambda tx, added=added: tx.conn.execute(sa.insert(events), added) and None)  # type: ignore[misc]
        target = f"sqlite:///{tmp_path}/{number}.db"
        move(parse_url(postgres_url), parse_url(target))
        assert [row["id"] for row in every(stores(target), sa.select(events.c.id).order_by(events.c.id))] == ids


def test_nothing_is_moved_while_an_engine_works(ends: tuple[str, str], stores: Callable[..., Store]) -> None:
    source, target = ends
    store = stores(source)
    with Engine(store, [work], SWIFT), pytest.raises(EngineAtWork, match=str(os.getpid())):
        move(parse_url(source), parse_url(target))


def test_a_target_with_work_in_it_is_not_touched(ends: tuple[str, str]) -> None:
    source, target = ends
    filled(source)
    filled(target)
    before = dump(target)
    with pytest.raises(RestoreRefused, match="there is work in it"):
        move(parse_url(source), parse_url(target))
    assert dump(target) == before


def test_an_older_source_is_not_changed_for_the_move(sqlite_url: str, postgres_url: str) -> None:
    stamp(sqlite_url, "0004")
    with pytest.raises(SchemaMissing, match="dalsegno migrate"):
        move(parse_url(sqlite_url), parse_url(postgres_url))


def test_a_database_is_not_moved_to_itself(database_url: str) -> None:
    with pytest.raises(RestoreRefused, match="already"):
        move(parse_url(database_url), parse_url(database_url))


@pytest.mark.parametrize("point", ["move.rows:3", "move.filled", "move.committed"])
def test_a_move_that_is_killed_has_not_happened_or_is_whole(
    point: str, ends: tuple[str, str], tmp_path: Path, stores: Callable[..., Store]
) -> None:
    source, target = ends
    filled(source)
    words = ("migrate", "--to", target, "--database", source)
    killed = Process(tmp_path, *words, DALSEGNO_FAULT=point)
    wait_until(lambda: killed.process.poll() is not None, "the kill", 100)
    assert killed.process.returncode == -9, killed.err
    if point == "move.committed":
        assert meant(stores(target)) == meant(stores(source))
        return
    assert dump(target)["jobs"] == []
    assert say(*words, "--json").data["tables"]["items"]["rows"] == 59


def test_a_row_that_did_not_arrive_as_it_was_is_found_out(
    sqlite_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last word of one row is another on the other side."""
    filled(sqlite_url)
    real = PostgresSide.fill

    def lossy(self: Side, table: sa.Table) -> Callable[[list[Row]], None]:
        put = real(self, table)  # type: ignore[arg-type]
        place = list(table.columns.keys()).index("key") if table is items else None

        def harm(rows: list[Row]) -> None:
            put([[f"{v}!" if i == place and v == "k00007" else v for i, v in enumerate(row)] for row in rows])

        return harm

    monkeypatch.setattr(PostgresSide, "fill", lossy)
    with pytest.raises(MoveFailed, match=r"items: 59 rows with checksum .* arrived"):
        move(parse_url(sqlite_url), parse_url(postgres_url))
    assert dump(postgres_url)["jobs"] == []


def test_a_text_that_postgresql_cannot_hold_is_said_and_nothing_is_kept(sqlite_url: str, postgres_url: str) -> None:
    filled(sqlite_url)
    with closing(open_store(sqlite_url)) as store:
        harm = sa.update(items).where(items.c.id == 5).values(progress_text="a\x00b")
        store.write("test", lambda tx: tx.conn.execute(harm) and None)
    with pytest.raises(MoveFailed, match="items"):
        move(parse_url(sqlite_url), parse_url(postgres_url))
    assert dump(postgres_url)["jobs"] == []


def test_the_checksum_is_of_what_rows_mean_in_any_order() -> None:
    def of(*rows: tuple[Any, ...]) -> str:
        tally = Tally(system_settings)
        tally.add(rows)
        return tally.checksum

    one, two = ("a", '{"x": 1, "y": [1.0]}', None, "t"), ("b", "{}", "who", "t")
    assert of(one, two) == of(two, ("a", '{"y":[1],"x":1}', None, "t"))
    assert of(one, two) != of(one)
    assert of(one) != of(("a", '{"x": 1, "y": [1.5]}', None, "t"))
    assert of(("a", "{}", "b", "t")) != of(("a", "{}", None, "bt"))


def test_writers_wait_until_the_move_is_over(
    sqlite_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is handed in meanwhile is not lost between the two."""
    filled(sqlite_url)
    tried: list[str] = []
    real = moving._compare

    def meanwhile(*words: Any) -> None:
        import sqlite3

        path = sqlite_url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                tried.append(str(error))
        real(*words)

    monkeypatch.setattr(moving, "_compare", meanwhile)
    move(parse_url(sqlite_url), parse_url(postgres_url))
    assert tried == ["database is locked"]
