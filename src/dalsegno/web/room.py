"""What every handler has at hand. Handlers are plain functions: they wait for the database in a thread of the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from dalsegno.settings import Settings
from dalsegno.store.store import Store


@dataclass(frozen=True, slots=True)
class Room:
    store: Store
    settings: Settings


async def _room(request: Request) -> Room:
    found: Room = request.app.state.room
    return found


Here = Annotated[Room, Depends(_room)]
