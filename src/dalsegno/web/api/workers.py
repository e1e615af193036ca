"""Workers: who is there, and what each is doing now."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.insight.workers import list_processes, transfer_totals
from dalsegno.web.api.models import Worker, Workers
from dalsegno.web.room import Here

router = APIRouter(tags=["workers"])


@router.get("/workers")
def workers(here: Here) -> Workers:
    """Every worker of every process."""
    lines, moved = here.store.read(lambda tx: (list_processes(tx), transfer_totals(tx)))
    return Workers(
        workers=[
            Worker(node=line.process.node, alive=line.alive, **dict(worker))
            for line in lines
            for worker in line.workers
        ],
        processes=[line.process for line in lines],
        moving=moved.workers,
        speed=moved.speed,
    )
