"""Pools of workers side by side: who is busy, what lies ready between them, and which of them holds the others up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dalsegno.insight.workers import ProcessLine
from dalsegno.model.records import WorkerRecord

LANES = 12
"""Pools up to this size show all their workers; larger ones, those that are busy."""
LOPSIDED = 2.0
"""How many times as long one phase may take per worker before it is called a bottleneck."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One pool of a service made of phases, all its processes together."""

    name: str
    busy: int
    most: int
    queued: int
    """Answers that wait before it."""
    capacity: int
    seconds: float
    """How long one takes lately; 0 until one was measured."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The workers of one name, `download-1` to `download-10`."""

    name: str
    service: str
    workers: list[WorkerRecord]
    busy: int
    idle: int
    speed: float
    """Bytes a second, all together."""
    phase: Phase | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the pools of a service say about each other."""

    service: str
    code: str
    """`resolve_bound`, `transfer_bound`, `balanced` or `idle`; after the phases' places, not their names."""
    says: str
    data: dict[str, object]


def pools_of(lines: Iterable[ProcessLine], services: Sequence[str] = ()) -> list[Pool]:
    """Of live processes; those of `services` first and in that order, the rest by name."""
    alive = [line for line in lines if line.alive]
    phases = {(service, phase.name): phase for service, found in phases_of(alive).items() for phase in found}
    places = {service: place for place, service in enumerate(services)}
    members: dict[tuple[str, str], list[WorkerRecord]] = {}
    for line in alive:
        for worker in line.workers:
            members.setdefault((worker.service, worker.name.rpartition("-")[0] or worker.name), []).append(worker)
    return [
        _pool(name, service, members[service, name], phases.get((service, name)))
        for service, name in sorted(
            members, key=lambda key: (places.get(key[0], len(places)), key[0], _turn(phases, key), key[1])
        )
    ]


def _turn(phases: dict[tuple[str, str], Phase], key: tuple[str, str]) -> int:
    return list(phases).index(key) if key in phases else 0


def _pool(name: str, service: str, members: list[WorkerRecord], phase: Phase | None) -> Pool:
    busy = [worker for worker in members if worker.status == "busy"]
    shown = members if len(members) <= LANES else busy
    ordered = sorted(shown, key=lambda worker: (worker.process_id, len(worker.name), worker.name))
    speed = sum(worker.speed or 0.0 for worker in busy)
    return Pool(name, service, ordered, len(busy), len(members) - len(busy), speed, phase)


def phases_of(lines: Iterable[ProcessLine]) -> dict[str, list[Phase]]:
    """By service, in the order in which an item passes them."""
    found: dict[str, dict[str, list[Phase]]] = {}
    for line in lines:
        for service, phases in (line.process.pools or {}).items():
            for phase in phases:
                found.setdefault(service, {}).setdefault(phase["name"], []).append(Phase(**phase))
    return {service: [_together(name, same) for name, same in by_name.items()] for service, by_name in found.items()}


def _together(name: str, same: list[Phase]) -> Phase:
    measured = [phase.seconds for phase in same if phase.seconds]
    return Phase(
        name,
        sum(phase.busy for phase in same),
        sum(phase.most for phase in same),
        sum(phase.queued for phase in same),
        sum(phase.capacity for phase in same),
        sum(measured) / len(measured) if measured else 0.0,
    )


def verdicts(lines: Iterable[ProcessLine]) -> list[Verdict]:
    """One for every service made of phases."""
    return [verdict(service, phases) for service, phases in phases_of(line for line in lines if line.alive).items()]


def verdict(service: str, phases: Sequence[Phase]) -> Verdict:
    """The last phase against the slowest before it, per item and worker: who waits for whom."""
    *before, last = phases
    first = max(before, key=lambda phase: phase.seconds / max(phase.most, 1), default=last)
    data: dict[str, object] = {"phases": [{"name": phase.name, "seconds": round(phase.seconds, 3)} for phase in phases]}
    if not any(phase.busy or phase.queued for phase in phases):
        return Verdict(service, "idle", f"{service}: nothing in hand.", data)
    if not (first.seconds and last.seconds) or first is last:
        return Verdict(service, "balanced", f"{service}: not measured yet.", data)
    times = f"({_spoken(first.seconds)} vs {_spoken(last.seconds)})"
    # The queue tells the truth of the moment; the times say why.
    if last.queued == 0 and last.busy < last.most and first.busy and first.seconds > LOPSIDED * last.seconds:
        says = f"{last.name} starved: {first.name} is the bottleneck {times}"
        return Verdict(service, "resolve_bound", says, data)
    if last.capacity and last.queued >= last.capacity and last.busy >= last.most:
        says = f"{first.name} waits: {last.name} is the bottleneck {times}"
        return Verdict(service, "transfer_bound", says, data)
    return Verdict(service, "balanced", f"{first.name} and {last.name} keep pace {times}", data)


def _spoken(seconds: float) -> str:
    return (
        f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
    )
