"""Commands: what operators asked for, what became of it, and who else changed something."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from dalsegno.engine.bulk import stop_bulk
from dalsegno.errors import CommandRefused, InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.audit import AUDIT, find_acts
from dalsegno.insight.commands import COMMANDS, find_commands, get_command
from dalsegno.insight.query import parse
from dalsegno.store.store import Store
from dalsegno.web.api.asking import ACCEPTED, refusals, told
from dalsegno.web.api.models import Command
from dalsegno.web.api.parameters import Cursor, Limit, Number, Q
from dalsegno.web.room import Here

router = APIRouter(tags=["commands"])


class ManyCommands(BaseModel):
    commands: list[Command]
    """Newest first."""
    next_cursor: str | None
    partial: bool
    """The time was up before the page was full: there may be more, further on."""


class Deed(BaseModel):
    id: str
    at: datetime
    by: str
    what: str
    """A kind of command or of event."""
    job_id: int | None
    item_id: int | None
    said: str | None
    """Why, or what came in its way."""
    data: Any
    status: str | None
    """What became of a command."""
    count: int | None
    """How many items it changed; null where it is not about many."""


class Audit(BaseModel):
    acts: list[Deed]
    """Newest first."""
    next_cursor: str | None
    partial: bool


@router.get("/commands", responses=refusals(QueryInvalid, InputInvalid))
def commands(here: Here, q: Q = None, cursor: Cursor = None, limit: Limit = 50) -> ManyCommands:
    """Who asked for what, and when: `by:nas kind:pause,resume age:<1d`."""
    query = parse(q, COMMANDS)
    page = here.store.read(lambda tx: find_commands(tx, query, cursor=cursor, limit=limit))
    lines = [Command(**dict(line)) for line in page.lines]
    return ManyCommands(commands=lines, next_cursor=page.next_cursor, partial=page.partial)


@router.get("/audit", responses=refusals(QueryInvalid, InputInvalid))
def audit(here: Here, q: Q = None, cursor: Cursor = None, limit: Limit = 50) -> Audit:
    """Who did what, and when: commands, and whatever else people changed without one."""
    query = parse(q, AUDIT)
    page = here.store.read(lambda tx: find_acts(tx, query, cursor=cursor, limit=limit))
    acts = [Deed(**{name: getattr(act, name) for name in Deed.model_fields}) for act in page.lines]
    return Audit(acts=acts, next_cursor=page.next_cursor, partial=page.partial)


@router.get("/commands/{command_id}", responses=refusals(NotFound))
def command(here: Here, command_id: Number) -> Command:
    """`pending` until an engine has looked at it; then `applied`, or `rejected` with the reason."""
    return look_up(here.store, command_id)


@router.post(
    "/commands/{command_id}/stop", status_code=202, responses={**ACCEPTED, **refusals(NotFound, CommandRefused)}
)
def stop_command(here: Here, command_id: Number, response: Response) -> Command:
    """End a command about many items after the bit it is at; what it has done stays done."""
    here.store.write("stop", lambda tx: stop_bulk(tx, command_id))
    return told(response, look_up(here.store, command_id))


def look_up(store: Store, command_id: int) -> Command:
    return Command(**dict(store.read(lambda tx: get_command(tx, command_id))))
