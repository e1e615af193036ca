"""What an operator can ask for: pause, resume, cancel, priority, retry, force-retry."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dalsegno.cli import exits
from dalsegno.cli.desk import Desk, command
from dalsegno.cli.items import ItemId
from dalsegno.cli.jobs import JobId

app = typer.Typer()
Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for it to be applied.")]


@command(app, "pause")
def pause(
    desk: Desk,
    job_id: JobId,
    reason: Annotated[str | None, typer.Option(help="Why; shown wherever the job is.")] = None,
    wait: Wait = 10.0,
) -> None:
    """Pause a job: nothing new starts, what runs may finish."""
    _ask(
        desk,
        "pause",
        f"Job {job_id} pauses",
        wait,
        job_id=job_id,
        payload={"reason": reason} if reason else None,
    )


@command(app, "resume")
def resume(
    desk: Desk,
    job_id: JobId,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the job's snapshot. Repeatable."),
    ] = None,
    wait: Wait = 10.0,
) -> None:
    """Let a paused job go on, with what was interrupted first.

    **Example**

    dalsegno resume 3 --set LIBRARY_ROOT=/mnt/bigger
    """
    from dalsegno.cli.inputs import pairs

    changed = pairs(overrides or (), "--set")
    payload = {"overrides": changed} if changed else None
    _ask(desk, "resume", f"Job {job_id} goes on", wait, job_id=job_id, payload=payload)


@command(app, "cancel")
def cancel(desk: Desk, job_id: JobId, wait: Wait = 10.0) -> None:
    """Cancel a job: what waits is canceled, what runs is asked to stop."""
    _ask(desk, "cancel", f"Job {job_id} is being canceled", wait, job_id=job_id)


@command(app, "priority", context_settings={"ignore_unknown_options": True})  # -3 is a number, not an option
def priority(
    desk: Desk,
    job_id: JobId,
    number: Annotated[int, typer.Argument(metavar="N", help="Smaller runs first; the default of a job is 100.")],
    wait: Wait = 10.0,
) -> None:
    """Change when a job gets its turn."""
    payload = {"priority": number}
    _ask(desk, "set_priority", f"Job {job_id} has priority {number}", wait, job_id=job_id, payload=payload)


@command(app, "retry")
def retry(desk: Desk, item_id: ItemId, wait: Wait = 10.0) -> None:
    """Give a failed or interrupted item new attempts. A finished job goes back to work for it."""
    _ask(desk, "retry_item", f"Item {item_id} will run again", wait, item_id=item_id)


@command(app, "force-retry")
def force_retry(desk: Desk, item_id: ItemId, wait: Wait = 10.0) -> None:
    """Run an item again although it is done: nothing it made before is reused."""
    _ask(desk, "force_retry_item", f"Item {item_id} will run again", wait, item_id=item_id)


def _ask(desk: Desk, kind: str, done: str, wait: float, **target: Any) -> None:
    from dalsegno.cli.ask import ask, hint_if_alone
    from dalsegno.cli.errors import report
    from dalsegno.model.states import CommandStatus

    with desk.store() as store:
        record = ask(store, kind, wait=wait, **target)
        if kind in ("resume", "retry_item", "force_retry_item") and record.status == CommandStatus.APPLIED:
            hint_if_alone(desk, store)
    if record.status == CommandStatus.REJECTED:
        details = {"command": record.id}
        report(record.error_code or "rejected", record.error_message or "Refused.", details, as_json=desk.as_json)
        raise typer.Exit(exits.BAD_INPUT)
    pending = record.status == CommandStatus.PENDING
    text = "Asked for; the engine has not applied it yet, and will." if pending else f"{done}."
    desk.answer({"command": record}, lambda console: console.print(text, markup=False))
