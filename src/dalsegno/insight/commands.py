"""What operators asked for, and what became of it."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.errors import NotFound
from dalsegno.insight.grammar import Grammar, Key, age, containing, grammar, number, word
from dalsegno.insight.query import Query, only
from dalsegno.insight.walk import SECONDS, TEXT_SECONDS, Page, Walk, begin, page_of, place_of, walk
from dalsegno.model.records import CommandRecord
from dalsegno.model.states import CommandStatus
from dalsegno.store.schema import COMMANDS as KINDS
from dalsegno.store.schema import commands
from dalsegno.store.store import Tx

COMMANDS = grammar(
    "commands",
    containing(commands.c.error_message, commands.c.requested_by),
    Key("kind", "What was asked for.", word(commands.c.type), values=KINDS),
    Key("state", "What became of it.", word(commands.c.status), values=tuple(CommandStatus)),
    Key("by", "Who asked.", word(commands.c.requested_by)),
    Key("job", "The number of its job.", number(commands.c.job_id), kind="number"),
    Key("item", "The number of its item.", number(commands.c.item_id), kind="number"),
    Key("age", "Since it was asked for.", age(commands.c.created_at), kind="age"),
)


def find_commands(
    tx: Tx, query: Query, *, among: Grammar = COMMANDS, cursor: str | None = None, limit: int = 50
) -> Page[CommandRecord]:
    """A page of commands, newest first: who asked for what, and when."""
    job = only(query, "job")
    along = [] if job is None else [commands.c.job_id == int(job)]
    path = Walk(sa.select(commands), (commands.c.id,), along, among.where(query, tx.now))
    budget = begin(tx, TEXT_SECONDS if query.of("") else SECONDS)
    found = walk(tx, path, after=place_of(cursor, 1), limit=limit + 1, budget=budget)
    lines = [CommandRecord.model_validate(dict(row)) for row in found.rows]
    return page_of(lines, found, limit, lambda line: (line.id,))


def get_command(tx: Tx, command_id: int) -> CommandRecord:
    row = tx.row(sa.select(commands).where(commands.c.id == command_id))
    if row is None:
        raise NotFound(what="command", id=command_id)
    return CommandRecord.model_validate(dict(row))


def commands_of_job(tx: Tx, job_id: int, limit: int = 50) -> list[CommandRecord]:
    """The last ones, newest first."""
    query = sa.select(commands).where(commands.c.job_id == job_id).order_by(commands.c.id.desc()).limit(limit)
    return [CommandRecord.model_validate(dict(row)) for row in tx.rows(query)]
