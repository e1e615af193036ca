"""A stage: what it waits for, whether its items are listed, what stopped it, and what its items wait for as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from dalsegno.engine.usher import lines
from dalsegno.insight.explain.facts import Facts
from dalsegno.insight.explain.flow import gate_of_line
from dalsegno.insight.explain.gate import Gate, State, closed, opened
from dalsegno.insight.explain.items import order_gate
from dalsegno.insight.explain.services import busy_data, doing, service_gates, start_one
from dalsegno.insight.explain.words import CAP, SWEEP, are, by_itself, clock_text, count, listed, said
from dalsegno.model.records import ItemRecord, JobRecord, StageRecord
from dalsegno.model.states import STAGE_FINISHED, STAGE_PAUSED, JobStatus, StageStatus


def stage_ended(facts: Facts, stage: StageRecord, all_stages: Sequence[StageRecord]) -> Gate:
    failed = facts.failed_item(stage)
    again = f"dalsegno items {stage.job_id} --stage {stage.key}"
    match stage.status:
        case StageStatus.CANCELED:
            says, opens = "It was canceled.", "submit a new job: a canceled one does not come back"
        case StageStatus.FAILED:
            says = f"It failed: {said(stage.last_error)}."
            opens = f"dalsegno retry {failed.id}" if failed else "submit a new job"
        case StageStatus.SKIPPED:
            before = _before(stage, all_stages)
            names = [f'"{up.key}"' for up in before if up.status in (StageStatus.FAILED, StageStatus.SKIPPED)]
            says = f"It was skipped: stage {listed(names)} did not complete." if names else "It was skipped."
            culprit = next((found for up in before if (found := facts.failed_item(up))), None)
            opens = f"dalsegno retry {culprit.id}" if culprit else "retry what failed before it"
        case _ if stage.failed:
            says = f"It is done, and {are(stage.failed, 'item', 'has', 'have')} failed."
            opens = f"dalsegno retry {failed.id}" if failed else again
        case _:
            says, opens = "It is done.", f"dalsegno force-retry ITEM ({again} lists them)"
    return closed("finished", says, opens, stage.finished_at, status=stage.status, error=stage.last_error,
                  failed=stage.failed, failed_item=failed and failed.id)  # fmt: skip


def stage_gates(
    facts: Facts, job: JobRecord, stage: StageRecord, all_stages: Sequence[StageRecord], item: ItemRecord | None = None
) -> list[Gate]:
    """Before the stage, or before one `item` of it."""
    running = stage.status == StageStatus.RUNNING
    gates = [_depends(facts, job, stage, _before(stage, all_stages), item)]
    if item is None and running:
        gates.append(_planned(facts, stage))
    gates.append(_paused(facts, stage))
    if running and stage.pause_reason is None and job.cancel_requested_at is None:
        gates.append(_stopped(facts, stage))
    return [*gates, *service_gates(facts, stage.service)]


def _before(stage: StageRecord, all_stages: Sequence[StageRecord]) -> list[StageRecord]:
    return [up for up in all_stages if up.key in stage.depends_on]


def left(stage: StageRecord) -> int:
    return stage.pending + stage.claimed + stage.running + stage.interrupted


# --- whether it is open -----------------------------------------------------------------------------


def _depends(
    facts: Facts, job: JobRecord, stage: StageRecord, before: Sequence[StageRecord], item: ItemRecord | None
) -> Gate:
    if stage.status == StageStatus.PENDING:
        since = job.started_at or job.created_at
        enough = {StageStatus.COMPLETED}
        if stage.follow == "each":  # there may be something to do as soon as the other has begun
            enough |= {StageStatus.RUNNING, *STAGE_PAUSED}
        missing = [up for up in before if up.status not in enough]
        if missing:
            names = listed([f'"{up.key}"' for up in missing])
            far = listed([f'"{up.key}" is {_how_far(up)}' for up in missing])
            says = f'Stage "{stage.key}" waits for stage {names}: {far}.'
            opens = f"when stage {names} {'are' if len(missing) > 1 else 'is'} done ({_left_text(missing)})"
            waits_for = [{"key": up.key, "status": up.status, "left": left(up), "total": up.total} for up in missing]
            return closed("depends", says, opens, since, reason="stages", waits_for=waits_for)
        if job.status == JobStatus.RUNNING and stage.pause_reason is None:
            who = f"by itself {SWEEP}: the engine opens the stage" if facts.alive else "dalsegno agent"
            says = f'What stage "{stage.key}" depends on is done; it is about to open.'
            return closed("depends", says, who, since, reason="opening", engine=bool(facts.alive))
    elif item is None and stage.follow == "each" and stage.status == StageStatus.RUNNING:
        followed = before[0]
        if not left(stage) and followed.status not in STAGE_FINISHED:
            says = f'It has done all it was given so far; stage "{followed.key}", which it follows, is still at work.'
            opens = f'when stage "{followed.key}" is done with its next item ({_left_text([followed])})'
            return closed("depends", says, opens, reason="follows", follows=followed.key, left=left(followed))
    if item is not None and item.parent_id is not None:
        parent = facts.item(item.parent_id)
        says = f"It follows item {parent.id}, which is {parent.status}."
        return opened("depends", says, parent=parent.id, parent_status=parent.status)
    if before:
        return opened("depends", f"What its stage depends on has begun or is done: {', '.join(stage.depends_on)}.")
    return opened("depends", "Its stage depends on no other.")


def _left_text(missing: Sequence[StageRecord]) -> str:
    if all(stage.planned for stage in missing):
        return f"{count(sum(map(left, missing)), 'item')} left"
    return "their items are not all known yet"


def _how_far(stage: StageRecord) -> str:
    status = stage.status.replace("_", " ")
    if stage.status in STAGE_FINISHED or not stage.total:
        return status
    return f"{status}, {stage.total - left(stage):,} of {count(stage.total, 'item')} done"


def _planned(facts: Facts, stage: StageRecord) -> Gate:
    if stage.planned:
        return opened("planned", f"Its items are listed: {stage.total:,}.", total=stage.total)
    data: dict[str, Any] = {"planner": stage.planner_id, "total": stage.total}
    planner = facts.alive.get(stage.planner_id or 0)
    if planner is not None:
        says = f"Process {planner.pid} on {planner.node} is listing its items; so far {stage.total:,}."
        if stage.ready or stage.claimed or stage.running:
            return opened("planned", says, **data)
        opens, reason = "by itself, when the first are listed", "listing"
    elif facts.offers(stage.service):
        says, reason = "Its items are not listed yet.", "next"
        opens = f'by itself: a process that offers "{stage.service}" lists them'
    else:
        says = f'Its items are not listed yet: only a process that offers service "{stage.service}" can do that.'
        opens, reason = start_one(stage.service), "no_process"
    return closed("planned", says, opens, stage.started_at, reason=reason, **data)


def _paused(facts: Facts, stage: StageRecord) -> Gate:
    if stage.pause_reason is None:
        return opened("stage_paused", f'Stage "{stage.key}" is not paused by itself.', stage=stage.key)
    leased = stage.claimed + stage.running
    rest = f"; {are(leased, 'item', 'still ends', 'still end')}" if leased else ""
    says = f'Stage "{stage.key}" is paused by {stage.paused_by}: {said(stage.pause_reason)}{rest}.'
    command = f"dalsegno resume {stage.job_id} --stage {quote(stage.key)}"
    return closed("stage_paused", says, by_itself(stage.pause_until, facts.now, command), stage.paused_at,
                  stage.pause_until, stage=stage.key, by=stage.paused_by, why=stage.pause_reason,
                  leased=leased)  # fmt: skip


def _stopped(facts: Facts, stage: StageRecord) -> Gate:
    if stage.open:
        return opened("stage_stopped", "No failure has closed the stage.", stage=stage.key)
    failed = facts.failed_item(stage)
    if failed is None:  # it is behind a thousand items that have trouble of their own
        who, since, error = "An item", None, stage.last_error
        opens = f"dalsegno retry ITEM (dalsegno items {stage.job_id} --state failed lists them)"
    else:
        who, since, error = f"Item {failed.id}", failed.finished_at, failed.error_message or stage.last_error
        opens = f"dalsegno retry {failed.id}"
    says = f'{who} failed, and stage "{stage.key}" stops at a failure: {said(error)}.'
    return closed("stage_stopped", says, opens, since, reason="failure", stage=stage.key, error=error,
                  failed_item=failed and failed.id)  # fmt: skip


# --- what its items wait for ------------------------------------------------------------------------


def items_gates(facts: Facts, stage: StageRecord, all_stages: Sequence[StageRecord]) -> list[Gate]:
    """What keeps the items of a running stage, as a whole: closed only where none is ready."""
    if stage.status != StageStatus.RUNNING:
        return []
    gates: list[Gate] = []
    idle = not stage.ready and not stage.claimed and not stage.running
    state: State = "closed" if idle else "open"
    if stage.interrupted:
        says = f"{are(stage.interrupted, 'item')} interrupted."
        opens = f"by itself {SWEEP}: the sweep brings them back" if facts.alive else "dalsegno agent (its sweep does)"
        gates.append(Gate("interrupted", state, says, opens=opens, data={"interrupted": stage.interrupted}))
    gates += _resting(facts, stage, state)
    first = facts.first_ready(stage) if stage.claimable else None
    if first is not None:
        gate = order_gate(facts, stage, first, facts.last_event(first.id))
        says = f"{are(stage.ready, 'item')} ready; the first is item {first.id}. {gate.says}"
        gates.append(replace(gate, says=says, data={**gate.data, "item": first.id, "ready": stage.ready}))
    if not left(stage) and stage.planned:
        followed = _before(stage, all_stages) if stage.follow == "each" else []
        if all(up.status in STAGE_FINISHED for up in followed):
            opens = f"by itself {SWEEP}: the engine ends the stage" if facts.alive else "dalsegno agent"
            gates.append(closed("empty", "It has nothing left to do.", opens, total=stage.total))
    return gates


def _resting(facts: Facts, stage: StageRecord, state: State) -> list[Gate]:
    """Pending items that are not ready: they wait until a moment, or in line for a limit or a breaker."""
    resting = stage.pending - stage.ready
    if not resting:
        return []
    gates: list[Gate] = []
    line = {name: number for name in lines(facts.tx) if (number := facts.in_line(name, stage.id))}
    more = any(number > CAP for number in line.values())
    due = resting - sum(line.values())
    if due > 0 and not more:
        first = facts.first_due(stage)
        if first is None:
            opens = "by itself, bit by bit"
        elif first > facts.now:
            opens = f"by itself at {clock_text(first, facts.now)}"
        else:
            opens = "by itself, any moment now"
        says = f"{are(due, 'item', 'waits', 'wait')} until due."
        gates.append(Gate("due", state, says, until=first, opens=opens, data={"due": due}))
    if line:
        cause = gate_of_line(facts, max(line, key=lambda name: line[name]))
        names = listed([f"{count(number, 'item', capped=True)} for {name}" for name, number in line.items()])
        says = f"In line: {names}." + (f" {cause.says}" if cause.state == "closed" else "")
        opens = cause.opens or "by itself, any moment now: it has room again"
        data = {"line": {name: min(number, CAP) for name, number in line.items()}, "more": more}
        gates.append(Gate("waits", state, says, until=cause.until, opens=opens, data=data))
    return gates


def runs_gate(facts: Facts, some: Sequence[StageRecord]) -> list[Gate]:
    """The last gate of a job or a stage: what of these stages runs now."""
    running, claimed = sum(stage.running for stage in some), sum(stage.claimed for stage in some)
    if not running and not claimed:
        return []
    ids = {stage.id for stage in some}
    busy = [worker for worker in facts.workers if worker.stage_id in ids and worker.status == "busy"]
    begun = min(max(0, len(busy) - running), claimed)  # a beginning may be written a little later than it happens
    running, claimed = running + begun, claimed - begun
    parts = [f"It runs now: {are(running, 'item', 'runs', 'run')}"] if running else []
    if running and busy:
        parts[0] += f" ({listed(doing(busy))})"
    if claimed:
        parts.append(f"{'' if running else 'It is about to run: '}{are(claimed, 'item')} claimed")
    total = sum(stage.total for stage in some)
    done = total - sum(map(left, some))
    since = min((stage.started_at for stage in some if stage.started_at), default=None)
    data = {"running": running, "claimed": claimed, "total": total, "left": total - done, "busy": busy_data(busy)}
    return [Gate("running", "open", f"{', '.join(parts)}, {done:,} of {total:,} done.", since, data=data)]
