"""An item: interrupted, due later, in line, behind others, or in somebody's hands."""

from __future__ import annotations

from datetime import datetime
from shlex import quote
from typing import Any

from dalsegno.insight.explain.facts import Facts, LastEvent
from dalsegno.insight.explain.flow import gate_of_line
from dalsegno.insight.explain.gate import Gate, closed, opened
from dalsegno.insight.explain.services import busy_data, doing
from dalsegno.insight.explain.words import CAP, SWEEP, are, clock_text, count, listed, put_before, said
from dalsegno.model.records import ItemRecord, JobRecord, StageRecord, WaitRecord
from dalsegno.model.states import ItemStatus, JobStatus


def item_ended(item: ItemRecord) -> Gate:
    match item.status:
        case ItemStatus.FAILED:
            tries = f" after {count(item.attempt, 'attempt')}" if item.attempt > 1 else ""
            says = f"It failed{tries}: {said(item.error_message or item.error_code)}."
            opens = f"dalsegno retry {item.id}"
        case ItemStatus.CANCELED:
            says, opens = "It was canceled with its job.", "submit a new job: a canceled one does not come back"
        case ItemStatus.SKIPPED:
            says, opens = "It is done: there was nothing to do.", f"dalsegno force-retry {item.id}"
        case _:
            says, opens = "It is done.", f"dalsegno force-retry {item.id}"
    return closed("finished", says, opens, item.finished_at, status=item.status, error_code=item.error_code,
                  error=item.error_message, attempt=item.attempt)  # fmt: skip


def item_gates(facts: Facts, job: JobRecord, stage: StageRecord, item: ItemRecord) -> list[Gate]:
    """Up to the first closed one: what is interrupted is in no line."""
    event = facts.last_event(item.id)
    if item.status == ItemStatus.INTERRUPTED:
        return [_interrupted(facts, job, stage, item, event)]
    gates = [opened("interrupted", "It is not interrupted.")]
    if item.due_at is not None:
        return [*gates, _due(facts, item, item.due_at, event)]
    gates.append(opened("due", "It is due."))
    wait = facts.wait(item.id)
    if wait is not None:
        return [*gates, _waits(facts, stage, item, wait)]
    gates.append(opened("waits", "It waits for no limit or breaker."))
    if stage.claimable:
        gates.append(order_gate(facts, stage, item, event))
    return gates


def _interrupted(facts: Facts, job: JobRecord, stage: StageRecord, item: ItemRecord, event: LastEvent) -> Gate:
    if job.status != JobStatus.RUNNING:
        opens = f"dalsegno resume {job.id}"
    elif stage.pause_reason is not None:
        opens = f"dalsegno resume {job.id} --stage {quote(stage.key)}"
    elif facts.lane(job.lane).recovery == "pause":
        opens = f"dalsegno resume {job.id}, once the sweep has paused the job ({SWEEP})"
    elif facts.alive:
        opens = f"by itself {SWEEP}: the sweep brings it back"
    else:
        opens = "dalsegno agent (its sweep brings it back)"
    says = f"It was interrupted: {said(item.error_message or item.error_code)}."
    return closed("interrupted", says, opens, event.at, error_code=item.error_code, error=item.error_message,
                  interruptions=item.interruptions)  # fmt: skip


def _due(facts: Facts, item: ItemRecord, due: datetime, event: LastEvent) -> Gate:
    """A failed attempt or a throttled call: nothing else makes an item wait until a moment."""
    why = event.data.get("throttled")
    if item.attempt and "throttled" not in event.data:
        error = said(item.error_message or item.error_code)
        says, reason = f"It waits after failed attempt {item.attempt}: {error}.", "backoff"
    else:
        says, reason = f"It was asked to wait: {said(why)}.", "throttled"
    if due > facts.now:
        opens = f"by itself at {clock_text(due, facts.now)}"
    elif facts.alive:
        opens = "by itself, any moment now"
    else:
        opens = "dalsegno agent (no engine is at work to wake it)"
    return closed("due", says, opens, event.at, due, reason=reason, why=why, attempt=item.attempt,
                  error_code=item.error_code, error=item.error_message)  # fmt: skip


def _waits(facts: Facts, stage: StageRecord, item: ItemRecord, wait: WaitRecord) -> Gate:
    name = wait.name
    if wait.offered_at is not None:
        says = f"It waited for {name}; its turn has come, and it is on its way."
        return closed("waits", says, "by itself, any moment now", wait.offered_at, reason="offered", name=name)
    before = facts.before_in_line(name, stage, item)
    line = f"{are(before, 'item', capped=True)} before it in line" if before else "it is the first in line"
    cause = gate_of_line(facts, name)
    shut = cause.state == "closed"
    says = f"It met {name} on its way and waits there; {line}.{f' {cause.says}' if shut else ''}"
    opens = cause.opens or "by itself, any moment now: it has room again"
    return closed("waits", says, opens, wait.since, cause.until, reason="line", name=name, before=min(before, CAP),
                  more=before > CAP, cause=cause.code if shut else None, cause_data=cause.data)  # fmt: skip


def order_gate(facts: Facts, stage: StageRecord, item: ItemRecord, event: LastEvent) -> Gate:
    """It is ready: how many come first, and who will take it."""
    earlier = facts.ready_before(stage)
    if item.returned:
        inside = facts.returned_before(item)
    else:  # numbers are dense above the mark; what came back is taken first
        inside = min(stage.returned + max(0, item.seq - stage.low_seq - 1), stage.ready - 1)
    before = earlier.ready + inside
    mine = [worker for worker in facts.workers if worker.service == stage.service]
    idle = [worker.name for worker in mine if worker.status == "idle"]
    busy = [worker for worker in mine if worker.status == "busy"]
    capacity = sum(facts.offers(stage.service).values())
    free = len(idle) + capacity - len(mine)  # a process that has just started has not named its workers yet
    data: dict[str, Any] = {"before": before, "workers": capacity, "idle": free, "busy": busy_data(busy)}
    if before < free:
        who = f"worker {idle[before]} will take it" if before < len(idle) else "a worker will take it"
        return opened("order", f"It is next in line: {who}.", **data)
    if before:
        says = f"It is ready, but {are(before, 'item', 'comes', 'come')} first"
    else:
        says = "It is next in line, but no worker is free"
    if busy:
        says += f"; {are(capacity, 'worker')} busy with {listed(doing(busy))}"
    opens = "by itself, in its turn"
    if earlier.top is not None:
        opens += f"; to put its job first: {put_before(earlier.top, stage.job_id)}"
    return closed("order", f"{says}.", opens, event.at or _listed_at(facts, stage, item), **data)


def _listed_at(facts: Facts, stage: StageRecord, item: ItemRecord) -> datetime | None:
    """Since when an item to which nothing has happened yet is ready."""
    parent = None if item.parent_id is None else facts.item(item.parent_id)
    return (parent and parent.finished_at) or stage.started_at


def lease_gates(facts: Facts, item: ItemRecord) -> list[Gate]:
    """Past all other gates: a process has it."""
    lease = facts.lease(item.id)
    process = facts.process(lease.process_id)
    where = f"process {process.pid} on {process.node}" if process else f"process number {lease.process_id}"
    node = process.node if process else None
    data: dict[str, Any] = {"process": lease.process_id, "node": node, "worker": lease.worker}
    dead = lease.process_id not in facts.alive
    back = "by itself" if facts.alive else "when an engine starts"
    lost = f"; that process gives no sign of life, and what it held comes back {back}" if dead else ""
    if item.status == ItemStatus.CLAIMED:
        opens = "by itself, when a worker of that process is free"
        if dead:
            opens = f"by itself {SWEEP}: it is given back" if facts.alive else "dalsegno agent"
        says = f"It was taken by {where}, which has not begun it yet{lost}."
        return [closed("claimed", says, opens, lease.claimed_at, reason="lost" if dead else "waiting", **data)]
    done = None if item.progress is None else f"{item.progress:.0%}"
    doing_now = (item.phase, done, item.progress_text and said(item.progress_text))
    shown = ", ".join(part for part in doing_now if part)
    says = f"It runs now, on {lease.worker or where}{f' ({shown})' if shown else ''}{lost}."
    more = {"phase": item.phase, "progress": item.progress, "text": item.progress_text, "lost": dead}
    return [
        opened("claimed", f"It was taken by {where}.", **data),
        Gate("running", "open", says, lease.begun_at or item.started_at, data=data | more),
    ]
