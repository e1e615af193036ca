"""How an attempt ended, as a value. The settler turns each into exactly one write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """Finished; followers may start."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do (it is there already). Satisfies dependencies like Done."""

    reason: str = ""
    result: Any = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Failed this time: costs an attempt, comes back after a backoff or after `delay` seconds."""

    error: str
    code: str = "error"
    delay: float | None = None
    trace: str | None = None
    """Where in the code it happened, for whoever mends it."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Failed for good: no further attempt unless an operator asks."""

    error: str
    code: str = "error"


@dataclass(frozen=True, slots=True)
class Throttled:
    """The other side asked us to wait: costs no attempt."""

    until: datetime
    reason: str = ""
    counts: bool = False
    """Counts as an interruption: an item that alone meets trouble must not come back for ever."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It met the limit or breaker `name` and waits in line there, at no cost. Not for services: the engine gives it."""

    name: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """Handed back untouched: costs nothing."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class PauseJob:
    """The job cannot go on without an operator (disk full): this item is interrupted, the job pauses."""

    reason: str
    code: str = "paused_by_service"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Its worker was stopped or lost. Not for services: the engine gives it."""

    reason: str
    code: str = "worker_lost"


Outcome = Done | Skip | Retry | Fail | Throttled | Wait | Release | PauseJob | Interrupted


_DONE = Done()


def outcome_of(returned: Any) -> Outcome:
    """What a service returned: an outcome, or a plain value that means Done."""
    if returned is None:
        return _DONE
    return returned if isinstance(returned, Outcome) else Done(returned)
