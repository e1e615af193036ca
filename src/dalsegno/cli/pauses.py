"""`dalsegno pause`, `dalsegno resume` and `dalsegno holds`: a job, a stage, a service, a lane or everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.commands import Wait, ask_for
from dalsegno.cli.desk import Desk, command, number

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from dalsegno.store.store import Store

app = typer.Typer()
Job = Annotated[int | None, typer.Argument(parser=number, metavar="JOB", help="The job's number.")]
Stage = Annotated[str | None, typer.Option(metavar="STEP", help="Only this stage of the job; the others go on.")]
Service = Annotated[str | None, typer.Option(metavar="NAME", help="Every item of this service, in any job.")]
Lane = Annotated[str | None, typer.Option(metavar="NAME", help="Every job of this lane.")]
Everything = Annotated[bool, typer.Option("--all", help="Everything.")]


@command(app, "pause")
def pause(
    desk: Desk,
    job_id: Job = None,
    stage: Stage = None,
    service: Service = None,
    lane: Lane = None,
    everything: Everything = False,
    reason: Annotated[str | None, typer.Option(help="Why; shown wherever it stands still.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Go on by itself then: 23:30, 2026-12-01T08:00.")
    ] = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Go on by itself after 90m, 2h, 1h30m, 3d.")
    ] = None,
    wait: Wait = 10.0,
) -> None:
    """Pause a job, a stage of it, a service, a lane or everything: nothing new starts, what runs may finish.

    Pause again to change the reason or the end. **dalsegno holds** lists what is paused.

    **Examples**

    dalsegno pause 3 --reason "film night" --until 23:30

    dalsegno pause 3 --stage upload

    dalsegno pause --service download --for 2h
    """
    from dalsegno.cli.inputs import end_from
    from dalsegno.clock import SystemClock

    hold_name = _target("pause", job_id, stage, service, lane, everything)
    end = end_from(until, lasts, SystemClock().now())
    if hold_name is None:
        payload = {"reason": reason, "stage": stage, "until": None if end is None else end.isoformat()}
        given = {key: value for key, value in payload.items() if value} or None
        kind = "pause" if stage is None else "pause_stage"
        ask_for(desk, kind, f"{_named(job_id, stage)} pauses{_until(end)}", wait, job_id=job_id, payload=given)
        return
    _hold(desk, hold_name, reason or "paused by an operator", end)


@command(app, "resume")
def resume(
    desk: Desk,
    job_id: Job = None,
    stage: Stage = None,
    service: Service = None,
    lane: Lane = None,
    everything: Everything = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the job's snapshot. Repeatable."),
    ] = None,
    wait: Wait = 10.0,
) -> None:
    """Let what is paused go on, with what was interrupted first.

    A stage that was paused by itself stays paused when its job is resumed: resume it by its name.

    **Examples**

    dalsegno resume 3 --set LIBRARY_ROOT=/mnt/bigger

    dalsegno resume --lane catalog
    """
    from dalsegno.cli.inputs import pairs
    from dalsegno.errors import InputInvalid

    hold_name = _target("resume", job_id, stage, service, lane, everything)
    changed = pairs(overrides or (), "--set")
    if changed and (job_id is None or stage is not None):
        raise InputInvalid(problem="--set changes the settings of a whole job: dalsegno resume JOB --set KEY=VALUE.")
    if hold_name is not None:
        _release(desk, hold_name)
    elif stage is not None:
        done = f"{_named(job_id, stage)} goes on"
        ask_for(desk, "resume_stage", done, wait, job_id=job_id, payload={"stage": stage})
    else:
        payload = {"overrides": _checked(desk, job_id, changed)} if changed else None
        done = f"{_named(job_id, None)} goes on"
        ask_for(desk, "resume", done, wait, tell_holds=True, job_id=job_id, payload=payload)


@command(app, "holds")
def holds(desk: Desk) -> None:
    """List what is paused, at any level, with who, why and until when."""
    from dalsegno.cli.words import coloured, escaped, moment, table
    from dalsegno.insight.holds import list_holds

    with desk.store() as store:
        lines = store.read(list_holds)

    def show(console: Console) -> None:
        if not lines:
            console.print("Nothing is paused.")
            return
        rows = [
            (
                escaped(line.what), coloured(line.status), escaped(line.reason), escaped(line.by),
                moment(line.since), moment(line.until), escaped(f"dalsegno resume {line.target}"),
            )
            for line in lines
        ]  # fmt: skip
        console.print(table(("what", "status", "why", "by", "since", "until", "goes on with"), rows))

    desk.answer(lines, show)


def _checked(desk: Desk, job_id: int | None, changed: dict[str, Any]) -> dict[str, Any]:
    """Relative paths are the caller's."""
    from pathlib import Path

    from dalsegno.catalog.overrides import checked

    assert job_id is not None
    with desk.store() as store:
        return checked(store, desk.settings, job_id, changed, base=Path.cwd())


# --- the target -----------------------------------------------------------------------------------


def _target(
    verb: str, job_id: int | None, stage: str | None, service: str | None, lane: str | None, everything: bool
) -> str | None:
    """The name of the hold that is meant; None: a job, or a stage of it."""
    from dalsegno.errors import InputInvalid

    named = {"JOB": job_id, "--service": service, "--lane": lane, "--all": everything or None}
    given = [name for name, value in named.items() if value is not None]
    if "" in (stage, service, lane):
        raise InputInvalid(problem="A stage, a service and a lane have a name: give it after the option.")
    if stage is not None and job_id is None:
        raise InputInvalid(problem=f"A stage is part of a job, so say which: dalsegno {verb} JOB --stage {stage}.")
    if not given:
        usage = "JOB, JOB --stage STEP, --service NAME, --lane NAME or --all"
        raise InputInvalid(problem=f"Say what to {verb}: {usage}.")
    if len(given) > 1:
        raise InputInvalid(problem=f"One thing at a time: {' and '.join(given)} are different things to {verb}.")
    if job_id is not None:
        return None
    return "all" if everything else f"service:{service}" if service is not None else f"lane:{lane}"


def _named(job_id: int | None, stage: str | None) -> str:
    return f"Job {job_id}" if stage is None else f'Stage "{stage}" of job {job_id}'


def _until(end: datetime | None) -> str:
    from dalsegno.cli.words import moment

    return "" if end is None else f" until {moment(end)}"


# --- holds are written here, without a command ----------------------------------------------------


def _hold(desk: Desk, name: str, reason: str, end: datetime | None) -> None:
    from dalsegno.cli.ask import whoami
    from dalsegno.engine.holds import hold

    by = whoami()
    with desk.store() as store:
        _must_be_there(desk, store, name)
        store.write("hold", lambda tx: hold(tx, name, reason, by, end))
    text = f"{_spoken(name)} is held{_until(end)}."
    answer = {"name": name, "reason": reason, "by": by, "until": end}
    desk.answer({"hold": answer}, lambda console: console.print(text, markup=False))


def _release(desk: Desk, name: str) -> None:
    from dalsegno.cli.ask import hint_if_alone, whoami
    from dalsegno.engine.holds import release
    from dalsegno.errors import InputInvalid

    with desk.store() as store:
        if not store.write("release", lambda tx: release(tx, name, whoami())):
            _must_be_there(desk, store, name)
            raise InputInvalid(problem=f"{_spoken(name)} is not held. To see what is: dalsegno holds")
        hint_if_alone(desk, store)
    text = f"{_spoken(name)} goes on."
    desk.answer({"released": name}, lambda console: console.print(text, markup=False))


def _spoken(name: str) -> str:
    kind, _, rest = name.partition(":")
    return "Everything" if kind == "all" else f'{kind.capitalize()} "{rest}"'


def _must_be_there(desk: Desk, store: Store, hold_name: str) -> None:
    """A lane has a row. A service may come with the next process, so its absence is only worth a remark."""
    from dalsegno.errors import InputInvalid
    from dalsegno.insight.holds import known_lanes, known_services
    from dalsegno.model.suggest import did_you_mean

    kind, _, name = hold_name.partition(":")
    if kind == "lane":
        lanes = store.read(known_lanes)
        if name not in lanes:
            raise InputInvalid(problem=f'There is no lane "{name}".{did_you_mean(name, lanes)}')
    if kind == "service":
        services = store.read(known_services)
        if name not in services:
            desk.say(f'No workflow needs a service "{name}", no process offers one.{did_you_mean(name, services)}')
