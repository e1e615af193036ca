"""The live stream, over real sockets and on both databases."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Engine, Store, service, submit
from dalsegno.engine.item import Item
from dalsegno.engine.limits import set_limit
from dalsegno.insight import pulse
from dalsegno.insight.events import Cursor
from dalsegno.model.limit import Limit
from dalsegno.settings import Settings
from dalsegno.store.hot import Event
from dalsegno.store.schema import events
from dalsegno.web import live, look, subscriber
from dalsegno.web.app import create_app
from dalsegno.web.pace import Pace
from dalsegno.web.server import ConsoleServer, bind
from dalsegno.web.topics import TOPICS, changed_by, wanted
from tests.conftest import Postgres
from tests.helpers import SWIFT, ask, one_step, submitted, wait_for_job, wait_until
from tests.web.conftest import Desk
from tests.web.listening import Listener


def add(store: Store, *kinds: str, **about: Any) -> None:
    store.write("test", lambda tx: tx.hot.insert_events(tx, [Event(kind, "test", **about) for kind in kinds]))


def all_events(store: Store) -> list[int]:
    query = sa.select(events.c.id).order_by(events.c.tx, events.c.id)
    return store.read(lambda tx: list(tx.conn.execute(query).scalars()))


def position(store: Store) -> str:
    return store.read(lambda tx: pulse.written(pulse.position(tx)))


# --- topics ---------------------------------------------------------------------------------------


def test_a_job_tells_what_it_changes(desk: Desk) -> None:
    @service("work", workers=2)
    def work(item: Item) -> None:
        item.progress(0.5, "half")

    with Listener(desk.url) as listener, Engine(desk.store, [work], SWIFT):
        assert listener.status == 200
        assert listener.headers["content-type"].startswith("text/event-stream")
        assert listener.headers["cache-control"] == "no-store"
        assert listener.headers["x-accel-buffering"] == "no"
        job = submit(desk.store, one_step(), items=["a", "b"]).job_id
        wait_for_job(desk.store, job)
        listener.wait_for("jobs", f"job:{job}", "items", "playlists", "events", "workers", "workflows")
    (hello, *others) = listener.messages
    assert hello.name == "hello"
    for message in others:
        assert message.data["topic"] == message.name
        assert message.data["id"] == message.id
    assert not [name for name in listener.names() if name.startswith("item:")], "nobody asked for single items"


def test_only_the_topics_asked_for(desk: Desk) -> None:
    add(desk.store, "job_running", job_id=7)
    with Listener(desk.url, topics="job:7,item:3") as listener:
        add(desk.store, "item_claimed", job_id=8, item_id=3)
        add(desk.store, "item_claimed", job_id=8, item_id=4)
        add(desk.store, "job_paused", job_id=8)
        listener.wait_for("item:3")
        add(desk.store, "job_paused", job_id=7)
        listener.wait_for("job:7")
    assert set(listener.names()) == {"hello", "item:3", "job:7"}


def test_a_topic_nobody_knows_gets_a_hint(desk: Desk) -> None:
    answer = desk.get("/api/events/stream?topics=job", 422)
    assert answer["code"] == "input_invalid"
    assert '"jobs"' in answer["detail"]
    desk.get("/api/events/stream?topics=job:0", 422)
    desk.get("/api/events/stream?events=some", 422)


def test_what_writes_no_event_is_told_too(desk: Desk) -> None:
    with Listener(desk.url) as listener:
        job = submitted(desk.store).job_id
        command = ask(desk.store, "pause", job_id=job)
        assert command
        listener.wait_for("commands")
        desk.store.write("limit", lambda tx: set_limit(tx, "service:work", Limit(concurrent=3), "test"))
        listener.wait_for("limits")


def test_the_file_of_settings_is_watched(store: Store, plain: None, tmp_path: Any) -> None:
    file = tmp_path / "dalsegno.env"
    app = create_app(store, Settings(_env_file=None))
    app.state.live = live.Live(store, (), file)
    with (
        bind("127.0.0.1", 0) as listening,
        ConsoleServer(app, listening) as console,
        Listener(console.url) as listener,
    ):
        add(store, "job_running", job_id=1)
        listener.wait_for("jobs")
        assert "config" not in listener.names()
        wait_until(lambda: app.state.live._marks.get("file"), "a look at the file")
        file.write_text("LANGUAGE=zh\n")
        listener.wait_for("config")


def test_soft_topics_come_slower_than_hard_ones(desk: Desk) -> None:
    with Listener(desk.url) as listener:
        add(desk.store, "item_succeeded", job_id=1, item_id=1)
        listener.wait_for("items")
        add(desk.store, "item_succeeded", job_id=1, item_id=2)
        add(desk.store, "breaker_opened")
        listener.wait_for("breakers")
        assert len(listener.named("items")) == 1, "the second one is still held back"
        wait_until(lambda: len(listener.named("items")) == 2, "the second one")


def test_every_event_type_of_the_engine_changes_something() -> None:
    for kind in ("job_running", "stage_paused", "item_failed", "limit_set", "breaker_closed", "lane_held", "recovery"):
        changed = changed_by([(kind, None)])
        assert (changed.hard | changed.soft) - {"events"}, kind
        assert (changed.hard | changed.soft) <= TOPICS.keys()
    assert wanted(" jobs, ,job:12 ") == {"jobs", "job:12"}
    assert wanted("") is None


def test_an_id_says_only_what_was_told(desk: Desk) -> None:
    """Whoever is cut off while a change is still held back hears of it when coming back."""
    with Listener(desk.url) as first:
        add(desk.store, "item_succeeded", job_id=1, item_id=1)
        first.wait_for("items")
        add(desk.store, "item_succeeded", job_id=1, item_id=2)
        add(desk.store, "breaker_opened")
        first.wait_for("breakers")
        assert len(first.named("items")) == 1, "the second one is still held back"
    assert first.last_id != position(desk.store)
    with Listener(desk.url, after=first.last_id) as second:
        second.wait_for("items", "job:1")


def test_pace() -> None:
    pace, start = Pace(), Cursor(0, 5)
    assert pace.ready({"jobs"}, {"items"}, start, 100.0) == ["items", "jobs"]
    assert pace.complete(Cursor(0, 9)) == (0, 9)
    assert pace.ready((), {"items"}, Cursor(0, 9), 100.5) == []
    assert pace.ready((), {"items", "playlists"}, Cursor(0, 12), 101.0) == ["playlists"]
    assert pace.complete(Cursor(0, 20)) == (0, 9), "not past what is held back"
    assert pace.ready((), (), Cursor(0, 20), 102.0) == ["items"]
    assert pace.complete(Cursor(0, 20)) == (0, 20)
    for number in range(3000):
        pace.ready({f"job:{number}"}, (), start, 200.0 + number)
    assert len(pace._told) <= 1001


# --- going on where it was cut --------------------------------------------------------------------


def test_who_comes_back_is_told_what_was_missed(desk: Desk) -> None:
    with Listener(desk.url) as first:
        add(desk.store, "job_running", job_id=1)
        first.wait_for("job:1")
    add(desk.store, "job_paused", job_id=2)
    add(desk.store, "item_claimed", job_id=2, item_id=9)
    with Listener(desk.url, after=first.last_id) as second:
        second.wait_for("job:2", "jobs", "items")
    assert "job:1" not in second.names()
    assert "resync" not in second.names()
    with Listener(desk.url, last_event_id=position(desk.store)) as third:
        add(desk.store, "job_paused", job_id=3)
        third.wait_for("job:3")
    assert "resync" not in third.names()


@pytest.mark.parametrize("after", ["99999999", "99-99999999", "what", "-", "١٢", "9" * 40, "1-2-3", "0-7"])
@pytest.mark.parametrize("mode", ["topics", "full"])
def test_an_id_nobody_knows_leads_to_a_resync(desk: Desk, after: str, mode: str) -> None:
    add(desk.store, "job_running", job_id=1)
    with Listener(desk.url, last_event_id=after, events=mode) as listener:
        listener.wait_for("resync")
        (resync,) = listener.named("resync")
        assert resync.data["reason"] == "unknown"
        assert resync.id == position(desk.store)
        add(desk.store, "job_paused", job_id=1)
        listener.wait_for("event" if mode == "full" else "job:1")
    assert len(listener.named("event")) == (mode == "full"), "only what came after"


def test_too_many_events_are_not_told_one_by_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "MOST", 50)
    start = position(desk.store)
    with Listener(desk.url) as listener:
        add(desk.store, *["item_claimed"] * 60, job_id=1)
        listener.wait_for("resync")
        assert listener.named("resync")[0].data["reason"] == "too_many"
        add(desk.store, "job_paused", job_id=1)
        listener.wait_for("job:1")
    with Listener(desk.url, after=start) as late:
        late.wait_for("resync")


# --- the events themselves ------------------------------------------------------------------------


def test_full_events_come_once_each_and_in_order(desk: Desk) -> None:
    add(desk.store, "before")
    with Listener(desk.url, events="full") as listener:
        for number in range(1, 101):
            add(desk.store, "item_claimed", job_id=number % 3 + 1, item_id=number)
        wait_until(lambda: len(listener.named("event")) >= 100, "all of them")
    assert [message.data["id"] for message in listener.named("event")] == all_events(desk.store)[1:]
    assert set(listener.names()) == {"hello", "event"}
    assert listener.messages[1].data["type"] == "item_claimed"


def test_a_listener_that_is_cut_again_and_again_misses_nothing(desk: Desk) -> None:
    add(desk.store, "first")
    after, heard = position(desk.store), []

    def write(job_id: int) -> None:
        for number in range(150):
            add(desk.store, "item_claimed", "item_started", job_id=job_id, item_id=number)

    writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    with Listener(desk.url, events="full"):  # another one keeps the common reader going
        for writer in writers:
            writer.start()
        while len(heard) < 600:
            more = min(600 - len(heard), 40)
            with Listener(desk.url, after=after, events="full") as listener:
                wait_until(lambda: len(listener.named("event")) >= more, "some more")  # noqa: B023
            heard += [message.data["id"] for message in listener.named("event")]
            after = listener.last_id or after
            assert "resync" not in listener.names()
        for writer in writers:
            writer.join()
    assert heard == all_events(desk.store)[1:]


def test_full_events_of_some_topics(desk: Desk) -> None:
    with Listener(desk.url, events="full", topics="job:2,breakers") as listener:
        add(desk.store, "job_paused", job_id=1)
        add(desk.store, "job_paused", job_id=2)
        add(desk.store, "breaker_opened", message="too fast")
        wait_until(lambda: len(listener.named("event")) == 2, "two")
    assert [message.data["type"] for message in listener.named("event")] == ["job_paused", "breaker_opened"]


def test_no_secret_leaves_with_an_event(store: Store, consoles: Callable[..., Desk]) -> None:
    desk = consoles(store, console_password="correct-horse-battery")
    store.write(
        "test",
        lambda tx: tx.hot.insert_events(
            tx, [Event("planted", "test", message="it said correct-horse-battery", data={"correct-horse-battery": 1})]
        ),
    )
    with desk.http.stream(
        "GET",
        "/api/events/stream",
        params={"events": "full", "last_event_id": "0"},
        headers={"Authorization": "Bearer correct-horse-battery"},
    ) as response:
        text = ""
        for line in response.iter_lines():
            text += line
            if "planted" in text:
                break
    assert "correct-horse-battery" not in text


# --- many, slow and gone --------------------------------------------------------------------------


def test_a_slow_reader_is_told_to_look_again_and_costs_no_memory(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "KEPT", 100)
    for module in (live, look):
        monkeypatch.setattr(module, "PAGE", 40)
    host, port = httpx.URL(desk.url).host, httpx.URL(desk.url).port
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, port))
        slow.sendall(b"GET /api/events/stream?events=full HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in slow.recv(100)
        (reader,) = wait_until(lambda: list(_hub(desk)._subscribers), "it to be there")
        for _ in range(40):  # more than the system keeps for it
            add(desk.store, *["long"] * 20, message="x" * 20_000)
        wait_until(lambda: reader._lost is not None, "it to be too slow")
        assert len(reader._waiting) <= 100
        text = b""
        slow.settimeout(30)
        while b"event: resync" not in text:
            text = text[-1000:] + slow.recv(65536)


def _hub(desk: Desk) -> live.Live:
    found: live.Live = desk.app.state.live
    return found


def test_whoever_leaves_is_forgotten_at_once(desk: Desk) -> None:
    hub = _hub(desk)
    listeners = [Listener(desk.url) for _ in range(5)]
    wait_until(lambda: hub.listening == 5, "all of them")
    for listener in listeners:
        listener.stop()
    wait_until(lambda: hub.listening == 0, "nobody")


def test_it_stops_looking_when_nobody_listens(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "IDLE", 0.3)
    with Listener(desk.url):
        assert _hub(desk)._task is not None
    wait_until(lambda: _hub(desk)._task is None, "it to stop")
    with Listener(desk.url) as again:
        add(desk.store, "job_paused", job_id=1)
        again.wait_for("job:1")


def test_two_hundred_streams_are_held(desk: Desk) -> None:
    host, port = httpx.URL(desk.url).host, httpx.URL(desk.url).port or 80
    sockets = [socket.create_connection((host, port)) for _ in range(200)]
    try:
        for each in sockets:
            each.settimeout(30)
            each.sendall(b"GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: _hub(desk).listening == 200, "all of them")
        add(desk.store, "job_paused", job_id=77)
        for each in sockets:
            text = b""
            while b"event: job:77" not in text:
                text += each.recv(65536)
    finally:
        for each in sockets:
            each.close()
    wait_until(lambda: _hub(desk).listening == 0, "nobody")


def test_a_beat_and_a_comment_say_that_it_lives(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT", 0.1)
    with Listener(desk.url) as listener:
        listener.wait_for("beat")
        assert listener.comments == [": still here"]


def test_a_server_that_stops_ends_its_streams(
    store: Store, plain: None, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    app = create_app(store, Settings(_env_file=None))
    with bind("127.0.0.1", 0) as listening:
        console = ConsoleServer(app, listening).start()
        with Listener(console.url) as listener, Listener(console.url, events="full") as other:
            console.stop()
            assert listener.ended.wait(10)
            assert other.ended.wait(10)
    assert not [record for record in caplog.records if "graceful" in record.getMessage()], "none was torn off"
    assert app.state.live.listening == 0


def test_whoever_still_waits_for_a_look_when_the_console_closes_is_told_of_nothing(
    sqlite_url: str, stores: Callable[..., Store]
) -> None:  # fmt: skip
    store = stores(sqlite_url)

    async def wait_for_a_page() -> object:
        reader = look.Reader(store, None)
        busy, over = threading.Barrier(3), threading.Event()

        def occupy(_: object) -> None:
            busy.wait(10)
            over.wait(10)

        others = [asyncio.create_task(reader._read(occupy)) for _ in range(2)]
        while busy.n_waiting < 2:
            await asyncio.sleep(0)
        page = asyncio.create_task(reader.page(Cursor()))
        await asyncio.sleep(0)
        reader.close()
        busy.wait(10)
        over.set()
        await asyncio.gather(*others)
        return await page

    assert asyncio.run(wait_for_a_page()) is None


# --- PostgreSQL -----------------------------------------------------------------------------------


def test_a_writer_that_takes_its_time_holds_back_events_but_no_topics(
    postgres_url: str, stores: Callable[..., Store], consoles: Callable[..., Desk]
) -> None:
    store = stores(postgres_url)
    desk = consoles(store)
    with (
        Listener(desk.url) as topics,
        Listener(desk.url, events="full") as full,
        psycopg.connect(postgres_url) as slow,
    ):
        slow.execute("SELECT pg_current_xact_id()")  # from here on nothing later is safe to tell in order
        slow.execute(
            "INSERT INTO events (tx, at, type, source, job_id) "
            "VALUES (pg_current_xact_id()::text::bigint, now(), 'job_late', 'test', 5)"
        )
        add(store, "job_paused", job_id=6)
        topics.wait_for("job:6")
        assert not full.named("event")
        slow.commit()
        topics.wait_for("job:5")
        wait_until(lambda: len(full.named("event")) == 2, "both")
    assert [message.data["type"] for message in full.named("event")] == ["job_late", "job_paused"]
    assert all(message.id and message.id.count("-") == 1 for message in full.named("event")), "transaction and number"


def test_it_goes_through_an_outage(
    postgres: Postgres,
    postgres_url: str,
    stores: Callable[..., Store],
    consoles: Callable[..., Desk],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "BEAT", 0.1)
    store = stores(postgres_url)
    desk = consoles(store)
    add(store, "job_running", job_id=1)
    with Listener(desk.url) as listener, Listener(desk.url, events="full") as full:
        postgres.stop()
        try:
            listener.wait_for("stale")
            kept_open = len(listener.comments)
            wait_until(lambda: len(listener.comments) > kept_open + 1, "signs of life")
            assert listener.names()[-1] == "stale", "no beat that would pass for news"
            with Listener(desk.url) as late, Listener(desk.url, events="full", last_event_id="0") as lost:
                late.wait_for("stale")
                lost.wait_for("resync")
                postgres.start()
                late.wait_for("fresh")
                add(store, "job_running", job_id=3)
                wait_until(lambda: lost.named("event"), "what comes now")
                assert lost.named("event")[0].data["job_id"] == 3, "and not the whole log"
        finally:
            if not _answers(postgres):
                postgres.start()
        listener.wait_for("fresh")
        add(store, "job_paused", job_id=2)
        listener.wait_for("job:2")
        wait_until(lambda: len(full.named("event")) == 2, "the events")
        assert [message.data["job_id"] for message in full.named("event")] == [3, 2]
    assert listener.names().count("stale") == 1


def _answers(postgres: Postgres) -> bool:
    try:
        postgres.admin().close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_log_that_was_replaced_leads_to_a_resync(desk: Desk) -> None:
    add(desk.store, *["job_running"] * 5, job_id=1)
    with Listener(desk.url) as listener:
        desk.store.write("test", lambda tx: tx.conn.execute(sa.delete(events)))
        listener.wait_for("resync")
        assert listener.named("resync")[0].data["reason"] == "replaced"


def test_file_states(tmp_path: Any) -> None:
    file = tmp_path / "a"
    assert look.state_of(None) == ()
    missing = look.state_of(file)
    file.write_text("1")
    there = look.state_of(file)
    assert missing != there
    os.utime(file, ns=(1, 1))
    assert look.state_of(file) != there
