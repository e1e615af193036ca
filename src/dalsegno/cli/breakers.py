"""`dalsegno breakers|breaker`: why stopped, until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, ShowByDefault, command
from dalsegno.cli.flow import check_name, remark_if_unknown, show_facts, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from dalsegno.insight.flow import BreakerLine
    from dalsegno.store.store import Store, Tx

LONGEST_REASON = 1000
app = typer.Typer()
breaker_app = typer.Typer(
    cls=ShowByDefault,
    no_args_is_help=True,
    help="Show a breaker (**dalsegno breaker NAME**), or trip, probe or reset it.",
)
BreakerName = Annotated[str, typer.Argument(metavar="NAME", help="service:NAME, or any key: source:qq.")]


@command(app, "breakers")
def breakers(desk: Desk) -> None:
    """List the breakers: closed (calls go through), open (none does) or half-open (one tries), why and until when.

    **Example**

    dalsegno breakers --json
    """
    from dalsegno.cli.words import escaped, moment, table
    from dalsegno.insight.flow import list_breakers

    with desk.store() as store:
        lines = store.read(list_breakers)

    def show(console: Console) -> None:
        if not lines:
            console.print("No breakers: no guarded service has been called yet.")
            return
        rows = [
            (
                escaped(line.breaker.name), _state(line), escaped(line.breaker.kind), escaped(line.breaker.reason),
                moment(line.breaker.tripped_at), moment(line.breaker.resume_at), waiting(line.line),
            )
            for line in lines
        ]  # fmt: skip
        columns = ("breaker", "state", "kind", "why", "since", "until", "waiting")
        console.print(table(columns, rows, right=("waiting",)))

    desk.answer(lines, show)


@command(breaker_app, "show")
def show_breaker(desk: Desk, name: BreakerName) -> None:
    """Show one breaker: why it stops calls, with the error that tripped it, and what opens the way again.

    **Example**

    dalsegno breaker service:metadata
    """
    from dalsegno.insight.flow import get_breaker

    with desk.store() as store:
        check_name(store, "breaker", name)
        line = store.read(lambda tx: get_breaker(tx, name))
    desk.answer(line, lambda console: _show_breaker(console, line))


@command(breaker_app, "trip")
def trip_breaker(
    desk: Desk,
    name: BreakerName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; shown wherever something waits for it.")],
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Try again by itself then: 23:30, 2026-12-01T08:00.")
    ] = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Try again by itself after 90m, 2h, 1h30m, 3d.")
    ] = None,
) -> None:
    """Stop all calls at once, until a moment, or until you probe or reset it. It costs no item an attempt.

    **Examples**

    dalsegno breaker trip service:metadata --reason "the bill is due" --for 2h

    dalsegno breaker trip source:qq --reason "they asked us to stop"
    """
    from dalsegno.cli.ask import whoami
    from dalsegno.cli.inputs import end_from
    from dalsegno.engine.breakers import trip
    from dalsegno.errors import InputInvalid

    if not reason.strip() or len(reason) > LONGEST_REASON:
        raise InputInvalid(problem=f"--reason has 1 to {LONGEST_REASON:,} characters.")
    with desk.store() as store:
        check_name(store, "breaker", name)
        remark_if_unknown(desk, store, name)
        end = end_from(until, lasts, store.read(lambda tx: tx.hot.database_now(tx)))
        _change(desk, store, name, lambda tx: trip(tx, name, reason.strip(), whoami(), end))


@command(breaker_app, "probe")
def probe_breaker(desk: Desk, name: BreakerName) -> None:
    """Try now instead of waiting: one call goes through, and what it meets closes or opens the breaker.

    **Example**

    dalsegno breaker probe service:metadata
    """
    from dalsegno.cli.ask import whoami
    from dalsegno.engine.breakers import probe

    with desk.store() as store:
        check_name(store, "breaker", name)
        _change(desk, store, name, lambda tx: probe(tx, name, whoami()))


@command(breaker_app, "reset")
def reset_breaker(desk: Desk, name: BreakerName) -> None:
    """Close a breaker, whatever it knows: all calls go through again.

    **Example**

    dalsegno breaker reset service:metadata
    """
    from dalsegno.cli.ask import whoami
    from dalsegno.engine.breakers import reset

    with desk.store() as store:
        check_name(store, "breaker", name)
        _change(desk, store, name, lambda tx: reset(tx, name, whoami()))


def _change(desk: Desk, store: Store, name: str, work: Callable[[Tx], None]) -> None:
    """Write it, and say how the breaker stands."""
    from dalsegno.insight.flow import get_breaker

    store.write("breaker", work)
    line = store.read(lambda tx: get_breaker(tx, name))
    desk.answer(line, lambda console: console.print(_stands(line), markup=False))


def _stands(line: BreakerLine) -> str:
    from dalsegno.cli.words import moment

    breaker = line.breaker
    match breaker.state:
        case "closed":
            return f"Breaker {breaker.name} is closed: calls go through."
        case "half_open":
            return f"Breaker {breaker.name} is half-open: the next call is the probe."
        case _:
            until = "you probe or reset it" if breaker.resume_at is None else moment(breaker.resume_at)
            return f"Breaker {breaker.name} is open until {until}: {breaker.reason}"


def _show_breaker(console: Console, line: BreakerLine) -> None:
    from dalsegno.cli.words import moment

    breaker = line.breaker
    facts = {
        "kind": breaker.kind,
        "why": breaker.reason,
        "tripped": f"{moment(breaker.tripped_at)} by {breaker.tripped_by}" if breaker.tripped_at else None,
        "until": moment(breaker.resume_at),
        "goes on": line.opens,
        "failures": f"{breaker.failures} in a row" if breaker.failures else None,
        "outages": f"{breaker.trips} trips in a row" if breaker.trips else None,
        "waiting": waiting(line.line, words=True),
        "error": breaker.error,
    }
    show_facts(console, f"Breaker {breaker.name}, {_plain_state(line)}", facts)


def _plain_state(line: BreakerLine) -> str:
    return line.breaker.state.replace("_", "-")


def _state(line: BreakerLine) -> str:
    from dalsegno.cli.words import coloured

    return coloured(_plain_state(line))
