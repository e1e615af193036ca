"""Files that items produced, with their checksums."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from dalsegno.errors import InputInvalid
from dalsegno.insight.artifacts import list_artifacts
from dalsegno.model.records import ArtifactRecord
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.parameters import Cursor, Limit, OfItem, OfJob, place
from dalsegno.web.room import Here

router = APIRouter(tags=["artifacts"])


class Artifacts(BaseModel):
    artifacts: list[ArtifactRecord]
    next_cursor: str | None


@router.get("/artifacts", responses=refusals(InputInvalid))
def artifacts(
    here: Here, job: OfJob = None, item: OfItem = None, cursor: Cursor = None, limit: Limit = 50
) -> Artifacts:
    """Newest first; of one job or item where asked."""
    before = place(cursor)
    found = here.store.read(lambda tx: list_artifacts(tx, job_id=job, item_id=item, before=before, limit=limit + 1))
    more = str(found[limit - 1].id) if len(found) > limit else None
    return Artifacts(artifacts=found[:limit], next_cursor=more)
