"""Why is it not running? The gates between something and its run, in order, and what opens the first closed one.

Every sentence a person reads about a gate is made here, so that the command line, the API and the console say the
same. `code`, `state` and `data` (with its `reason`, where a gate can be closed in several ways) say it once more for
programs and translators. All is read in one snapshot, each row through an index: the cost does not grow with what is
done or pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from shlex import quote
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from dalsegno.engine.holds import ENGINE
from dalsegno.errors import InputInvalid, NotFound
from dalsegno.model.states import (
    ITEM_LEASED,
    JOB_ACTIVE,
    JOB_FINISHED,
    STAGE_FINISHED,
    STAGE_PAUSED,
    ItemStatus,
    JobStatus,
    StageStatus,
)
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.schema import (
    breakers,
    events,
    holds,
    items,
    jobs,
    lanes,
    leases,
    limits,
    nodes,
    permits,
    processes,
    stages,
    waits,
    workers,
    workflows,
)
from dalsegno.store.store import Tx

GATES = {
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

CAP = 1000
"""Lines are counted up to here: more are "more than 1,000"."""
SHOWN = 5
"""Most names in one sentence; `data` has up to ten times as many."""
SWEEP = "within 5 s"


@dataclass(frozen=True, slots=True)
class Gate:
    code: str
    state: Literal["open", "closed"]
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


# --- words ----------------------------------------------------------------------------------------


def clock_text(moment: datetime, now: datetime) -> str:
    """`14:05:20 UTC`, with the date where it is another day."""
    moment = moment.astimezone(UTC)
    return f"{moment:%H:%M:%S} UTC" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def when(moment: datetime, now: datetime) -> str:
    """`12 min ago (14:03:20 UTC)`, `in 3 h (17:15:00 UTC)`."""
    seconds = (moment - now).total_seconds()
    span = _span(abs(seconds))
    relative = "now" if abs(seconds) < 1 else f"in {span}" if seconds > 0 else f"{span} ago"
    return f"{relative} ({clock_text(moment, now)})"


def times_of(gate: Gate, now: datetime) -> str:
    """`since 12 min ago (14:03:20 UTC), until in 3 min (14:18:20 UTC)`; empty where neither is known."""
    known = (("since", gate.since), ("until", gate.until))
    return ", ".join(f"{word} {when(moment, now)}" for word, moment in known if moment is not None)


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (seconds >= size and unit != "days"):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _count(number: int, noun: str, capped: bool = False) -> str:
    if capped and number > CAP:
        return f"more than {CAP:,} {noun}s"
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def _are(number: int, noun: str, verb: str = "is", verbs: str = "are", capped: bool = False) -> str:
    return f"{_count(number, noun, capped)} {verb if number == 1 else verbs}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _said(text: str | None, most: int = 200) -> str:
    """Somebody else's words, on one line and ready to be followed by ours."""
    line = " ".join((text or "no reason was given").split())
    return (line if len(line) <= most else line[: most - 1] + "…").rstrip(".")


def _open(code: str, says: str, **data: Any) -> Gate:
    return Gate(code, "open", says, data=data)


def _closed(
    code: str, says: str, opens: str, since: datetime | None = None, until: datetime | None = None, **data: Any
) -> Gate:
    return Gate(code, "closed", says, since, until, opens, data)


def _sentence(gate: Gate, now: datetime) -> str:
    times = times_of(gate, now)
    return f"{gate.says.rstrip('.')}, {times}." if times else gate.says


def _explanation(look: _Look, what: str, id: int | str, status: str, gates: list[Gate]) -> Explanation:
    """The first closed gate is the answer; where something runs nevertheless, that comes first."""
    first = next((gate for gate in gates if gate.state == "closed"), None)
    running = next((gate for gate in gates if gate.code == "running"), None)
    if running is not None and first is not None:
        answer = f"{_sentence(running, look.now).rstrip('.')}; nothing new starts: {_sentence(first, look.now)}"
    else:
        answer = _sentence(first or running or gates[-1], look.now)
    return Explanation(what, id, status, answer, gates, first, look.now)


# --- reading --------------------------------------------------------------------------------------


class _Room(NamedTuple):
    """What a limit says: `why` is empty while there is room."""

    why: str
    says: str
    since: datetime | None
    until: datetime | None
    data: dict[str, Any]


# Conditions of partial indexes, written as the indexes have them: SQLite compares texts.
_ACTIVE = sa.text("jobs.status IN ('running', 'pause_requested')")
_QUEUED = sa.text("jobs.status = 'queued'")
_LIVE = sa.text("stages.status IN ('running', 'pause_requested')")
_CLAIMABLE = sa.text("stages.claimable")
_RETURNED = sa.text("items.returned")
_HELD = sa.text("NOT permits.released")
_IN_LINE = sa.text("waits.offered_at IS NULL")


def _before(stage: sa.RowMapping) -> sa.ColumnElement[bool]:
    """Stages that come before this one in the global order."""
    place = (stage["priority"], stage["order_seq"], stage["id"])
    return sa.tuple_(stages.c.priority, stages.c.order_seq, stages.c.id) < place


class _Look:
    """One look at the database: what several gates ask for is read once."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.now = tx.now
        if tx.conn.dialect.name == "postgresql":  # young tables have no statistics, and all that is read has an index
            tx.conn.execute(sa.text("SET LOCAL enable_seqscan = off"))

    @cached_property
    def database_now(self) -> datetime:
        """Leases, permits and breakers run on the clock that all nodes share."""
        return self.tx.hot.database_now(self.tx)

    @cached_property
    def alive(self) -> dict[int, sa.RowMapping]:
        rows = self.tx.rows(sa.select(processes).order_by(processes.c.id))
        return {row["id"]: row for row in rows if row["lease_until"] > self.database_now}

    @cached_property
    def nodes(self) -> dict[str, sa.RowMapping]:
        return {row["name"]: row for row in self.tx.rows(sa.select(nodes).order_by(nodes.c.name))}

    @cached_property
    def workers(self) -> list[sa.RowMapping]:
        """Of live processes, in the order they were hired."""
        rows = self.tx.rows(sa.select(workers).order_by(workers.c.process_id, workers.c.id))
        return [row for row in rows if row["process_id"] in self.alive]

    def offers(self, service: str) -> dict[int, int]:
        """Live processes that offer it, with how many workers. One that has just started is known by its node."""
        found: dict[int, int] = {}
        for worker in self.workers:
            if worker["service"] == service:
                found[worker["process_id"]] = found.get(worker["process_id"], 0) + 1
        reported = {worker["process_id"] for worker in self.workers}
        for process in self.alive.values():
            node = self.nodes.get(process["node"])
            capacity = 0 if node is None else int(node["max_concurrency"].get(service, 0))
            if process["id"] not in reported and capacity:
                found[process["id"]] = capacity
        return found

    def one(self, table: sa.Table, key: Any) -> sa.RowMapping | None:
        (column,) = table.primary_key.columns
        return self.tx.row(sa.select(table).where(column == key))

    def stages(self, job_id: int) -> list[sa.RowMapping]:
        return self.tx.rows(sa.select(stages).where(stages.c.job_id == job_id).order_by(stages.c.seq))

    def up_to_cap(self, query: sa.Select[Any]) -> int:
        """How many rows, looking at no more than there is a word for."""
        some = query.limit(CAP + 1).subquery()
        return int(self.tx.conn.execute(sa.select(sa.func.count()).select_from(some)).scalar_one())

    def last_event(self, item_id: int) -> sa.RowMapping | None:
        query = sa.select(events.c.at, events.c.type, events.c.data).where(events.c.item_id == item_id)
        return self.tx.row(query.order_by(events.c.id.desc()).limit(1))

    def failed_item(self, stage: sa.RowMapping) -> sa.RowMapping | None:
        """One that failed, among the first with trouble."""
        if not stage["failed"]:
            return None
        query = sa.select(items.c.id, items.c.status, items.c.finished_at, items.c.error_message).where(
            items.c.stage_id == stage["id"], items.c.error_code.is_not(None)
        )
        trouble = self.tx.rows(query.order_by(items.c.seq).limit(CAP))
        return next((row for row in trouble if row["status"] == ItemStatus.FAILED), None)


# --- what a person may ask about --------------------------------------------------------------------


def explain(tx: Tx, what: str, target: str) -> Explanation:
    """`job 3`, `stage 3/download`, `stage 17`, `item 42`, `service download` or `node nas`."""
    if what not in ASKED:
        raise InputInvalid(problem=f'There is nothing to explain about a "{what}".{did_you_mean(what, ASKED)}')
    return ASKED[what](tx, target)


def explain_job(tx: Tx, job_id: int) -> Explanation:
    look = _Look(tx)
    job = look.one(jobs, job_id)
    if job is None:
        raise NotFound(what="job", id=job_id)
    all_stages = look.stages(job_id)
    if job["status"] in JOB_FINISHED:
        return _explanation(look, "job", job_id, job["status"], [_job_finished(look, job, all_stages)])
    gates = [_open("finished", "It is not finished."), *_job_gates(look, job, all_stages)]
    if job["status"] == JobStatus.RUNNING and job["cancel_requested_at"] is None:
        unfinished = [stage for stage in all_stages if stage["status"] not in STAGE_FINISHED]
        if unfinished:
            gates += [_of_stage(gate, unfinished[0]) for gate in _stage_gates(look, job, unfinished[0], all_stages)]
            gates += [_of_stage(gate, unfinished[0]) for gate in _items_gates(look, unfinished[0], all_stages)]
        else:
            gates.append(_closed("empty", "All its stages have ended.", f"by itself {SWEEP}: the engine ends the job"))
    gates += _runs(look, all_stages, "job_id", job_id)
    return _explanation(look, "job", job_id, job["status"], gates)


def explain_stage(tx: Tx, stage_id: int) -> Explanation:
    look = _Look(tx)
    stage = look.one(stages, stage_id)
    if stage is None:
        raise NotFound(what="stage", id=stage_id)
    all_stages = look.stages(stage["job_id"])
    job = look.one(jobs, stage["job_id"])
    assert job is not None
    if stage["status"] in STAGE_FINISHED:
        return _explanation(look, "stage", stage_id, stage["status"], [_stage_finished(look, stage, all_stages)])
    gates = [_open("finished", "It is not finished."), *_job_gates(look, job, all_stages)]
    gates += _stage_gates(look, job, stage, all_stages)
    gates += _items_gates(look, stage, all_stages)
    gates += _runs(look, [stage], "stage_id", stage_id)
    return _explanation(look, "stage", stage_id, stage["status"], gates)


def explain_item(tx: Tx, item_id: int) -> Explanation:
    look = _Look(tx)
    item = look.one(items, item_id)
    if item is None:
        raise NotFound(what="item", id=item_id)
    stage, job = look.one(stages, item["stage_id"]), look.one(jobs, item["job_id"])
    assert stage is not None
    assert job is not None
    all_stages = look.stages(item["job_id"])
    if item["status"] in ITEM_LEASED:  # past all gates but the last
        gates = [_open("finished", "It is not finished."), _cancel_gate(job, all_stages), *_leased(look, item)]
    elif item["status"] not in (ItemStatus.PENDING, ItemStatus.INTERRUPTED):
        gates = [_item_finished(item)]
    else:
        gates = [_open("finished", "It is not finished."), *_job_gates(look, job, all_stages)]
        gates += _stage_gates(look, job, stage, all_stages, item)
        gates += _item_gates(look, job, stage, item)
    return _explanation(look, "item", item_id, item["status"], gates)


def explain_service(tx: Tx, name: str) -> Explanation:
    look = _Look(tx)
    known = _known_services(look)
    if name not in known:
        raise _no_such("service", name, known)
    gates = [_all_held(look), *_service_gates(look, name)]
    ready = tx.conn.execute(
        sa.select(sa.func.coalesce(sa.func.sum(stages.c.ready), 0)).where(stages.c.service == name, _CLAIMABLE)
    ).scalar_one()
    live = tx.rows(sa.select(stages.c.service, stages.c.claimed, stages.c.running).where(_LIVE).order_by(stages.c.id))
    running = sum(row["running"] for row in live if row["service"] == name)
    claimed = sum(row["claimed"] for row in live if row["service"] == name)
    busy = [row for row in look.workers if row["service"] == name and row["status"] == "busy"]
    data = {"ready": int(ready), "claimed": claimed, "running": running, "workers": sum(look.offers(name).values()),
            "busy": _busy(busy)}  # fmt: skip
    if running or claimed:
        says = f"It works: {_are(running, 'item', 'runs', 'run')} now, {claimed:,} are claimed, {ready:,} are ready."
        gates.append(_open("running", says, **data))
    elif ready:
        gates.append(_open("work", f"{_are(ready, 'item')} ready for it.", **data))
    else:
        opens = "when an item is ready for it: dalsegno submit WORKFLOW"
        gates.append(_closed("work", "There is nothing for it to do: no item is ready.", opens, **data))
    codes = {gate.code for gate in gates if gate.state == "closed"}
    words = {"all_held": "held", "service_held": "held", "offered": "offline", "breaker": "stopped", "limit": "limited",
             "node_limit": "limited"}  # fmt: skip
    status = next((word for code, word in words.items() if code in codes), "idle" if "work" in codes else "working")
    return _explanation(look, "service", name, status, gates)


def explain_node(tx: Tx, name: str) -> Explanation:
    look = _Look(tx)
    here = [row for row in look.alive.values() if row["node"] == name]
    node = look.nodes.get(name)
    if node is None and not here:
        raise _no_such("node", name, look.nodes)
    if here:
        says = f"It is alive: {'1 process' if len(here) == 1 else f'{len(here)} processes'}."
        gates = [_open("alive", says, processes=[row["id"] for row in here])]
    else:
        assert node is not None
        asleep = node["awake_state"] == "sleep"
        says = "It is asleep." if asleep else "No process runs on it."
        opens = f"start one there: {_agent_for(node['max_concurrency'])}"
        gates = [_closed("alive", says, opens, node["last_seen"], awake_state=node["awake_state"])]
    gates += [_all_held(look), _limit_gate(look, "limit", [f"node:{name}"])]
    mine = [row for row in look.workers if look.alive[row["process_id"]]["node"] == name]
    busy = [row for row in mine if row["status"] == "busy"]
    data = {"workers": len(mine), "busy": _busy(busy), "services": sorted({row["service"] for row in mine})}
    if busy:
        says = f"It works: {len(busy)} of {_count(len(mine), 'worker')} busy with {_listed(_doing(busy))}."
        gates.append(_open("running", says, **data))
    elif here:
        gates.append(_open("work", f"It is idle: {_count(len(mine), 'worker')}, nothing to do.", **data))
    return _explanation(look, "node", name, "alive" if here else "gone", gates)


def find_stage(tx: Tx, target: str) -> int:
    """A stage by its number (`17`), or by its job and its key (`3/download`)."""
    job, slash, key = target.partition("/")
    if not slash:
        return _number("stage", target)
    job_id = _number("job", job)
    found = {row["key"]: row["id"] for row in _Look(tx).stages(job_id)}
    if not found:
        raise NotFound(what="job", id=job_id)
    if key not in found:
        raise _no_such("stage", key, found, of=f" of job {job_id}")
    return int(found[key])


ASKED: dict[str, Callable[[Tx, str], Explanation]] = {
    "job": lambda tx, target: explain_job(tx, _number("job", target)),
    "stage": lambda tx, target: explain_stage(tx, find_stage(tx, target)),
    "item": lambda tx, target: explain_item(tx, _number("item", target)),
    "service": explain_service,
    "node": explain_node,
}


def _number(what: str, text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        kind = "a number, or JOB/KEY" if what == "stage" else "a number"
        raise InputInvalid(problem=f'{"An" if what == "item" else "A"} {what} is named by {kind}, not "{text}".')
    return int(text)


def _no_such(what: str, name: str, known: Iterable[str], of: str = "") -> NotFound:
    hint = did_you_mean(name, known).strip().rstrip(".")
    return NotFound(what=what, id=f'"{name}"{of}' + (f" ({hint[0].lower()}{hint[1:]})" if hint else ""), name=name)


def _known_services(look: _Look) -> set[str]:
    known = {service for node in look.nodes.values() for service in node["max_concurrency"]}
    known |= {worker["service"] for worker in look.workers}
    for table in (holds, limits, breakers):
        named = look.tx.conn.execute(sa.select(table.c.name).where(table.c.name.startswith("service:"))).scalars()
        known |= {name.removeprefix("service:") for name in named}
    for definition in look.tx.conn.execute(sa.select(workflows.c.definition)).scalars():
        known |= {step["service"] for step in definition["steps"]}
    return known


# --- the end ----------------------------------------------------------------------------------------


def _job_finished(look: _Look, job: sa.RowMapping, all_stages: Sequence[sa.RowMapping]) -> Gate:
    status, error = job["status"], _said(job["error_message"])
    failed = next((found for stage in all_stages if (found := look.failed_item(stage))), None)
    data = {"status": status, "error": job["error_message"], "failed_item": failed and failed["id"],
            "failed": sum(stage["failed"] for stage in all_stages)}  # fmt: skip
    match status:
        case JobStatus.CANCELED:
            says, opens = "It was canceled.", "submit a new job: a canceled one does not come back"
        case JobStatus.FAILED:
            says = f"It failed: {error}."
            opens = f"dalsegno retry {failed['id']}" if failed else "submit a new job"
        case JobStatus.COMPLETED_WITH_ERRORS:
            says = f"It is done, and {_are(data['failed'], 'item', 'has', 'have')} failed."
            opens = f"dalsegno retry {failed['id']}" if failed else f"dalsegno items {job['id']} --state failed"
        case _:
            says, opens = "It is done.", f"dalsegno force-retry ITEM (dalsegno items {job['id']} lists them)"
    return _closed("finished", says, opens, job["finished_at"], **data)


def _stage_finished(look: _Look, stage: sa.RowMapping, all_stages: Sequence[sa.RowMapping]) -> Gate:
    failed = look.failed_item(stage)
    data = {"status": stage["status"], "error": stage["last_error"], "failed_item": failed and failed["id"],
            "failed": stage["failed"]}  # fmt: skip
    again = f"dalsegno items {stage['job_id']} --stage {stage['key']}"
    match stage["status"]:
        case StageStatus.CANCELED:
            says, opens = "It was canceled.", "submit a new job: a canceled one does not come back"
        case StageStatus.FAILED:
            says = f"It failed: {_said(stage['last_error'])}."
            opens = f"dalsegno retry {failed['id']}" if failed else "submit a new job"
        case StageStatus.SKIPPED:
            before = [up for up in all_stages if up["key"] in stage["depends_on"]]
            names = [f'"{up["key"]}"' for up in before if up["status"] in (StageStatus.FAILED, StageStatus.SKIPPED)]
            says = f"It was skipped: stage {_listed(names)} did not complete." if names else "It was skipped."
            culprit = next((found for up in before if (found := look.failed_item(up))), None)
            opens = f"dalsegno retry {culprit['id']}" if culprit else "retry what failed before it"
        case _ if stage["failed"]:
            says = f"It is done, and {_are(stage['failed'], 'item', 'has', 'have')} failed."
            opens = f"dalsegno retry {failed['id']}" if failed else again
        case _:
            says, opens = "It is done.", f"dalsegno force-retry ITEM ({again} lists them)"
    return _closed("finished", says, opens, stage["finished_at"], **data)


def _item_finished(item: sa.RowMapping) -> Gate:
    data = {"status": item["status"], "error_code": item["error_code"], "error": item["error_message"],
            "attempt": item["attempt"]}  # fmt: skip
    match item["status"]:
        case ItemStatus.FAILED:
            tries = f" after {_count(item['attempt'], 'attempt')}" if item["attempt"] > 1 else ""
            says = f"It failed{tries}: {_said(item['error_message'] or item['error_code'])}."
            opens = f"dalsegno retry {item['id']}"
        case ItemStatus.CANCELED:
            says, opens = "It was canceled with its job.", "submit a new job: a canceled one does not come back"
        case ItemStatus.SKIPPED:
            says, opens = "It is done: there was nothing to do.", f"dalsegno force-retry {item['id']}"
        case _:
            says, opens = "It is done.", f"dalsegno force-retry {item['id']}"
    return _closed("finished", says, opens, item["finished_at"], **data)


# --- the job and its lane ---------------------------------------------------------------------------


def _job_gates(look: _Look, job: sa.RowMapping, all_stages: Sequence[sa.RowMapping]) -> list[Gate]:
    gates = [_cancel_gate(job, all_stages), _all_held(look), _lane_held(look, job), _scheduled(look, job)]
    free = all(gate.state == "open" for gate in gates)
    if job["status"] == JobStatus.QUEUED:
        gates.append(_lane_turn(look, job, free))
    elif job["status"] in JOB_ACTIVE:
        gates.append(_open("lane_turn", f'Its job was admitted to lane "{job["lane"]}".', lane=job["lane"]))
    return [*gates, _job_paused(look, job, all_stages)]


def _cancel_gate(job: sa.RowMapping, all_stages: Sequence[sa.RowMapping]) -> Gate:
    if job["cancel_requested_at"] is None:
        return _open("cancel", "Its job is not being canceled.", job=job["id"])
    left = sum(stage["claimed"] + stage["running"] for stage in all_stages)
    rest = f"{_are(left, 'item', 'still ends', 'still end')}" if left else "what waits is being canceled"
    return _closed("cancel", f"Job {job['id']} is being canceled; {rest}.",
                   "never: a canceled job does not come back; submit a new one",
                   job["cancel_requested_at"], job=job["id"], leased=left)  # fmt: skip


def _by_itself(look: _Look, until: datetime | None, command: str) -> str:
    """A command, or the moment for which somebody has set it already."""
    if until is None:
        return command
    if until <= look.now:
        return f"by itself, any moment now; or: {command}"
    return f"by itself at {clock_text(until, look.now)}; or now: {command}"


def _is_over(look: _Look, row: sa.RowMapping) -> bool:
    """A hold ends at its end, also where nobody has taken it off yet."""
    return row["held_until"] is not None and row["held_until"] <= look.now


def _hold(look: _Look, code: str, name: str, what: str) -> Gate:
    row = look.one(holds, name)
    if row is None or _is_over(look, row):
        says = "No hold on everything." if name == "all" else f"{what} is not held."
        return _open(code, says, hold=name)
    says = f"{what} is held by {row['held_by']}: {_said(row['held_reason'])}."
    kind, _, target = name.partition(":")
    command = f"dalsegno resume --{kind}" + (f" {quote(target)}" if target else "")
    return _closed(code, says, _by_itself(look, row["held_until"], command), row["held_at"],
                   row["held_until"], hold=name, by=row["held_by"], why=row["held_reason"])  # fmt: skip


def _all_held(look: _Look) -> Gate:
    return _hold(look, "all_held", "all", "Everything")


def _lane_held(look: _Look, job: sa.RowMapping) -> Gate:
    lane = look.one(lanes, job["lane"])
    assert lane is not None
    if lane["held_at"] is None or _is_over(look, lane):
        return _open("lane_held", f'Lane "{lane["name"]}" is not held.', lane=lane["name"])
    says = f'Lane "{lane["name"]}" is held by {lane["held_by"]}: {_said(lane["held_reason"])}.'
    # Whoever resumes a job has mended what made the engine hold its lane: one command opens both.
    paused = job["status"] in (JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED) and lane["held_by"] in ENGINE
    command = f"dalsegno resume {job['id'] if paused else '--lane ' + quote(lane['name'])}"
    return _closed("lane_held", says, _by_itself(look, lane["held_until"], command),
                   lane["held_at"], lane["held_until"], lane=lane["name"], by=lane["held_by"],
                   why=lane["held_reason"])  # fmt: skip


def _scheduled(look: _Look, job: sa.RowMapping) -> Gate:
    at = job["scheduled_at"]
    if at is None or at <= look.now or job["status"] in JOB_ACTIVE:
        return _open("scheduled", "It is not scheduled for later.")
    opens = f"by itself at {clock_text(at, look.now)}"
    return _closed("scheduled", f"Job {job['id']} is scheduled for later.", opens, job["created_at"], at, job=job["id"])


def _lane_turn(look: _Look, job: sa.RowMapping, free: bool) -> Gate:
    """A queued job: is there room in its lane, is it the next, and is anybody there to admit it?"""
    lane = look.one(lanes, job["lane"])
    assert lane is not None
    since = job["updated_at"] if job["started_at"] else max(job["created_at"], job["scheduled_at"] or job["created_at"])
    name, most = lane["name"], lane["max_active"]
    if most is not None:
        query = (
            sa.select(jobs.c.id).where(jobs.c.lane == name, _ACTIVE).order_by(jobs.c.id).limit(max(most, 10 * SHOWN))
        )
        active = list(look.tx.conn.execute(query).scalars())
        place = sa.tuple_(jobs.c.priority, jobs.c.order_seq) < (job["priority"], job["order_seq"])
        query = sa.select(jobs.c.scheduled_at, jobs.c.cancel_requested_at).where(jobs.c.lane == name, _QUEUED, place)
        queued = look.tx.rows(query.order_by(jobs.c.priority, jobs.c.order_seq).limit(CAP + 1))
        before = sum(
            row["cancel_requested_at"] is None and (row["scheduled_at"] is None or row["scheduled_at"] <= look.now)
            for row in queued
        )
        if len(active) + before >= most:
            line = f" and {_are(before, 'job', capped=True)} before it" if before else ""
            at_work = f"job {_listed([str(number) for number in active])}" if active else "nothing"
            says = f'Lane "{name}" takes {_count(most, "job")} at a time: {at_work} is active{line}.'
            opens = f"when {'job ' + str(active[0]) if active else 'one of them'} has ended"
            if before:
                opens += f"; to be next: dalsegno priority {job['id']} {_ahead_of(look, name)}"
            return _closed("lane_turn", says, opens, since, reason="full", lane=name, max_active=most,
                           active=active[: 10 * SHOWN], before=before)  # fmt: skip
    if not free:
        return _open("lane_turn", f'Lane "{name}" has room for it.', lane=name)
    if not look.alive:
        says = "It waits to be admitted, and no engine is at work on this database."
        return _closed("lane_turn", says, "dalsegno agent", since, reason="no_engine", lane=name)
    return _closed("lane_turn", f'It is its turn in lane "{name}".', "by itself within 1 s: an engine admits it", since,
                   reason="next", lane=name)  # fmt: skip


def _ahead_of(look: _Look, lane: str) -> int:
    """A priority that comes before all that wait in this lane."""
    query = sa.select(jobs.c.priority).where(jobs.c.lane == lane, _QUEUED).order_by(jobs.c.priority, jobs.c.order_seq)
    first = look.tx.conn.execute(query.limit(1)).scalar_one()
    return max(int(first) - 1, -1_000_000)


def _job_paused(look: _Look, job: sa.RowMapping, all_stages: Sequence[sa.RowMapping]) -> Gate:
    if job["status"] not in (JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED):
        return _open("job_paused", "Its job is not paused.", job=job["id"])
    by, why = job["paused_by"] or "an operator", _said(job["pause_reason"])
    since = job["paused_at"] or job["updated_at"]
    opens = _by_itself(look, job["pause_until"], f"dalsegno resume {job['id']}")
    data = {"job": job["id"], "by": by, "why": job["pause_reason"]}
    if job["status"] == JobStatus.PAUSED:
        says = f"Job {job['id']} is paused by {by}: {why}."
        return _closed("job_paused", says, opens, since, job["pause_until"], reason="paused", **data)
    left = sum(stage["claimed"] + stage["running"] for stage in all_stages)
    busy = [row for row in look.workers if row["job_id"] == job["id"] and row["status"] == "busy"]
    on = f" ({_listed(_doing(busy))})" if busy else ""
    says = f"Job {job['id']} is asked to pause by {by}: {why}; {_are(left, 'item', 'still ends', 'still end')}{on}."
    return _closed("job_paused", says, f"when they have ended, it is paused; then: {opens}", since, job["pause_until"],
                   reason="draining", leased=left, busy=_busy(busy), **data)  # fmt: skip


# --- the stage --------------------------------------------------------------------------------------


def _stage_gates(
    look: _Look, job: sa.RowMapping, stage: sa.RowMapping, all_stages: Sequence[sa.RowMapping],
    item: sa.RowMapping | None = None,
) -> list[Gate]:  # fmt: skip
    gates = [_depends(look, job, stage, all_stages, item)]
    if item is None and stage["status"] == StageStatus.RUNNING:
        gates.append(_planned(look, stage))
    gates.append(_stage_paused(look, stage))
    if stage["status"] == StageStatus.RUNNING and stage["pause_reason"] is None and job["cancel_requested_at"] is None:
        gates.append(_stage_stopped(look, stage))
    return [*gates, *_service_gates(look, stage["service"])]


def _depends(
    look: _Look, job: sa.RowMapping, stage: sa.RowMapping, all_stages: Sequence[sa.RowMapping],
    item: sa.RowMapping | None,
) -> Gate:  # fmt: skip
    before = [up for up in all_stages if up["key"] in stage["depends_on"]]
    if stage["status"] == StageStatus.PENDING:
        enough = {StageStatus.COMPLETED}
        if stage["follow"] == "each":  # there may be something to do as soon as the other has begun
            enough |= {StageStatus.RUNNING, *STAGE_PAUSED}
        missing = [up for up in before if up["status"] not in enough]
        since = job["started_at"] or job["created_at"]
        if missing:
            data = [{"key": up["key"], "status": up["status"], "left": _left(up), "total": up["total"]}
                    for up in missing]  # fmt: skip
            names = _listed([f'"{up["key"]}"' for up in missing])
            far = _listed([f'"{up["key"]}" is {_how_far(up)}' for up in missing])
            done = "are done" if len(missing) > 1 else "is done"
            says = f'Stage "{stage["key"]}" waits for stage {names}: {far}.'
            opens = f"when stage {names} {done} ({_left_text(missing)})"
            return _closed("depends", says, opens, since, reason="stages", waits_for=data)
        if job["status"] == JobStatus.RUNNING and stage["pause_reason"] is None:
            who = f"by itself {SWEEP}: the engine opens the stage" if look.alive else "dalsegno agent"
            says = f'What stage "{stage["key"]}" depends on is done; it is about to open.'
            return _closed("depends", says, who, since, reason="opening", engine=bool(look.alive))
    elif item is None and stage["follow"] == "each" and stage["status"] == StageStatus.RUNNING:
        followed = before[0]
        idle = not (stage["pending"] or stage["claimed"] or stage["running"] or stage["interrupted"])
        if idle and followed["status"] not in STAGE_FINISHED:
            says = (
                f'It has done all it was given so far; stage "{followed["key"]}", which it follows, is still at work.'
            )
            opens = f'when stage "{followed["key"]}" is done with its next item ({_left_text([followed])})'
            return _closed("depends", says, opens, reason="follows", follows=followed["key"], left=_left(followed))
    if item is not None and item["parent_id"] is not None:
        parent = look.tx.row(sa.select(items.c.id, items.c.status).where(items.c.id == item["parent_id"]))
        if parent is not None:
            says = f"It follows item {parent['id']}, which is {parent['status']}."
            return _open("depends", says, parent=parent["id"], parent_status=parent["status"])
    if before:
        return _open("depends", f"What its stage depends on has begun or is done: {', '.join(stage['depends_on'])}.")
    return _open("depends", "Its stage depends on no other.")


def _left(stage: sa.RowMapping) -> int:
    return int(stage["pending"] + stage["claimed"] + stage["running"] + stage["interrupted"])


def _left_text(missing: Sequence[sa.RowMapping]) -> str:
    if all(stage["planned"] for stage in missing):
        return f"{_count(sum(map(_left, missing)), 'item')} left"
    return "their items are not all known yet"


def _how_far(stage: sa.RowMapping) -> str:
    status, total = stage["status"].replace("_", " "), stage["total"]
    if stage["status"] in STAGE_FINISHED or not total:
        return str(status)
    return f"{status}, {total - _left(stage):,} of {_count(total, 'item')} done"


def _planned(look: _Look, stage: sa.RowMapping) -> Gate:
    if stage["planned"]:
        return _open("planned", f"Its items are listed: {stage['total']:,}.", total=stage["total"])
    data: dict[str, Any] = {"planner": stage["planner_id"], "total": stage["total"]}
    if stage["planner_id"] in look.alive:
        process = look.alive[stage["planner_id"]]
        says = f"Process {process['pid']} on {process['node']} is listing its items; so far {stage['total']:,}."
        if stage["ready"] or stage["claimed"] or stage["running"]:
            return _open("planned", says, **data)
        return _closed("planned", says, "by itself, when the first are listed", stage["started_at"], reason="listing",
                       **data)  # fmt: skip
    if not look.offers(stage["service"]):
        says = f'Its items are not listed yet: only a process that offers service "{stage["service"]}" can do that.'
        return _closed("planned", says, _start(stage["service"]), stage["started_at"], reason="no_process", **data)
    says = "Its items are not listed yet."
    return _closed("planned", says, f'by itself: a process that offers "{stage["service"]}" lists them',
                   stage["started_at"], reason="next", **data)  # fmt: skip


def _stage_paused(look: _Look, stage: sa.RowMapping) -> Gate:
    if stage["pause_reason"] is None:
        return _open("stage_paused", f'Stage "{stage["key"]}" is not paused by itself.', stage=stage["key"])
    by = stage["paused_by"] or "an operator"
    left = stage["claimed"] + stage["running"]
    rest = f"; {_are(left, 'item', 'still ends', 'still end')}" if left else ""
    says = f'Stage "{stage["key"]}" is paused by {by}: {_said(stage["pause_reason"])}{rest}.'
    opens = _by_itself(look, stage["pause_until"], f"dalsegno resume {stage['job_id']} --stage {quote(stage['key'])}")
    return _closed("stage_paused", says, opens, stage["paused_at"], stage["pause_until"], stage=stage["key"], by=by,
                   why=stage["pause_reason"], leased=left)  # fmt: skip


def _stage_stopped(look: _Look, stage: sa.RowMapping) -> Gate:
    if stage["open"]:
        return _open("stage_stopped", "No failure has closed the stage.", stage=stage["key"])
    failed = look.failed_item(stage)
    if failed is None:
        says = f'Stage "{stage["key"]}" takes no new work at this moment.'
        return _closed("stage_stopped", says, f"by itself {SWEEP}", reason="moving", stage=stage["key"])
    error = failed["error_message"] or stage["last_error"]
    says = f'Item {failed["id"]} failed, and stage "{stage["key"]}" stops at a failure: {_said(error)}.'
    return _closed("stage_stopped", says, f"dalsegno retry {failed['id']}", failed["finished_at"], reason="failure",
                   stage=stage["key"], failed_item=failed["id"], error=error)  # fmt: skip


# --- the service and the nodes ----------------------------------------------------------------------


def _service_gates(look: _Look, service: str) -> list[Gate]:
    name = f"service:{service}"
    at = sorted({look.alive[process]["node"] for process in look.offers(service)})
    return [
        _hold(look, "service_held", name, f'Service "{service}"'),
        _offered(look, service),
        _breaker_gate(look, "breaker", name),
        _limit_gate(look, "limit", [name]),
        _limit_gate(look, "node_limit", [f"node:{node}" for node in at]),
    ]


def _start(service: str) -> str:
    return f"dalsegno agent --services MODULE (the one that defines {service}; none for what comes with the package)"


def _agent_for(services: Iterable[str]) -> str:
    names = sorted(services)
    return _start(_listed(names)) if names else "dalsegno agent"


def _offered(look: _Look, service: str) -> Gate:
    offers = look.offers(service)
    if offers:
        on = sorted({look.alive[process]["node"] for process in offers})
        many = _count(sum(offers.values()), "worker")
        says = f'Service "{service}" is offered by {many} on {_listed(on)}.'
        return _open("offered", says, service=service, workers=sum(offers.values()), nodes=on)
    before = [row for row in look.nodes.values() if service in row["max_concurrency"]]
    last = max(before, key=_last_seen, default=None)
    data: dict[str, Any] = {"service": service, "engines": len(look.alive), "nodes": [row["name"] for row in before]}
    if look.alive:
        says = f'No live process offers service "{service}".'
    else:
        says = f'No engine is at work on this database, so nobody offers service "{service}".'
    if last is not None:
        says = f"{says.rstrip('.')}; node {last['name']} did."
    return _closed("offered", says, _start(service), None if last is None else last["last_seen"], **data)


def _last_seen(node: sa.RowMapping) -> datetime:
    return node["last_seen"]  # type: ignore[no-any-return]


def _breaker_gate(look: _Look, code: str, name: str) -> Gate:
    row = look.one(breakers, name)
    if row is None or row["state"] == "closed":
        return _open(code, f"Breaker {name} lets calls through.", name=name)
    data = {"name": name, "breaker": row["state"], "kind": row["kind"], "why": row["reason"], "error": row["error"],
            "by": row["tripped_by"], "probe_item": row["probe_item_id"]}  # fmt: skip
    why = _said(row["reason"])
    waiting = row["state"] == "open" and (row["resume_at"] is None or row["resume_at"] > look.database_now)
    if waiting:
        command = f"dalsegno breaker probe {name}"
        says = f"Breaker {name} is open: {why}."
        if row["resume_at"] is None:
            opens = f"{command} tries once; dalsegno breaker reset {name} closes it"
        else:
            opens = f"by itself at {clock_text(row['resume_at'], look.now)}; or now: {command}"
        return _closed(code, says, opens, row["tripped_at"], row["resume_at"], reason="open", **data)
    if row["state"] == "half_open" and row["probe_process_id"] in look.alive:
        item = f" (item {row['probe_item_id']})" if row["probe_item_id"] else ""
        says = f"Breaker {name} is half open: {why}; a probe is running{item}."
        opens = f"when the probe succeeds; or now: dalsegno breaker reset {name}"
        return _closed(code, says, opens, row["tripped_at"], reason="probing", **data)
    return _open(code, f"Breaker {name} is half open: the next call is the probe.", **data)


def _limit_gate(look: _Look, code: str, names: Sequence[str]) -> Gate:
    """Closed while none of these limits has room: work goes to whichever node has some."""
    rooms = {name: _room(look, name) for name in names}
    free = [room for room in rooms.values() if room is None or not room.why]
    if free or not rooms:
        known = [room.says for room in free if room is not None]
        says = known[0] if known else "No limit of its service." if code == "limit" else "No limit of its node."
        return _open(code, says, names=list(names))
    full = [(name, room) for name, room in rooms.items() if room is not None]
    name, room = min(full, key=lambda each: (each[1].until is None, each[1].until or look.now))
    if room.until is not None:
        opens = f"by itself at {clock_text(room.until, look.now)}"
    elif room.why == "concurrent" and room.data["concurrent"]:
        opens = "by itself, when one of them has ended"
    else:
        setting = room.data["setting"]
        change = "--rate N/min" if room.why == "rate" else "--concurrent N"
        command = f"dalsegno settings {setting} N" if setting else f"dalsegno limit {quote(name)} {change}"
        opens = f"{command} (it is 0: nothing begins until that is changed)"
    return _closed(code, room.says, opens, room.since, room.until, reason=room.why, name=name, **room.data)


def _room(look: _Look, name: str) -> _Room | None:
    """What a limit lets begin; None: there is no such limit. Permits are numbered, so this is one row away."""
    row = look.one(limits, name)
    if row is None or (row["concurrent"] is None and row["rate"] is None):
        return None
    per = f"{row['rate']} in {_window(row['window'])}"
    data: dict[str, Any] = {key: row[key] for key in ("concurrent", "rate", "window")}
    live: list[sa.RowMapping] = []
    if row["concurrent"] is not None:
        query = sa.select(permits).where(permits.c.name == name, _HELD).limit(row["concurrent"] + 10 * SHOWN)
        live = look.tx.rows(query)
        data["live"] = len(live)
        if len(live) >= row["concurrent"]:
            holders = [f"item {permit['item_id']}" for permit in live if permit["item_id"] is not None]
            data["items"] = [permit["item_id"] for permit in live][: 10 * SHOWN]
            by = f", held by {_listed(holders)}" if holders else ""
            says = f"Limit {name} is used up: {len(live)} of {_count(row['concurrent'], 'call')} at once{by}."
            since = max((permit["granted_at"] for permit in live), default=row["updated_at"])
            data["setting"] = row["concurrent_setting"]
            return _Room("concurrent", says, since, None, data)
    data["setting"] = row["rate_setting"]
    if row["rate"] == 0:
        return _Room("rate", f"Limit {name} is used up: it allows {per}.", row["updated_at"], None, data)
    if row["rate"] is not None:
        until = _rate_opens(look, row)
        if until is not None:
            last = look.tx.row(
                sa.select(permits.c.granted_at).where(permits.c.name == name, permits.c.number == row["granted"])
            )
            says = f"Limit {name} is used up: it allows {per}."
            return _Room("rate", says, None if last is None else last["granted_at"], until, data)
    used = [f"{len(live)} of {_count(row['concurrent'], 'call')} at once"] if row["concurrent"] is not None else []
    used += [per] if row["rate"] is not None else []
    return _Room("", f"Limit {name} has room: {', '.join(used)}.", None, None, data)


def _window(seconds: float) -> str:
    return _span(seconds) if seconds >= 10 else f"{seconds:g} s"


def _rate_opens(look: _Look, row: sa.RowMapping) -> datetime | None:
    """When one more may be granted, in wall time; None: now. A limit keeps a time of its own, off by `skew`."""
    number = row["granted"] - row["rate"] + 1
    if number < 1:
        return None
    query = sa.select(permits.c.tick).where(permits.c.name == row["name"], permits.c.number == number)
    oldest = look.tx.conn.execute(query).scalar()
    if oldest is None:
        oldest = row["pruned_tick"]
    if oldest is None:
        return None
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    tick = max((look.database_now - epoch) // timedelta(microseconds=1) + row["skew"], row["tick"])
    wait = oldest + int(row["window"] * 1e6) - tick
    return look.now + timedelta(microseconds=wait) if wait > 0 else None


# --- the item ---------------------------------------------------------------------------------------


def _item_gates(look: _Look, job: sa.RowMapping, stage: sa.RowMapping, item: sa.RowMapping) -> list[Gate]:
    event = look.last_event(item["id"])
    if item["status"] == ItemStatus.INTERRUPTED:
        return [_interrupted(look, job, stage, item, event)]
    gates = [_open("interrupted", "It is not interrupted.")]
    if item["due_at"] is not None:
        return [*gates, _due(look, item, event)]
    gates.append(_open("due", "It is due."))
    wait = look.one(waits, item["id"])
    if wait is not None:
        return [*gates, _waits(look, stage, item, wait)]
    gates.append(_open("waits", "It waits for no limit or breaker."))
    if stage["claimable"]:
        gates.append(_order(look, stage, item, event))
    return gates


def _interrupted(
    look: _Look, job: sa.RowMapping, stage: sa.RowMapping, item: sa.RowMapping, event: sa.RowMapping | None
) -> Gate:
    says = f"It was interrupted: {_said(item['error_message'] or item['error_code'])}."
    lane = look.one(lanes, job["lane"])
    assert lane is not None
    if job["status"] != JobStatus.RUNNING:
        opens = f"dalsegno resume {job['id']}"
    elif stage["pause_reason"] is not None:
        opens = f"dalsegno resume {job['id']} --stage {quote(stage['key'])}"
    elif lane["recovery"] == "pause":
        opens = f"dalsegno resume {job['id']}, once the sweep has paused the job ({SWEEP})"
    elif look.alive:
        opens = f"by itself {SWEEP}: the sweep brings it back"
    else:
        opens = "dalsegno agent (its sweep brings it back)"
    return _closed("interrupted", says, opens, _at(event), error_code=item["error_code"],
                   error=item["error_message"], interruptions=item["interruptions"])  # fmt: skip


def _at(event: sa.RowMapping | None) -> datetime | None:
    return None if event is None else event["at"]


def _due(look: _Look, item: sa.RowMapping, event: sa.RowMapping | None) -> Gate:
    told = (event and event["data"]) or {}
    since, due = _at(event), item["due_at"]
    data = {"attempt": item["attempt"], "error_code": item["error_code"], "error": item["error_message"]}
    if "throttled" in told:
        says, reason = f"It was asked to wait: {_said(told['throttled'] or None)}.", "throttled"
    elif item["attempt"]:
        error = _said(item["error_message"] or item["error_code"])
        says, reason = f"It waits after failed attempt {item['attempt']}: {error}.", "backoff"
    else:
        says, reason = "It waits until it is due.", "later"
    if due > look.now:
        opens = f"by itself at {clock_text(due, look.now)}"
    elif look.alive:
        opens = "by itself, any moment now"
    else:
        opens = "dalsegno agent (no engine is at work to wake it)"
    return _closed("due", says, opens, since, due, reason=reason, why=told.get("throttled"), **data)


def _waits(look: _Look, stage: sa.RowMapping, item: sa.RowMapping, wait: sa.RowMapping) -> Gate:
    name = wait["name"]
    if wait["offered_at"] is not None:
        says = f"It waited for {name}; its turn has come, and it is on its way."
        return _closed("waits", says, "by itself, any moment now", wait["offered_at"], reason="offered", name=name)
    before = _before_in_line(look, stage, item, name)
    line = f"{_are(before, 'item', capped=True)} before it in line" if before else "it is the first in line"
    state = _state_of(look, name)
    at = f" {state.says}" if state.state == "closed" else ""
    says = f"It met {name} on its way and waits there; {line}.{at}"
    opens = state.opens or "by itself, any moment now: it has room again"
    return _closed("waits", says, opens, wait["since"], state.until, reason="line", name=name, before=min(before, CAP),
                   more=before > CAP, cause=state.code if state.state == "closed" else None,
                   cause_data=state.data)  # fmt: skip


def _state_of(look: _Look, name: str) -> Gate:
    """What a name of the line says for itself: its breaker, else its limit."""
    breaker = _breaker_gate(look, "breaker", name)
    return breaker if breaker.state == "closed" else _limit_gate(look, "limit", [name])


def _skip_scan(first: sa.Select[Any], following: Callable[[Any], sa.Select[Any]]) -> sa.Select[Any]:
    """The distinct values of an index's column, one seek each, however many rows there are of every value."""
    values = first.cte("distinct_values", recursive=True)
    after = sa.select(following(values.c.value).scalar_subquery()).where(values.c.value.is_not(None))
    values = values.union_all(after)
    return sa.select(values.c.value).where(values.c.value.is_not(None)).limit(CAP)


def _names_in_line() -> sa.Select[Any]:
    query = sa.select(waits.c.name.label("value")).where(_IN_LINE).order_by(waits.c.name).limit(1)
    first = sa.select(query.scalar_subquery().label("value"))
    return _skip_scan(first, lambda before: query.where(waits.c.name > before))


def _stages_in_line(name: str) -> sa.Select[Any]:
    query = sa.select(waits.c.stage_id.label("value")).where(waits.c.name == name, _IN_LINE)
    query = query.order_by(waits.c.stage_id).limit(1)
    first = sa.select(query.scalar_subquery().label("value"))
    return _skip_scan(first, lambda before: query.where(waits.c.stage_id > before))


def _before_in_line(look: _Look, stage: sa.RowMapping, item: sa.RowMapping, name: str) -> int:
    """Its place in line, in the global order."""
    ids = list(look.tx.conn.execute(_stages_in_line(name)).scalars())
    earlier = sa.select(stages.c.id).where(stages.c.id.in_(ids), _before(stage))
    first = list(look.tx.conn.execute(earlier).scalars())
    before = look.up_to_cap(_line_of(name, stage["id"]).where(waits.c.seq < item["seq"]))
    for stage_id in first:
        if before <= CAP:
            before += look.up_to_cap(_line_of(name, stage_id))
    return before


def _line_of(name: str, stage_id: int) -> sa.Select[Any]:
    """In the order of the index, so that a count that stops early has read no more than it counted."""
    here = sa.select(waits.c.item_id).where(waits.c.name == name, _IN_LINE, waits.c.stage_id == stage_id)
    return here.order_by(waits.c.seq)


def _order(look: _Look, stage: sa.RowMapping, item: sa.RowMapping, event: sa.RowMapping | None) -> Gate:
    """Ready: how many come first, and who will take it."""
    earlier = look.tx.row(
        sa.select(
            sa.func.coalesce(sa.func.sum(stages.c.ready), 0).label("ready"),
            sa.func.min(stages.c.priority).label("top"),
        ).where(stages.c.service == stage["service"], _CLAIMABLE, _before(stage))
    )
    assert earlier is not None
    if item["returned"]:
        back = sa.select(items.c.id).where(items.c.stage_id == stage["id"], _RETURNED, items.c.seq < item["seq"])
        inside = look.up_to_cap(back.order_by(items.c.seq))
    else:  # numbers are dense above the mark; what came back is taken first
        inside = min(stage["returned"] + max(0, item["seq"] - stage["low_seq"] - 1), stage["ready"] - 1)
    before = int(earlier["ready"]) + inside
    mine = [row for row in look.workers if row["service"] == stage["service"]]
    idle = [row["name"] for row in mine if row["status"] == "idle"]
    busy = [row for row in mine if row["status"] == "busy"]
    capacity = sum(look.offers(stage["service"]).values())
    new = capacity - len(mine)
    data: dict[str, Any] = {"before": before, "workers": capacity, "idle": len(idle) + new, "busy": _busy(busy)}
    if before < len(idle) + new:
        who = f"worker {idle[before]} will take it" if before < len(idle) else "a worker will take it"
        return _open("order", f"It is next in line: {who}.", **data)
    if before:
        says = f"It is ready, but {_are(before, 'item', 'comes', 'come')} first"
    else:
        says = "It is next in line, but no worker is free"
    if busy:
        says += f"; {_are(capacity, 'worker')} busy with {_listed(_doing(busy))}"
    opens = "by itself, in its turn"
    if earlier["ready"]:
        opens += f"; to put its job first: dalsegno priority {stage['job_id']} {max(earlier['top'] - 1, -1_000_000)}"
    return _closed("order", f"{says}.", opens, _ready_since(look, stage, item, event), **data)


def _ready_since(
    look: _Look, stage: sa.RowMapping, item: sa.RowMapping, event: sa.RowMapping | None
) -> datetime | None:
    if event is not None:
        return event["at"]  # type: ignore[no-any-return]
    if item["parent_id"] is not None:
        parent = look.tx.row(sa.select(items.c.finished_at).where(items.c.id == item["parent_id"]))
        if parent is not None and parent["finished_at"] is not None:
            return parent["finished_at"]  # type: ignore[no-any-return]
    return stage["started_at"]  # type: ignore[no-any-return]


def _doing(busy: Sequence[sa.RowMapping]) -> list[str]:
    return [f"item {row['item_id']} on {row['name']}" for row in busy]


def _busy(busy: Sequence[sa.RowMapping]) -> list[dict[str, Any]]:
    keys = ("name", "item_id", "text", "progress", "phase")
    return [{key: row[key] for key in keys} for row in busy[: 10 * SHOWN]]


def _leased(look: _Look, item: sa.RowMapping) -> list[Gate]:
    lease = look.one(leases, item["id"])
    assert lease is not None
    process = look.one(processes, lease["process_id"])
    where = f"process {process['pid']} on {process['node']}" if process else f"process number {lease['process_id']}"
    data = {"process": lease["process_id"], "node": process and process["node"], "worker": lease["worker"]}
    gates: list[Gate] = []
    dead = lease["process_id"] not in look.alive
    back = "by itself" if look.alive else "when an engine starts"
    lost = f"; that process gives no sign of life, and what it held comes back {back}" if dead else ""
    if item["status"] == ItemStatus.CLAIMED:
        opens = "by itself, when a worker of that process is free"
        if dead:
            opens = f"by itself {SWEEP}: it is given back" if look.alive else "dalsegno agent"
        says = f"It was taken by {where}, which has not begun it yet{lost}."
        return [_closed("claimed", says, opens, lease["claimed_at"], reason="lost" if dead else "waiting", **data)]
    gates.append(_open("claimed", f"It was taken by {where}.", **data))
    phase, done, text = item["phase"], item["progress"], item["progress_text"]
    doing = [phase, None if done is None else f"{done:.0%}", text and _said(text)]
    shown = ", ".join(part for part in doing if part)
    says = f"It runs now, on {lease['worker'] or where}{f' ({shown})' if shown else ''}{lost}."
    data |= {"phase": phase, "progress": done, "text": text, "lost": dead}
    return [*gates, Gate("running", "open", says, lease["begun_at"] or item["started_at"], data=data)]


# --- what the items of a stage wait for -------------------------------------------------------------


def _items_gates(look: _Look, stage: sa.RowMapping, all_stages: Sequence[sa.RowMapping]) -> list[Gate]:
    """What keeps the items of a running stage, as a whole: closed only where none is ready."""
    if stage["status"] != StageStatus.RUNNING:
        return []
    gates: list[Gate] = []
    idle = not stage["ready"] and not stage["claimed"] and not stage["running"]
    state: Literal["open", "closed"] = "closed" if idle else "open"
    if stage["interrupted"]:
        says = f"{_are(stage['interrupted'], 'item')} interrupted."
        opens = f"by itself {SWEEP}: the sweep brings them back" if look.alive else "dalsegno agent (its sweep does)"
        gates.append(Gate("interrupted", state, says, opens=opens, data={"interrupted": stage["interrupted"]}))
    resting = stage["pending"] - stage["ready"]
    if resting:
        gates += _resting(look, stage, resting, state)
    if stage["ready"] and stage["open"]:
        first = _first_ready(look, stage)
        if first is not None:
            gate = _order(look, stage, first, look.last_event(first["id"]))
            says = f"{_are(stage['ready'], 'item')} ready; the first is item {first['id']}. {gate.says}"
            gates.append(replace(gate, says=says, data={**gate.data, "item": first["id"], "ready": stage["ready"]}))
    if idle and not resting and not stage["interrupted"] and stage["planned"]:
        followed = [up for up in all_stages if up["key"] in stage["depends_on"]] if stage["follow"] == "each" else []
        if all(up["status"] in STAGE_FINISHED for up in followed):
            opens = f"by itself {SWEEP}: the engine ends the stage" if look.alive else "dalsegno agent"
            gates.append(_closed("empty", "It has nothing left to do.", opens, total=stage["total"]))
    return gates


def _resting(look: _Look, stage: sa.RowMapping, resting: int, state: Literal["open", "closed"]) -> list[Gate]:
    """Pending items that are not ready: they wait until a moment, or in line for a limit or a breaker."""
    gates: list[Gate] = []
    line: dict[str, int] = {}
    for name in look.tx.conn.execute(_names_in_line()).scalars():
        if number := look.up_to_cap(_line_of(name, stage["id"])):
            line[name] = number
    waiting = sum(line.values())
    more = any(number > CAP for number in line.values())
    if waiting < resting and not more:
        # The index of due items knows no stages: the first of all are looked through for ours.
        soon = sa.select(items.c.stage_id, items.c.due_at).where(items.c.due_at.is_not(None)).order_by(items.c.due_at)
        due = [row["due_at"] for row in look.tx.rows(soon.limit(CAP)) if row["stage_id"] == stage["id"]]
        says = f"{_are(resting - waiting, 'item', 'waits', 'wait')} until due."
        opens = "by itself, bit by bit"
        if due:
            opens = f"by itself at {clock_text(due[0], look.now)}" if due[0] > look.now else "by itself, any moment now"
        gates.append(Gate("due", state, says, until=due[0] if due else None, opens=opens,
                          data={"due": resting - waiting}))  # fmt: skip
    if line:
        most = max(line, key=lambda name: line[name])
        cause = _state_of(look, most)
        names = _listed([f"{_count(number, 'item', capped=True)} for {name}" for name, number in line.items()])
        says = f"In line: {names}." + (f" {cause.says}" if cause.state == "closed" else "")
        opens = cause.opens or "by itself, any moment now: it has room again"
        counts = {name: min(number, CAP) for name, number in line.items()}
        data = {"line": counts, "more": more}
        gates.append(Gate("waits", state, says, until=cause.until, opens=opens, data=data))
    return gates


def _first_ready(look: _Look, stage: sa.RowMapping) -> sa.RowMapping | None:
    """The item of this stage that a claim would take first."""
    query = sa.select(items).where(items.c.stage_id == stage["id"]).order_by(items.c.seq).limit(1)
    if stage["returned"]:
        return look.tx.row(query.where(_RETURNED))
    return look.tx.row(query.where(items.c.seq > stage["low_seq"]))


def _of_stage(gate: Gate, stage: sa.RowMapping) -> Gate:
    """A gate of a job's stage, as the job's."""
    name = f'Stage "{stage["key"]}"'
    says = gate.says if name in gate.says else f"{name}: {gate.says[0].lower()}{gate.says[1:]}"
    return replace(gate, says=says, data={**gate.data, "stage": stage["key"]})


def _runs(look: _Look, some: Sequence[sa.RowMapping], column: str, value: int) -> list[Gate]:
    """The last gate of a job or a stage: what of it runs now."""
    running, claimed = sum(stage["running"] for stage in some), sum(stage["claimed"] for stage in some)
    if not running and not claimed:
        return []
    busy = [row for row in look.workers if row[column] == value and row["status"] == "busy"]
    begun = min(max(0, len(busy) - running), claimed)  # a beginning may be written a little later than it happens
    running, claimed = running + begun, claimed - begun
    on = f" ({_listed(_doing(busy))})" if busy else ""
    taken = f"{_are(claimed, 'item')} claimed" if claimed else ""
    says = f"It runs now: {_are(running, 'item', 'runs', 'run')}{on}" if running else "It is about to run"
    since = min((stage["started_at"] for stage in some if stage["started_at"]), default=None)
    total, left = sum(stage["total"] for stage in some), sum(_left(stage) for stage in some)
    says += f"{', ' if running else ': '}{taken}" if taken else ""
    data = {"running": running, "claimed": claimed, "total": total, "left": left, "busy": _busy(busy)}
    return [Gate("running", "open", f"{says}, {total - left:,} of {total:,} done.", since, data=data)]
