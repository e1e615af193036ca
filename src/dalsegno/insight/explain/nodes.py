"""A node: whether a process lives on it, and what it does."""

from __future__ import annotations

from dalsegno.insight.explain.facts import Facts
from dalsegno.insight.explain.flow import limit_gate
from dalsegno.insight.explain.gate import Gate, closed, opened
from dalsegno.insight.explain.holds import all_held
from dalsegno.insight.explain.services import busy_data, doing, start_one
from dalsegno.insight.explain.words import count, listed


def node_gates(facts: Facts, name: str) -> list[Gate]:
    gates = [_alive(facts, name), all_held(facts), limit_gate(facts, "limit", [f"node:{name}"])]
    mine = [worker for worker in facts.workers if facts.alive[worker.process_id].node == name]
    busy = [worker for worker in mine if worker.status == "busy"]
    data = {"workers": len(mine), "busy": busy_data(busy), "services": sorted({worker.service for worker in mine})}
    if busy:
        says = f"It works: {len(busy)} of {count(len(mine), 'worker')} busy with {listed(doing(busy))}."
        gates.append(opened("running", says, **data))
    elif gates[0].state == "open":
        gates.append(opened("work", f"It is idle: {count(len(mine), 'worker')}, nothing to do.", **data))
    return gates


def _alive(facts: Facts, name: str) -> Gate:
    here = [process.id for process in facts.alive.values() if process.node == name]
    if here:
        says = f"It is alive: {'1 process' if len(here) == 1 else f'{len(here)} processes'}."
        return opened("alive", says, processes=here)
    node = facts.nodes[name]
    services = sorted(node.max_concurrency)
    opens = f"start one there: {start_one(listed(services)) if services else 'dalsegno agent'}"
    says = "It is asleep." if node.awake_state == "sleep" else "No process runs on it."
    return closed("alive", says, opens, node.last_seen, awake_state=node.awake_state)
