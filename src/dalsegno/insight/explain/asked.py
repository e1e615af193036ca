"""What a person may ask about: the gates of each, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dalsegno.errors import InputInvalid, NotFound
from dalsegno.insight.explain.facts import Facts
from dalsegno.insight.explain.gate import Explanation, explained, opened
from dalsegno.insight.explain.holds import all_held
from dalsegno.insight.explain.items import item_ended, item_gates, lease_gates
from dalsegno.insight.explain.jobs import cancel_gate, job_ended, job_gates, next_stage_gates
from dalsegno.insight.explain.nodes import node_gates
from dalsegno.insight.explain.services import service_gates, service_status, work_gate
from dalsegno.insight.explain.stages import items_gates, runs_gate, stage_ended, stage_gates
from dalsegno.model.states import ITEM_LEASED, JOB_FINISHED, STAGE_FINISHED, ItemStatus, JobStatus
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.store import Tx

UNFINISHED = opened("finished", "It is not finished.")


def explain(tx: Tx, what: str, target: str) -> Explanation:
    """`job 3`, `stage 3/download`, `stage 17`, `item 42`, `service download` or `node nas`."""
    if what not in ASKED:
        raise InputInvalid(problem=f'There is nothing to explain about a "{what}".{did_you_mean(what, ASKED)}')
    return ASKED[what](tx, target)


def subject_of(tx: Tx, found: Explanation) -> dict[str, int]:
    """Its job and its item by number, as far as it has them: what a button that opens a gate is about."""
    match found.what:
        case "job":
            return {"job_id": int(found.id)}
        case "stage":
            return {"job_id": Facts(tx).stage(int(found.id)).job_id}
        case "item":
            return {"job_id": Facts(tx).item(int(found.id)).job_id, "item_id": int(found.id)}
        case _:
            return {}


def explain_job(tx: Tx, job_id: int) -> Explanation:
    facts = Facts(tx)
    job, all_stages = facts.job(job_id), facts.stages(job_id)
    if job.status in JOB_FINISHED:
        gates = [job_ended(facts, job, all_stages)]
    else:
        gates = [UNFINISHED, *job_gates(facts, job, all_stages)]
        if job.status == JobStatus.RUNNING and job.cancel_requested_at is None:
            gates += next_stage_gates(facts, job, all_stages)
        gates += runs_gate(facts, all_stages)
    return explained("job", job_id, job.status, gates, facts.now)


def explain_stage(tx: Tx, stage_id: int) -> Explanation:
    facts = Facts(tx)
    stage = facts.stage(stage_id)
    job, all_stages = facts.job(stage.job_id), facts.stages(stage.job_id)
    if stage.status in STAGE_FINISHED:
        gates = [stage_ended(facts, stage, all_stages)]
    else:
        gates = [UNFINISHED, *job_gates(facts, job, all_stages), *stage_gates(facts, job, stage, all_stages)]
        gates += [*items_gates(facts, stage, all_stages), *runs_gate(facts, [stage])]
    return explained("stage", stage_id, stage.status, gates, facts.now)


def explain_item(tx: Tx, item_id: int) -> Explanation:
    facts = Facts(tx)
    item = facts.item(item_id)
    job, stage, all_stages = facts.job(item.job_id), facts.stage(item.stage_id), facts.stages(item.job_id)
    if item.status in ITEM_LEASED:
        gates = [UNFINISHED, cancel_gate(job, all_stages), *lease_gates(facts, item)]
    elif item.status in (ItemStatus.PENDING, ItemStatus.INTERRUPTED):
        gates = [UNFINISHED, *job_gates(facts, job, all_stages), *stage_gates(facts, job, stage, all_stages, item)]
        gates += item_gates(facts, job, stage, item)
    else:
        gates = [item_ended(item)]
    return explained("item", item_id, item.status, gates, facts.now)


def explain_service(tx: Tx, name: str) -> Explanation:
    facts = Facts(tx)
    known = facts.services()
    if name not in known:
        raise _no_such("service", name, known)
    gates = [all_held(facts), *service_gates(facts, name), work_gate(facts, name)]
    return explained("service", name, service_status(gates), gates, facts.now)


def explain_node(tx: Tx, name: str) -> Explanation:
    facts = Facts(tx)
    if name not in facts.nodes:
        raise _no_such("node", name, facts.nodes)
    gates = node_gates(facts, name)
    return explained("node", name, "alive" if gates[0].state == "open" else "gone", gates, facts.now)


ASKED: dict[str, Callable[[Tx, str], Explanation]] = {
    "job": lambda tx, target: explain_job(tx, _number("job", target)),
    "stage": lambda tx, target: explain_stage(tx, _stage(tx, target)),
    "item": lambda tx, target: explain_item(tx, _number("item", target)),
    "service": explain_service,
    "node": explain_node,
}


def _stage(tx: Tx, target: str) -> int:
    """A stage by its number (`17`), or by its job and its key (`3/download`)."""
    job, slash, key = target.partition("/")
    if not slash:
        return _number("stage", target)
    job_id = _number("job", job)
    found = {stage.key: stage.id for stage in Facts(tx).stages(job_id)}
    if not found:
        raise NotFound(what="job", id=job_id)
    if key not in found:
        raise _no_such("stage", key, found, of=f" of job {job_id}")
    return found[key]


def _number(what: str, text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        kind = "a number, or JOB/KEY" if what == "stage" else "a number"
        raise InputInvalid(problem=f'{"An" if what == "item" else "A"} {what} is named by {kind}, not "{text}".')
    return int(text)


def _no_such(what: str, name: str, known: Iterable[str], of: str = "") -> NotFound:
    hint = did_you_mean(name, known).strip().rstrip(".")
    return NotFound(what=what, id=f'"{name}"{of}' + (f" ({hint[0].lower()}{hint[1:]})" if hint else ""), name=name)
