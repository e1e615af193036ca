"""The `dalsegno` command: its groups, its common options, and the one place where errors end."""

from __future__ import annotations

import sys

import typer

from dalsegno.bench.cli import app as bench_app
from dalsegno.cli import (
    agent,
    backup,
    breakers,
    bulk,
    catalog,
    check,
    commands,
    config,
    database,
    demo,
    doctor,
    explain,
    items,
    jobs,
    limits,
    listings,
    password,
    pauses,
    retention,
    run,
    schedule_orders,
    schedules,
    serve,
    settings,
    streams,
    submit,
    workflows,
)
from dalsegno.cli.desk import AsJson, Database, Debug, Desk, EnvFile
from dalsegno.cli.errors import exit_code_for
from dalsegno.cli.exits import HELP

app = typer.Typer(
    name="dalsegno",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=HELP,
)


@app.callback()
def root(
    context: typer.Context,
    database: Database = None,
    env_file: EnvFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Durable jobs that always continue from the mark.

    Start with **dalsegno demo**; end it with Ctrl-C or pull the plug, and run it again.
    """
    context.obj = Desk(database, env_file, as_json, debug)


for group in (
    serve,
    demo,
    run,
    catalog,
    listings,
    agent,
    submit,
    jobs,
    items,
    explain,
    pauses,
    commands,
    schedules,
    limits,
    breakers,
    settings,
    streams,
    doctor,
    retention,
    database,
    backup,
    check,
):
    app.add_typer(group.app)
app.add_typer(bulk.app, name="bulk")
app.add_typer(schedule_orders.app, name="schedule")
app.add_typer(breakers.breaker_app, name="breaker")
app.add_typer(retention.archive_app, name="archive")
app.add_typer(workflows.app, name="workflow")
config.app.add_typer(password.app)
app.add_typer(config.app, name="config")
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Run the command line and exit with a code that means something."""
    as_json = "--json" in sys.argv
    try:
        # Standalone, typer prints usage errors for people and exits by itself.
        sys.exit(app(standalone_mode=not as_json) or 0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        sys.exit(exit_code_for(error, as_json=as_json, debug="--debug" in sys.argv))
