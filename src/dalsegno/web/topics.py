"""Topics: what the console can be told has changed, and which event changes which of them.

`hard` changes are told at once. What follows from the work of single items is `soft`: while an engine settles
thousands of them a second, a page that is told every two seconds shows the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from dalsegno.errors import InputInvalid
from dalsegno.model.records import EventRecord
from dalsegno.model.suggest import did_you_mean

TOPICS = {
    "jobs": "the list of jobs, and how far they are",
    "items": "items of any job",
    "exceptions": "what went wrong, grouped",
    "workers": "processes and workers: what each is doing, bytes, speed, progress",
    "playlists": "playlists and songs",
    "limits": "limits and how much of them is used",
    "breakers": "breakers",
    "holds": "what is paused besides single jobs",
    "commands": "what operators asked for",
    "workflows": "workflows",
    "schedules": "schedules and their runs",
    "config": "the settings file, or its revisions",
    "logs": "log lines",
    "events": "the event log itself",
    "health": "what is wrong with the system under the work",
}
OF_ONE = re.compile(r"(job|item):[1-9][0-9]{0,17}")
"""`job:12`, `item:3456`; the latter is told only to those who ask for it by name."""

_ENDED = frozenset({"item_succeeded", "item_skipped", "item_failed", "item_canceled", "item_reset"})
_BY_PREFIX = {
    "breaker": ("breakers",),
    "limit": ("limits",),
    "setting": ("limits",),
    "lane": ("holds", "jobs"),
    "hold": ("holds", "jobs"),
    "command": ("commands",),
    "bulk": ("commands",),
    "config": ("config",),
    "schedule": ("schedules",),
    "recovery": ("jobs", "workers"),
    "pruned": ("jobs",),
}


class Changed(NamedTuple):
    hard: set[str]
    soft: set[str]


def changed_by(happened: Iterable[tuple[str, int | None]]) -> Changed:
    """The topics that events of these types, about these jobs, change."""
    hard: set[str] = set()
    soft: set[str] = set()
    for kind, job_id in happened:
        soft.add("events")
        own = () if job_id is None else (f"job:{job_id}",)
        if kind.startswith("item_"):
            soft.update(("items", "jobs", *own))
            if kind in _ENDED:
                soft.add("playlists")
            if kind in ("item_failed", "item_returned"):
                soft.add("exceptions")
            continue
        hard.update(own)
        if kind.startswith(("job_", "stage_")):
            hard.add("jobs")
        hard.update(_BY_PREFIX.get(kind.partition("_")[0], ()))
    return Changed(hard, soft - hard)


def topics_of(event: EventRecord) -> set[str]:
    """Those that one event changes."""
    changed = changed_by([(event.type, event.job_id)])
    own = set() if event.item_id is None else {f"item:{event.item_id}"}
    return changed.hard | changed.soft | own


def wanted(text: str | None) -> frozenset[str] | None:
    """The topics of `?topics=a,b`; None: all of them."""
    names = [name for part in (text or "").split(",") if (name := part.strip())]
    for name in names:
        if name not in TOPICS and not OF_ONE.fullmatch(name):
            hint = did_you_mean(name, TOPICS)
            raise InputInvalid(problem=f'There is no topic "{name:.60}".{hint}')
    return frozenset(names) or None
