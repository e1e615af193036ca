"""`dalsegno settings`: numbers that live in the database, and what follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command
from dalsegno.cli.flow import MOST, is_count

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer()


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
    if value is not None and not is_count(value):
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
