"""Whether this console can do its work, for whoever sends requests or restarts processes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from dalsegno.errors import DalSegnoError
from dalsegno.insight.health.loops import read_loops
from dalsegno.store.migrate import revision
from dalsegno.store.revisions import known_revisions
from dalsegno.store.store import Tx
from dalsegno.web.room import Here

router = APIRouter(tags=["health"])


class Readiness(BaseModel):
    status: str
    """`ready`, or `not_ready`."""
    database: str
    """`ok`, or the code of what is wrong with it."""
    schema_revision: str | None
    engine: str
    """`alive`, `stuck`, `none`, or `console only` where none is expected."""
    reasons: list[str]
    """Why it is not ready."""


EXAMPLE = Readiness(status="ready", database="ok", schema_revision="0004", engine="alive", reasons=[]).model_dump()


@router.get(
    "/readyz",
    responses={
        200: {"content": {"application/json": {"example": EXAMPLE}}},
        503: {"model": Readiness, "description": "It cannot do its work now; `reasons` say why."},
    },
)
def readyz(here: Here, request: Request) -> Readiness:
    """The database answers, its schema is the one this console knows, and an engine is there to do what is asked."""
    alone = bool(getattr(request.app.state, "console_only", False))

    def look(tx: Tx) -> tuple[str | None, bool, list[str]]:
        there = revision(tx)
        alive = [each for each in read_loops(tx) if each.alive] if there is not None else []
        stuck = {name for each in alive for name in each.stuck} if all(each.stuck for each in alive) else set()
        return there, bool(alive), sorted(stuck)

    found: str | None = None
    alive = False
    stuck: list[str] = []
    database, reasons = "ok", []
    try:
        found, alive, stuck = request.app.state.probe.ask(lambda: here.store.read(look))
    except DalSegnoError as error:
        database = error.code  # anybody may ask this: no address, no name
        reasons.append(f"The database does not answer ({error.code}).")
    else:
        if here.store.outage is not None:  # it can be read, and that is all
            database = here.store.outage.code
            reasons.append(f"The database cannot be written ({database}): everything waits until it can.")
        known = known_revisions()[-1]
        if found != known:
            reasons.append(f"The database's schema is at {found or 'nothing'}, this console knows {known}.")
        if not alive and not alone:
            reasons.append("No engine is alive on this database: what is asked for waits.")
        if stuck:
            reasons.append(f"Loops of every engine have not come round for longer than a lease: {', '.join(stuck)}.")
    answer = Readiness(
        status="not_ready" if reasons else "ready",
        database=database,
        schema_revision=found,
        engine="stuck" if stuck else "alive" if alive else "console only" if alone else "none",
        reasons=reasons,
    )
    if reasons:
        render: type[JSONResponse] = request.app.router.default_response_class
        return render(answer.model_dump(), 503)  # type: ignore[return-value]
    return answer
