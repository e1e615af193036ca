"""`dalsegno agent`: an engine that works until it is stopped."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from dalsegno.cli.desk import Desk, command
from dalsegno.cli.run import Modules

app = typer.Typer()


@command(app, "agent")
def agent(
    desk: Desk,
    services: Modules = None,
    builtin: Annotated[bool, typer.Option(help="Also offer the services that come with the package.")] = True,
    schedules: Annotated[
        bool, typer.Option(help="Start what schedules say; their jobs get the settings of this machine.")
    ] = True,
    level: Annotated[str, typer.Option(help="What to log: debug, info, warn, error.")] = "info",
) -> None:
    """Run an engine until SIGINT or SIGTERM. Logs go to stdout as JSON lines.

    The first signal lets running items finish, up to DRAIN_SEC; a second one leaves at once. Nothing
    is lost. On PostgreSQL many agents share the work; on SQLite there is one.

    **Example**

    dalsegno agent --services mystudio.services --database postgresql://studio@db/dalsegno
    """
    from dalsegno.cli.inputs import choices
    from dalsegno.cli.stopping import Stopping
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.engine.logbridge import JsonLines
    from dalsegno.errors import InputInvalid
    from dalsegno.model.states import Level

    (least,) = choices(level, Level, "level") or ["info"]
    current = desk.current()
    settings = current.settings
    toolbox = open_toolbox([*settings.services, *(services or ())], builtin=builtin)
    if not toolbox.names():
        raise InputInvalid(problem="No services to offer. Name a module with --services or SERVICES in dalsegno.env.")
    lines = JsonLines(secrets=current.secrets)
    lines.setLevel({"warn": "WARNING"}.get(least, least.upper()))
    logging.basicConfig(level=logging.DEBUG if least == "debug" else logging.INFO, handlers=[lines], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    log = logging.getLogger("dalsegno.agent")
    with desk.store() as store:
        stopping = Stopping().install()
        engine = toolbox.engine(store, current, schedules=schedules).start()
        log.info("at work on %s: %s", store.url, ", ".join(toolbox.names()))
        while not stopping.wait(3600):
            pass
        log.info("stopping; running items may finish, up to %g s", settings.drain_sec)
        clean = engine.stop()
        log.info("stopped" if clean else "stopped; what still ran is interrupted and will be run again")
