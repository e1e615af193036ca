"""The system under the work: what is wrong with it, its loops, machines, disks, and the database."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse

from dalsegno.doctor.rounds import Health
from dalsegno.insight.health.finding import Finding
from dalsegno.insight.health.holders import LONG
from dalsegno.insight.system import read_system
from dalsegno.web.console import health as telling
from dalsegno.web.console.frame import render, wanted, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here

router = pages()

HOLDERS = {
    "session": N_("session"),
    "replication slot": N_("replication slot"),
    "prepared transaction": N_("prepared transaction"),
}


@router.get("/system")
def system(request: Request, here: Here) -> HTMLResponse:
    seen = here.rounds.health()
    found = read_system(here.store) if wanted(request, "processes", "nodes", "database", "keeping") else None
    return render(
        request, here, "system.html", page="system", live=("workers", "health"), found=found,
        now=here.store.clock.now(), holders=HOLDERS, old=LONG, seen=seen,
        health=telling.telling(words_of(request, here)),
        troubles=[each for each in seen.findings if each.severity != "ok"],
        fine=[each for each in seen.findings if each.severity == "ok" and each.group != "disk"], disks=_disks(seen),
    )  # fmt: skip


def _disks(seen: Health) -> list[Finding]:
    """Fullest first."""
    found = [each for each in seen.findings if each.group == "disk"]
    return sorted(found, key=lambda each: each.data.get("free_bytes", -1) / max(each.data.get("total_bytes", 1), 1))
