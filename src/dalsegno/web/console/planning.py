"""A plan, said in the reader's language: how its numbers are known, and what would stop it."""

from __future__ import annotations

import re

from dalsegno.catalog.preview import StagePreview
from dalsegno.web.api.plan import Stop
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.words import Words, size

BASES = (
    N_("the pools that are known"),
    N_("sources may have more"),
    N_("the sources: their pools are not known yet"),
    N_("the playlists that are known"),
    N_("collecting may find more"),
    N_("the songs that are known"),
    N_("a sync may add some"),
    N_("no OBJECT_STORE is set: there is nowhere to upload to"),
    N_("the files in the library"),
    N_("the files in the library, and what is downloaded before"),
    N_("its service lists them when it is its turn"),
)
"""What a basis is put together from."""
_EACH = re.compile(r"([\d.]+) MB each, as the newest files have")
_BEFORE = re.compile(r"Job (\d+)(?: and (\d+) more)?")
_FOLLOWING = re.compile(r"one for each item of (.+) that is done")


def basis(words: Words, stage: StagePreview) -> str:
    return words.text("; ").join(_part(words, part) for part in stage.basis.split("; "))


def _part(words: Words, part: str) -> str:
    if found := _EACH.fullmatch(part):
        return words.text("%(size)s each, as the newest files have", size=size(float(found[1]) * 1e6))
    if found := _FOLLOWING.fullmatch(part):
        return words.text("one for each item of %(step)s that is done", step=words.stage(found[1]))
    return words.text(part) if part in BASES else part


def stops(words: Words, stop: Stop) -> str:
    match stop.kind:
        case "hold" if stop.name == "everything":
            return words.text("Everything is held.")
        case "hold":
            return words.text("%(name)s is held.", name=words.stage(stop.name))
        case "scope":
            return words.text(
                "Something that is chosen is not known yet: unless an earlier stage brings it, the job fails."
            )
        case "lane" if found := _BEFORE.match(stop.says):
            if found[2] is None:
                return words.text("Job %(id)s is before it; one runs at a time.", id=found[1])
            return words.text("Job %(id)s and %(n)s more are before it; one runs at a time.", id=found[1], n=found[2])
        case "breaker":
            return words.text("Calls to %(name)s are stopped.", name=stop.name)
        case "limit" if "is 0" in stop.says:
            return words.text("The limit of %(name)s is 0: nothing begins.", name=stop.name)
        case "limit":
            return words.text("The limit of %(name)s has no room right now.", name=stop.name)
        case "no_worker":
            return words.text("No live process offers %(name)s.", name=words.stage(stop.name))
        case "disk":
            return words.text("The disk may not have room for all of it; the job pauses when it is full.")
    return stop.says
