"""Why is it not running? The gates in order, and what opens the first closed one."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from dalsegno.errors import InputInvalid, NotFound
from dalsegno.insight.explain import Explanation, explain_anyway
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.parameters import Word
from dalsegno.web.room import Here

router = APIRouter(tags=["explain"])

What = Annotated[Literal["job", "stage", "item", "service", "node"], Path(description="What it is about.")]


@router.get("/explain/{what}/{target:path}", responses=refusals(NotFound, InputInvalid))
def explain(here: Here, what: What, target: Word) -> Explanation:
    """`job/3`, `stage/3/download`, `stage/17`, `item/42`, `service/download` or `node/nas`.

    Where the database is away, that is the answer: gate `database`, status `unknown`.
    """
    return explain_anyway(here.store, what, target)
