"""`dalsegno run`: one job in this process, from the mark if it was begun before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli import exits
from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from dalsegno.cli.hand import Hand
    from dalsegno.cli.stopping import Stopping
    from dalsegno.insight.progress import JobProgress
    from dalsegno.model.records import JobRecord
    from dalsegno.store.store import Store

app = typer.Typer()

LOOK_EVERY = 0.1
Param = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="KEY=VALUE", help="A parameter; the value may be JSON. Repeatable."),
]
Priority = Annotated[int, typer.Option(help="Smaller runs first, among all jobs.")]
ItemsFile = Annotated[
    Path | None,
    typer.Option("--items", metavar="FILE", help='Items, one a line: a key, or {"key": …, "params": …}.'),
]
Modules = Annotated[
    list[str] | None,
    typer.Option("--services", metavar="MODULE", help="A module with services and workflows. Repeatable."),
]


Fresh = Annotated[bool, typer.Option("--fresh", help="Start a new job even if the same one is unfinished.")]
Part = "Scope of a catalog job"
OfSource = Annotated[
    list[str] | None, typer.Option("--source", help="Only this source. Repeatable.", rich_help_panel=Part)
]
OfPool = Annotated[
    list[str] | None,
    typer.Option("--pool", help="Only this pool: its number, name or source:id. Repeatable.", rich_help_panel=Part),
]
OfPlaylist = Annotated[
    list[str] | None,
    typer.Option("--playlist", help="Only this playlist: number, name or source:id.", rich_help_panel=Part),
]
OfSong = Annotated[
    list[str] | None, typer.Option("--song", help="Only this song: number or source:id.", rich_help_panel=Part)
]
OfQuery = Annotated[str, typer.Option("--query", help="Only what has this text in its name.", rich_help_panel=Part)]
From = Annotated[
    list[str] | None,
    typer.Option("--download-source", help="Fetch songs from here, in this order.", rich_help_panel=Part),
]


@command(app, "run")
def run(
    desk: Desk,
    workflow: Annotated[
        str,
        typer.Argument(
            help="The workflow's name: scale, one of your own, or of the catalog: full, collect, sync, "
            "sync-download, download, upload, download-upload."
        ),
    ],
    param: Param = None,
    priority: Priority = 100,
    items: ItemsFile = None,
    services: Modules = None,
    fresh: Fresh = False,
    source: OfSource = None,
    pool: OfPool = None,
    playlist: OfPlaylist = None,
    song: OfSong = None,
    query: OfQuery = "",
    download_source: From = None,
) -> None:
    """Run one job here, with its progress, until it has ended.

    Run it again after a crash and the same job goes on from where it was; a paused one is resumed. Where
    another engine already works on the database file, the job is handed to it and followed. Ctrl-C lets
    running items finish; a second Ctrl-C leaves at once.

    **Examples**

    dalsegno run scale

    dalsegno run scale -p notes=12 -p seconds=0.5

    dalsegno run full --playlist "Rain Songs"

    dalsegno run render --services mystudio.services --items shots.txt
    """
    scope = {"sources": source or [], "pools": pool or [], "playlists": playlist or [], "songs": song or [],
             "query": query}  # fmt: skip
    run_job(desk, workflow, param, priority, items, services, fresh, scope, download_source or [])


def run_job(
    desk: Desk, workflow: str, param: list[str] | None, priority: int, items: Path | None,
    services: list[str] | None, fresh: bool, scope: dict[str, Any], download_sources: list[str],
) -> None:  # fmt: skip
    from dalsegno.catalog.templates import TEMPLATES, check
    from dalsegno.cli.hand import Hand
    from dalsegno.cli.inputs import items_from, pairs
    from dalsegno.cli.stopping import Stopping
    from dalsegno.cli.toolbox import open_toolbox

    current = desk.current()
    settings = current.settings
    toolbox = open_toolbox([*settings.services, *(services or ())])
    params, specs = pairs(param or (), "--param"), items_from(items)
    with desk.store() as store:
        chosen = toolbox.workflow(store, workflow)
        toolbox.must_serve(chosen)
        asked = None
        if chosen.name in TEMPLATES:
            asked = check(settings, scope, download_sources).model_dump()
        elif any(scope.values()) or download_sources:
            raise typer.BadParameter(f'"{chosen.name}" is no catalog job: it has no scope.')
        options = {"download_sources": download_sources} if download_sources else None
        job_id = _submit(desk, store, chosen, params, specs, asked, options, settings.snapshot(), priority, fresh)
        stopping = Stopping().install()
        hand = Hand(desk, toolbox.engine(store, current), store, {step.service for step in chosen.steps})
        hand.start()
        try:
            last = _follow(desk, store, job_id, stopping, hand)
        finally:
            if hand.here and stopping.asked:
                desk.say(f"Stopping; what runs may finish, up to {settings.drain_sec:g} s. Again: leave now.")
            hand.stop()
        last = _last_look(store, job_id) or last
    _conclude(desk, last, stopping, hand.here)


def _submit(
    desk: Desk, store: Store, workflow: Any, params: dict[str, Any], specs: list[Any] | None,
    scope: dict[str, Any] | None, options: dict[str, Any] | None, snapshot: dict[str, Any], priority: int, fresh: bool,
) -> int:  # fmt: skip
    """A new job, or the unfinished one that does the same; resumed, if it was paused."""
    from dalsegno.cli.ask import act_if_alone, ask, whoami
    from dalsegno.engine.submit import submit
    from dalsegno.insight.jobs import job_detail
    from dalsegno.model.identity import identity
    from dalsegno.model.states import JobStatus

    same: str | bool = not fresh
    if specs is not None and not fresh:
        same = identity({"workflow": workflow.name, "params": params or None, "items": specs})
    submitted = submit(
        store, workflow, items=specs, params=params or None, scope=scope, options=options, snapshot=snapshot,
        revision=desk.revision(store), priority=priority, requested_by=whoami(), dedupe=same,
    )  # fmt: skip
    job_id = submitted.job_id
    if submitted.created:
        desk.say(f"Job {job_id}: {workflow.name}")
        return job_id
    act_if_alone(store)  # a crash may have left it paused, by its lane's policy: that shows only once it is recovered
    job = store.read(lambda tx: job_detail(tx, job_id)).job
    desk.say(f"Job {job_id}: {workflow.name}, continued from the mark")
    if scope is not None and (changed := _changed(job, snapshot)):
        desk.say(
            f"It keeps the settings it was made with; those of now differ in {', '.join(changed)}. "
            f"To change them: dalsegno resume {job_id} --set {changed[0]}=…"
        )
    if job.status in (JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED):
        ask(store, "resume", job_id=job_id, wait=0.0)
    return job_id


def _changed(job: JobRecord, now: dict[str, Any]) -> list[str]:
    """The settings that a job made now would have otherwise, but for those it was resumed with."""
    kept = job.snapshot or {}
    return sorted(key for key in {*kept, *now} - {*(job.overrides or {})} if kept.get(key) != now.get(key))


def _follow(desk: Desk, store: Store, job_id: int, stopping: Stopping, hand: Hand) -> JobProgress:
    from dalsegno.cli.bars import display
    from dalsegno.cli.stops import Stops
    from dalsegno.errors import DatabaseUnavailable
    from dalsegno.insight.progress import job_progress

    progress, stops = None, Stops(desk, store)
    with display(desk.aside) as shown:
        while True:
            try:
                progress = store.read(lambda tx: job_progress(tx, job_id))
                stops.look(time.monotonic())
            except DatabaseUnavailable:
                if progress is None:
                    raise
                stopping.wait(1.0)  # the engine waits for it too, and goes on by itself
            else:
                shown.show(progress, time.monotonic())
                if progress.status in exits.OF_STATUS:
                    return progress
            if stopping.wait(LOOK_EVERY):
                assert progress is not None
                return progress
            if not hand.here:
                hand.start()


def _last_look(store: Store, job_id: int) -> JobProgress | None:
    from dalsegno.errors import DalSegnoError
    from dalsegno.insight.progress import job_progress

    try:
        return store.read(lambda tx: job_progress(tx, job_id))
    except DalSegnoError:
        return None


def _conclude(desk: Desk, last: JobProgress, stopping: Stopping, here: bool) -> None:
    code = exits.OF_STATUS.get(last.status, stopping.exit_code)
    ended = last.status in exits.OF_STATUS
    failed = sum(stage.failed for stage in last.stages)
    text = f"Job {last.job_id} {last.status.replace('_', ' ') if ended else 'is not finished'}"
    if failed:
        number = "1 item" if failed == 1 else f"{failed} items"
        text += f": {number} failed. See: dalsegno items {last.job_id} --state failed"
    elif last.reason:
        text += f": {last.reason}"
    if last.status == "paused":
        text += ". Run the same command to go on."
    if not ended:
        text += "; run the same command to go on from the mark." if here else "; the engine that has it goes on."
    desk.answer({"job": last, "exit_code": code}, lambda console: console.print(text, markup=False))
    raise typer.Exit(code)
