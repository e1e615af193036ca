"""What could not be said to a database that is away: it is said as soon as it is back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine import breakers, limits
from dalsegno.errors import DalSegnoError
from dalsegno.store.schema import breakers as breaker_rows
from dalsegno.store.schema import limits as limit_rows

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")


class Unsaid:
    def __init__(self, store: Store, process_id: Callable[[], int]) -> None:
        self.tell: Callable[[], None] = lambda: None
        """Somebody who comes back for it."""
        self._store = store
        self._process_id = process_id
        self._works: deque[Callable[[Tx], None]] = deque()
        self._disowned: deque[Callable[[Tx], None]] = deque()
        self._disowning = threading.Lock()

    def say(self, work: Callable[[Tx], Any]) -> Any:
        """Now if the database answers, else as soon as it does: a permit that is not given back is lost for long."""
        try:
            return self._store.write("permit.return", work)
        except DalSegnoError as error:
            logger.warning("a permit is given back later: %s", error)
            self._works.append(work)
            self.tell()
            return None

    def disown(self, names: Sequence[str], item_ids: list[int]) -> None:
        self._disowned.append(lambda tx: self._disown(tx, names, item_ids))
        self.tell()

    def _disown(self, tx: Tx, names: Sequence[str], item_ids: list[int]) -> None:
        """Calls of ours whose beginning we never heard of: they do not take place."""
        # Behind the locks of the transaction whose answer was lost: it may still be about to commit.
        tx.rows(sa.select(breaker_rows.c.name).where(breaker_rows.c.name == names[0]).with_for_update())
        held = sa.select(limit_rows.c.name).where(limit_rows.c.name.in_(sorted(names))).order_by(limit_rows.c.name)
        tx.rows(held.with_for_update())
        limits.give_back_of_items(tx, self._process_id(), item_ids, names)
        breakers.forget_probe(tx, self._process_id(), item_ids, names[0])
        tx.announce("flow")

    def give_up_disowned(self) -> None:
        if self._disowned:
            with self._disowning:
                while self._disowned:
                    self._store.write("permit.return", self._disowned[0])
                    self._disowned.popleft()

    def catch_up(self) -> None:
        self.give_up_disowned()
        while self._works:
            work = self._works.popleft()
            try:
                self._store.write("permit.return", work)
            except DalSegnoError:
                self._works.appendleft(work)
                raise
            except Exception:  # it would stand in the way of everything else for ever
                logger.exception("what a call held could not be given back")
