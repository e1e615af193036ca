"""`dalsegno limits|limit`, `dalsegno breakers|breaker` and `dalsegno settings`: how fast, why stopped, until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from dalsegno.insight.flow import BreakerLine, LimitLine, Line
    from dalsegno.store.store import Store, Tx

MOST = 1_000_000
LONGEST_REASON = 1000


class ShowByDefault(TyperGroup):
    """`dalsegno breaker NAME` is `dalsegno breaker show NAME`: the word that is most often meant may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        a_verb = bool(args[1:]) and not args[0].startswith("-") and not args[1].startswith("-")
        if args and args[0] not in {*self.commands, *ctx.help_option_names} and not a_verb:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer()
breaker_app = typer.Typer(
    cls=ShowByDefault,
    no_args_is_help=True,
    help="Show a breaker (**dalsegno breaker NAME**), or trip, probe or reset it.",
)
LimitName = Annotated[str, typer.Argument(metavar="NAME", help="service:NAME, node:NAME, or any key: source:qq.")]
BreakerName = Annotated[str, typer.Argument(metavar="NAME", help="service:NAME, or any key: source:qq.")]


# --- limits ---------------------------------------------------------------------------------------


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
                moment(line.next_at), _waiting(line.line), escaped(_set_by(line)),
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
        _check_name(store, "limit", name)
        if changes:
            _remark_if_unknown(desk, store, name)
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
    if not _is_count(text):
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
    if slash and count.strip().isdecimal() and not _is_count(count.strip()):
        raise InputInvalid(problem=f'--rate takes up to {MOST:,} calls; not "{text}".')
    rate, seconds = parse_rate(text)
    return {"rate": rate, "window": seconds}


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(MOST)) and int(text) <= MOST


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
    facts["waiting"] = _waiting(line.line, words=True)
    facts["set by"] = f"{_set_by(line)}, {moment(line.updated_at)}"
    _show_facts(console, f"Limit {line.name}" + ("" if line.limited else ": no limit"), facts)


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


# --- breakers -------------------------------------------------------------------------------------


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
                moment(line.breaker.tripped_at), moment(line.breaker.resume_at), _waiting(line.line),
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
        _check_name(store, "breaker", name)
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
        _check_name(store, "breaker", name)
        _remark_if_unknown(desk, store, name)
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
        _check_name(store, "breaker", name)
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
        _check_name(store, "breaker", name)
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
        "waiting": _waiting(line.line, words=True),
        "error": breaker.error,
    }
    _show_facts(console, f"Breaker {breaker.name}, {_plain_state(line)}", facts)


def _plain_state(line: BreakerLine) -> str:
    return line.breaker.state.replace("_", "-")


def _state(line: BreakerLine) -> str:
    from dalsegno.cli.words import coloured

    return coloured(_plain_state(line))


# --- system settings ------------------------------------------------------------------------------


@command(app, "settings", context_settings={"ignore_unknown_options": True})  # -3 is a number, not an option
def settings(
    desk: Desk,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="The system setting to show or to change.")] = None,
    value: Annotated[str | None, typer.Argument(metavar="[VALUE]", help="Its new value: a whole number.")] = None,
) -> None:
    """Show or change the system settings: they live in the database, and limits that follow them change at once.

    What a process starts with (the database, folders, services) is in the env file instead: **dalsegno config show**.

    **Examples**

    dalsegno settings

    dalsegno settings queue_rate_limit_max 15
    """
    from dalsegno.cli.ask import whoami
    from dalsegno.cli.words import escaped, moment, table
    from dalsegno.engine.limits import set_setting
    from dalsegno.errors import InputInvalid
    from dalsegno.insight.flow import list_settings
    from dalsegno.model.limit import SYSTEM_SETTINGS
    from dalsegno.model.suggest import did_you_mean

    if key is not None and key not in SYSTEM_SETTINGS:
        raise InputInvalid(problem=f'There is no system setting "{key}".{did_you_mean(key, SYSTEM_SETTINGS)}')
    if value is not None and not _is_count(value):
        raise InputInvalid(problem=f'{key} is a whole number up to {MOST:,}, not "{value}".')
    with desk.store() as store:
        if key is not None and value is not None:
            store.write("setting", lambda tx: set_setting(tx, key, int(value), whoami()))
        lines = [line for line in store.read(list_settings) if key in (None, line.key)]

    def show(console: Console) -> None:
        rows = [
            (
                line.key, str(line.value), str(line.default), line.meaning, escaped(", ".join(line.followers)),
                escaped(line.updated_by), moment(line.updated_at),
            )
            for line in lines
        ]  # fmt: skip
        columns = ("setting", "value", "default", "meaning", "followed by", "changed by", "changed")
        console.print(table(columns, rows, right=("value", "default")))

    desk.answer(lines, show)


# --- common ---------------------------------------------------------------------------------------


def _check_name(store: Store, what: str, name: str) -> None:
    """A plain key is anybody's; but one that is called like a service or a node is most likely meant as that."""
    from dalsegno.errors import InputInvalid

    if not name or len(name) > 200 or any(c.isspace() for c in name):
        raise InputInvalid(problem=f"The name of a {what} has 1 to 200 characters and no spaces: {name!r}.")
    kind, colon, rest = name.partition(":")
    if what == "breaker" and kind == "node" and colon:
        hint = f"To stop what node {rest} does: dalsegno limit {name} --concurrent 0"
        raise InputInvalid(problem=f"Breakers guard services and keys, not nodes. {hint}")
    services, nodes = store.read(_known)
    if not colon and name in services:
        raise InputInvalid(problem=f'"{name}" is a service. Did you mean "service:{name}"?')
    if not colon and name in nodes and what == "limit":
        raise InputInvalid(problem=f'"{name}" is a node. Did you mean "node:{name}"?')


def _remark_if_unknown(desk: Desk, store: Store, name: str) -> None:
    """A service or a node may come with the next process, so its absence is only worth a remark."""
    from dalsegno.model.suggest import did_you_mean

    kind, _, rest = name.partition(":")
    services, nodes = store.read(_known)
    known = {"service": services, "node": nodes}.get(kind)
    if known is not None and rest not in known:
        desk.say(f'No {kind} "{rest}" is known here yet.{did_you_mean(rest, known)}')


def _known(tx: Tx) -> tuple[set[str], set[str]]:
    from dalsegno.insight.flow import known_nodes
    from dalsegno.insight.holds import known_services

    return known_services(tx), known_nodes(tx)


def _waiting(line: Line, *, words: bool = False) -> str:
    parts = []
    if line.waiting:
        parts.append(f"{line.waiting:,}{'+' if line.more else ''}" + (" in line" if words else ""))
    if line.held_back:
        parts.append(f"{line.held_back:,}" + (" ready, held back" if words else " held back"))
    return ", ".join(parts)


def _show_facts(console: Console, title: str, facts: dict[str, str | None]) -> None:
    console.print(title, markup=False, style="bold")
    for name, value in facts.items():
        if value:
            text = "".join(c if c.isprintable() or c == "\n" else " " for c in value).replace("\n", "\n" + " " * 13)
            console.print(f"  {name:<10} {text}", markup=False)
