"""No English on Chinese pages: what reads and services say in codes is put into the reader's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.config.check import check
from dalsegno.config.envfile import parsed
from dalsegno.engine.breakers import trip
from dalsegno.engine.holds import UNSAID, hold
from dalsegno.insight.dashboard import active_job
from dalsegno.insight.explain.gate import closed
from dalsegno.store.schema import jobs
from dalsegno.web.console.gates import OPENS, opens
from dalsegno.web.console.i18n import texts
from dalsegno.web.console.meanings import MEANINGS, PAUSED, meaning, reason, refusal, stopped
from dalsegno.web.console.mistakes import EXACT, way_out
from dalsegno.web.console.mistakes import reason as wrong
from dalsegno.web.console.told import why
from dalsegno.web.console.words import Words
from tests.helpers import one_step, submitted
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, Page, get

NOW = datetime.now(UTC)
CHINESE_WORDS, ENGLISH_WORDS = Words(texts("zh-CN")), Words(texts("en"))


@pytest.fixture
def store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    """Words do not depend on the database."""
    return stores(sqlite_url)


def chinese(text: str) -> bool:
    return re.search("[一-鿿]", text) is not None


@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_every_code_means_something_in_chinese(code: str) -> None:
    assert chinese(meaning(CHINESE_WORDS, code))
    assert chinese(refusal(CHINESE_WORDS, code, "as it was said"))
    assert "as it was said" in refusal(CHINESE_WORDS, code, "as it was said")
    assert refusal(ENGLISH_WORDS, code, "as it was said") == "as it was said"


@pytest.mark.parametrize("by", sorted(PAUSED))
def test_what_the_engine_paused_is_known_by_which_part_of_it_did(by: str) -> None:
    assert chinese(reason(CHINESE_WORDS, "whatever", by))
    assert reason(ENGLISH_WORDS, "whatever", by) == "whatever"


def test_services_and_people_are_told_apart() -> None:
    full = reason(CHINESE_WORDS, "disk_full: no space on /music", "service")
    assert full == refusal(CHINESE_WORDS, "disk_full", "no space on /music")
    assert reason(CHINESE_WORDS, "disk_full: I think", "console@127.0.0.1") == "disk_full: I think"
    assert chinese(reason(CHINESE_WORDS, UNSAID, "console@127.0.0.1"))
    assert chinese(stopped(CHINESE_WORDS, "HTTP 429", "rate_limit", "engine"))
    assert stopped(CHINESE_WORDS, "film night", "manual", "console@127.0.0.1") == "film night"


@pytest.mark.parametrize(("code", "cause"), OPENS)
def test_what_opens_a_gate_is_said_in_chinese(code: str, cause: str | None) -> None:
    gate = closed(code, "x", "dalsegno resume 3", reason=cause)
    assert chinese(opens(CHINESE_WORDS, gate, "zh-CN"))
    assert opens(ENGLISH_WORDS, gate, "en") == "dalsegno resume 3"
    assert chinese(opens(CHINESE_WORDS, closed("due", "x", "by itself"), "zh-CN")), "all others open by themselves"


@pytest.mark.parametrize(
    "change",
    [
        {"cancel_requested_at": NOW},
        {"status": "paused", "pause_reason": "crash recovery", "paused_by": "rescuer", "paused_at": NOW},
        {"status": "failed", "error_code": "plan_failed", "error_message": "no list", "finished_at": NOW},
    ],
    ids=["canceling", "paused", "failed"],
)
def test_why_a_job_does_not_run_is_said_in_chinese(store: Store, change: dict[str, Any]) -> None:
    job_id, _ = submitted(store, one_step(), 3)
    store.write("change", lambda tx: tx.conn.execute(sa.update(jobs).values(**change)))
    found = store.read(lambda tx: active_job(tx, job_id, []))
    assert chinese("".join(each.text for each in why(CHINESE_WORDS, found)))
    assert [each.text for each in why(ENGLISH_WORDS, found)] == [found.progress.reason]


def test_a_page_of_trouble_is_chinese_but_for_its_details(desk: Desk, songs: Songs) -> None:
    songs.gate.set()
    job = desk.start()["id"]
    desk.until(job, "completed_with_errors")
    assert MEANINGS["forbidden"][0] not in get(desk, "/").source, "the message says it"
    item = desk.get(f"/api/jobs/{job}/items?q=state:failed")["items"][0]["id"]
    for path in ("/", f"/jobs/{job}?tab=items", "/songs?view=failed", f"/items/{item}", "/logs"):
        page = get(desk, path, CHINESE)
        assert meaning(CHINESE_WORDS, "forbidden") in page.source, path
    details = [each.text for each in get(desk, f"/items/{item}", CHINESE).all("span", lang="en")]
    assert "The source says 403: not for you." in details


def test_holds_and_breakers_are_said_in_chinese(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store)
    desk.start()
    store.write("hold", lambda tx: hold(tx, "lane:catalog", "crash recovery", "rescuer"))
    store.write("trip", lambda tx: trip(tx, "source:qq", "HTTP 500", "engine"))
    page = get(desk, "/", CHINESE).by_id("active").text
    assert "崩溃恢复" in page
    assert "crash recovery" not in page
    assert "crash recovery" in get(desk, "/").by_id("active").text


def test_a_refusal_is_said_in_chinese(desk: Desk) -> None:
    job = desk.start()["id"]
    answer = desk.http.post(f"/jobs/{job}/priority", data={"priority": "high"}, headers={"accept-language": CHINESE},
                            follow_redirects=True)  # fmt: skip
    assert "优先级是整数。" in answer.text


MISTAKES = """LIBRARY_ROT=x
LANGUAGE=fr
DRAIN_SEC=soon
DRAIN_SEC=-1
MIN_FREE_SPACE=lots
just words
MAX_CONCURRENCY_TONE=0
CONSOLE_PORT=70000
CONSOLE_READ_ONLY=perhaps
DOWNLOAD_WORKERS=many
HEARTBEAT_TTL_SEC=nan
NOTIFY_CHANNEL_PREFIX=No!
CONSOLE_PASSWORD=short
LIBRARY_ROOT='never closed
"""


@pytest.mark.parametrize(
    "text", [MISTAKES, "BACKOFF_CAP_SEC=1\n", "NAME_TEMPLATE=x\nOBJECT_STORE=x\nSOURCES=x\nDOWNLOAD_SOURCES=x\n"]
)
def test_mistakes_in_settings_are_said_in_chinese(text: str) -> None:
    found = check(parsed(text))
    assert found
    for fault in found:
        assert fault.code, fault
        assert chinese(wrong(CHINESE_WORDS, fault)), fault
        assert chinese(way_out(CHINESE_WORDS, fault)), fault
        assert (fault.reason in wrong(CHINESE_WORDS, fault)) == (fault.code not in EXACT)
        assert (wrong(ENGLISH_WORDS, fault), way_out(ENGLISH_WORDS, fault)) == (fault.reason, fault.suggestion)


def test_a_settings_page_says_in_chinese_what_is_wrong(
    store: Store, consoles: Callable[..., Desk], tmp_path: Path
) -> None:
    file = tmp_path / "dalsegno.env"
    file.write_text("LIBRARY_ROOT=/music\n")
    desk = consoles(store, env_file=file)
    answer = desk.http.post("/config/check", data={"content": "LIBRARY_ROT=x\n"}, headers={"accept-language": CHINESE})
    review = Page(answer.text).by_id("review").text
    assert "没有这个键" in review
    assert "LIBRARY_ROOT" in review
    assert "not known" not in review


def test_a_filter_that_cannot_be_read_says_so_in_chinese(desk: Desk) -> None:
    wrong = get(desk, "/songs?q=nothing:1", CHINESE).by_id("q-error").text
    assert wrong.startswith("这里不能按“nothing”筛选。")
    assert get(desk, "/songs?q=nothing:1").by_id("q-error").text.startswith("Items have no")


@pytest.mark.parametrize(
    "path",
    ["/jobs", "/songs", "/playlists", "/schedules", "/requests"]
    + [f"/jobs/1?tab={tab}" for tab in ("items", "events", "logs", "commands")],
)
def test_a_list_whose_filter_cannot_be_read_does_not_say_that_nothing_is_there(desk: Desk, path: str) -> None:
    desk.start()
    page = get(desk, f"{path}{'&' if '?' in path else '?'}q=nothing:1")
    assert page.by_id("q-error").text
    assert [title.text for title in page.all("h2") if title.text == "This filter cannot be read"]
