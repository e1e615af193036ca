"""The desk every command sits at: the settings, the database, and how to answer (for people or as JSON)."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.config.current import Current
    from dalsegno.settings import Loaded, Settings
    from dalsegno.store.store import Store

PANEL = "Common options"
Database = Annotated[
    str | None,
    typer.Option(help="Database URL, before DATABASE_URL of the settings.", rich_help_panel=PANEL, metavar="URL"),
]
EnvFile = Annotated[
    Path | None,
    typer.Option(help="Settings file (default: dalsegno.env, if it is there).", rich_help_panel=PANEL, metavar="FILE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.", rich_help_panel=PANEL)]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.", rich_help_panel=PANEL)]
COMMON = {"database": Database, "env_file": EnvFile, "as_json": AsJson, "debug": Debug}


@dataclass(slots=True)
class Desk:
    """What the common options said; everything else is made when it is asked for."""

    database: str | None = None
    env_file: Path | None = None
    as_json: bool = False
    debug: bool = False

    # --- settings and database ----------------------------------------------------------------

    def load(self) -> Loaded:
        from dalsegno.settings import load_settings

        return load_settings(self.env_file, self.database)

    @property
    def settings(self) -> Settings:
        return self.load().settings

    def current(self) -> Current:
        """The settings file as something to change."""
        from dalsegno.config.current import Current

        return Current.of(self.env_file, self.database)

    def revision(self, store: Store) -> int | None:
        """Of the settings file, for jobs that are made now."""
        from dalsegno.config.revisions import revision_in_force

        return revision_in_force(store, self.current())

    @contextlib.contextmanager
    def store(self, *, migrate: bool = True, attended: bool = False, backup: bool = True) -> Iterator[Store]:
        """`attended`, `backup`: how to go about an older schema (see `store.upgrade`)."""
        from dalsegno.store.open import open_store
        from dalsegno.store.upgrade import Precaution

        settings = self.settings
        folder = settings.backup_folder
        if folder is None and not settings.database_url.startswith("sqlite"):
            folder = Path.cwd()
        store = open_store(
            settings.database_url,
            channel=settings.notify_channel_prefix,
            listen_url=settings.listen_database_url,
            migrate=migrate,
            precaution=Precaution(folder, settings.pg_bin, wanted=backup, attended=attended),
        )
        try:
            yield store
        finally:
            store.close()

    # --- answering ----------------------------------------------------------------------------

    @property
    def console(self) -> Console:
        """For what was asked; a pipe gets lines as long as they are."""
        from rich.console import Console

        pipe = not sys.stdout.isatty()
        # No emoji: "service:m:" is a name, not a picture.
        return Console(highlight=False, emoji=False, soft_wrap=pipe, width=160 if pipe else None)

    @property
    def aside(self) -> Console:
        """For everything else: progress, hints, errors."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

    def answer(self, value: Any, show: Callable[[Console], None]) -> None:
        """One JSON document, or what `show` draws for a person."""
        if self.as_json:
            sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, indent=2) + "\n")
        else:
            show(self.console)

    def line(self, value: Any, text: str) -> None:
        """One line of a stream."""
        sys.stdout.write((json.dumps(plain(value), ensure_ascii=False) if self.as_json else text) + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """A remark for the person, never part of the answer."""
        self.aside.print(text, markup=False)


def number(text: str) -> int:
    """The number of a job or an item, as the databases can hold it."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise typer.BadParameter(f'"{text}" is not a number that anything has here.')
    return int(text)


def plain(value: Any) -> Any:
    """Records, dataclasses and times as JSON knows them."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


@contextlib.contextmanager
def _while_read() -> Iterator[None]:
    """Whoever reads our output may have seen enough (`dalsegno events | head`): no error, and nothing to say."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command(app: typer.Typer, name: str, **how: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of a Desk as a command that also takes the common options, after its name."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        common = [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if kind in (AsJson, Debug) else None,
                annotation=kind,
            )
            for key, kind in COMMON.items()
        ]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        @functools.wraps(function)
        def call(*, context: typer.Context, **given: Any) -> None:
            outer: Desk = context.find_object(Desk) or Desk()
            mine = {key: given.pop(key) or getattr(outer, key) for key in COMMON}
            with _while_read():
                function(Desk(**mine), **given)

        keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        vars(call)["__signature__"] = inspect.Signature([context, *keyword, *common])
        call.__annotations__ = {each.name: each.annotation for each in (context, *keyword, *common)}
        del vars(call)["__wrapped__"]
        app.command(name, **how)(call)
        return function

    return register


class ShowByDefault(TyperGroup):
    """`dalsegno breaker NAME` is `dalsegno breaker show NAME`: the word that is most often meant may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        a_verb = bool(args[1:]) and not args[0].startswith("-") and not args[1].startswith("-")
        if args and args[0] not in {*self.commands, *ctx.help_option_names} and not a_verb:
            args = ["show", *args]
        return super().parse_args(ctx, args)
