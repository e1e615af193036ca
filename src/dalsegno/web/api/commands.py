"""Commands: what was asked for, and what became of it."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.insight.commands import get_command
from dalsegno.store.store import Store
from dalsegno.web.api.models import Command
from dalsegno.web.api.parameters import Number
from dalsegno.web.room import Here

router = APIRouter(tags=["commands"])


@router.get("/commands/{command_id}")
def command(here: Here, command_id: Number) -> Command:
    """`pending` until an engine has looked at it; then `applied`, or `rejected` with the reason."""
    return look_up(here.store, command_id)


def look_up(store: Store, command_id: int) -> Command:
    return Command(**dict(store.read(lambda tx: get_command(tx, command_id))))
