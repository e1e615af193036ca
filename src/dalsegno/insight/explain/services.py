"""A service: held, offered, stopped by its breaker, limited; and what it has to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dalsegno.insight.explain.facts import Facts
from dalsegno.insight.explain.flow import breaker_gate, limit_gate
from dalsegno.insight.explain.gate import Gate, closed, opened
from dalsegno.insight.explain.holds import service_held
from dalsegno.insight.explain.words import LISTED, are, count, listed
from dalsegno.model.records import WorkerRecord


def service_gates(facts: Facts, service: str) -> list[Gate]:
    name = f"service:{service}"
    at = sorted({facts.alive[process].node for process in facts.offers(service)})
    return [
        service_held(facts, service),
        _offered(facts, service),
        breaker_gate(facts, name),
        limit_gate(facts, "limit", [name]),
        limit_gate(facts, "node_limit", [f"node:{node}" for node in at]),
    ]


def work_gate(facts: Facts, service: str) -> Gate:
    """The last gate of a service: what there is to do."""
    ready, claimed, running = facts.busy(service)
    busy = [worker for worker in facts.workers if worker.service == service and worker.status == "busy"]
    workers = sum(facts.offers(service).values())
    data: dict[str, Any] = {"ready": ready, "claimed": claimed, "running": running, "workers": workers,
                            "busy": busy_data(busy)}  # fmt: skip
    if running or claimed:
        says = f"It works: {are(running, 'item', 'runs', 'run')} now, {claimed:,} are claimed, {ready:,} are ready."
        return opened("running", says, **data)
    if ready:
        return opened("work", f"{are(ready, 'item')} ready for it.", **data)
    opens = "when an item is ready for it: dalsegno submit WORKFLOW"
    return closed("work", "There is nothing for it to do: no item is ready.", opens, **data)


_STATUS = {"all_held": "held", "service_held": "held", "offered": "offline", "breaker": "stopped", "limit": "limited",
           "node_limit": "limited", "work": "idle"}  # fmt: skip


def service_status(gates: Sequence[Gate]) -> str:
    """One word; the first closed gate has it."""
    return next((_STATUS[gate.code] for gate in gates if gate.state == "closed"), "working")


def start_one(service: str) -> str:
    """The command that offers it."""
    return f"dalsegno agent --services MODULE (the one that defines {service}; none for what comes with the package)"


def doing(busy: Sequence[WorkerRecord]) -> list[str]:
    return [f"item {worker.item_id} on {worker.name}" for worker in busy]


def busy_data(busy: Sequence[WorkerRecord]) -> list[dict[str, Any]]:
    return [worker.model_dump(include={"name", "item_id", "text", "progress", "phase"}) for worker in busy[:LISTED]]


def _offered(facts: Facts, service: str) -> Gate:
    offers = facts.offers(service)
    if offers:
        on = sorted({facts.alive[process].node for process in offers})
        many = sum(offers.values())
        says = f'Service "{service}" is offered by {count(many, "worker")} on {listed(on)}.'
        return opened("offered", says, service=service, workers=many, nodes=on)
    before = [node for node in facts.nodes.values() if service in node.max_concurrency]
    last = max(before, key=lambda node: node.last_seen, default=None)
    if facts.alive:
        says = f'No live process offers service "{service}"'
    else:
        says = f'No engine is at work on this database, so nobody offers service "{service}"'
    says += "." if last is None else f"; node {last.name} did."
    return closed("offered", says, start_one(service), None if last is None else last.last_seen, service=service,
                  engines=len(facts.alive), nodes=[node.name for node in before])  # fmt: skip
