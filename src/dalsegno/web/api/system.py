"""The system under the work."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.insight.system import System, read_system
from dalsegno.web.room import Here

router = APIRouter(tags=["system"])


@router.get("/system")
def system(here: Here) -> System:
    """Loops with their last round, the database and its size, migrations, and who holds old rows."""
    return read_system(here.store)
