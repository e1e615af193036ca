"""`dalsegno doctor`: what it says, in what order, with which exit code, and that it always comes back."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog.part import Part, part_path
from dalsegno.doctor.examination import Subject, examine
from dalsegno.engine.holds import hold
from dalsegno.insight.health.finding import WORST, found
from dalsegno.insight.health.kinds import GROUPS, KINDS
from tests.cli.tool import say
from tests.helpers import submitted

SECRET = "hunter2hunter2"


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """However full this machine's disk is."""
    monkeypatch.setenv("MIN_FREE_SPACE", "0")


def findings(answer: Any) -> dict[str, Any]:
    return {each["code"]: each for each in answer.data["findings"]}


def test_all_that_is_found_is_told_worst_first(here: str) -> None:
    answer = say("doctor", "--json", fine=False)
    told = answer.data["findings"]
    assert answer.data.keys() == {"worst", "findings", "looks"}
    assert [WORST[each["severity"]] for each in told] == sorted(WORST[each["severity"]] for each in told)
    assert all(each["code"] in KINDS and each["group"] in GROUPS for each in told)
    assert all(each["fix"] for each in told if each["severity"] in ("warning", "error"))
    assert {"database_fine", "clocks_fine", "no_engine", "backup_never", "settings_absent"} <= findings(answer).keys()
    assert (answer.data["worst"], answer.code) == ("warning", 3), "nobody is at work"
    assert not [look for look in answer.data["looks"] if look["cut"]]
    text = say("doctor", fine=False).out
    assert "Processes and their loops" in text
    assert "! no_engine No engine is at work on this database." in text
    assert "fix: dalsegno serve, or dalsegno agent" in text


def test_a_narrow_terminal_is_enough(here: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from rich.console import Console

    from dalsegno.cli.doctor import _show
    from dalsegno.doctor.visit import visit

    seen = visit(None, here)
    console = Console(width=80, highlight=False, emoji=False)
    with console.capture() as caught:
        _show(console, seen.findings, seen.looks)
    lines = caught.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > 10


def test_errors_and_an_open_secret_set_the_exit_code(here: str, folder: Path) -> None:
    file = folder / "dalsegno.env"
    file.write_text(f"SUBSONIC_PASSWORD={SECRET}\n")
    file.chmod(0o644)
    answer = say("doctor", "--json", fine=False)
    assert (answer.code, answer.data["worst"]) == (4, "error")
    assert findings(answer)["secrets_readable"]["fix"] == f"`chmod 600 {file}`"
    file.chmod(0o600)
    assert "secrets_readable" not in findings(say("doctor", "--json", fine=False))


@pytest.mark.parametrize("way", [("doctor",), ("doctor", "--json"), ("doctor", "--deep")])
def test_no_secret_is_ever_printed(here: str, folder: Path, stores: Callable[..., Store], way: tuple[str, ...]) -> None:
    file = folder / "dalsegno.env"
    file.write_text(f"SUBSONIC_PASSWORD={SECRET}\n")
    stores(here).write("test", lambda tx: hold(tx, "all", f"because of {SECRET}", "test"))
    answer = say(*way, fine=False)
    assert SECRET not in answer.out + answer.err
    assert "because of ***" in answer.out


def test_the_things_of_a_finding_can_be_listed(here: str, folder: Path) -> None:
    root = folder / "library"
    with Part.open(root, "song-7"):
        pass
    path = part_path(root, "song-7")
    os.utime(path, (time.time() - 30 * 86_400,) * 2)
    assert say("doctor", "--list", "part_stale").out == f"{path}\n"
    assert "part_stale" in findings(say("doctor", "--json", fine=False))
    path.unlink()
    assert say("doctor", "--list", "part_stale").out == ""
    wrong = say("doctor", "--list", "parts_stale", fine=False)
    assert wrong.code == 2
    assert 'Did you mean "part_stale"?' in wrong.err


def test_deep_looks_at_everything_that_is_written_down(here: str, stores: Callable[..., Store]) -> None:
    store = stores(here)
    submitted(store)
    wrong = "UPDATE stages SET pending = 2, failed = 1, ready = 2"
    store.write("test", lambda tx: tx.conn.execute(sa.text(wrong)))
    assert "disagreement" not in findings(say("doctor", "--json", fine=False))
    told = findings(say("doctor", "--deep", "--json", fine=False))["disagreement"]
    assert (told["severity"], told["data"]["count"] >= 1) == ("error", True)
    assert "dalsegno check" in told["fix"]


# --- when hardly anything works ---------------------------------------------------------------------


def test_without_a_database_it_says_so_and_makes_none(folder: Path) -> None:
    answer = say("doctor", "--json", fine=False)
    assert findings(answer)["database_absent"]["severity"] == "note"
    assert "disk_fine" in findings(answer)
    assert not (folder / "dalsegno.db").exists()
    assert answer.code == 0


def test_a_database_that_refuses_is_an_answer(folder: Path) -> None:
    url = "postgresql://me:hunter2hunter2@127.0.0.1:1/x"
    answer = say("doctor", "--json", "--database", url, fine=False)
    told = findings(answer)["database_away"]
    assert (answer.code, told["severity"]) == (7, "error")
    assert "DATABASE_URL" in told["fix"]
    assert {"disk_fine", "settings_absent"} <= findings(answer).keys()
    assert SECRET not in answer.out


def test_a_file_that_is_no_database_is_an_answer(folder: Path) -> None:
    (folder / "dalsegno.db").write_bytes(b"this is not a database at all" * 100)
    answer = say("doctor", "--json", fine=False)
    assert answer.code == 7
    assert "restore" in findings(answer)["database_away"]["fix"]


def test_a_server_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from dalsegno.doctor import opening

    monkeypatch.setattr(opening, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        answer = say("doctor", "--json", "--database", url, fine=False)
    assert "has not answered" in findings(answer)["database_away"]["says"]
    assert answer.code == 7


def test_a_schema_of_another_time_is_not_touched(here: str, stores: Callable[..., Store]) -> None:
    older = sa.text("UPDATE alembic_version SET version_num = '0001'")
    stores(here).write("test", lambda tx: tx.conn.execute(older))
    answer = say("doctor", "--json", fine=False)
    assert findings(answer)["schema_behind"]["data"]["found"] == "0001"
    assert answer.code == 7
    again = say("doctor", "--json", fine=False)
    assert "schema_behind" in findings(again), "looking has not migrated it"


def test_settings_that_are_wrong_are_an_answer(folder: Path) -> None:
    file = folder / "dalsegno.env"
    file.write_text("DRIAN_SEC=5\n")
    file.chmod(0o644)
    answer = say("doctor", "--json", fine=False)
    assert answer.code == 4
    assert "DRAIN_SEC" in findings(answer)["settings_invalid"]["says"]
    assert "secrets_readable" in findings(answer)


# --- what hangs ---------------------------------------------------------------------------------------


def test_a_subject_that_hangs_is_named_and_the_others_are_told() -> None:
    never = threading.Event()

    def hangs() -> Any:
        never.wait(60)
        return []

    def fails() -> Any:
        raise ValueError("no such thing")

    try:
        told, looked = examine(
            [
                Subject("swamp", hangs),
                Subject("hole", fails),
                Subject("meadow", lambda: [found("work_fine", "ok", "work")]),
            ],
            0.3,
        )
    finally:
        never.set()
    assert [each.code for each in told] == ["look_cut", "look_failed", "work_fine"]
    assert "swamp" in told[0].says
    assert "no such thing" in told[1].says
    assert [(look.subject, look.cut) for look in looked] == [("swamp", True), ("hole", False), ("meadow", False)]


def test_a_locked_table_holds_up_only_what_needs_it(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as locking:
        locking.execute("LOCK TABLE stages IN ACCESS EXCLUSIVE MODE")
        answer = say("doctor", "--json", "--seconds", "1", "--database", postgres_url, fine=False)
        locking.rollback()
    cut = {look["subject"] for look in answer.data["looks"] if look["cut"]}
    assert "work" in cut
    assert "look_cut" in findings(answer)
    assert "database_fine" in findings(answer)
    assert "loops" not in cut
