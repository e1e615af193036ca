"""`dalsegno doctor`: a look at the whole system, each finding with its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli import exits
from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from dalsegno.doctor.examination import Looked
    from dalsegno.insight.health.finding import Finding

app = typer.Typer()

WIDEST = 100
UNOPENED = frozenset({"database_away", "schema_behind", "schema_ahead"})
MARKS = {
    "ok": "[green]✓[/green]",
    "note": "[cyan]·[/cyan]",
    "warning": "[yellow]![/yellow]",
    "error": "[red]✗[/red]",
}


@command(app, "doctor")
def doctor(
    desk: Desk,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also what takes its time: every page, every record and file.")
    ] = False,
    things: Annotated[
        str | None,
        typer.Option("--list", metavar="CODE", help="Print only the things that this finding is about, one a line."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="How long a look may take: 5, or 60 with --deep.")
    ] = None,
) -> None:
    """Look at the whole system and say what is not as it should be, each with its fix. Nothing is changed.

    It also works where the database cannot be opened or the settings are wrong: then it says why. What each finding
    means is in docs/doctor.md.

    Exit codes: 0 nothing worse than a note, 3 warnings, 4 errors, 7 the database cannot be opened.

    **Examples**

    dalsegno doctor

    dalsegno doctor --deep --json

    dalsegno doctor --list part_stale
    """
    from dalsegno.doctor.examination import LIMIT
    from dalsegno.doctor.visit import visit
    from dalsegno.errors import InputInvalid
    from dalsegno.insight.health.finding import worst_of
    from dalsegno.insight.health.kinds import KINDS
    from dalsegno.model.suggest import did_you_mean

    if things is not None and things not in KINDS:
        raise InputInvalid(problem=f'There is no finding "{things:.60}".{did_you_mean(things, KINDS)}')
    seen = visit(desk.env_file, desk.database, thorough=deep, limit=seconds or (60.0 if deep else LIMIT))
    if things is not None:
        for thing in (thing for each in seen.findings if each.code == things for thing in each.data.get("things", ())):
            desk.line(thing, thing)
        return
    worst = worst_of(seen.findings)
    answer = {"worst": worst, "findings": seen.findings, "looks": seen.looks}
    desk.answer(answer, lambda console: _show(console, seen.findings, seen.looks))
    raise typer.Exit(_code(worst, seen.findings))


def _code(worst: str, findings: Sequence[Finding]) -> int:
    if any(each.code in UNOPENED for each in findings):
        return exits.UNAVAILABLE
    return {"error": exits.FAILED, "warning": exits.COMPLETED_WITH_ERRORS}.get(worst, exits.OK)


def _show(console: Console, findings: Sequence[Finding], looks: Sequence[Looked]) -> None:
    """By what they are about; within a group the worst first."""
    from dalsegno.insight.health.finding import WORST, worst_of
    from dalsegno.insight.health.kinds import GROUPS

    groups = {name: [each for each in findings if each.group == name] for name in GROUPS}
    for name, some in sorted(groups.items(), key=lambda group: WORST[worst_of(group[1])]):
        if some:
            console.print(f"[bold]{GROUPS[name]}[/bold]")
            for each in some:
                _one(console, each)
    counts = {
        severity: sum(each.severity == severity for each in findings) for severity in ("error", "warning", "note")
    }
    told = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)
    took = max((look.seconds for look in looks), default=0.0)
    console.print(f"{told or 'All is well'}. {len(looks)} subjects looked at in {took:.1f} s.")


def _one(console: Console, finding: Finding) -> None:
    from dalsegno.cli.words import escaped, moment

    told = escaped(finding.says)
    if finding.since is not None and finding.severity != "ok":
        told += f" [dim](since {moment(finding.since)})[/dim]"
    code = "" if finding.severity == "ok" else f"[bold]{finding.code}[/bold] "
    _indented(console, f"  {MARKS[finding.severity]} ", f"{code}{told}", 4)
    if finding.fix and finding.severity != "ok":
        _indented(console, "    fix: ", escaped(finding.fix.replace("`", "")), 9)


def _indented(console: Console, first: str, text: str, by: int) -> None:
    """Long lines go on below their own beginning; a pipe gets every line whole."""
    if console.soft_wrap:
        console.print(first + text)
        return
    width = max(20, min(console.width, WIDEST) - by)
    for place, line in enumerate(console.render_str(text).wrap(console, width)):
        head = console.render_str(first if place == 0 else " " * by)
        console.print(head.append_text(line))
