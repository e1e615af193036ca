"""Commands as the API takes them: written down, answered with where to follow them."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from dalsegno.engine.commander import request
from dalsegno.engine.submit import to_json
from dalsegno.errors import DalSegnoError
from dalsegno.insight.commands import get_command
from dalsegno.store.store import Store, Tx
from dalsegno.web.api.models import Command
from dalsegno.web.problems import MEDIA_TYPE


def ask(
    store: Store,
    kind: str,
    job_id: int | None = None,
    payload: dict[str, Any] | None = None,
    by: str = "api",
    *,
    item_id: int | None = None,
) -> Command:
    """Write a command down. An engine applies it, here or elsewhere."""
    to_json(payload, "the body")

    def work(tx: Tx) -> Command:
        number = request(tx, kind, job_id=job_id, item_id=item_id, payload=payload or None, requested_by=by)
        return Command(**dict(get_command(tx, number)))

    return store.write("request", work)


def told(response: Response, command: Command) -> Command:
    """The answer says where the command can be followed."""
    response.headers["Location"] = f"/api/commands/{command.id}"
    return command


ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "Written down; an engine applies it. Follow it at the address in `Location`.",
        "headers": {"Location": {"description": "The command's own address.", "schema": {"type": "string"}}},
    }
}


def refusals(*errors: type[DalSegnoError]) -> dict[int | str, dict[str, Any]]:
    """What an operation may answer instead, as its documentation says it."""
    said: dict[int | str, dict[str, Any]] = {}
    for status in sorted({error.status for error in errors}):
        codes = [error.code for error in errors if error.status == status]
        said[status] = {
            "description": "Problem details; `code` is "
            + " or ".join(f"`{code}`" for code in dict.fromkeys(codes))
            + ".",
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return said
