"""The cap holds over every stretch of time, by arithmetic on a clock that only waiting moves."""

from __future__ import annotations

import threading
from itertools import combinations

import pytest

from dalsegno.objects import Throttle


class Time:
    """Waiting takes exactly as long as it was meant to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits = 0

    def __call__(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        self.waits += 1
        self.now += seconds


@pytest.mark.parametrize("chunk", [1_000, 32_768, 500_000])
def test_no_stretch_of_time_lets_more_through_than_the_rate_and_the_burst(chunk: int) -> None:
    time, rate, burst = Time(), 100_000, 0.25
    throttle = Throttle(rate, burst=burst, now=time, wait=time.wait)
    grants = []
    for number in range(60):
        if number == 30:
            time.now += 100  # idle: nothing is saved up beyond the burst
        assert throttle.take(chunk)
        grants.append(time.now)
    for first, last in combinations(range(60), 2):
        sent = chunk * (last - first)  # those granted after the first one
        assert sent <= rate * (grants[last] - grants[first] + burst) + chunk + 1
    assert grants[29] == pytest.approx(30 * chunk / rate - burst, abs=0.01)


def test_no_limit_never_waits() -> None:
    time = Time()
    throttle = Throttle(0, now=time, wait=time.wait)
    assert all(throttle.take(10**9) for _ in range(100))
    assert time.waits == 0


def test_waiting_is_not_spinning() -> None:
    time = Time()
    throttle = Throttle(1_000, now=time, wait=time.wait)
    throttle.take(60_000)
    assert time.now == pytest.approx(59.75)
    assert time.waits <= 60 * 4 + 1


def test_a_cancelled_upload_stops_waiting() -> None:
    time = Time()
    throttle = Throttle(1, now=time, wait=time.wait)
    assert not throttle.take(1_000_000, cancelled=lambda: time.now > 2)
    assert time.now < 3


def test_a_new_rate_frees_those_who_wait() -> None:
    throttle = Throttle(0.001)
    waiting = threading.Event()

    def cancelled() -> bool:
        waiting.set()
        return False

    passed: list[bool] = []
    thread = threading.Thread(target=lambda: passed.append(throttle.take(10**9, cancelled)))
    thread.start()
    assert waiting.wait(30)
    throttle.rate = 0
    thread.join(30)
    assert passed == [True]


def test_threads_share_one_line() -> None:
    """Whoever books, the line is booked: the end of the last stretch is the sum of all."""
    time = Time()
    throttle = Throttle(1_000, burst=0, now=time, wait=time.wait)
    threads = [threading.Thread(target=lambda: [throttle.take(100) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.now >= 8 * 50 * 100 / 1_000 - 0.001
