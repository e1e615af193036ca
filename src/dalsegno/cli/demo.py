"""`dalsegno demo`: a catalog of our own making, collected, downloaded and uploaded before your eyes."""

from __future__ import annotations

import errno
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli import exits
from dalsegno.cli.desk import Desk, command
from dalsegno.model.states import JOB_FINISHED

if TYPE_CHECKING:
    import socket

    from dalsegno.cli.serve import EnginePlace
    from dalsegno.cli.stopping import Stopping
    from dalsegno.config.current import Current
    from dalsegno.insight.progress import JobProgress
    from dalsegno.sources.demo_server import DemoServer
    from dalsegno.store.store import Store

app = typer.Typer()

LOOK_EVERY = 0.2
FILE = """\
# The demo's settings: change them here or in the console. Delete the file, and the next start writes it anew.
LIBRARY_ROOT={library}
OBJECT_STORE={archive}

# A catalog that this program makes up, with songs that are slow, flaky or broken on purpose.
SOURCES=demo
DOWNLOAD_SOURCES=demo

# The songs are small, and nobody wants to wait for the second try.
MIN_FREE_SPACE=50MB
BACKOFF_BASE_SEC=1
BACKOFF_CAP_SEC=8
"""


@command(app, "demo")
def demo(
    desk: Desk,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Where everything of the demo goes; delete it to begin anew.")
    ] = Path("dalsegno-demo"),
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The console's port; 0 takes a free one.")] = None,
    pace: Annotated[float, typer.Option(min=0, max=100, help="How slow the demo's network is; 0: not at all.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="End when the job has ended, with its exit code.")] = False,
) -> None:
    """See it work: a built-in catalog of generated audio is collected, synced, downloaded and uploaded to a folder.

    Nothing outside this machine is needed. Some songs are slow, flaky or broken on purpose. Stop it with Ctrl-C
    or pull the plug, and start it again: it goes on from the mark.

    **Examples**

    dalsegno demo

    dalsegno demo --folder /tmp/demo --pace 0.2 --once
    """
    from dalsegno.cli.serve import EnginePlace
    from dalsegno.cli.stopping import Stopping
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.web.app import create_app
    from dalsegno.web.server import ConsoleServer

    root = _made(folder)
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(port, desk.settings.console_port))
        server = stack.enter_context(_catalog(root, pace))
        current = _current(root, server.url, desk)
        settings = current.settings
        store = stack.enter_context(replace(desk, database=settings.database_url).store())
        console = stack.enter_context(ConsoleServer(create_app(store, current, host="127.0.0.1"), listening))
        stopping = Stopping().install()
        desk.line({"url": console.url}, f"The console is at {console.url}")
        job_id = _job(desk, store, current)
        place = EnginePlace(desk, open_toolbox(()).engine(store, current))
        place.take()
        ended = False
        try:
            last = _follow(desk, store, job_id, stopping, place)
            ended = last.status in JOB_FINISHED
            if ended:
                desk.say(_ending(last, root))
            if ended and not once:
                desk.say(f"The console stays at {console.url}; Ctrl-C ends it.")
                while not stopping.wait(3600):
                    pass
        finally:
            place.leave(idle=ended)
    if not ended:
        desk.say(f"Job {last.job_id} is not finished; run the same command to go on from the mark.")
        raise typer.Exit(stopping.exit_code)
    raise typer.Exit(exits.OF_STATUS[last.status] if once else exits.OK)


def _made(folder: Path) -> Path:
    from dalsegno.errors import InputInvalid

    root = folder.absolute()
    try:
        for part in ("library", "archive"):
            (root / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputInvalid(problem=f"{folder} cannot be used: {error.strerror}. Name another with --folder.") from None
    return root


def _listening(port: int | None, usual: int) -> socket.socket:
    """Where nobody asked for a port, the usual one may be taken: the demo is content with any."""
    from dalsegno.errors import SettingInvalid
    from dalsegno.web.server import bind

    if port is not None:
        return bind("127.0.0.1", port)
    try:
        return bind("127.0.0.1", usual)
    except SettingInvalid:
        return bind("127.0.0.1", 0)


def _catalog(root: Path, pace: float) -> DemoServer:
    """At the port of last time, where it is free: what was begun goes on at the address it was begun from."""
    from dalsegno.sources.demo_server import DemoServer

    note = root / "catalog-port"
    text = note.read_text().strip() if note.exists() else ""
    try:
        server = DemoServer(pace=pace, port=int(text) if text.isdecimal() else 0)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno != errno.EADDRINUSE:
            raise
        server = DemoServer(pace=pace)
    note.write_text(server.url.rpartition(":")[2] + "\n")
    return server


def _current(root: Path, url: str, desk: Desk) -> Current:
    """A settings file of its own, to be edited in the console. Nothing of the user's own environment takes part."""
    from dalsegno.config.current import Current
    from dalsegno.config.envfile import quoted
    from dalsegno.config.files import write
    from dalsegno.settings import load_settings
    from dalsegno.store.sqlite import address

    file = root / "demo.env"
    if not file.exists():
        write(file, FILE.format(library=quoted(str(root / "library")), archive=quoted((root / "archive").as_uri())))
    options = {"database_url": desk.database or address(root / "dalsegno.db").render_as_string(), "demo_url": url}
    return Current(lambda: load_settings(file, needed=False, options=options, environment=False), file)


def _job(desk: Desk, store: Store, current: Current) -> int:
    """The unfinished one, else a new one."""
    from dalsegno.catalog.templates import order
    from dalsegno.cli.ask import act_if_alone, ask, whoami
    from dalsegno.config.revisions import revision_in_force
    from dalsegno.insight.jobs import list_jobs
    from dalsegno.model.states import JOB_UNFINISHED, JobStatus

    settings = current.settings
    act_if_alone(store)  # what a kill left behind shows as paused only once it is recovered
    found = store.read(lambda tx: list_jobs(tx, status=JOB_UNFINISHED, workflow="full", limit=1))
    if not found:
        revision = revision_in_force(store, current)
        job_id = order(store, settings, "full", requested_by=whoami(), revision=revision).job_id
        desk.say(f"Job {job_id}: full")
        return job_id
    job = found[0].job
    desk.say(f"Job {job.id}: full, continued from the mark")
    known = {**(job.snapshot or {}), **(job.overrides or {})}.get("DEMO_URL")
    moved = {"DEMO_URL": settings.demo_url} if known != settings.demo_url else {}
    stands = job.status in (JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED)
    if moved and not stands:
        ask(store, "pause", job_id=job.id, payload={"reason": "the demo catalog has moved"}, wait=5.0)
    if moved or stands:
        ask(store, "resume", job_id=job.id, payload={"overrides": moved} if moved else None, wait=0.0)
    return job.id


def _follow(desk: Desk, store: Store, job_id: int, stopping: Stopping, place: EnginePlace) -> JobProgress:
    """Until the job has ended or somebody wants to leave. A pause is not the end: the page has a button."""
    from dalsegno.cli.bars import display
    from dalsegno.insight.progress import job_progress

    with display(desk.aside) as shown:
        while True:
            progress = store.read(lambda tx: job_progress(tx, job_id))
            shown.show(progress, time.monotonic())
            if progress.status in JOB_FINISHED:
                return progress
            if stopping.wait(LOOK_EVERY):
                return progress
            place.take()


def _ending(last: JobProgress, root: Path) -> str:
    failed = sum(stage.failed for stage in last.stages)
    text = f"Job {last.job_id} {last.status.replace('_', ' ')}; the songs are in {root / 'library'}"
    if last.status == "completed_with_errors":
        text += f". {failed} failed, as expected: a few songs of the demo are broken on purpose"
    return text + "."
