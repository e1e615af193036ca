"""The system under the work: loops and when each last came round, machines, the database and its keeping."""

from __future__ import annotations

from datetime import timedelta

from fastapi import Request
from fastapi.responses import HTMLResponse

from dalsegno.insight.system import Loop, ProcessLoops, late, read_system
from dalsegno.web.console.frame import render
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here

router = pages()

HOLDERS = {
    "session": N_("session"),
    "replication slot": N_("replication slot"),
    "prepared transaction": N_("prepared transaction"),
}
OLD = 300
"""Seconds after which a transaction that keeps old rows is worth a look."""


@router.get("/system")
def system(request: Request, here: Here) -> HTMLResponse:
    found = read_system(here.store)
    beat = timedelta(seconds=here.settings.heartbeat_ttl_sec / 3)

    def is_late(loop: Loop, process: ProcessLoops) -> bool:
        return late(loop, process, beat)

    return render(
        request, here, "system.html", page="system", live=("workers",), found=found, is_late=is_late, holders=HOLDERS,
        old=OLD,
    )  # fmt: skip
