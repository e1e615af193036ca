"""`dalsegno submit`: store a job for whoever runs the engine."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.desk import Desk, command
from dalsegno.cli.run import ItemsFile, Modules, Param, Priority

app = typer.Typer()


@command(app, "submit")
def submit(
    desk: Desk,
    workflow: Annotated[str, typer.Argument(help="The workflow's name; see: dalsegno workflow list")],
    param: Param = None,
    priority: Priority = 100,
    items: ItemsFile = None,
    services: Modules = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before this ISO time (local, or +02:00).")] = None,
    dedupe: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Answer with the unfinished job that has this key, if there is."),
    ] = None,
    requested_by: Annotated[str | None, typer.Option(metavar="NAME", help="Who asks (default: you).")] = None,
) -> None:
    """Store a job and return at once. A running engine picks it up; otherwise the next one does.

    **Examples**

    dalsegno submit scale -p notes=12 --priority 10

    dalsegno submit nightly --at 2026-01-31T22:00 --dedupe nightly --json
    """
    from dalsegno.cli.ask import hint_if_alone, whoami
    from dalsegno.cli.inputs import items_from, pairs, time_from
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.engine.submit import submit as store_job

    settings = desk.settings
    toolbox = open_toolbox([*settings.services, *(services or ())])
    params, specs, scheduled = pairs(param or (), "--param"), items_from(items), time_from(at)
    with desk.store() as store:
        done = store_job(
            store, toolbox.workflow(store, workflow), items=specs, params=params or None,
            snapshot=settings.snapshot(), revision=desk.revision(store), priority=priority,
            requested_by=requested_by or whoami(), scheduled_at=scheduled, dedupe=dedupe or False,
        )  # fmt: skip
        hint_if_alone(desk, store)
    said = f"Job {done.job_id}" + ("" if done.created else " (it was there already)")
    desk.answer(done._asdict(), lambda console: console.print(said))
