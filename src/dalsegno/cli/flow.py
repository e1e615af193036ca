"""What the commands about limits, breakers and settings share: names that are checked, and how lines are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.cli.desk import Desk
    from dalsegno.insight.flow import Line
    from dalsegno.store.store import Store, Tx

MOST = 1_000_000


def is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(MOST)) and int(text) <= MOST


def check_name(store: Store, what: str, name: str) -> None:
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


def remark_if_unknown(desk: Desk, store: Store, name: str) -> None:
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


def waiting(line: Line, *, words: bool = False) -> str:
    parts = []
    if line.waiting:
        parts.append(f"{line.waiting:,}{'+' if line.more else ''}" + (" in line" if words else ""))
    if line.held_back:
        parts.append(f"{line.held_back:,}" + (" ready, held back" if words else " held back"))
    return ", ".join(parts)


def show_facts(console: Console, title: str, facts: dict[str, str | None]) -> None:
    console.print(title, markup=False, style="bold")
    for name, value in facts.items():
        if value:
            text = "".join(c if c.isprintable() or c == "\n" else " " for c in value).replace("\n", "\n" + " " * 13)
            console.print(f"  {name:<10} {text}", markup=False)
