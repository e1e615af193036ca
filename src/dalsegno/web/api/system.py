"""The system under the work."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.doctor.rounds import Health
from dalsegno.insight.system import System, read_system
from dalsegno.web.room import Here

router = APIRouter(tags=["system"])


@router.get("/system")
def system(here: Here) -> System:
    """Loops with their last round, the database and its size, migrations, and who holds old rows."""
    return read_system(here.store)


@router.get("/system/health")
def system_health(here: Here) -> Health:
    """What is not as it should be, worst first, each with its fix; as of the last look, which may be some seconds ago.

    `docs/doctor.md` lists every code. `dalsegno doctor` says the same on the command line.
    """
    return here.rounds.health()
