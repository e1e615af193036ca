"""What an operator can ask for: cancel, priority, retry, force-retry. Pauses have a file of their own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dalsegno.cli import exits
from dalsegno.cli.desk import Desk, command
from dalsegno.cli.items import ItemId
from dalsegno.cli.jobs import JobId

app = typer.Typer()
STARTS = ("resume", "resume_stage", "retry_item", "force_retry_item")
"""Commands after which somebody has to work."""
Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for it to be applied.")]


@command(app, "cancel")
def cancel(desk: Desk, job_id: JobId, wait: Wait = 10.0) -> None:
    """Cancel a job: what waits is canceled, what runs is asked to stop."""
    ask_for(desk, "cancel", f"Job {job_id} is being canceled", wait, job_id=job_id)


@command(app, "priority", context_settings={"ignore_unknown_options": True})  # -3 is a number, not an option
def priority(
    desk: Desk,
    job_id: JobId,
    number: Annotated[int, typer.Argument(metavar="N", help="Smaller runs first; the default of a job is 100.")],
    wait: Wait = 10.0,
) -> None:
    """Change when a job gets its turn."""
    payload = {"priority": number}
    ask_for(desk, "set_priority", f"Job {job_id} has priority {number}", wait, job_id=job_id, payload=payload)


@command(app, "retry")
def retry(desk: Desk, item_id: ItemId, wait: Wait = 10.0) -> None:
    """Give a failed or interrupted item new attempts. A finished job goes back to work for it."""
    ask_for(desk, "retry_item", f"Item {item_id} will run again", wait, item_id=item_id)


@command(app, "force-retry")
def force_retry(desk: Desk, item_id: ItemId, wait: Wait = 10.0) -> None:
    """Run an item again although it is done: nothing it made before is reused."""
    ask_for(desk, "force_retry_item", f"Item {item_id} will run again", wait, item_id=item_id)


def ask_for(desk: Desk, kind: str, done: str, wait: float, *, tell_holds: bool = False, **target: Any) -> None:
    """Have a command applied and answer with `done`, or with why not; `tell_holds`: and with what else holds it up."""
    from dalsegno.cli.ask import ask, hint_if_alone
    from dalsegno.cli.errors import report
    from dalsegno.insight.jobs import job_detail
    from dalsegno.model.states import CommandStatus

    answer: dict[str, Any] = {}
    with desk.store() as store:
        record = ask(store, kind, wait=wait, **target)
        if kind in STARTS and record.status == CommandStatus.APPLIED:
            hint_if_alone(desk, store)
        if tell_holds:
            detail = store.read(lambda tx: job_detail(tx, target["job_id"]))
            answer["holds"] = [hold for hold in detail.holds if hold.level != "job"]
    if record.status == CommandStatus.REJECTED:
        details = {"command": record.id}
        report(record.error_code or "rejected", record.error_message or "Refused.", details, as_json=desk.as_json)
        raise typer.Exit(exits.BAD_INPUT)
    pending = record.status == CommandStatus.PENDING
    lines = ["Asked for; the engine has not applied it yet, and will." if pending else f"{done}."]
    lines += [f"But {hold.says}. To go on: dalsegno resume {hold.target}" for hold in answer.get("holds", ())]
    desk.answer({"command": record, **answer}, lambda console: console.print("\n".join(lines), markup=False))
