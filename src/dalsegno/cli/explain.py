"""`dalsegno explain`: why something is not running, and what would change that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.insight.explain import Explanation

app = typer.Typer()


@command(app, "explain")
def explain(
    desk: Desk,
    what: Annotated[str, typer.Argument(help="job, stage, item, service or node.")],
    target: Annotated[str, typer.Argument(help="Its number or name; a stage also as JOB/KEY.")],
) -> None:
    """Say why something is not running: every gate on its way, the first closed one, and what opens it.

    **Examples**

    dalsegno explain job 3

    dalsegno explain stage 3/download

    dalsegno explain item 42

    dalsegno explain service download
    """
    from dalsegno.insight.explain import explain_anyway

    with desk.store() as store:
        found = explain_anyway(store, what, target)
    desk.answer(found, lambda console: _show(console, found))


def _show(console: Console, found: Explanation) -> None:
    """The headline, then the gates; on a terminal, long lines go on below their own beginning."""
    from rich.padding import Padding

    from dalsegno.cli.words import coloured, escaped
    from dalsegno.insight.explain import times_of

    def line(text: str, indent: int, style: str = "") -> None:
        if console.soft_wrap:  # a pipe gets every line whole
            console.print(" " * indent + text, style=style)
        else:
            console.print(Padding(console.render_str(text, style=style), (0, 0, 0, indent)))

    name = f"{found.what.capitalize()} {escaped(found.id)}, {coloured(found.status)}"
    line(f"{name}: [bold]{escaped(found.answer)}[/bold]", 0)
    for gate in found.gates:
        closed = gate.state == "closed"
        mark = (
            "[green]✓[/green]" if not closed else "[red]✗[/red]" if gate is found.first_closed else "[yellow]✗[/yellow]"
        )
        line(f"{mark} {gate.code:<13} {escaped(gate.says)}", 2, "" if closed else "dim")
        if times := times_of(gate, found.at):
            line(escaped(times), 18, "dim")
        if closed and gate.opens:
            line(f"opens: {escaped(gate.opens)}", 18)
