"""One call in the middle of a service's work, to somebody who may limit or refuse us."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from dalsegno.engine.ending import Entry
    from dalsegno.engine.flow import Flow
    from dalsegno.engine.item import Item
    from dalsegno.model.breaker import Breaker


class Passage:
    """`with item.permit("source:qq"):` or `async with`."""

    def __init__(self, flow: Flow, item: Item, name: str, policy: Breaker) -> None:
        self._flow = flow
        self._item = item
        self._name = name
        self._policy = policy
        self._entry: Entry | None = None
        self._lock = threading.Lock()
        self._gone = False

    def __enter__(self) -> Self:
        self._entry = self._flow.pass_in(self._item, self._name)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._entry is not None:
            entry, self._entry = self._entry, None
            self._flow.pass_out(self._name, entry, self._policy, error)

    def _enter_unless_gone(self) -> None:
        entry = self._flow.pass_in(self._item, self._name)
        with self._lock:
            if not self._gone:
                self._entry = entry
                return
        self._flow.pass_out(self._name, entry, self._policy, GeneratorExit())  # nobody is there any more

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._flow.entering, self._enter_unless_gone)
        except asyncio.CancelledError as error:
            with self._lock:
                self._gone = True
            if self._entry is not None:
                await self.__aexit__(None, error, None)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._flow.leaving, self.__exit__, kind, error, trace)
