"""What stands still, and how to stop or go on: everything, a lane or a service. Jobs have their own commands."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Body as InBody
from pydantic import AwareDatetime, BaseModel, Field, model_validator

from dalsegno.engine.holds import EVERYTHING, UNSAID, hold, release
from dalsegno.errors import CommandRefused, InputInvalid, NotFound
from dalsegno.insight.holds import HoldLine, known_lanes, list_holds
from dalsegno.model.suggest import did_you_mean
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import Body, Name, Text
from dalsegno.web.room import Here, Room, Who

router = APIRouter(tags=["holds"])


class Target(Body):
    lane: Name | None = Field(default=None, min_length=1, description="A lane.", examples=["catalog"])
    service: Name | None = Field(default=None, min_length=1, description="A service.", examples=["download"])

    @model_validator(mode="after")
    def _one(self) -> Target:
        if self.lane is not None and self.service is not None:
            raise ValueError("A lane and a service are different things: name one. Neither is everything.")
        return self

    @property
    def hold(self) -> str:
        if self.lane is not None:
            return f"lane:{self.lane}"
        return EVERYTHING if self.service is None else f"service:{self.service}"


class PauseAll(Target):
    reason: Text | None = Field(default=None, description="Why; shown wherever something waits for it.")
    until: AwareDatetime | None = Field(default=None, description="Go on by itself then; with its zone.")


class Holds(BaseModel):
    holds: list[HoldLine]
    """Widest first: everything, services, lanes, jobs, stages."""


@router.get("/holds")
def holds(here: Here) -> Holds:
    """What is paused, at any level, with who, why and until when."""
    return Holds(holds=here.store.read(list_holds))


@router.post("/pause", responses=refusals(NotFound, InputInvalid))
def pause(here: Here, who: Who, asked: Annotated[PauseAll | None, InBody()] = None) -> Holds:
    """Nothing of it starts any more; what has begun finishes. Without a lane or a service: everything."""
    asked = asked or PauseAll()
    return hold_all(here, asked, who)


@router.post("/resume", responses=refusals(NotFound, CommandRefused))
def resume(here: Here, who: Who, asked: Annotated[Target | None, InBody()] = None) -> Holds:
    """Let it go on."""
    return release_all(here, asked or Target(), who)


def hold_all(here: Room, asked: PauseAll, by: str) -> Holds:
    _check(here, asked)
    reason = asked.reason or UNSAID
    here.store.write("hold", lambda tx: hold(tx, asked.hold, reason, by, asked.until))
    return Holds(holds=here.store.read(list_holds))


def release_all(here: Room, asked: Target, by: str) -> Holds:
    _check(here, asked)
    if not here.store.write("release", lambda tx: release(tx, asked.hold, by)):
        what = asked.hold if asked.hold != EVERYTHING else "everything"
        raise CommandRefused(what="Hold", id=what, verb="released", state="not held", fix="Nothing is to be done.")
    return Holds(holds=here.store.read(list_holds))


def _check(here: Room, asked: Target) -> None:
    """A lane has a row. A service may come with the next process."""
    if asked.lane is not None:
        lanes = here.store.read(known_lanes)
        if asked.lane not in lanes:
            raise NotFound(what="lane", id=f'"{asked.lane}"{did_you_mean(asked.lane, lanes)}'.rstrip("."))
