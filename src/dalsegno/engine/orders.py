"""What a schedule orders, and what it comes to once somebody has looked at it.

Which settings a job is frozen with, and what a scope may say, is not the engine's business: whoever makes an engine
gives it a `Prepare`. It runs outside any transaction; an error it raises is what became of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dalsegno.engine.logbridge import masked
from dalsegno.engine.submit import Listed, submit
from dalsegno.errors import (
    DalSegnoError,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    InputInvalid,
)
from dalsegno.model.suggest import did_you_mean
from dalsegno.model.workflow import Workflow

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

logger = logging.getLogger("dalsegno.engine")

ASKED = ("scope", "options", "download_sources", "params", "items")
"""What an order may hold besides the name of a workflow."""


@dataclass(frozen=True, slots=True)
class Order:
    workflow: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """An order that can be submitted."""

    workflow: Workflow | str
    items: Listed | None = None
    params: Mapping[str, Any] | None = None
    scope: Any = None
    options: Mapping[str, Any] | None = None
    snapshot: Mapping[str, Any] | None = None
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an order cannot be submitted."""

    code: str
    message: str


Prepare = Callable[[Order], Ready]
OUTAGES = (DatabaseUnavailable, DatabaseFull, DatabaseReadOnly, DatabaseCorrupt)
"""What passes, or is everybody's trouble: no answer to an order."""


def as_stored(order: Order) -> Ready:
    """For workflows that are stored in the database, and need no settings."""
    check_request(order.request)
    asked = order.request
    return Ready(order.workflow, asked.get("items"), asked.get("params"), asked.get("scope"), asked.get("options"))


def made_ready(prepare: Prepare, order: Order, secrets: Sequence[str] = ()) -> Ready | Refused:
    """Whatever goes wrong with it is an answer, too."""
    try:
        return prepare(order)
    except Exception as error:
        found = refusal(error)
        return Refused(found.code, masked(found.message, secrets))


def refusal(error: Exception) -> Refused:
    if isinstance(error, OUTAGES):
        raise error
    if isinstance(error, DalSegnoError):
        return Refused(error.code, str(error))
    logger.error("an order failed before it became a job", exc_info=error)
    return Refused("internal_error", f"{type(error).__name__}: {error}")


def check_request(request: Mapping[str, Any]) -> None:
    for key, value in request.items():
        if key not in ASKED:
            raise InputInvalid(problem=f'There is no "{key:.60}" to order.{did_you_mean(key, ASKED)}')
        wanted: tuple[type, ...] = {"options": (dict,), "params": (dict,), "items": (list, dict)}.get(key, (object,))
        if not isinstance(value, wanted):
            names = " or ".join({"dict": "an object", "list": "a list"}[kind.__name__] for kind in wanted)
            raise InputInvalid(problem=f"{key} must be {names}.")


def submit_ready(tx: Tx, ready: Ready, priority: int, by: str) -> int:
    """The number of the job."""
    return submit(
        tx, ready.workflow, items=ready.items, params=ready.params, scope=ready.scope, options=ready.options,
        snapshot=ready.snapshot, revision=ready.revision, priority=priority, requested_by=by,
    ).job_id  # fmt: skip
