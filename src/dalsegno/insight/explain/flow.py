"""Limits and breakers: what lets calls begin. Whether it does is the engine's own arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import Any

from dalsegno.engine.breakers import CLOSED, OPEN, calls
from dalsegno.engine.limits import room
from dalsegno.insight.explain.facts import Facts
from dalsegno.insight.explain.gate import Gate, closed, opened
from dalsegno.insight.explain.words import LISTED, clock_text, count, listed, said, span
from dalsegno.model.records import LimitRecord


def breaker_gate(facts: Facts, name: str) -> Gate:
    row = facts.breaker(name)
    if row is None or row.state == CLOSED:
        return opened("breaker", f"Breaker {name} lets calls through.", name=name)
    data: dict[str, Any] = {"name": name, "breaker": row.state, "kind": row.kind, "why": row.reason,
            "error": row.error, "by": row.tripped_by, "probe_item": row.probe_item_id}  # fmt: skip
    can, _ = calls(facts.tx, name)
    if can:
        return opened("breaker", f"Breaker {name} is half open: the next call is the probe.", **data)
    why, probe, reset = said(row.reason), f"dalsegno breaker probe {name}", f"dalsegno breaker reset {name}"
    if row.state == OPEN:
        opens = f"{probe} tries once; {reset} closes it"
        if row.resume_at is not None:
            opens = f"by itself at {clock_text(row.resume_at, facts.now)}; or now: {probe}"
        says = f"Breaker {name} is open: {why}."
        return closed("breaker", says, opens, row.tripped_at, row.resume_at, reason="open", **data)
    item = f" (item {row.probe_item_id})" if row.probe_item_id else ""
    says = f"Breaker {name} is half open: {why}; a probe is running{item}."
    opens = f"when the probe succeeds; or now: {reset}"
    return closed("breaker", says, opens, row.tripped_at, reason="probing", **data)


def limit_gate(facts: Facts, code: str, names: Sequence[str]) -> Gate:
    """Closed while none of these limits has room: work goes to whichever node has some."""
    found = [_limit_gate(facts, code, name) for name in names]
    full = [gate for gate in found if gate is not None and gate.state == "closed"]
    if full and len(full) == len(found):
        return min(full, key=lambda gate: (gate.until is None, gate.until or facts.now))
    says = next((gate.says for gate in found if gate is not None and gate.state == "open"), None)
    return opened(code, says or f"No limit of its {'service' if code == 'limit' else 'node'}.", names=list(names))


def gate_of_line(facts: Facts, name: str) -> Gate:
    """What keeps those in line for this name: its breaker, else its limit."""
    breaker = breaker_gate(facts, name)
    return breaker if breaker.state == "closed" else limit_gate(facts, "limit", [name])


def _limit_gate(facts: Facts, code: str, name: str) -> Gate | None:
    """None: there is no such limit."""
    limit = facts.limit(name)
    if limit is None or (limit.concurrent is None and limit.rate is None):
        return None
    free, delay = room(facts.tx, (name,))
    live = facts.live_permits(limit)
    at_once = None if limit.concurrent is None else f"{len(live)} of {count(limit.concurrent, 'call')} at once"
    per = None if limit.rate is None else f"{limit.rate} in {_window(limit.window)}"
    if free != 0:
        return opened(code, f"Limit {name} has room: {', '.join(part for part in (at_once, per) if part)}.")
    data: dict[str, Any] = {"name": name, "concurrent": limit.concurrent, "rate": limit.rate, "window": limit.window}
    if limit.concurrent is not None:
        data["live"] = len(live)
    if limit.concurrent is not None and len(live) >= limit.concurrent:
        holders = [f"item {permit.item_id}" for permit in live if permit.item_id is not None]
        by = f", held by {listed(holders)}" if holders else ""
        opens = "by itself, when one of them has ended"
        if limit.concurrent == 0:
            opens = _change(limit, limit.concurrent_setting, "--concurrent N")
        since = max((permit.granted_at for permit in live), default=limit.updated_at)
        return closed(code, f"Limit {name} is used up: {at_once}{by}.", opens, since, reason="concurrent",
                      items=[permit.item_id for permit in live][:LISTED], setting=limit.concurrent_setting,
                      **data)  # fmt: skip
    times: tuple[datetime | None, datetime | None]
    if delay is None:
        opens = _change(limit, limit.rate_setting, "--rate N/min")
        times = (limit.updated_at, None)
    else:
        until = facts.now + timedelta(seconds=delay)
        opens = f"by itself at {clock_text(until, facts.now)}"
        times = (facts.last_granted(limit), until)
    return closed(code, f"Limit {name} is used up: it allows {per}.", opens, *times, reason="rate",
                  setting=limit.rate_setting, **data)  # fmt: skip


def _change(limit: LimitRecord, setting: str | None, option: str) -> str:
    command = f"dalsegno settings {setting} N" if setting else f"dalsegno limit {quote(limit.name)} {option}"
    return f"{command} (it is 0: nothing begins until that is changed)"


def _window(seconds: float) -> str:
    return span(seconds) if seconds >= 10 else f"{seconds:g} s"
