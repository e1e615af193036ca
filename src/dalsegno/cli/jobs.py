"""`dalsegno jobs` and `dalsegno job`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command, number

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.insight.jobs import JobDetail
    from dalsegno.insight.progress import JobProgress
    from dalsegno.insight.walk import Page
    from dalsegno.model.records import JobRecord

app = typer.Typer()
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many to show.")]
Query = Annotated[
    str,
    typer.Option(
        "--query", "-q", metavar="QUERY", help="Only what this finds, as in the console: state:failed age:<1d."
    ),
]
Cursor = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="With --query: the next page.")]
JobId = Annotated[int, typer.Argument(parser=number, metavar="JOB", help="The job's number.")]


@command(app, "jobs")
def jobs(
    desk: Desk,
    status: Annotated[str | None, typer.Option(help="Only these, for example running,paused.")] = None,
    lane: Annotated[str | None, typer.Option(help="Only jobs of this lane.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only jobs of this workflow.")] = None,
    before: Annotated[
        int | None, typer.Option(parser=number, metavar="ID", help="Older than this: the next page.")
    ] = None,
    query: Query = "",
    cursor: Cursor = None,
    limit: Limit = 20,
) -> None:
    """List jobs, newest first.

    **Example**

    dalsegno jobs -q "state:running,paused by:console"
    """
    from dalsegno.cli.inputs import choices
    from dalsegno.cli.words import coloured, escaped, moment, span, table
    from dalsegno.insight.jobs import JOBS, find_jobs, list_jobs
    from dalsegno.insight.query import parse
    from dalsegno.model.states import JobStatus

    wanted = choices(status, JobStatus, "job status")
    asked = parse(query, JOBS)
    for key, values in (("state", wanted), ("lane", [lane]), ("template", [workflow])):
        asked = asked.with_(key, *(value for value in values if value)) if query and any(values) else asked
    page = None
    with desk.store() as store:
        if query:
            page = store.read(lambda tx: find_jobs(tx, asked, cursor=cursor, limit=limit))
        lines = (
            page.lines
            if page is not None
            else store.read(
                lambda tx: list_jobs(tx, status=wanted, lane=lane, workflow=workflow, before=before, limit=limit)
            )
        )

    def show(console: Console) -> None:
        if not lines:
            console.print("No jobs. Start one: dalsegno run scale")
            return
        paused = any(line.job.pause_reason for line in lines)
        rows = [
            (
                str(line.job.id), escaped(line.workflow), coloured(line.job.status), str(line.job.priority),
                f"{_ended(line.counts)}/{line.counts['total']}", str(line.counts["failed"] or ""),
                escaped(line.job.requested_by), moment(line.job.created_at),
                span(line.job.started_at, line.job.finished_at), *([_pause(line.job)] if paused else []),
            )
            for line in lines
        ]  # fmt: skip
        columns = ["job", "workflow", "status", "priority", "items", "failed", "by", "submitted", "took"]
        columns += ["paused"] if paused else []
        console.print(table(columns, rows, right=("job", "priority", "items", "failed", "took")))
        if page is not None:
            onward(console, page)
        elif len(lines) == limit:
            console.print(f"More: dalsegno jobs --before {lines[-1].job.id}", style="dim")

    desk.answer(lines, show)


def onward(console: Console, page: Page[Any]) -> None:
    """Where the next page begins, and that there was no time for more."""
    if page.partial:
        console.print("That is not all there may be: the time was up.", style="dim")
    if page.next_cursor is not None:
        console.print(f"More: --cursor {page.next_cursor}", style="dim")


def _pause(job: JobRecord) -> str:
    """Why, who and until when."""
    from dalsegno.cli.words import escaped, moment

    if job.pause_reason is None:
        return ""
    until = f" until {moment(job.pause_until)}" if job.pause_until else ""
    return f"{escaped(job.pause_reason)} (by {escaped(job.paused_by)}){until}"


def _ended(counts: dict[str, int]) -> int:
    return counts["succeeded"] + counts["failed"] + counts["skipped"] + counts["canceled"]


@command(app, "job")
def job(desk: Desk, job_id: JobId) -> None:
    """Show one job: its stages, how far they are, and why it does not run, if it does not."""
    from dalsegno.insight.commands import commands_of_job
    from dalsegno.insight.jobs import job_detail
    from dalsegno.insight.progress import progress_of

    with desk.store() as store:
        detail, progress, asked = store.read(
            lambda tx: (
                detail := job_detail(tx, job_id),
                progress_of(detail, tx.now),
                commands_of_job(tx, job_id, limit=10),
            )
        )
    answer = {"job": detail, "progress": progress, "commands": asked}
    desk.answer(answer, lambda console: _show(console, detail, progress))


def _show(console: Console, detail: JobDetail, progress: JobProgress) -> None:
    from dalsegno.cli.words import coloured, duration, escaped, moment, span, table

    job = detail.job
    name = f"{escaped(detail.workflow)} version {detail.version}"
    console.print(f"Job {job.id}: {name}, {coloured(job.status)}, {progress.fraction:.0%}")
    if progress.reason:
        console.print(f"  {escaped(progress.reason)}")
    for hold in detail.holds:
        if hold.level != "job" and hold.says not in (progress.reason or ""):
            console.print(f"  {escaped(hold.says)}")
    facts = {
        "lane": job.lane,
        "priority": str(job.priority),
        "by": job.requested_by,
        "submitted": moment(job.created_at),
        "scheduled": moment(job.scheduled_at),
        "took": span(job.started_at, job.finished_at),
    }
    console.print("  " + " · ".join(f"{key} {escaped(value)}" for key, value in facts.items() if value), style="dim")
    for label, values in (("parameters", (job.options or {}).get("params")), ("overrides", job.overrides)):
        if values:
            console.print(f"  {label} {escaped(values)}", style="dim")
    rows = [
        (
            escaped(line.key), escaped(line.service), coloured(line.status),
            f"{line.done}/{'?' if line.expected is None else line.expected}", str(stage.running or ""),
            str(stage.failed or ""), str(stage.interrupted or ""), f"{line.fraction:.0%}",
            "" if line.rate is None else f"{line.rate:.1f}/s", duration(line.seconds_left),
        )
        for line, stage in zip(progress.stages, detail.stages, strict=True)
    ]  # fmt: skip
    columns = (
        "stage",
        "service",
        "status",
        "items",
        "running",
        "failed",
        "interrupted",
        "done",
        "rate",
        "left",
    )
    console.print(table(columns, rows, right=columns[3:]))
    for line in progress.stages:
        if line.last_error:
            console.print(f"  {escaped(line.key)}: {escaped(line.last_error)}", style="red")
