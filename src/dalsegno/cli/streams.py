"""`dalsegno events` and `dalsegno logs`: the past, and with --follow whatever comes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command, number
from dalsegno.cli.jobs import Limit, Query

if TYPE_CHECKING:
    from dalsegno.insight import query as insight
    from dalsegno.model.records import EventRecord, LogRecord

app = typer.Typer()
LOOK_EVERY = 0.25
OfJob = Annotated[int | None, typer.Option("--job", parser=number, metavar="JOB", help="Only about this job.")]
OfItem = Annotated[int | None, typer.Option("--item", parser=number, metavar="ITEM", help="Only about this item.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")]


@command(app, "events")
def events(
    desk: Desk,
    job: OfJob = None,
    item: OfItem = None,
    query: Query = "",
    follow: Follow = False,
    limit: Limit = 50,
) -> None:
    """Show the last events, oldest first. As JSON: one object a line.

    **Examples**

    dalsegno events --job 3 --follow --json

    dalsegno events -q "kind:job_* age:<1h"
    """
    from dalsegno.insight.events import EVENTS, find_events, latest, tail
    from dalsegno.insight.query import parse

    with desk.store() as store:
        if query:
            asked = _about(parse(query, EVENTS), job, item, follow)
            found = store.read(lambda tx: find_events(tx, asked, limit=limit))
            for event in reversed(found.lines):
                desk.line(event, event_text(event))
            return
        page = store.read(lambda tx: latest(tx, job_id=job, item_id=item, limit=limit))
        while True:
            for event in page.events:
                desk.line(event, event_text(event))
            if not follow:
                return
            if not page.events:
                time.sleep(LOOK_EVERY)
            page = store.read(lambda tx, after=page.cursor: tail(tx, after, job_id=job, item_id=item))  # type: ignore[misc]


def _about(query: insight.Query, job: int | None, item: int | None, follow: bool) -> insight.Query:
    """A query with what the options say besides."""
    from dalsegno.errors import InputInvalid

    if follow:
        raise InputInvalid(problem="A query is about what was; --follow goes with --job, --item and --level.")
    for key, about in (("job", job), ("item", item)):
        query = query.with_(key, str(about)) if about is not None else query
    return query


def event_text(event: EventRecord) -> str:
    from dalsegno.cli.words import clock_time

    about = [f"{name} {number}" for name, number in (("job", event.job_id), ("item", event.item_id)) if number]
    said = [event.message] if event.message else []
    if event.data:
        said.append(json.dumps(event.data, ensure_ascii=False))
    mark = {"warn": "! ", "error": "!! "}.get(event.level, "")
    return f"{clock_time(event.at)} {mark}{event.type:<20} {' '.join(about)} {' '.join(said)}".rstrip()


@command(app, "logs")
def logs(
    desk: Desk,
    job: OfJob = None,
    item: OfItem = None,
    level: Annotated[str | None, typer.Option(help="This or worse: debug, info, warn, error.")] = None,
    query: Query = "",
    follow: Follow = False,
    limit: Limit = 50,
) -> None:
    """Show the last log lines of services and of the engine, oldest first. As JSON: one object a line."""
    from dalsegno.cli.inputs import choices
    from dalsegno.insight.logs import LOGS, SEVERITY, LogTail, find_logs, list_logs
    from dalsegno.insight.query import parse
    from dalsegno.model.states import Level

    least = next(iter(choices(level, Level, "level")), None)
    with desk.store() as store:
        if query:
            asked = _about(parse(query, LOGS), job, item, follow)
            if least is not None:
                asked = asked.with_("level", *SEVERITY[SEVERITY.index(Level(least)) :])
            found = store.read(lambda tx: find_logs(tx, asked, limit=limit))
            for line in reversed(found.lines):
                desk.line(line, _log_text(line))
            return
        lines = store.read(lambda tx: list_logs(tx, job_id=job, item_id=item, level=least, limit=limit))
        tail = LogTail(job_id=job, item_id=item, level=least)
        tail.start(store, lines)
        for line in lines:
            desk.line(line, _log_text(line))
        while follow:
            time.sleep(LOOK_EVERY)
            for line in tail.look(store):
                desk.line(line, _log_text(line))


def _log_text(line: LogRecord) -> str:
    from dalsegno.cli.words import clock_time

    who = f"{line.worker} item {line.item_id}" if line.item_id else line.logger
    text = f"{clock_time(line.at)} {line.level:<5} {who}: {line.message}"
    return text if line.traceback is None else f"{text}\n{line.traceback}"
