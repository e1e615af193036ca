"""A job: canceled, held with its lane, scheduled, waiting for its turn, paused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dalsegno.insight.explain.facts import Facts
from dalsegno.insight.explain.gate import Gate, closed, opened
from dalsegno.insight.explain.holds import all_held, lane_held
from dalsegno.insight.explain.services import busy_data, doing
from dalsegno.insight.explain.stages import items_gates, stage_gates
from dalsegno.insight.explain.words import LISTED, SWEEP, are, by_itself, clock_text, count, listed, put_before, said
from dalsegno.model.records import JobRecord, StageRecord
from dalsegno.model.states import JOB_ACTIVE, STAGE_FINISHED, JobStatus


def job_ended(facts: Facts, job: JobRecord, all_stages: Sequence[StageRecord]) -> Gate:
    failed = next((found for stage in all_stages if (found := facts.failed_item(stage))), None)
    failures = sum(stage.failed for stage in all_stages)
    match job.status:
        case JobStatus.CANCELED:
            says, opens = "It was canceled.", "submit a new job: a canceled one does not come back"
        case JobStatus.FAILED:
            says = f"It failed: {said(job.error_message)}."
            opens = f"dalsegno retry {failed.id}" if failed else "submit a new job"
        case JobStatus.COMPLETED_WITH_ERRORS:
            says = f"It is done, and {are(failures, 'item', 'has', 'have')} failed."
            opens = f"dalsegno retry {failed.id}" if failed else f"dalsegno items {job.id} --state failed"
        case _:
            says, opens = "It is done.", f"dalsegno force-retry ITEM (dalsegno items {job.id} lists them)"
    return closed("finished", says, opens, job.finished_at, status=job.status, error=job.error_message,
                  failed=failures, failed_item=failed and failed.id)  # fmt: skip


def job_gates(facts: Facts, job: JobRecord, all_stages: Sequence[StageRecord]) -> list[Gate]:
    """Before the job, and so before every stage and item of it."""
    gates = [cancel_gate(job, all_stages), all_held(facts), lane_held(facts, job), _scheduled(facts, job)]
    if job.status == JobStatus.QUEUED:
        gates.append(_lane_turn(facts, job, free=all(gate.state == "open" for gate in gates)))
    elif job.status in JOB_ACTIVE:
        gates.append(opened("lane_turn", f'Its job was admitted to lane "{job.lane}".', lane=job.lane))
    return [*gates, _paused(facts, job, all_stages)]


def next_stage_gates(facts: Facts, job: JobRecord, all_stages: Sequence[StageRecord]) -> list[Gate]:
    """What keeps a job that nothing of its own keeps: its first unfinished stage."""
    stage = next((stage for stage in all_stages if stage.status not in STAGE_FINISHED), None)
    if stage is None:
        return [closed("empty", "All its stages have ended.", f"by itself {SWEEP}: the engine ends the job")]
    gates = [*stage_gates(facts, job, stage, all_stages), *items_gates(facts, stage, all_stages)]
    return [_of_stage(gate, stage) for gate in gates]


def _of_stage(gate: Gate, stage: StageRecord) -> Gate:
    name = f'Stage "{stage.key}"'
    says = gate.says if name in gate.says else f"{name}: {gate.says[0].lower()}{gate.says[1:]}"
    return replace(gate, says=says, data={**gate.data, "stage": stage.key})


def cancel_gate(job: JobRecord, all_stages: Sequence[StageRecord]) -> Gate:
    if job.cancel_requested_at is None:
        return opened("cancel", "Its job is not being canceled.", job=job.id)
    leased = _leased(all_stages)
    rest = are(leased, "item", "still ends", "still end") if leased else "what waits is being canceled"
    return closed("cancel", f"Job {job.id} is being canceled; {rest}.",
                  "never: a canceled job does not come back; submit a new one", job.cancel_requested_at, job=job.id,
                  leased=leased)  # fmt: skip


def _leased(all_stages: Sequence[StageRecord]) -> int:
    return sum(stage.claimed + stage.running for stage in all_stages)


def _scheduled(facts: Facts, job: JobRecord) -> Gate:
    at = job.scheduled_at
    if at is None or at <= facts.now or job.status in JOB_ACTIVE:
        return opened("scheduled", "It is not scheduled for later.")
    opens = f"by itself at {clock_text(at, facts.now)}"
    return closed("scheduled", f"Job {job.id} is scheduled for later.", opens, job.created_at, at, job=job.id)


def _lane_turn(facts: Facts, job: JobRecord, *, free: bool) -> Gate:
    """A queued job: is there room in its lane, is it the next, and (if it is `free` to go) will anybody admit it?"""
    since = job.updated_at if job.started_at else max(job.created_at, job.scheduled_at or job.created_at)
    lane = facts.lane(job.lane)
    if lane.max_active is not None:
        active, before = facts.active_jobs(lane), facts.queued_before(job)
        if len(active) + before >= lane.max_active:
            at_work = f"job {listed([str(number) for number in active])}" if active else "nothing"
            line = f" and {are(before, 'job', capped=True)} before it" if before else ""
            says = f'Lane "{lane.name}" takes {count(lane.max_active, "job")} at a time: {at_work} is active{line}.'
            opens = f"when {f'job {active[0]}' if active else 'one of them'} has ended"
            if before:
                opens += f"; to be next: {put_before(facts.first_priority(lane.name), job.id)}"
            return closed("lane_turn", says, opens, since, reason="full", lane=lane.name, max_active=lane.max_active,
                          active=active[:LISTED], before=before)  # fmt: skip
    if not free:
        return opened("lane_turn", f'Lane "{lane.name}" has room for it.', lane=lane.name)
    if not facts.alive:
        says = "It waits to be admitted, and no engine is at work on this database."
        return closed("lane_turn", says, "dalsegno agent", since, reason="no_engine", lane=lane.name)
    opens = "by itself within 1 s: an engine admits it"
    return closed("lane_turn", f'It is its turn in lane "{lane.name}".', opens, since, reason="next", lane=lane.name)


def _paused(facts: Facts, job: JobRecord, all_stages: Sequence[StageRecord]) -> Gate:
    if job.status not in (JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED):
        return opened("job_paused", "Its job is not paused.", job=job.id)
    why = f"by {job.paused_by}: {said(job.pause_reason)}"
    opens = by_itself(job.pause_until, facts.now, f"dalsegno resume {job.id}")
    data = {"job": job.id, "by": job.paused_by, "why": job.pause_reason}
    if job.status == JobStatus.PAUSED:
        says = f"Job {job.id} is paused {why}."
        return closed("job_paused", says, opens, job.paused_at, job.pause_until, reason="paused", **data)
    leased = _leased(all_stages)
    busy = [worker for worker in facts.workers if worker.job_id == job.id and worker.status == "busy"]
    on = f" ({listed(doing(busy))})" if busy else ""
    says = f"Job {job.id} is asked to pause {why}; {are(leased, 'item', 'still ends', 'still end')}{on}."
    opens = f"when they have ended, it is paused; then: {opens}"
    return closed("job_paused", says, opens, job.paused_at, job.pause_until, reason="draining", leased=leased,
                  busy=busy_data(busy), **data)  # fmt: skip
