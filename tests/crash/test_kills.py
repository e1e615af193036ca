"""kill -9 at every named fault point and at random moments; everything finishes from the mark."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.crash.harness import KILLED, Harness, fault_names

FIRST = ("submit", "register", "admit", "plan.claim", "plan.chunk", "plan.finish", "claim", "begin", "phase")
LAST = ("unregister",)
EDGES = ("before", "after")
AFTER_A_DEATH = ("rescue", "recover")
"""Only met by a process that finds another one dead."""
OPTIONAL = {"cancel", "heartbeat", "logs", "plan.fail", "prune", "reject", "requeue", "schedule", "workers"}
"""Nothing is canceled, refused or scheduled here, and most lives are too short for what happens every few seconds."""


def in_order(names: list[str]) -> list[str]:
    """As a run meets them, so that a chain of deaths wastes no work."""
    rest = [name for name in names if name not in FIRST + LAST]
    return [*(n for n in FIRST if n in names), *rest, *(n for n in LAST if n in names)]


def die_at_each(harness: Harness, points: list[str], *, items: int) -> list[str]:
    """One life per point, each going on where the last one died; returns the points that were met."""
    met = []
    numbers = itertools.count(1)
    job = f"job-{next(numbers)}"
    for point in points:
        if point.startswith(AFTER_A_DEATH):
            harness.start(job, fault="begin.commit.after", items=items).wait()
            harness.note_kill()
        code = harness.start(job, fault=point, items=items).wait()
        assert code in (0, KILLED), harness.children[-1].said()
        if code == KILLED:
            met.append(point)
            harness.note_kill()
        if harness.is_finished(job):
            job = f"job-{next(numbers)}"
    for name in list(harness.jobs):
        assert harness.start(name, items=items).wait() == 0, harness.children[-1].said()
    return met


def test_a_death_at_each_commit_loses_nothing(harness: Harness) -> None:
    """Before it and after it by turns, and the other way round on the other database; the long test does both."""
    core = ["submit", "register", "admit", "plan.chunk", "plan.finish", "claim", "begin", "settle", "advance"]
    edges = itertools.cycle(EDGES if harness.is_sqlite else reversed(EDGES))
    points = [f"{name}.commit.{edge}" for name, edge in zip([*core, *AFTER_A_DEATH], edges, strict=False)]
    met = die_at_each(harness, points, items=40)
    assert met == points, "a fault point was never reached"
    harness.judge()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_death_at_every_named_point_early_and_late_loses_nothing(harness: Harness) -> None:
    points = [
        f"{name}.commit.{edge}:{count}" for count in (1, 2, 5) for name in in_order(fault_names()) for edge in EDGES
    ]
    met = die_at_each(harness, points, items=40)
    names = {point.split(".commit.")[0] for point in met}
    assert set(fault_names()) - names <= OPTIONAL
    harness.judge()


def kill_at_random(harness: Harness, kills: int, rng: random.Random) -> None:
    numbers = itertools.count(1)
    job = f"job-{next(numbers)}"
    done = 0
    while done < kills:
        child = harness.start(job)
        if child.ends_within(rng.uniform(0.3, 1.6)):
            assert child.wait() == 0, child.said()
            job = f"job-{next(numbers)}"
            continue
        child.kill()
        harness.note_kill()
        done += 1
    for name in list(harness.jobs):
        assert harness.start(name).wait() == 0, harness.children[-1].said()


def test_kills_at_random_moments_lose_nothing(harness: Harness) -> None:
    kill_at_random(harness, 6, random.Random(2))
    harness.judge()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_kills_at_random_moments_lose_nothing(harness: Harness) -> None:
    """Twice a hundred, counting both databases."""
    kill_at_random(harness, 100, random.Random())
    harness.judge()
