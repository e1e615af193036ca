"""The end of a call: what it held is given back, and the breaker hears how it went."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from concurrent import futures
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from dalsegno.engine import breakers, limits
from dalsegno.engine.breakers import Shut, Way
from dalsegno.engine.item import storable
from dalsegno.engine.limits import Permit
from dalsegno.engine.logbridge import masked
from dalsegno.errors import DalSegnoError
from dalsegno.model.breaker import Breaker
from dalsegno.model.trip import Trip

if TYPE_CHECKING:
    from dalsegno.engine.unsaid import Unsaid
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")


class Entry(NamedTuple):
    """A call that was let in: what it holds, and how the breaker let it through."""

    permits: list[Permit]
    breaker: str
    way: Way


class Ending:
    def __init__(self, store: Store, unsaid: Unsaid, secrets: Sequence[str]) -> None:
        self._store = store
        self._say = unsaid.say
        self._secrets = secrets

    def end(self, entry: Entry) -> None:
        """Give back what the call held, with no word about the other side."""
        self._say(lambda tx: self._came_to_nothing(tx, entry))

    def judge(self, entry: Entry, policy: Breaker, error: BaseException | None) -> Shut | Trip | None:
        """Tell the breaker how the call went. The error is read here: outside, whatever reading it takes or breaks."""
        if error is None:
            self._say(lambda tx: self._went_well(tx, entry))
            return None
        if _says_nothing(error):
            self.end(entry)
            return None
        now = self._now()
        try:
            # With the call's own epoch, `trips` cannot have moved since it began.
            trouble = policy.judge(error, now, trips=entry.way.trips)
            if trouble is not None:
                trouble = replace(trouble, reason=storable(str(trouble.reason)))
        except Exception:
            logger.exception("an error could not be judged; it counts as the item's own")
            trouble = None
        text = storable(masked("".join(traceback.format_exception_only(error)).strip(), self._secrets))[:4000]
        if trouble is None:
            self._say(lambda tx: self._went_well(tx, entry))
            return None
        found = trouble
        judged: Shut | Trip | None = self._say(lambda tx: self._went_badly(tx, entry, policy, found, now, text))
        return judged or trouble  # if the breaker can hear of it only later, the item need not pay for that

    def _came_to_nothing(self, tx: Tx, entry: Entry) -> None:
        breakers.came_to_nothing(tx, entry.breaker, entry.way)
        self._give_back(tx, entry)

    def _now(self) -> datetime:
        """The database's time, by which breakers go; ours while it is away."""
        try:
            return self._store.read(lambda tx: tx.hot.database_now(tx))
        except DalSegnoError:
            return self._store.clock.now()

    def _went_well(self, tx: Tx, entry: Entry) -> None:
        if entry.way.probe or entry.way.failures:
            breakers.went_well(tx, entry.breaker, entry.way)
        self._give_back(tx, entry)

    def _went_badly(
        self, tx: Tx, entry: Entry, policy: Breaker, trouble: Trip, now: datetime, text: str
    ) -> Shut | Trip:
        judged = breakers.went_badly(tx, entry.breaker, entry.way, policy, trouble, now, text)
        self._give_back(tx, entry)
        return judged

    def _give_back(self, tx: Tx, entry: Entry) -> None:
        limits.give_back(tx, entry.permits)
        if entry.permits:
            tx.announce("flow")
            for permit in entry.permits:
                tx.announce(f"work:{permit.name[8:]}" if permit.name.startswith("service:") else "work")


def _says_nothing(error: BaseException) -> bool:
    """A stop, or our own trouble: it says neither good nor bad of the other side."""
    return not isinstance(error, Exception) or isinstance(error, DalSegnoError | futures.CancelledError)
