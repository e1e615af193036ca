"""What every handler has at hand. Handlers are plain functions: they wait for the database in a thread of the pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from dalsegno.config.current import Current
from dalsegno.config.revisions import revision_in_force
from dalsegno.doctor.rounds import Rounds
from dalsegno.settings import Settings
from dalsegno.store.store import Store


@dataclass(frozen=True, slots=True)
class Room:
    store: Store
    config: Current
    rounds: Rounds
    """Looks at the system now and then, and says what was found."""
    read_only: bool = False
    """Nothing can be changed here: the guard refuses it, and pages need not offer it."""

    @property
    def settings(self) -> Settings:
        """As the file is now, or as it last was right."""
        return self.config.settings

    def revision(self) -> int | None:
        """Of the settings file, for jobs that are made now."""
        return revision_in_force(self.store, self.config)


async def _room(request: Request) -> Room:
    found: Room = request.app.state.room
    return found


Here = Annotated[Room, Depends(_room)]


async def actor(request: Request) -> str:
    """Who asks, for requested_by: `console@127.0.0.1`, or the name given at sign-in instead of `console`."""
    who: str = request.state.who
    return who


Who = Annotated[str, Depends(actor)]


def asker(said: str | None, who: str) -> str:
    """A request may say for whom it asks. Where it came from is not its to say."""
    return f"{said} via {who}" if said else who
