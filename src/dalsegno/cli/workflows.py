"""`dalsegno workflow apply|list|show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command, number
from dalsegno.cli.run import Modules

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Store and look at workflows.")


@command(app, "apply")
def apply(
    desk: Desk,
    file: Annotated[Path, typer.Argument(help="A workflow as JSON.")],
    services: Modules = None,
    check_services: Annotated[
        bool, typer.Option("--check-services", help="Refuse services that are not known here.")
    ] = False,
) -> None:
    """Check a workflow and store it. A stored version never changes: a changed workflow needs a new version.

    **Example of a file**

        {"name": "album", "version": 1, "steps": [
          {"key": "fetch", "service": "download"},
          {"key": "tag", "service": "tagger", "depends_on": ["fetch"], "follow": "each"}]}
    """
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.engine.submit import apply_workflow
    from dalsegno.model.workflow import parse_workflow

    known = None
    if check_services or services:
        modules = [*desk.settings.services, *(services or ())]
        known = open_toolbox(modules).names()
    workflow = parse_workflow(_read(file), known)
    with desk.store() as store:
        workflow_id, created = store.write("workflow", lambda tx: apply_workflow(tx, workflow))
    done = "stored" if created else "unchanged"
    answer = {"id": workflow_id, "name": workflow.name, "version": workflow.version, "created": created}
    desk.answer(answer, lambda console: console.print(f"{workflow.name} version {workflow.version}: {done}."))


def _read(file: Path) -> Any:
    from dalsegno.errors import InputInvalid, WorkflowInvalid

    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputInvalid(problem=f"{file} cannot be read: {error}.") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise WorkflowInvalid(problem=f"{file} is not JSON: {error}.") from None


@command(app, "list")
def list_(desk: Desk) -> None:
    """List the stored workflows, and those that can be run without storing them."""
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.cli.words import escaped, table
    from dalsegno.insight.workflows import list_workflows

    toolbox = open_toolbox(desk.settings.services)
    with desk.store() as store:
        stored = store.read(list_workflows)
    rows: list[dict[str, Any]] = [
        {
            "name": found.name, "version": found.version, "origin": "stored", "active": found.is_active,
            "steps": [step["key"] for step in found.definition["steps"]],
        }
        for found in stored
    ]  # fmt: skip
    have = {(found.name, found.version) for found in stored}
    rows += [
        {
            "name": each.name, "version": each.version, "origin": "module", "active": True,
            "steps": [step.key for step in each.steps],
        }
        for each in toolbox.workflows.values()
        if (each.name, each.version) not in have
    ]  # fmt: skip

    def show(console: Console) -> None:
        lines = [
            (escaped(row["name"]), str(row["version"]), str(row["origin"]), escaped(" → ".join(row["steps"])))
            for row in rows
        ]
        console.print(table(("workflow", "version", "from", "steps"), lines, right=("version",)))

    desk.answer(rows, show)


@command(app, "show")
def show(
    desk: Desk,
    name: Annotated[str, typer.Argument(help="The workflow's name.")],
    version: Annotated[int | None, typer.Option(parser=number, metavar="N", help="By default the newest.")] = None,
) -> None:
    """Print a workflow as JSON, in the form that apply reads."""
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.insight.workflows import find_workflow, get_workflow

    with desk.store() as store:
        found = store.read(lambda tx: find_workflow(tx, name, version))
        if found is not None:
            definition = found.definition
        elif version is None:
            toolbox = open_toolbox(desk.settings.services)
            definition = toolbox.workflow(store, name).model_dump(mode="json")
        else:
            definition = store.read(lambda tx: get_workflow(tx, name, version)).definition
    desk.answer(definition, lambda console: console.print_json(data=definition))
