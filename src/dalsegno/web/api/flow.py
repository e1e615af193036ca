"""How fast things may go, and what is stopped: limits, the system settings they may follow, and breakers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, Field, StrictInt

from dalsegno.engine.breakers import probe, reset, trip
from dalsegno.engine.limits import clear_limit, set_limit, set_setting
from dalsegno.errors import CommandRefused, InputInvalid, NotFound
from dalsegno.insight.flow import (
    BreakerLine,
    LimitLine,
    SettingLine,
    get_breaker,
    get_limit,
    get_setting,
    known_nodes,
    list_breakers,
    list_limits,
    list_settings,
)
from dalsegno.insight.holds import known_services
from dalsegno.model.limit import LONGEST_WINDOW, MOST, Limit
from dalsegno.store.schema import limits as limits_table
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import Body, Name, Text
from dalsegno.web.api.parameters import FlowName, Word
from dalsegno.web.room import Here, Room, Who

router = APIRouter(tags=["limits and breakers"])

Count = Annotated[StrictInt, Field(ge=0, le=MOST)]


class Limits(BaseModel):
    limits: list[LimitLine]
    settings: list[SettingLine]
    """Settings of the system that limits may follow."""


class SystemSettings(BaseModel):
    settings: list[SettingLine]


class Breakers(BaseModel):
    breakers: list[BreakerLine]
    """Those that stop something first."""


class LimitChange(Body):
    """What is not given stays as it is; null lifts it; 0 lets nothing begin."""

    concurrent: Count | Name | None = Field(
        default=None, description="Calls at once, or the name of a system setting to follow.", examples=[2]
    )
    rate: Count | Name | None = Field(
        default=None, description="Calls that may begin within the window, or a system setting.", examples=[30]
    )
    window: float | None = Field(default=None, gt=0, le=LONGEST_WINDOW, description="Seconds.", examples=[60])


class SettingChange(Body):
    value: StrictInt = Field(description="A whole number up to 1,000,000; 0 lets nothing begin.", examples=[4])


class Trip(Body):
    reason: Text = Field(min_length=1, description="Why; shown wherever something waits for it.")
    until: AwareDatetime | None = Field(default=None, description="Try again by itself then; with its zone.")


@router.get("/limits")
def limits(here: Here) -> Limits:
    """What they allow, what is in use now, when there is room again, and how many wait."""
    return Limits(limits=here.store.read(list_limits), settings=here.store.read(list_settings))


@router.get("/limits/{name:path}", responses=refusals(NotFound))
def limit(here: Here, name: FlowName) -> LimitLine:
    """One limit."""
    return here.store.read(lambda tx: get_limit(tx, name))


@router.put("/limits/{name:path}", responses=refusals(InputInvalid))
def change_limit(here: Here, who: Who, name: FlowName, change: LimitChange) -> LimitLine:
    """Set it. It holds from now on, in every process, whatever the service declares."""
    check_name(here, "limit", name)
    given = {key: getattr(change, key) for key in change.model_fields_set}
    if given.get("window", 1) is None:
        del given["window"]
    here.store.write("limit", lambda tx: _set(tx, name, given, who))
    return here.store.read(lambda tx: get_limit(tx, name))


@router.delete("/limits/{name:path}", responses=refusals(NotFound))
def lift_limit(here: Here, who: Who, name: FlowName) -> LimitLine:
    """No limit any more."""
    here.store.write("limit", lambda tx: _lift(tx, name, who))
    return here.store.read(lambda tx: get_limit(tx, name))


@router.get("/settings")
def settings(here: Here) -> SystemSettings:
    """Settings that live in the database and change while everything runs, and which limits follow them."""
    return SystemSettings(settings=here.store.read(list_settings))


@router.put("/settings/{key}", responses=refusals(NotFound, InputInvalid))
def change_setting(here: Here, who: Who, key: Word, change: SettingChange) -> SettingLine:
    """Set it. It holds from now on, in every process, and with it every limit that follows it."""
    here.store.read(lambda tx: get_setting(tx, key))
    here.store.write("setting", lambda tx: set_setting(tx, key, change.value, who))
    return here.store.read(lambda tx: get_setting(tx, key))


@router.get("/breakers")
def breakers(here: Here) -> Breakers:
    """Closed (calls go through), open (none does) or half-open (one tries); why, and until when."""
    return Breakers(breakers=here.store.read(list_breakers))


@router.get("/breakers/{name:path}", responses=refusals(NotFound))
def breaker(here: Here, name: FlowName) -> BreakerLine:
    """One breaker, with the error that tripped it."""
    return here.store.read(lambda tx: get_breaker(tx, name))


@router.post("/breakers/{name:path}/trip", responses=refusals(InputInvalid))
def trip_breaker(here: Here, who: Who, name: FlowName, asked: Trip) -> BreakerLine:
    """Stop all calls at once, until a moment, or until it is probed or reset. It costs no item an attempt."""
    check_name(here, "breaker", name)
    return _changed(here, name, lambda tx: trip(tx, name, asked.reason, who, asked.until))


@router.post("/breakers/{name:path}/probe", responses=refusals(NotFound, CommandRefused))
def probe_breaker(here: Here, who: Who, name: FlowName) -> BreakerLine:
    """Let one call try now instead of waiting."""
    return _changed(here, name, lambda tx: probe(tx, name, who))


@router.post("/breakers/{name:path}/reset", responses=refusals(NotFound))
def reset_breaker(here: Here, who: Who, name: FlowName) -> BreakerLine:
    """Close it, whatever it knows."""
    return _changed(here, name, lambda tx: reset(tx, name, who))


def _changed(here: Room, name: str, work: Callable[[Tx], None]) -> BreakerLine:
    here.store.write("breaker", work)
    return here.store.read(lambda tx: get_breaker(tx, name))


def check_name(here: Room, what: str, name: str) -> None:
    """A plain key is anybody's; but one that is called like a service or a node is most likely meant as that."""
    kind, colon, rest = name.partition(":")
    if what == "breaker" and kind == "node" and colon:
        raise InputInvalid(problem=f"Breakers guard services and keys, not nodes. Set the limit node:{rest} to 0.")
    if not colon and name in here.store.read(known_services):
        raise InputInvalid(problem=f'"{name}" is a service. Did you mean "service:{name}"?')
    if not colon and what == "limit" and name in here.store.read(known_nodes):
        raise InputInvalid(problem=f'"{name}" is a node. Did you mean "node:{name}"?')


def _set(tx: Tx, name: str, given: dict[str, Any], by: str) -> None:
    row = tx.row(sa.select(limits_table).where(limits_table.c.name == name).with_for_update())
    kept: dict[str, Any] = {}
    if row is not None:
        kept = {key: row[f"{key}_setting"] or row[key] for key in ("concurrent", "rate")}
        kept["window"] = row["window"]
    set_limit(tx, name, Limit(**{**kept, **given}), by)


def _lift(tx: Tx, name: str, by: str) -> None:
    if not clear_limit(tx, name, by):
        get_limit(tx, name)  # one that never was comes with the likely name
        raise NotFound(what="limit", id=f'"{name}": it is lifted already', name=name)
