"""What operators asked for, and what became of it."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.errors import NotFound
from dalsegno.model.records import CommandRecord
from dalsegno.store.schema import commands
from dalsegno.store.store import Tx


def get_command(tx: Tx, command_id: int) -> CommandRecord:
    row = tx.row(sa.select(commands).where(commands.c.id == command_id))
    if row is None:
        raise NotFound(what="command", id=command_id)
    return CommandRecord.model_validate(dict(row))


def commands_of_job(tx: Tx, job_id: int, limit: int = 50) -> list[CommandRecord]:
    """The last ones, newest first."""
    query = sa.select(commands).where(commands.c.job_id == job_id).order_by(commands.c.id.desc()).limit(limit)
    return [CommandRecord.model_validate(dict(row)) for row in tx.rows(query)]
