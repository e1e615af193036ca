"""One read for all who fetch in the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from dalsegno.store.hot import Event
from dalsegno.web import moments as moments_module
from dalsegno.web.moments import KEPT, Moments
from tests.helpers import wait_until
from tests.web.conftest import Desk
from tests.web.listening import Listener


def moments_of(desk: Desk) -> Moments:
    found: Moments = desk.app.state.moments
    return found


def test_while_nobody_listens_everybody_reads(desk: Desk) -> None:
    numbers = iter(range(9))
    assert [moments_of(desk).share("x", lambda: next(numbers)) for _ in range(3)] == [0, 1, 2]


def test_what_was_read_is_shared_until_the_next_change(desk: Desk) -> None:
    numbers = iter(range(1000))
    with Listener(desk.url) as listener:
        event = Event("job_paused", "test", 1)
        desk.store.write("test", lambda tx: tx.hot.insert_events(tx, [event]))
        listener.wait_for("job:1")
        moments = moments_of(desk)
        before = moments.share("x", lambda: next(numbers))
        desk.store.write("test", lambda tx: tx.hot.insert_events(tx, [event]))
        wait_until(lambda: len(listener.named("job:1")) >= 2, "the next change")
        assert moments.share("x", lambda: next(numbers)) > before


def test_who_comes_second_waits_for_the_first(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments_module, "LONGEST", 60.0)
    gate, begun = threading.Event(), threading.Event()
    read: list[int] = []

    def slow() -> int:
        begun.set()
        assert gate.wait(30)
        read.append(1)
        return len(read)

    with Listener(desk.url), ThreadPoolExecutor(4) as crowd:
        wait_until(lambda: desk.app.state.live.told is not None, "a look")
        moments = moments_of(desk)
        waiting = [crowd.submit(moments.share, "slow", slow) for _ in range(4)]
        assert begun.wait(30)
        gate.set()
        assert [each.result(30) for each in waiting] == [1, 1, 1, 1]


def test_only_so_many_are_kept(desk: Desk) -> None:
    with Listener(desk.url):
        wait_until(lambda: desk.app.state.live.told is not None, "a look")
        for number in range(KEPT * 2):
            moments_of(desk).share(number, lambda: number)  # noqa: B023
        assert len(moments_of(desk)._kept) == KEPT


def test_an_action_is_seen_at_once(desk: Desk) -> None:
    """The page itself is read anew, also while others share what they fetch."""
    with Listener(desk.url):
        wait_until(lambda: desk.app.state.live.told is not None, "a look")
        with httpx.Client(base_url=desk.url) as client:
            for _ in range(3):
                assert client.get("/", params={"fragment": "queue"}).status_code == 200
            job = desk.start()["id"]
            assert f"/jobs/{job}" in client.get("/").text
