"""A month that is old is put away, read back, dropped; and comes back byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.archive import form
from dalsegno.archive.form import finished, lines_of, pack, read_manifest
from dalsegno.archive.places import manifest_of, url_of
from dalsegno.archive.restoring import find_archives, list_archives, restore
from dalsegno.engine.forgetting import MonthChanged
from dalsegno.errors import ArchiveDamaged, ArchiveRefused, NotFound
from dalsegno.insight.events import EVENTS, Cursor, find_events, tail
from dalsegno.insight.query import parse
from dalsegno.insight.retention import preview
from dalsegno.model.retention import Policy
from dalsegno.moves.move import move
from dalsegno.settings import Settings
from dalsegno.store.months import Month
from dalsegno.store.open import parse_url
from dalsegno.store.schema import events
from tests.archive.conftest import Shelf
from tests.cli.tool import say
from tests.helpers import every
from tests.s3 import seaweedfs


def place(shelf: Shelf, kind: str = "events") -> Path:
    """The file of a month that was put away."""
    (found,) = [each for each in shelf.store.read(list_archives) if each.kind == kind]
    return Path(f"{shelf.settings.library_root}-archive") / found.key


def test_a_month_comes_back_byte_for_byte(shelf: Shelf) -> None:
    before = {shelf.old(kind).name: shelf.dump(shelf.old(kind).name) for kind in ("events", "logs")}
    assert all(len(dump.splitlines()) >= 40 for dump in before.values())
    shelf.prune()
    assert not shelf.names() & before.keys()
    assert shelf.count() == (1, 0)  # the round itself is told
    found = shelf.store.read(list_archives)
    assert {each.name for each in found} == before.keys()
    assert all(each.dropped_at is not None and each.rows == 40 for each in found)
    manifest = read_manifest(place(shelf).with_name(manifest_of(place(shelf).name)).read_bytes())
    assert (manifest.rows, manifest.kind) == (40, "events")
    assert manifest.sha256 == hashlib.sha256(place(shelf).read_bytes()).hexdigest()
    lines = gzip.decompress(place(shelf).read_bytes()).splitlines()
    assert json.loads(lines[1])["data"] == {"n": 1.5, "big": 12345678901234567890, "text": 'a "b" \\ c\n\t–🎵'}
    for each in find_archives_by_label(shelf):
        restore(shelf.store, shelf.settings, each)
    assert {name: shelf.dump(name) for name in before} == before
    assert shelf.count() == (41, 40)
    shelf.prune()  # what was brought back stays for a while
    assert shelf.names() >= before.keys()
    shelf.clock.advance(31 * 86_400.0)
    shelf.prune()
    assert not shelf.names() & before.keys()


def test_a_month_comes_back_from_s3_byte_for_byte(shelf: Shelf, tmp_path: Path) -> None:
    with seaweedfs(tmp_path / "weed") as server:
        shelf.settings = Settings(
            _env_file=None,
            library_root=tmp_path / "library",
            object_store=f"s3://{server.bucket}/music",
            s3_endpoint=server.endpoint,
            s3_access_key=server.access_key,
            s3_secret_key=server.secret_key,
        )
        before = {shelf.old(kind).name: shelf.dump(shelf.old(kind).name) for kind in ("events", "logs")}
        shelf.prune()
        assert not shelf.names() & before.keys()
        found = shelf.store.read(list_archives)
        assert {each.store for each in found} == {f"s3://{server.bucket}/music"}
        for each in found:
            restore(shelf.store, shelf.settings, each.name)
        assert {name: shelf.dump(name) for name in before} == before


def other_cluster(shelf: Shelf) -> None:
    """As where the server that wrote the month had counted more transactions than this one."""
    shelf.store.write("test", lambda tx: tx.conn.execute(sa.text("UPDATE events SET tx = tx + 4000000000")) and None)


def test_a_month_of_a_cluster_that_counted_further_comes_back_as_the_past(shelf: Shelf) -> None:
    other_cluster(shelf)
    month = shelf.old()
    written = every(shelf.store, sa.select(events.c.id, events.c.message).order_by(events.c.id))
    assert finished(shelf.keeper().keep(month))
    shelf.prune()
    restore(shelf.store, shelf.settings, month.name)
    back = every(shelf.store, sa.select(events).where(events.c.type == "said").order_by(events.c.id))
    assert {row["tx"] for row in back} == {0}
    assert [(row["id"], row["message"]) for row in back] == [(row["id"], row["message"]) for row in written]
    newest = shelf.store.read(lambda tx: find_events(tx, parse("", EVENTS), limit=1)).lines
    assert [event.type for event in newest] == ["pruned"]
    told = shelf.store.read(lambda tx: tail(tx, Cursor(-1, 0))).events
    assert [event.type for event in told] == [*["said"] * 40, "pruned"]


def test_a_month_comes_back_before_what_another_cluster_wrote_after_it(shelf: Shelf) -> None:
    """A restore put that at 0; this server has counted further than the one before."""
    month = shelf.old()
    shelf.prune()
    shelf.store.write("test", lambda tx: tx.conn.execute(sa.update(events).values(tx=0)) and None)
    restore(shelf.store, shelf.settings, month.name)
    newest = shelf.store.read(lambda tx: find_events(tx, parse("", EVENTS), limit=1)).lines
    assert [event.type for event in newest] == ["pruned"]


def find_archives_by_label(shelf: Shelf) -> list[str]:
    label = shelf.store.read(list_archives)[0].label
    return [each.name for each in shelf.store.read(lambda tx: find_archives(tx, label))]


def test_the_same_rows_make_the_same_bytes(shelf: Shelf, tmp_path: Path) -> None:
    month = shelf.old()
    first = finished(pack(lines_of(shelf.store, "events", month.name), tmp_path / "one"))
    second = finished(pack(lines_of(shelf.store, "events", month.name), tmp_path / "two"))
    assert first == second
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("damage", ["cut", "flipped", "another", "manifest"])
def test_a_damaged_archive_is_refused_with_the_reason_and_nothing_changes(shelf: Shelf, damage: str) -> None:
    shelf.prune()
    file = place(shelf)
    content = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(content[:-20])
        case "flipped":
            file.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])
        case "another":
            file.write_bytes(gzip.compress(gzip.decompress(content).replace(b"said", b"sang"), mtime=0))
        case "manifest":
            file.with_name(manifest_of(file.name)).write_text("{}")
    before, names = shelf.count(), shelf.names()
    name = next(each.name for each in shelf.store.read(list_archives) if each.kind == "events")
    with pytest.raises(ArchiveDamaged, match="Nothing was changed"):
        restore(shelf.store, shelf.settings, name)
    assert (shelf.count(), shelf.names()) == (before, names)


def test_whoever_leaves_off_in_the_middle_leaves_nothing_behind(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "BATCH", 7)
    month = shelf.old()
    steps = shelf.keeper().keep(month)
    next(steps)
    root = Path(f"{shelf.settings.library_root}-archive")
    assert list(root.iterdir()) != []
    steps.close()
    assert list(root.iterdir()) == []
    assert finished(shelf.keeper().keep(month))
    assert shelf.store.read(list_archives)[0].rows == 40


def test_a_month_stays_while_its_archive_cannot_be_written(shelf: Shelf) -> None:
    blocked = Path(f"{shelf.settings.library_root}-archive")
    blocked.write_text("a file stands in the way")
    month = shelf.old()
    shelf.prune()
    assert month.name in shelf.names()
    blocked.unlink()
    shelf.prune()
    assert month.name not in shelf.names()


def test_a_month_that_somebody_reads_stays_until_the_next_round(shelf: Shelf) -> None:
    month = shelf.old()
    with psycopg.connect(shelf.url) as reader:
        reader.execute("SELECT count(*) FROM events")  # and the transaction stays open
        shelf.prune()
        assert month.name in shelf.names()
        assert shelf.store.outage is None
    shelf.prune()
    assert month.name not in shelf.names()


def test_an_archive_that_was_spoilt_before_its_month_was_dropped_is_written_anew(shelf: Shelf) -> None:
    month = shelf.old()
    before = shelf.dump(month.name)
    assert finished(shelf.keeper().keep(month))
    place(shelf).write_bytes(b"spoilt")
    shelf.prune()
    assert month.name not in shelf.names()
    restore(shelf.store, shelf.settings, month.name)
    assert shelf.dump(month.name) == before


def test_what_was_added_after_it_was_put_away_is_not_lost(shelf: Shelf) -> None:
    month, keeper = shelf.old(), shelf.keeper()
    assert finished(keeper.keep(month))
    shelf.clock.advance(-130 * 86_400.0)
    shelf.fill(1)
    with pytest.raises(MonthChanged):
        shelf.store.write("test", lambda tx: keeper.dropping(tx, month))
    shelf.clock.advance(130 * 86_400.0)
    shelf.prune()
    assert {each.rows for each in shelf.store.read(list_archives)} == {41}


def test_without_an_archive_a_month_just_goes(shelf: Shelf) -> None:
    shelf.settings = Settings(_env_file=None, retention_archive="off")
    month = shelf.old()
    shelf.prune()
    assert month.name not in shelf.names()
    assert shelf.store.read(list_archives) == []


def test_restoring_what_is_there_or_was_never_put_away_is_refused(shelf: Shelf) -> None:
    shelf.prune()
    name = shelf.store.read(list_archives)[0].name
    restore(shelf.store, shelf.settings, name)
    with pytest.raises(ArchiveRefused, match="in the database already"):
        restore(shelf.store, shelf.settings, name)
    with pytest.raises(NotFound):
        restore(shelf.store, shelf.settings, "events_1999_01")
    other = next(each for each in shelf.store.read(list_archives) if each.name != name)
    place(shelf, other.kind).unlink()
    with pytest.raises(ArchiveRefused, match="cannot be read"):
        restore(shelf.store, shelf.settings, other.name)
    with pytest.raises(NotFound):
        shelf.store.read(lambda tx: find_archives(tx, "1999-01"))


def test_a_month_that_is_half_there_is_completed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", shelf.url)
    monkeypatch.setenv("LIBRARY_ROOT", str(shelf.settings.library_root))
    shelf.prune()
    label = shelf.store.read(list_archives)[0].label
    names = {each.kind: each.name for each in shelf.store.read(list_archives)}
    restore(shelf.store, shelf.settings, names["events"])
    again = say("archive", "restore", label, "--kind", "events", "--json", fine=False)
    assert again.error["code"] == "archive_refused"
    told = say("archive", "restore", label).out
    assert told == f"{names['events']} is in the database already.\n{names['logs']}: 40 rows are back.\n"
    assert shelf.count() == (41, 40)
    assert say("archive", "restore", label, "--json", fine=False).error["code"] == "archive_refused"


def test_a_month_that_was_brought_back_stays_for_a_month_and_the_dry_run_knows(shelf: Shelf) -> None:
    month = shelf.old()
    assert would_go(shelf, month) == {"events": 40, "logs": 40}
    shelf.prune()
    restore(shelf.store, shelf.settings, month.name)
    assert would_go(shelf, month) == {}
    shelf.prune()
    assert month.name in shelf.names()
    shelf.clock.advance(31 * 86_400.0)
    assert would_go(shelf, month) == {"events": 40}
    shelf.prune()
    assert month.name not in shelf.names()


def would_go(shelf: Shelf, month: Month) -> dict[str, int]:
    """How many rows of each kind a dry run tells of."""
    goes = preview(shelf.store, lambda _lanes: Policy()).goes
    return {each.what: each.count for each in goes if month.label in each.names}


def test_a_month_comes_back_to_where_everything_was_moved(
    shelf: Shelf, fresh_database: Callable[..., str], stores: Callable[..., Store]
) -> None:
    """There, what was before the move is one month, of another count of transactions."""
    month = shelf.old()
    written = without_transactions(shelf.dump(month.name))
    shelf.prune()
    elsewhere = fresh_database("postgres", empty=True)
    moved = replace(shelf, url=elsewhere, store=stores(elsewhere, shelf.clock))
    move(parse_url(shelf.url), parse_url(elsewhere), clock=shelf.clock)
    restore(moved.store, moved.settings, month.name)
    newest = moved.store.read(lambda tx: find_events(tx, parse("", EVENTS), limit=1)).lines
    assert [event.type for event in newest] == ["pruned"]
    home = moved.old(month.table).name
    assert without_transactions(moved.dump(home, "type = 'said'")) == written
    with pytest.raises(ArchiveRefused, match="in the database already"):
        restore(moved.store, moved.settings, month.name)
    assert without_transactions(moved.dump(home, "type = 'said'")) == written


def without_transactions(table: bytes) -> list[tuple[bytes, bytes]]:
    """The rows of events, whose second column is the number of the transaction."""
    rows = [line.split(b"\t", 2) for line in table.splitlines()]
    return [(row[0], row[2]) for row in rows]


def test_archives_go_where_the_settings_say(tmp_path: Path) -> None:
    def settings(**given: object) -> Settings:
        return Settings(_env_file=None, library_root=tmp_path / "music", **given)  # type: ignore[arg-type]

    assert url_of(settings()) == str(tmp_path / "music-archive")
    assert url_of(settings(object_store="s3://bucket/songs")) == "s3://bucket/songs"
    assert url_of(settings(object_store="s3://bucket", retention_archive="file:///mnt/old")) == "file:///mnt/old"


PROGRAM = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from dalsegno import open_store
from dalsegno.archive.keeper import Keeper
from dalsegno.clock import ManualClock
from dalsegno.engine.pruner import one_round
from dalsegno.model.retention import Policy
from dalsegno.settings import Settings

store = open_store(sys.argv[1], ManualClock(datetime.now(UTC) + timedelta(days=130)))
settings = Settings(_env_file=None, library_root=Path(sys.argv[2]))
for _ in one_round(store, lambda _lanes: Policy(), keep=Keeper(store, lambda: settings)):
    pass
"""


@pytest.mark.parametrize(
    "point",
    [
        "archive.put",
        "archive.manifest",
        "archive.verified",
        "archive.commit.after",
        "prune.commit.before:2",
        "prune.commit.after:2",
    ],
)
def test_a_death_at_any_point_leaves_the_month_or_a_verified_archive(shelf: Shelf, point: str) -> None:
    month = shelf.old()
    before = shelf.dump(month.name)
    command = [sys.executable, "-c", PROGRAM, shelf.url, str(shelf.settings.library_root)]
    died = subprocess.run(command, env={**os.environ, "DALSEGNO_FAULT": point}, timeout=60, check=False)
    assert died.returncode == -9
    if month.name not in shelf.names():
        restore(shelf.store, shelf.settings, month.name)
    assert shelf.dump(month.name) == before
    shelf.prune()
    if month.name in shelf.names():  # it was brought back above, and stays for a while
        return
    restore(shelf.store, shelf.settings, month.name)
    assert shelf.dump(month.name) == before
