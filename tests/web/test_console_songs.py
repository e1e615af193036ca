"""Song processing: lanes, items with why they wait, one item opened, trying again, and commands about many."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store
from dalsegno.catalog.find import matching
from dalsegno.catalog.schema import song_candidates
from dalsegno.engine.holds import EVERYTHING, hold
from dalsegno.engine.item import Item
from dalsegno.engine.service import Service, service
from dalsegno.insight.explain import explain
from dalsegno.insight.explain.gate import GATES, Gate, closed, opened
from dalsegno.insight.waiting import why_waiting
from dalsegno.model.records import ItemRecord
from dalsegno.store.schema import items, logs, workers
from dalsegno.web.console.gates import OPEN, TITLES, brief, fixes, says
from dalsegno.web.console.i18n import texts
from dalsegno.web.console.songs import sources_in
from dalsegno.web.console.words import Words
from tests.catalog.shelves import Shelves
from tests.helpers import SWIFT, begin, claim, items_of, one_step, register, settle, submitted, wait_until
from tests.web.conftest import Desk, Songs
from tests.web.console import CHINESE, Page, check_page, get, look_at

ENGLISH_WORDS, CHINESE_WORDS = Words(texts("en")), Words(texts("zh-CN"))


class Processed:
    """A download job of four songs: one done, one failed with two sources asked, one interrupted, one waiting."""

    def __init__(self, store: Store) -> None:
        self.store = store
        made = Shelves(store)
        library = made.backend("library", "/music")
        self.songs = [made.song(f"Rain {number} <b>", artist="The Clocks") for number in range(1, 5)]
        made.download(self.songs[0], library, "rain.mp3")
        self.playlist = made.playlist("Showers", *self.songs[:2])
        self.job = submitted(store, one_step("download"), items=[f"song:{number}" for number in self.songs]).job_id
        process = register(store)
        first, second, third = claim(store, process, 3, "download")
        begin(store, [first, second, third])
        settle(store, [first])
        settle(store, [second], "failed", error_code="resolve_failed", error_message="Nobody has <it>.", attempt=1)
        settle(store, [third], "interrupted", error_code="worker_lost", error_message="Its worker is gone.")
        self.done, self.failed, self.interrupted = first.id, second.id, third.id
        self.waiting = next(row["id"] for row in items_of(store, self.job) if row["status"] == "pending")
        self.asked = store.clock.now()
        self._considered("qq", "rejected", "HTTP 429: slow down", 0.3)
        self._considered("kuwo", "rejected", "no match among 2 found", 1.1)

    def _considered(self, platform: str, verdict: str, reason: str, seconds: float) -> None:
        row = {"song_id": self.songs[1], "item_id": self.failed, "attempt": 0, "position": 0, "platform": platform,
               "verdict": verdict, "reason": reason, "seconds": seconds, "at": self.asked}  # fmt: skip
        self.store.write("test", lambda tx: tx.conn.execute(sa.insert(song_candidates).values(**row)).rowcount)


@pytest.fixture
def processed(store: Store) -> Processed:
    return Processed(store)


def rows(page: Page) -> list[str]:
    return [each.attributes["id"] for each in page.all("tr") if each.attributes.get("id", "").startswith("row-")]


# --- the list ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["running", "failed", "interrupted", "waiting", "all"])
def test_every_tab_lists_its_states_in_both_languages(desk: Desk, processed: Processed, view: str) -> None:
    page = check_page(desk, f"/songs?view={view}")
    expected = {
        "running": [],
        "failed": [processed.failed],
        "interrupted": [processed.interrupted],
        "waiting": [processed.waiting],
        "all": sorted([processed.done, processed.failed, processed.interrupted, processed.waiting], reverse=True),
    }[view]
    assert rows(page) == [f"row-{number}" for number in expected]
    tabs = re.findall(r"[A-Z][a-z]+|\d+", page.by_id("tabs").text)
    assert tabs == ["Running", "0", "Failed", "1", "Interrupted", "1", "Waiting", "1", "All", "4"]


def test_without_items_each_tab_says_what_it_is_for(desk: Desk) -> None:
    for view in ("running", "failed", "interrupted", "waiting", "all"):
        assert check_page(desk, f"/songs?view={view}").by_id("item-list").text.strip()


@pytest.mark.parametrize(
    ("query", "found"),
    [("playlist:Showers", ["failed", "done"]), ("state:failed,interrupted", ["interrupted", "failed"]),
     ("error:resolve_failed", ["failed"]), ("-state:succeeded rain", ["waiting", "interrupted", "failed"])],
)  # fmt: skip
def test_the_address_is_the_filter(desk: Desk, processed: Processed, query: str, found: list[str]) -> None:
    page = check_page(desk, "/songs?" + urlencode({"q": query}))
    assert rows(page) == [f"row-{getattr(processed, name)}" for name in found]


def test_a_filter_that_cannot_be_read_says_what_was_meant(desk: Desk, processed: Processed) -> None:
    page = get(desk, "/songs?q=stat:failed")
    assert "state" in page.by_id("q-error").text
    assert rows(page) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("stat:failed", ["这里不能按“stat”筛选。", "筛选的第 1 个字符", "您是不是指 state"]),
        ("rain -state:faild", ["state 不能是“faild”。", "筛选的第 6 个字符", "您是不是指 failed"]),
        ("state:qqq", ["state 不能是“qqq”。", "claimed, failed"]),
        ('playlist:"Sho', ["这里的引号没有结束。", "筛选的第 10 个字符"]),
        ("age:soon", ["age 应为时长", "而不是“soon”。"]),
    ],
)
def test_a_filter_that_cannot_be_read_is_explained_in_the_readers_language(
    desk: Desk, query: str, said: list[str]
) -> None:
    told = get(desk, "/songs?" + urlencode({"q": query}), CHINESE).by_id("q-error").text
    assert [each for each in said if each not in told] == []
    assert "character" not in told


def test_rows_show_the_chain_of_sources_and_the_error(desk: Desk, processed: Processed) -> None:
    row = get(desk, "/songs?view=failed").by_id(f"row-{processed.failed}").text
    assert "".join(row.split()).count("qq✗429→kuwo✗nomatch") == 1
    assert "Nobody has <it>." in row


def test_a_waiting_row_says_why_and_leads_to_the_gates(desk: Desk, processed: Processed) -> None:
    path = f"/explain/item/{processed.waiting}"
    row = get(desk, "/songs?view=waiting").by_id(f"row-{processed.waiting}")
    assert "no live process offers download" in row.text
    desk.store.write("hold", lambda tx: hold(tx, EVERYTHING, "film night", "sofa"))
    page = get(desk, "/songs?view=waiting")
    assert "everything is held" in page.by_id(f"row-{processed.waiting}").text
    assert page.all("a", href=path)
    assert "已全部暂停" in get(desk, "/songs?view=waiting", CHINESE).by_id(f"row-{processed.waiting}").text
    explained = check_page_of_gates(desk, path)
    assert explained.all("form", action="/resume"), "the button that opens the closed gate"


@pytest.mark.parametrize("language", ["en", CHINESE])
def test_an_explanation_says_every_time_in_the_zone_of_its_reader(
    desk: Desk, processed: Processed, language: str
) -> None:
    until = datetime.now(UTC) + timedelta(hours=3)
    desk.store.write("hold", lambda tx: hold(tx, EVERYTHING, "film night", "sofa", until))
    for path in (f"/explain/item/{processed.waiting}", f"/items/{processed.waiting}"):
        page = get(desk, path, language)
        said = "".join(re.split(r"<time .*?</time>", page.source))
        assert "UTC" not in said
        assert page.source.count(f"{until:%H:%M:%S} UTC</time>") >= 2, "in the answer and at its gate"
    assert get(desk, f"/explain/item/{processed.waiting}").all("a", href=f"/items/{processed.waiting}")


def check_page_of_gates(desk: Desk, path: str) -> Page:
    for language in ("zh-CN", "en"):
        page = get(desk, path, language)
        look_at(page, f"{path} in {language}")
        assert page.all("ol", class_="gates")
    return page


def test_lanes_show_what_every_worker_has_in_hand(desk: Desk, songs: Songs) -> None:
    desk.start()

    def busy() -> Page | None:
        page = get(desk, "/songs?fragment=lanes")
        return page if len([row for row in page.all("tr") if "lane-" in row.attributes.get("id", "")]) == 2 else None

    page = wait_until(busy, "two lanes to be busy")
    assert "500 B of 1.0 kB" in " ".join(page.by_id("lane-rows").text.split())
    check_page(desk, "/songs")


def test_a_lane_tells_its_sources_its_bytes_and_how_long_it_still_takes(desk: Desk, processed: Processed) -> None:
    row = {
        "process_id": register(desk.store), "name": "download-1", "service": "download", "status": "busy",
        "job_id": processed.job, "item_id": processed.failed, "progress": 0.25, "since": desk.store.clock.now(),
        "text": "12.00MB/48.00MB via kuwo: qq ✗ 429 → kuwo ✓ 2.1 s", "bytes_done": 12 << 20, "bytes_total": 48 << 20,
        "speed": float(3 << 20), "updated_at": desk.store.clock.now(),
    }  # fmt: skip
    desk.store.write("worker", lambda tx: tx.conn.execute(sa.insert(workers).values(**row)))
    lane = " ".join(get(desk, "/songs?fragment=lanes").by_id("lane-rows").text.split())
    assert "qq ✗ 429 → kuwo ✓ 2.1 s" in lane
    assert "12.00MB" not in lane, "bytes have a column of their own"
    for part in ("12.6 of 50.3 MB", "25 %", "3.1 MB/s about 12 s left"):
        assert part in lane, part
    assert "约剩 12 秒" in get(desk, "/songs?fragment=lanes", CHINESE).by_id("lane-rows").text
    for path in ("/", f"/jobs/{processed.job}?tab=workers"):
        page = get(desk, path)
        (lane_of_it,) = [each for each in page.all("li") if "lane" in each.attributes.get("class", "").split()]
        assert "3.1 MB/s · about 12 s left" in " ".join(lane_of_it.text.split()), path
    (worker,) = desk.get("/api/workers")["workers"]
    assert worker["seconds_left"] == 12


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, ""),
        ("resolving source qq (1/6)", "qq (1/6)"),
        ("resolved via qq", "✓ qq"),
        ("starting download via qq", "qq"),
        ("starting download via kuwo: qq ✗ 429 → kuwo ✓ 2.1 s", "qq ✗ 429 → kuwo ✓ 2.1 s"),
        ("0.50MB/48.00MB via qq", "qq"),
        ("0.50MB", ""),
        ("frame 7", "frame 7"),
    ],
)
def test_what_a_lane_says_of_its_sources(text: str | None, told: str) -> None:
    assert sources_in(text) == told


def test_a_read_only_console_offers_nothing_to_do(
    store: Store, processed: Processed, consoles: Callable[..., Desk]
) -> None:
    desk = consoles(store, console_read_only=True)
    for path in ("/songs?view=failed", f"/items/{processed.failed}", f"/items/{processed.done}/force"):
        page = get(desk, path)
        assert not [each for each in page.all("form") if each.attributes.get("method") == "post"], path
        assert not [each for each in page.elements if "data-tick" in each.attributes]


# --- one item ---------------------------------------------------------------------------------------


def test_an_item_opened_tells_its_story(desk: Desk, processed: Processed) -> None:
    page = check_page(desk, f"/items/{processed.failed}")
    drawer = page.by_id("item-drawer").text
    for part in ("Nobody has <it>.", "HTTP 429: slow down", "no match among 2 found", "Attempt 1", "Showers"):
        assert part in drawer, part
    done = check_page(desk, f"/items/{processed.done}").by_id("item-drawer").text
    assert "/music/rain.mp3" in done
    assert f"{9:064x}"[:50] in done, "its checksum"
    get(desk, "/items/999999", status=404)


def test_an_item_that_nobody_has_touched_yet_opens_like_any_other(desk: Desk, processed: Processed) -> None:
    opened = check_page(desk, f"/items/{processed.waiting}").by_id("item-drawer").text
    assert "Nothing has happened to it yet." in opened
    assert "It has not been tried yet." in opened
    found = desk.get(f"/api/job-items/{processed.waiting}")
    assert (found["timeline"], found["attempts"]) == ([], [])


def test_log_lines_of_an_item_have_times_that_turn_into_those_of_the_reader(
    desk: Desk, store: Store, processed: Processed
) -> None:
    at = datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC)
    started = datetime.fromisoformat(desk.get(f"/api/job-items/{processed.failed}")["attempts"][0]["started_at"])
    row = {"level": "info", "logger": "x", "item_id": processed.failed, "job_id": processed.job}
    said = [{**row, "at": at, "message": "before it"}, {**row, "at": started, "message": "while at it"}]
    store.write("log", lambda tx: tx.conn.execute(sa.insert(logs), said))
    page = get(desk, f"/items/{processed.failed}")
    lines = " ".join(each.text for each in page.all("pre"))
    assert "2026-03-01 12:34:56 UTC info before it" in lines
    for when in (at, started):
        assert f'<time datetime="{when.isoformat(timespec="seconds")}"' in page.source


def test_what_is_done_in_a_drawer_leads_back_to_the_page_under_it(desk: Desk, processed: Processed) -> None:
    def back(referer: str) -> set[str]:
        answer = desk.http.get(f"/items/{processed.failed}?fragment=drawer", headers={"referer": referer})
        return {field.attributes["value"] for field in Page(answer.text).all("input", name="back")}

    assert back(f"{desk.url}/songs?view=failed") == {"/songs?view=failed"}
    assert back("http://elsewhere.test/songs") == {f"/items/{processed.failed}"}


def test_a_forced_retry_says_what_it_costs_before_it_is_done(desk: Desk, processed: Processed) -> None:
    page = get(desk, f"/items/{processed.done}/force")
    assert "Re-downloads 3 B; keeps the old file until the new one is verified." in page.by_id("main").text
    assert "重新下载 3 B" in get(desk, f"/items/{processed.done}/force", CHINESE).by_id("main").text
    assert desk.get(f"/api/job-items/{processed.done}")["item"]["status"] == "succeeded"


@pytest.fixture
def waiting_service() -> Service:
    @service("download", workers=1)
    def download(item: Item) -> Any:
        return {"song": item.key}

    return download


@pytest.fixture
def at_work(store: Store, processed: Processed, waiting_service: Service) -> Iterator[Processed]:
    """With an engine that does whatever is left or asked for."""
    with Engine(store, [waiting_service], replace(SWIFT, find=matching)):
        yield processed


def until(desk: Desk, item_id: int, status: str) -> None:
    wait_until(
        lambda: desk.get(f"/api/job-items/{item_id}")["item"]["status"] == status, f"item {item_id} to be {status}"
    )


def test_retry_leads_back_to_the_list_and_the_item_runs_again(desk: Desk, at_work: Processed) -> None:
    back = "/songs?view=failed&q=playlist%3AShowers"
    answer = desk.http.post(f"/items/{at_work.failed}/retry", data={"back": back})
    assert (answer.status_code, answer.headers["location"]) == (303, back)
    until(desk, at_work.failed, "succeeded")


def test_force_retry_runs_again_what_is_done(desk: Desk, at_work: Processed) -> None:
    before = len(desk.get(f"/api/job-items/{at_work.done}")["attempts"])
    assert desk.http.post(f"/items/{at_work.done}/force-retry").status_code == 303
    wait_until(lambda: len(desk.get(f"/api/job-items/{at_work.done}")["attempts"]) > before, "another attempt")
    refused = desk.http.post(f"/items/{at_work.done}/retry")
    assert refused.status_code == 303
    assert "force-retry" in desk.http.get("/songs").text, "what the engine refused is said on the next page"


# --- many -------------------------------------------------------------------------------------------


def test_a_preview_says_to_which_and_to_which_not(desk: Desk, processed: Processed) -> None:
    page = check_page(desk, "/bulk/new?" + urlencode({"act": "retry", "q": "stage:a", "back": "/songs?view=all"}))
    text = " ".join(page.by_id("preview").text.split())
    assert "2 items it would be done to" in text
    assert "1 ✓ succeeded" in " ".join(page.by_id("refused").text.split())
    assert "Rain 2 <b>" in page.by_id("first").text
    assert "Rain 2 <b>" in check_page(desk, f"/bulk/new?act=retry&id={processed.failed}").by_id("first").text
    assert desk.get(f"/api/job-items/{processed.failed}")["item"]["status"] == "failed", "looking changes nothing"


def test_a_command_about_many_is_followed_to_its_end(desk: Desk, at_work: Processed) -> None:
    answer = desk.http.post("/bulk", data={"act": "retry", "q": "state:failed", "back": "/songs?view=failed"})
    where = answer.headers["location"]
    assert where.startswith("/bulk/")

    def over() -> Page | None:
        page = check_page(desk, where)
        return page if "done" in page.by_id("progress-title").text else None

    page = wait_until(over, "the command to be applied")
    assert page.by_id("done").text == "1"
    number = where.removeprefix("/bulk/").partition("?")[0]
    assert page.all("a", href=f"/songs?view=all&q=bulk:{number}")
    assert page.all("a", href="/songs?view=failed")
    until(desk, at_work.failed, "succeeded")


def test_ticked_items_are_what_a_command_is_about(desk: Desk, at_work: Processed) -> None:
    ids = [str(at_work.failed), str(at_work.interrupted)]
    assert desk.http.post("/bulk", data={"act": "retry", "id": ids}).status_code == 303
    for number in ids:
        until(desk, int(number), "succeeded")


def test_a_command_can_be_stopped(desk: Desk, processed: Processed) -> None:
    """No engine is there, so it waits."""
    where = desk.http.post("/bulk", data={"act": "retry", "q": "state:failed"}).headers["location"]
    number = where.removeprefix("/bulk/").partition("?")[0]
    assert get(desk, where).all("form", action=f"/bulk/{number}/stop")
    assert desk.http.post(f"/bulk/{number}/stop", data={"back": where}).headers["location"] == where
    assert "stopping" in get(desk, where).by_id("progress-title").text
    get(desk, "/bulk/99999", status=404)


@pytest.mark.parametrize("query", [{"act": "burn", "q": ""}, {"act": "retry"}, {"act": "retry", "q": "stat:failed"}])
def test_a_command_about_nothing_known_is_refused(desk: Desk, query: dict[str, str]) -> None:
    get(desk, "/bulk/new?" + urlencode(query), status=422)


# --- why ---------------------------------------------------------------------------------------------


def test_the_reason_in_a_list_is_the_first_closed_gate_of_its_explanation(store: Store, processed: Processed) -> None:
    def agree() -> str:
        def read(tx: Any) -> tuple[Gate, Gate | None]:
            item = ItemRecord.model_validate(dict(items_of_one(tx, processed.waiting)))
            return why_waiting(tx, [item])[item.id], explain(tx, "item", str(item.id)).first_closed

        listed, explained = store.read(read)
        assert explained is not None
        assert listed.code == explained.code
        return listed.code

    assert agree() == "offered"
    store.write("hold", lambda tx: hold(tx, "service:download", "no", "sofa"))
    assert agree() == "service_held"
    store.write("hold", lambda tx: hold(tx, EVERYTHING, "no", "sofa"))
    assert agree() == "all_held"


def items_of_one(tx: Any, item_id: int) -> Any:
    return tx.row(sa.select(items).where(items.c.id == item_id))


SHUT: list[Gate] = [
    closed("cancel", "x", "x"),
    closed("all_held", "x", "x"),
    closed("lane_held", "x", "x", lane="catalog"),
    closed("scheduled", "x", "x"),
    closed("lane_turn", "x", "x", reason="full", active=[3]),
    closed("lane_turn", "x", "x", reason="full", active=[]),
    closed("lane_turn", "x", "x", reason="no_engine"),
    closed("lane_turn", "x", "x", reason="next"),
    closed("job_paused", "x", "x", reason="paused", job=3, why="film night"),
    closed("job_paused", "x", "x", reason="draining", job=3, why=None),
    closed("depends", "x", "x", reason="stages", waits_for=[{"key": "sync"}]),
    closed("depends", "x", "x", reason="opening"),
    closed("planned", "x", "x"),
    closed("stage_paused", "x", "x", stage="download", why="film night"),
    closed("stage_stopped", "x", "x", stage="download", failed_item=9),
    closed("alive", "x", "x"),
    closed("service_held", "x", "x", hold="service:download"),
    closed("offered", "x", "x", service="download"),
    closed("breaker", "x", "x", name="service:download"),
    closed("limit", "x", "x", name="source:qq", reason="rate"),
    closed("limit", "x", "x", name="source:qq", reason="concurrent", concurrent=0),
    closed("node_limit", "x", "x", name="node:nas", reason="concurrent", concurrent=4),
    closed("interrupted", "x", "x", error="power cut"),
    closed("due", "x", "x", reason="backoff", attempt=2),
    closed("due", "x", "x", reason="throttled"),
    closed("waits", "x", "x", name="source:qq", cause="breaker"),
    closed("waits", "x", "x", name="source:qq", cause="limit", cause_data={"reason": "rate", "name": "source:qq"}),
    closed("waits", "x", "x", name="source:qq", cause=None),
    closed("order", "x", "x", before=4),
    closed("order", "x", "x", before=0),
    closed("claimed", "x", "x"),
    closed("empty", "x", "x"),
    closed("work", "x", "x"),
    closed("finished", "x", "x", status="succeeded"),
    closed("database", "x", "x", reason="database_full"),
]


@pytest.mark.parametrize("gate", SHUT, ids=lambda gate: f"{gate.code}-{gate.data.get('reason', '')}")
def test_every_closed_gate_is_said_in_both_languages(gate: Gate) -> None:
    assert any("一" <= sign <= "鿿" for sign in brief(CHINESE_WORDS, gate))
    assert brief(ENGLISH_WORDS, gate) not in ("", "x")
    fixes(CHINESE_WORDS, gate, job_id=1, item_id=2)


def test_every_gate_has_a_title_and_is_said_when_open() -> None:
    assert {gate.code for gate in SHUT} == GATES.keys() - {"running"}
    assert TITLES.keys() == OPEN.keys() == GATES.keys()
    for code in GATES:
        assert any("一" <= sign <= "鿿" for sign in says(CHINESE_WORDS, opened(code, "x"), "zh-CN"))


@pytest.mark.parametrize(
    ("gate", "path", "fields"),
    [
        (closed("all_held", "x", "x"), "/resume", {}),
        (closed("service_held", "x", "x", hold="service:download"), "/resume", {"name": "service:download"}),
        (closed("lane_held", "x", "x", lane="catalog"), "/resume", {"name": "lane:catalog"}),
        (closed("job_paused", "x", "x", job=3, why=""), "/jobs/3/resume", {}),
        (closed("stage_paused", "x", "x", stage="a"), "/jobs/1/resume", {"stage": "a"}),
        (closed("breaker", "x", "x", name="source:qq"), "/limits/breakers/probe", {"name": "source:qq"}),
        (closed("finished", "x", "x", status="failed"), "/items/2/retry", {}),
        (closed("finished", "x", "x", status="skipped"), "/items/2/force", {}),
    ],
)
def test_a_closed_gate_has_the_button_that_opens_it(gate: Gate, path: str, fields: dict[str, str]) -> None:
    first = fixes(ENGLISH_WORDS, gate, job_id=1, item_id=2)[0]
    assert (first.path, dict(first.fields)) == (path, fields)
