"""Holds: gates that somebody closed, on everything, on a service or on a lane."""

from __future__ import annotations

from shlex import quote

from dalsegno.engine.holds import ENGINE, EVERYTHING
from dalsegno.insight.explain.facts import Facts
from dalsegno.insight.explain.gate import Gate, closed, opened
from dalsegno.insight.explain.words import by_itself, said
from dalsegno.model.records import HoldRecord, JobRecord, LaneRecord
from dalsegno.model.states import JobStatus


def all_held(facts: Facts) -> Gate:
    hold = facts.hold(EVERYTHING)
    if hold is None or _is_over(facts, hold):
        return opened("all_held", "No hold on everything.", hold=EVERYTHING)
    return _held(facts, "all_held", "Everything", hold, "dalsegno resume --all")


def service_held(facts: Facts, service: str) -> Gate:
    name, what = f"service:{service}", f'Service "{service}"'
    hold = facts.hold(name)
    if hold is None or _is_over(facts, hold):
        return opened("service_held", f"{what} is not held.", hold=name)
    return _held(facts, "service_held", what, hold, f"dalsegno resume --service {quote(service)}")


def _held(facts: Facts, code: str, what: str, hold: HoldRecord, command: str) -> Gate:
    says = f"{what} is held by {hold.held_by}: {said(hold.held_reason)}."
    return closed(code, says, by_itself(hold.held_until, facts.now, command), hold.held_at, hold.held_until,
                  hold=hold.name, by=hold.held_by, why=hold.held_reason)  # fmt: skip


def lane_held(facts: Facts, job: JobRecord) -> Gate:
    lane = facts.lane(job.lane)
    if lane.held_at is None or _is_over(facts, lane):
        return opened("lane_held", f'Lane "{lane.name}" is not held.', lane=lane.name)
    says = f'Lane "{lane.name}" is held by {lane.held_by}: {said(lane.held_reason)}.'
    # Whoever resumes a job has mended what made the engine hold its lane: one command opens both.
    paused = job.status in (JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED) and lane.held_by in ENGINE
    command = f"dalsegno resume {job.id if paused else '--lane ' + quote(lane.name)}"
    return closed("lane_held", says, by_itself(lane.held_until, facts.now, command), lane.held_at, lane.held_until,
                  lane=lane.name, by=lane.held_by, why=lane.held_reason)  # fmt: skip


def _is_over(facts: Facts, row: HoldRecord | LaneRecord) -> bool:
    """A hold ends at its end, also where nobody has taken it off yet."""
    return row.held_until is not None and row.held_until <= facts.now
