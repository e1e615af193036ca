"""Commands about many items, as people follow them: how far, to how many not and why, and what finds the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dalsegno.engine.bulk import PRIORITY
from dalsegno.errors import NotFound
from dalsegno.insight.commands import find_commands, get_command
from dalsegno.insight.query import Query
from dalsegno.insight.walk import Page
from dalsegno.model.records import CommandRecord
from dalsegno.model.states import CommandStatus
from dalsegno.store.schema import BULK
from dalsegno.store.store import Tx

State = Literal["waiting", "running", "stopping", "done", "stopped", "rejected"]
VERBS = {"bulk_retry": "retry", "bulk_force_retry": "force-retry", "bulk_cancel": "cancel", "bulk_skip": "skip",
         "bulk_priority": "priority"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    id: int
    verb: str
    state: State
    query: str | None
    """What it is about; None: `named` items."""
    named: int
    priority: int | None
    unit: Literal["items", "jobs"]
    """What `seen`, `done` and `refused` count."""
    seen: int
    done: int
    refused: dict[str, int]
    result: str | None
    """The query that finds what it has changed, among items, jobs and exceptions; None: nothing yet."""
    command: CommandRecord

    @property
    def over(self) -> bool:
        return self.state in ("done", "stopped", "rejected")


def find_operations(
    tx: Tx, query: Query | None = None, *, cursor: str | None = None, limit: int = 50
) -> Page[Operation]:
    """Newest first."""
    asked = Query((*(query or Query()).terms, *Query().with_("kind", *BULK).terms))
    page = find_commands(tx, asked, cursor=cursor, limit=limit)
    return Page([operation_of(each) for each in page.lines], page.next_cursor, page.partial, page.looked)


def get_operation(tx: Tx, number: int) -> Operation:
    command = get_command(tx, number)
    if command.type not in BULK:
        raise NotFound(what="bulk operation", id=number)
    return operation_of(command)


def operation_of(command: CommandRecord) -> Operation:
    payload: dict[str, Any] = command.payload or {}
    progress: dict[str, Any] = command.progress or {}
    done = int(progress.get("done", 0))
    return Operation(
        id=command.id,
        verb=VERBS[command.type],
        state=_state(command, progress),
        query=payload.get("query"),
        named=len(payload.get("items") or ()),
        priority=payload.get("priority"),
        unit="jobs" if command.type == PRIORITY else "items",
        seen=int(progress.get("seen", 0)),
        done=done,
        refused=dict(progress.get("refused") or {}),
        result=f"bulk:{command.id}" if done else None,
        command=command,
    )


def _state(command: CommandRecord, progress: dict[str, Any]) -> State:
    if command.status == CommandStatus.REJECTED:
        return "rejected"
    if command.status == CommandStatus.APPLIED:
        return "stopped" if progress.get("stopped") else "done"
    if command.stop_requested_at is not None:
        return "stopping"
    return "running" if progress else "waiting"
