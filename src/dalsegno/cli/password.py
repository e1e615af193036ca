"""`dalsegno config hash-password|token`: what opens the console."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer()


@command(app, "hash-password")
def hash_password(desk: Desk) -> None:
    """Make a value for CONSOLE_PASSWORD that does not give the password away.

    It is asked for, or read from standard input.

    **Examples**

    dalsegno config hash-password

    pass show console | dalsegno config hash-password
    """
    from dalsegno.errors import SettingInvalid
    from dalsegno.web.password import hashed

    if sys.stdin.isatty():
        given = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    if len(given) < 8:
        raise SettingInvalid(key="CONSOLE_PASSWORD", problem="a password needs at least 8 characters.")
    value = hashed(given)

    def draw(console: Console) -> None:
        console.print(f"CONSOLE_PASSWORD={value}", markup=False, soft_wrap=True)

    desk.answer({"CONSOLE_PASSWORD": value}, draw)


@command(app, "token")
def token(
    desk: Desk,
    name: Annotated[str, typer.Argument(help="Whose it is; it stands beside what is done with it.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is good for.")] = 365,
) -> None:
    """Make a token for a program, so that it need not know the password: `Authorization: Bearer TOKEN`.

    It ends with its days, or when CONSOLE_PASSWORD changes.

    **Examples**

    dalsegno config token prometheus --days 90
    """
    import secrets

    from dalsegno.errors import SettingInvalid
    from dalsegno.web.door import tidy_name
    from dalsegno.web.sessions import Session, Sessions

    password = desk.settings.console_password.get_secret_value()
    if not password:
        problem = "there is none, so no token is needed. Set a password first."
        raise SettingInvalid(key="CONSOLE_PASSWORD", problem=problem)
    with desk.store() as store:
        sessions = Sessions(store, password)
        sessions.look()
        expires = int(store.clock.now().timestamp()) + days * 86400
        made = sessions.written(Session(secrets.token_urlsafe(12), tidy_name(name), expires))
    desk.answer({"token": made}, lambda console: console.print(made, markup=False, soft_wrap=True))
