"""How many workers are sent home, by what the process looks like."""

from __future__ import annotations

import math

from dalsegno.engine.crowd import CALM, STORM, Crowd


def test_a_storm_of_switches_sends_half_of_the_workers_home() -> None:
    crowd = Crowd()
    limits = []
    for _ in range(5):
        crowd.judge(working=10, switches=STORM * 2, busy=1.2)
        limits.append(crowd.limit)
    assert limits == [5, 2, 1, 1, 1]


def test_switches_of_workers_that_wait_are_no_storm() -> None:
    crowd = Crowd()
    crowd.judge(working=40, switches=STORM * 2, busy=0.5)
    assert crowd.limit == math.inf


def test_they_come_back_one_by_one_once_it_is_calm() -> None:
    crowd = Crowd()
    crowd.judge(working=4, switches=STORM + 1, busy=1.0)
    crowd.judge(working=2, switches=(STORM + CALM) / 2, busy=1.0)
    assert crowd.limit == 2
    for _ in range(3):
        crowd.judge(working=2, switches=CALM - 1, busy=1.0)
    assert crowd.limit == 5
    for _ in range(60):
        crowd.judge(working=2, switches=0, busy=0.0)
    assert crowd.limit == math.inf


def test_workers_that_wait_for_others_come_back_at_once_whatever_else_the_process_does() -> None:
    crowd = Crowd()
    for _ in range(4):
        crowd.judge(working=10, switches=STORM * 2, busy=1.2)
    limits = []
    for _ in range(4):
        crowd.judge(working=1, switches=STORM * 2, busy=0.3)
        limits.append(crowd.limit)
    assert limits == [2, 4, 8, 16]


def test_a_look_measures_this_process() -> None:
    crowd = Crowd()
    crowd.look(1)
    crowd.look(1)
    assert crowd.limit == math.inf
