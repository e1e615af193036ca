"""`dalsegno serve`: the console and an engine in one process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command
from dalsegno.cli.run import Modules

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

app = typer.Typer()

LOOK_EVERY = 1.0
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen, before CONSOLE_HOST.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Its port, before CONSOLE_PORT; 0 takes a free one.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen where other machines reach it, though there is no password.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="A console that shows everything and changes nothing.")]


@command(app, "serve")
def serve(
    desk: Desk,
    host: Host = None,
    port: Port = None,
    insecure: Insecure = False,
    read_only: ReadOnly = False,
    services: Modules = None,
) -> None:
    """Run the console and an engine until SIGINT or SIGTERM.

    The first signal lets running items finish, up to DRAIN_SEC, while the console still answers; a second one
    leaves at once. Where another engine has the database file, the console works with that one, and takes its
    place when it stops.

    Other addresses than loopback need CONSOLE_PASSWORD. Where it is set, everybody has to sign in.

    **Examples**

    dalsegno serve

    dalsegno serve --host 0.0.0.0 --read-only

    dalsegno serve --port 9000 --services mystudio.services
    """
    from dalsegno.cli.stopping import Stopping
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.web.app import create_app
    from dalsegno.web.server import ConsoleServer, bind

    current = desk.current()
    settings = current.settings
    where = host or settings.console_host
    guarded = insecure or bool(settings.console_password.get_secret_value())
    toolbox = open_toolbox([*settings.services, *(services or ())])
    with (
        bind(where, settings.console_port if port is None else port, guarded=guarded) as listening,
        desk.store() as store,
        ConsoleServer(create_app(store, current, host=where, read_only=read_only), listening) as console,
    ):
        stopping = Stopping().install()
        place = EnginePlace(desk, toolbox.engine(store, current))
        desk.line({"url": console.url}, f"The console is at {console.url}")
        place.take()
        try:
            while not stopping.wait(LOOK_EVERY):
                place.take()
        finally:
            place.leave()


class EnginePlace:
    """The one place an engine has on a SQLite file: ours, or as soon as whoever has it is gone."""

    def __init__(self, desk: Desk, engine: Engine) -> None:
        from dalsegno.cli.hand import Remarks

        self.taken = False
        self._desk = desk
        self._engine = engine
        self._told = ""
        logging.getLogger().setLevel(logging.INFO)  # what services say is kept with their items
        for noisy in ("alembic", "uvicorn", "asyncio"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        remarks = Remarks(desk)
        remarks.setLevel(logging.WARNING)
        logging.getLogger().addHandler(remarks)

    def take(self) -> None:
        """Cheap to call again and again."""
        from dalsegno.errors import EngineAlreadyRunning

        if self.taken:
            return
        try:
            self._engine.start()
        except EngineAlreadyRunning as error:
            pid = str(error.details["pid"])
            if pid != self._told:
                self._told = pid
                self._desk.say(f"Process {pid} already runs an engine on this database; the console works with it.")
        else:
            self.taken = True
            if self._told:
                self._desk.say("The other engine has stopped; this one goes on.")

    def leave(self, *, idle: bool = False) -> None:
        if self.taken:
            if not idle:
                most = self._engine.options.drain_seconds
                self._desk.say(f"Stopping; what runs may finish, up to {most:g} s. Again: leave now.")
            self._engine.stop()
