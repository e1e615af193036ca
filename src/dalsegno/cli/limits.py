"""`dalsegno limits|limit`: how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command
from dalsegno.cli.flow import MOST, check_name, is_count, remark_if_unknown, show_facts, waiting

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.insight.flow import LimitLine
    from dalsegno.store.store import Tx

app = typer.Typer()
LimitName = Annotated[str, typer.Argument(metavar="NAME", help="service:NAME, node:NAME, or any key: source:qq.")]


@command(app, "limits")
def limits(desk: Desk) -> None:
    """List the limits: what they allow, what is in use now, when there is room again, and how many wait.

    **Example**

    dalsegno limits --json
    """
    from dalsegno.cli.words import escaped, moment, table
    from dalsegno.insight.flow import list_limits

    with desk.store() as store:
        lines = store.read(list_limits)

    def show(console: Console) -> None:
        if not lines:
            console.print("No limits. Set one: dalsegno limit service:download --concurrent 2 --rate 30/min")
            return
        rows = [
            (
                escaped(line.name), _at_once(line), _within(line), "" if line.free is None else str(line.free),
                moment(line.next_at), waiting(line.line), escaped(_set_by(line)),
            )
            for line in lines
        ]  # fmt: skip
        columns = ("limit", "at once", "rate", "free", "next free", "waiting", "set by")
        console.print(table(columns, rows, right=("free", "waiting")))

    desk.answer(lines, show)


@command(app, "limit")
def limit(
    desk: Desk,
    name: LimitName,
    concurrent: Annotated[
        str | None, typer.Option(metavar="N", help="Calls at once; none: any number; or a system setting to follow.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Calls that may begin: 2/min, 100/15s, 1000/day; none: any.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Lift it: no limit any more.")] = False,
) -> None:
    """Show one limit, or set it. It holds from now on, in every process, whatever the service declares.

    Of --concurrent and --rate, the one that is not given stays as it is. 0 means nothing: no call begins.

    **Examples**

    dalsegno limit service:download

    dalsegno limit service:download --concurrent 2 --rate 30/min

    dalsegno limit source:qq --rate none

    dalsegno limit service:metadata --rate queue_rate_limit_max/min

    dalsegno limit node:nas --clear
    """
    from dalsegno.errors import InputInvalid
    from dalsegno.insight.flow import get_limit

    changes = {**_concurrent_from(concurrent), **_rate_from(rate)}
    if clear and changes:
        raise InputInvalid(problem="--clear lifts the whole limit: give it alone.")
    with desk.store() as store:
        check_name(store, "limit", name)
        if changes:
            remark_if_unknown(desk, store, name)
        if clear:
            store.write("limit", lambda tx: _clear(tx, name))
        elif changes:
            store.write("limit", lambda tx: _set(tx, name, changes))
        line = store.read(lambda tx: get_limit(tx, name))
    warning = f"0 means nothing: no call of {name} begins until this is changed." if line.blocked else None

    def show(console: Console) -> None:
        if clear:
            console.print(f"Limit {name} is lifted.", markup=False)
        elif changes:
            console.print(f"Limit {name}: {_said(line)}.", markup=False)
        else:
            _show_limit(console, line)
        if warning:
            console.print(warning, style="yellow", markup=False)

    desk.answer({"limit": line, "warning": warning}, show)


def _concurrent_from(text: str | None) -> dict[str, Any]:
    from dalsegno.errors import InputInvalid
    from dalsegno.model.limit import SYSTEM_SETTINGS

    if text is None:
        return {}
    if text.lower() == "none":
        return {"concurrent": None}
    if text in SYSTEM_SETTINGS:
        return {"concurrent": text}
    if not is_count(text):
        others = f"none, or a system setting ({', '.join(SYSTEM_SETTINGS)})"
        raise InputInvalid(problem=f'--concurrent takes a whole number from 0 to {MOST:,}, {others}; not "{text}".')
    return {"concurrent": int(text)}


def _rate_from(text: str | None) -> dict[str, Any]:
    """`2/min`, or a system setting in the place of the number."""
    from dalsegno.errors import InputInvalid
    from dalsegno.model.limit import SYSTEM_SETTINGS, parse_rate

    if text is None:
        return {}
    if text.lower() == "none":
        return {"rate": None}
    count, slash, window = text.partition("/")
    if slash and count.strip() in SYSTEM_SETTINGS:
        return {"rate": count.strip(), "window": parse_rate(f"1/{window}")[1]}
    if slash and count.strip().isdecimal() and not is_count(count.strip()):
        raise InputInvalid(problem=f'--rate takes up to {MOST:,} calls; not "{text}".')
    rate, seconds = parse_rate(text)
    return {"rate": rate, "window": seconds}


def _set(tx: Tx, name: str, changes: dict[str, Any]) -> None:
    """What is not changed stays, also where it follows a system setting."""
    import sqlalchemy as sa

    from dalsegno.cli.ask import whoami
    from dalsegno.engine.limits import set_limit
    from dalsegno.model.limit import Limit
    from dalsegno.store.schema import limits as table

    row = tx.row(sa.select(table).where(table.c.name == name).with_for_update())
    kept: dict[str, Any] = {}
    if row is not None:
        kept = {key: row[f"{key}_setting"] or row[key] for key in ("concurrent", "rate")}
        kept["window"] = row["window"]
    set_limit(tx, name, Limit(**{**kept, **changes}), whoami())


def _clear(tx: Tx, name: str) -> None:
    from dalsegno.cli.ask import whoami
    from dalsegno.engine.limits import clear_limit
    from dalsegno.errors import NotFound
    from dalsegno.insight.flow import get_limit

    if not clear_limit(tx, name, whoami()):
        get_limit(tx, name)  # one that never was comes with the likely name
        raise NotFound(what="limit", id=f'"{name}": it is lifted already', name=name)


def _show_limit(console: Console, line: LimitLine) -> None:
    from dalsegno.cli.words import moment

    facts: dict[str, str | None] = {"at once": _at_once(line), "rate": _within(line)}
    if line.limited:
        facts["free now"] = "any number" if line.free is None else str(line.free)
    if line.next_at is not None:
        facts["next free"] = moment(line.next_at)
    elif line.free == 0 and not line.blocked:
        facts["next free"] = "when a call ends"
    facts["waiting"] = waiting(line.line, words=True)
    facts["set by"] = f"{_set_by(line)}, {moment(line.updated_at)}"
    show_facts(console, f"Limit {line.name}" + ("" if line.limited else ": no limit"), facts)


def _at_once(line: LimitLine) -> str:
    if line.concurrent is None:
        return f"{line.in_use}" if line.in_use else ""
    follows = f" ({line.concurrent_setting})" if line.concurrent_setting else ""
    return f"{line.in_use} of {line.concurrent}{follows}"


def _within(line: LimitLine) -> str:
    if line.rate is None:
        return ""
    follows = f" ({line.rate_setting})" if line.rate_setting else ""
    return f"{line.used} of {_per(line.rate, line.window)}{follows}"


def _said(line: LimitLine) -> str:
    parts = [] if line.concurrent is None else [f"{line.concurrent} at once"]
    parts += [] if line.rate is None else [_per(line.rate, line.window)]
    return ", ".join(parts) or "no limit"


def _per(rate: int, window: float) -> str:
    """As --rate reads it."""
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if window % size == 0:
            return f"{rate}/{'' if window == size else round(window / size)}{unit}"
    return f"{rate}/{'' if window == 1 else f'{window:.15g}'}s"


def _set_by(line: LimitLine) -> str:
    return "its service" if line.origin == "service" else line.updated_by or ""
