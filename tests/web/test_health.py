"""Findings over HTTP: the API, the System page, the dashboard, the stream, and what `/readyz` says of stuck engines."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dalsegno import Engine, Store, submit
from dalsegno.engine.holds import hold
from dalsegno.engine.service import Service, service
from dalsegno.insight.health import alarms, holders
from dalsegno.insight.health.finding import found
from dalsegno.insight.health.kinds import GROUPS, KINDS
from dalsegno.web import probe
from dalsegno.web.console import health
from dalsegno.web.console.i18n import texts
from dalsegno.web.console.words import Words
from tests.helpers import SWIFT, one_step, wait_until
from tests.web.conftest import Desk
from tests.web.console import CHINESE, check_page, get
from tests.web.listening import Listener

BRIEF = replace(SWIFT, lease_seconds=3.0)
"""An engine whose loops are late after some seconds."""


def findings(desk: Desk) -> dict[str, Any]:
    return {each["code"]: each for each in desk.get("/api/system/health")["findings"]}


def until(desk: Desk, code: str) -> Any:
    return wait_until(lambda: findings(desk).get(code), code)


def until_gone(desk: Desk, code: str) -> None:
    wait_until(lambda: code not in findings(desk), f"{code} to be gone")


@contextmanager
def held(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, application_name="monthly report") as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT count(*) FROM jobs")
        yield session
        session.rollback()


def test_health_is_told_with_its_age(desk: Desk) -> None:
    told = wait_until(lambda: (h := desk.get("/api/system/health"))["files_looked_at"] and h, "the first round")
    assert told.keys() == {"worst", "findings", "looked_at", "files_looked_at", "looks"}
    codes = {each["code"] for each in told["findings"]}
    assert {"no_engine", "database_fine", "clocks_fine", "files_fine"} <= codes
    assert {look["subject"] for look in told["looks"]} >= {"loops", "transactions", "disks", "uploads"}
    assert told["worst"] in ("warning", "error")


def test_whoever_holds_a_transaction_is_named_everywhere_until_it_ends(
    postgres_url: str, stores: Callable[..., Store], consoles: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "LONG", 0.0)
    monkeypatch.setattr(alarms, "HELD", 0.0)
    desk = consoles(stores(postgres_url))
    with held(postgres_url) as session:
        pid = session.info.backend_pid
        told = wait_until(lambda: _by_report(desk), "the holder")
        assert told["data"]["pid"] == pid
        assert f"pg_terminate_backend({pid})" in told["fix"]
        page = check_page(desk, "/system")
        assert "monthly report" in page.by_id("health").text
        assert f"pg_terminate_backend({pid})" in page.by_id("health").text
        assert "monthly report" in page.by_id("keeping").text
        assert "事务已打开" in get(desk, "/system", CHINESE).by_id("health").text
        strip = get(desk, "/").by_id("attention").text
        assert "monthly report" in strip
        assert f"pg_terminate_backend({pid})" in strip
        entries = desk.get("/api/dashboard")["attention"]
        (entry,) = [each for each in entries if each["data"].get("application") == "monthly report"]
        assert entry["fixes"][0]["action"] == "system"
    wait_until(lambda: _by_report(desk) is None, "it to be gone")
    assert "monthly report" not in get(desk, "/").by_id("attention").text


def _by_report(desk: Desk) -> Any:
    """Not those of the console itself: with no patience at all, they are told of too."""
    told = desk.get("/api/system/health")["findings"]
    return next((each for each in told if each["data"].get("application") == "monthly report"), None)


def test_a_short_transaction_is_nobody_s_business(
    postgres_url: str, stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    desk = consoles(stores(postgres_url))
    with held(postgres_url):
        assert "transaction_held" not in findings(desk)


def test_findings_come_first_and_the_worst_on_top(store: Store, consoles: Callable[..., Desk], tmp_path: Path) -> None:
    file = tmp_path / "dalsegno.env"
    file.write_text("SUBSONIC_PASSWORD=hunter2hunter2\n")
    file.chmod(0o644)
    desk = consoles(store, env_file=file)
    store.write("test", lambda tx: hold(tx, "service:upload", "the line is needed", "kitchen@192.168.1.7"))
    until(desk, "held_service")
    page = check_page(desk, "/system")
    order = [element.attributes["id"] for element in page.all("section")]
    assert order[0] == "health"
    shown = [
        element.attributes["class"] for element in page.all("li") if element.attributes.get("id", "")[:8] == "finding-"
    ]
    assert shown == sorted(shown, key=["error", "warning", "note"].index)
    assert shown[0] == "error"
    text = page.by_id("health").text
    assert f"chmod 600 {file}" in text
    assert "hunter2hunter2" not in page.source
    assert "the line is needed" in text
    assert "secrets_readable" in str(desk.get("/api/dashboard")["attention"]), "an error is told on the dashboard"
    file.chmod(0o600)
    until_gone(desk, "secrets_readable")


def test_disks_are_shown(desk: Desk) -> None:
    wait_until(lambda: "free of" in get(desk, "/system").by_id("disks").text, "a look at the disks")
    page = check_page(desk, "/system")
    assert "library" in page.by_id("disks").text


def test_the_stream_tells_when_something_is_wrong(desk: Desk) -> None:
    with Listener(desk.url, topics="health") as listener:
        wait_until(lambda: "files_fine" in str(desk.app.state.live._marks.get("health")), "a look at everything")
        before = listener.names().count("health")
        desk.store.write("test", lambda tx: hold(tx, "service:upload", "the line is needed", "kitchen@192.168.1.7"))
        until(desk, "held_service")
        wait_until(lambda: listener.names().count("health") > before, "word of it")


# --- engines that are stuck --------------------------------------------------------------------------


class Slow:
    """A service that does not get done listing its items until it is told to."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.listing = threading.Event()

    def made(self) -> Service:
        @service("render")
        def render(item: Any) -> Any:
            return {}

        @render.plan
        def plan(_: Any) -> Iterator[str]:
            self.listing.set()
            self.gate.wait(60)
            yield "a"

        return render


def test_a_loop_that_is_stuck_is_named_and_goes_on(desk: Desk) -> None:
    slow = Slow()
    with Engine(desk.store, [slow.made()], BRIEF):
        try:
            submit(desk.store, one_step("render"))
            assert slow.listing.wait(30)
            told = until(desk, "loop_late")
            assert (told["data"]["loop"], told["severity"]) == ("planner", "warning")
            assert "late" in get(desk, "/system").by_id("processes").text
            assert desk.get("/readyz")["engine"] == "alive", "all the others work"
        finally:
            slow.gate.set()
        until_gone(desk, "loop_late")


def test_an_engine_whose_loops_are_all_stuck_is_not_ready(
    postgres_url: str, stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    desk = consoles(stores(postgres_url))

    @service("render")
    def render(item: Any) -> Any:
        return {}

    with Engine(desk.store, [render], BRIEF):
        wait_until(lambda: desk.http.get("/readyz").status_code == 200, "it to be ready")
        with psycopg.connect(postgres_url, application_name="migration by hand") as locking:
            locking.execute("LOCK TABLE stages IN ACCESS EXCLUSIVE MODE")
            stuck = wait_until(lambda: _stuck(desk), "the loops to be late")
            assert stuck["status"] == "not_ready"
            assert "claimer" in stuck["reasons"][-1]
            locking.rollback()
        wait_until(lambda: desk.http.get("/readyz").status_code == 200, "it to go on")


def test_a_database_that_hangs_is_not_waited_for(
    postgres_url: str, stores: Callable[..., Store], consoles: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.3)
    desk = consoles(stores(postgres_url))
    desk.app.state.console_only = True
    wait_until(lambda: desk.http.get("/readyz").status_code == 200, "it to be ready")
    with psycopg.connect(postgres_url) as locking:
        locking.execute("LOCK TABLE processes IN ACCESS EXCLUSIVE MODE")
        for _ in range(3):
            answer = desk.get("/readyz", 503)
            assert answer["database"] == "database_unavailable"
        hanging = [thread.name for thread in threading.enumerate() if thread.name == "dalsegno-probe"]
        assert len(hanging) == 1, "only the first one waits"
        locking.rollback()
    wait_until(lambda: desk.http.get("/readyz").status_code == 200, "it to answer")


def _stuck(desk: Desk) -> Any:
    answer = desk.http.get("/readyz")
    return answer.json() if answer.status_code == 503 and answer.json()["engine"] == "stuck" else None


# --- words --------------------------------------------------------------------------------------------

SAMPLES = {"gate": "no live process offers it.", "opens": "dalsegno agent", "reason": "film night", "by": "kitchen"}


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_finding_is_said_in_chinese(code: str) -> None:
    kind = KINDS[code]
    names = set(re.findall(r"%\((\w+)\)s", kind.says + kind.fix))
    data = {name: 7.5 if name.endswith(("_seconds", "_bytes")) else SAMPLES.get(name, "x") for name in names}
    told = found(code, "error", "it", **data)
    assert "%(" not in told.says + told.fix
    chinese, english = Words(texts("zh-CN")), Words(texts("en"))
    assert re.search("[一-鿿]", health.says(chinese, told)), health.says(chinese, told)
    assert health.says(english, told)
    assert bool(health.fix(chinese, told)) == bool(kind.fix)
    assert health.group(chinese, told) != GROUPS[kind.group]
