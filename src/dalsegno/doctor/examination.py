"""Looks at every subject, each for so long at most: whatever hangs, the others are told."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dalsegno.errors import DalSegnoError
from dalsegno.insight.health.finding import Finding, found, in_order
from dalsegno.store.patience import TimeUp

logger = logging.getLogger("dalsegno.doctor")

LIMIT = 5.0
"""Seconds that looking at one subject may take."""
AT_ONCE = 4
"""Subjects: each takes a connection, and pages want some too."""
BACK = 0.5
"""Seconds in which whom the database has cut off is back, and has let go of its connection."""


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    look: Callable[[], list[Finding]]
    dear: bool = False
    """It asks other machines, or walks through folders."""


@dataclass(frozen=True, slots=True)
class Looked:
    subject: str
    seconds: float
    cut: bool


@dataclass(slots=True, eq=False)
class _Look:
    subject: Subject
    back: queue.SimpleQueue[_Look]
    findings: list[Finding] = field(default_factory=list)
    problem: Exception | None = None
    seconds: float = 0.0
    cut: bool = False

    def run(self) -> None:
        began = time.monotonic()
        try:
            self.findings = self.subject.look()
        except Exception as error:  # one subject's trouble must not hide the others
            logger.debug("looking at %s failed", self.subject.name, exc_info=True)
            self.problem = error
        finally:
            self.seconds = time.monotonic() - began
            self.back.put(self)


def examine(subjects: Sequence[Subject], limit: float = LIMIT) -> tuple[list[Finding], list[Looked]]:
    """Some at once. Who is not back in time is left alone: its thread ends with the process at the latest."""
    back: queue.SimpleQueue[_Look] = queue.SimpleQueue()
    looks = [_Look(subject, back) for subject in subjects]
    _run(looks, back, limit)
    findings: dict[tuple[str, str], Finding] = {}
    looked = []
    for look in looks:
        cut = look.cut or isinstance(look.problem, TimeUp)
        told = _troubled(look, limit, cut=cut) or look.findings
        findings.update({(each.code, each.subject): each for each in told})
        looked.append(Looked(look.subject.name, round(limit if look.cut else look.seconds, 3), cut))
    return in_order(findings.values()), looked


def _run(looks: Iterable[_Look], back: queue.SimpleQueue[_Look], limit: float) -> None:
    waiting = deque(looks)
    until: dict[_Look, float] = {}
    while waiting or until:
        while waiting and len(until) < AT_ONCE:
            look = waiting.popleft()
            until[look] = time.monotonic() + limit + BACK
            threading.Thread(target=look.run, name=f"dalsegno-doctor-{look.subject.name}", daemon=True).start()
        try:
            until.pop(back.get(timeout=max(0.0, min(until.values()) - time.monotonic())), None)
        except queue.Empty:
            for look in [each for each, end in until.items() if end <= time.monotonic()]:
                look.cut = True
                del until[look]


def _troubled(look: _Look, limit: float, *, cut: bool) -> list[Finding]:
    name = look.subject.name
    if cut:
        return [found("look_cut", "warning", f"look:{name}", subject=name, limit_seconds=limit)]
    match look.problem:
        case None:
            return []
        case DalSegnoError(code=code) if code.startswith("database_"):
            return [away(look.problem)]
        case problem:
            told = f"{type(problem).__name__}: {problem}"[:300]
            return [found("look_failed", "warning", f"look:{name}", subject=name, problem=told)]


def away(error: DalSegnoError) -> Finding:
    """Why the database cannot be asked, and what to do."""
    return found("database_away", "error", "database", problem=str(error), help=HELP.get(error.code, HELP[""]))


HELP = {
    "": "Check DATABASE_URL and that the database runs; work goes on by itself once it is back.",
    "database_corrupt": "Stop everything, move the file aside, and restore the last backup: `dalsegno restore FILE`",
    "database_full": "Free some space on its disk; work goes on by itself.",
    "database_on_network_share": "Put the file on a local disk, or use PostgreSQL.",
    "database_read_only": "Give the user that runs this write access to the file and its folder.",
    "database_url_invalid": "Correct DATABASE_URL: `sqlite:///file.db` or `postgresql://user:password@host/name`.",
}
