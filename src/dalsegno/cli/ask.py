"""Asking for something: a command is written down and the engine applies it. Where none runs, we do."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Any

from dalsegno.engine.commander import apply_pending, request
from dalsegno.engine.rescuer import rescue_all
from dalsegno.engine.scheduler import cancel_some
from dalsegno.errors import EngineAlreadyRunning
from dalsegno.insight.commands import get_command
from dalsegno.insight.workers import engine_alive
from dalsegno.model.states import CommandStatus
from dalsegno.store.notes import MOVED, read_note

if TYPE_CHECKING:
    from dalsegno.cli.desk import Desk
    from dalsegno.model.records import CommandRecord
    from dalsegno.store.store import Store

LOOK_EVERY = 0.05
NOBODY = 0


def whoami() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may have no such user
        return "cli"


def ask(
    store: Store,
    kind: str,
    *,
    job_id: int | None = None,
    item_id: int | None = None,
    payload: dict[str, Any] | None = None,
    wait: float = 10.0,
) -> CommandRecord:
    """Request a command and wait for what becomes of it; still pending if `wait` seconds were not enough."""
    command_id = store.write(
        "request",
        lambda tx: request(tx, kind, job_id=job_id, item_id=item_id, payload=payload, requested_by=whoami()),
    )
    give_up = time.monotonic() + wait
    while True:
        act_if_alone(store)
        record = store.read(lambda tx: get_command(tx, command_id))
        if record.status != CommandStatus.PENDING or time.monotonic() >= give_up:
            return record
        time.sleep(LOOK_EVERY)


def hint_if_alone(desk: Desk, store: Store) -> None:
    """Work was handed in: say so if nobody is there to do it."""
    if not act_if_alone(store):
        return
    moved = store.read(lambda tx: read_note(tx, MOVED))
    if moved is None:
        desk.say("No engine is at work on this database now. Start one: dalsegno agent")
    else:
        desk.say(f"Everything in this database was moved to {moved['to']}. Set DATABASE_URL to that one.")


def act_if_alone(store: Store) -> bool:
    """Do what an engine would do about commands, where there is none; False where there is."""
    try:
        release = store.hold_engine()
    except EngineAlreadyRunning:
        return False
    try:
        # First what a killed process left under lease: no job can be paused or canceled around it.
        rescue_all(store, NOBODY, alone=not store.shared)
        if store.read(engine_alive):
            return False
        apply_pending(store)
        while cancel_some(store):
            pass
    finally:
        release()
    return True
