"""What an explanation is made of: gates in order, and the answer that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from dalsegno.insight.explain.words import when

GATES = {
    "database": "The database is away, full or read-only, as the process that answers has met it.",
    "finished": "It has ended: done, failed, skipped or canceled.",
    "cancel": "Its job is being canceled.",
    "all_held": "Everything is held.",
    "lane_held": "Its lane is held.",
    "scheduled": "Its job is scheduled for later.",
    "lane_turn": "Its job waits for its turn in its lane, or for an engine to admit it.",
    "job_paused": "Its job is paused, or about to be.",
    "depends": "Its stage waits for other stages, or for the next item of the one it follows.",
    "planned": "The items of its stage are not listed yet.",
    "stage_paused": "Its stage is paused by itself.",
    "stage_stopped": "A failure closed its stage (policy stop).",
    "alive": "Its node has no live process.",
    "service_held": "Its service is held.",
    "offered": "No live process offers its service.",
    "breaker": "The breaker of its service stops all calls.",
    "limit": "The limit of its service has no room.",
    "node_limit": "The limit of every node that could run it has no room.",
    "interrupted": "It was interrupted and has not been brought back yet.",
    "due": "It waits until a moment: backoff after a failure, or throttled.",
    "waits": "It met a limit or a breaker on its way and waits in line there.",
    "order": "It is ready, but others come first or all workers are busy.",
    "empty": "Nothing is left to do, and the engine is about to say so.",
    "claimed": "A process has taken it and has not begun it.",
    "running": "It runs.",
    "work": "Whether there is anything to do.",
}
"""Every gate there is, in the order in which they are looked at."""

State = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class Gate:
    code: str
    state: State
    says: str
    since: datetime | None = None
    until: datetime | None = None
    opens: str | None = None
    """What opens it: a command, a moment, or what must happen first."""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    what: str
    id: int | str
    status: str
    answer: str
    """The headline: one sentence."""
    gates: list[Gate]
    """In order, with those that are open."""
    first_closed: Gate | None
    at: datetime
    """The moment all of this is true of."""


def opened(code: str, says: str, **data: Any) -> Gate:
    return Gate(code, "open", says, data=data)


def closed(
    code: str, says: str, opens: str, since: datetime | None = None, until: datetime | None = None, **data: Any
) -> Gate:
    return Gate(code, "closed", says, since, until, opens, data)


def times_of(gate: Gate, now: datetime) -> str:
    """`since 12 min ago (14:03:20 UTC), until in 3 min (14:18:20 UTC)`; empty where neither is known."""
    known = (("since", gate.since), ("until", gate.until))
    return ", ".join(f"{word} {when(moment, now)}" for word, moment in known if moment is not None)


def explained(what: str, id: int | str, status: str, gates: list[Gate], now: datetime) -> Explanation:
    """The first closed gate is the answer; where something runs nevertheless, that comes first."""
    first = next((gate for gate in gates if gate.state == "closed"), None)
    running = next((gate for gate in gates if gate.code == "running"), None)
    if running is not None and first is not None:
        answer = f"{_sentence(running, now).rstrip('.')}; nothing new starts: {_sentence(first, now)}"
    else:
        answer = _sentence(first or running or gates[-1], now)
    return Explanation(what, id, status, answer, gates, first, now)


def _sentence(gate: Gate, now: datetime) -> str:
    times = times_of(gate, now)
    return f"{gate.says.rstrip('.')}, {times}." if times else gate.says
