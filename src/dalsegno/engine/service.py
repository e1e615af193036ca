"""A service: the code that does items of one kind, and how many at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dalsegno.errors import InputInvalid, ServiceUnknown
from dalsegno.model.limit import SYSTEM_SETTINGS
from dalsegno.model.outcome import Outcome
from dalsegno.model.suggest import did_you_mean

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan
    from dalsegno.model.breaker import Breaker
    from dalsegno.model.limit import Limit

Handler = Callable[..., Any] | Callable[..., Awaitable[Any]]
"""Takes an item; in a batch service a list of items; in a later phase the item and what the phase before handed on."""
Planner = Callable[["Plan"], Iterable[Any]]

LINGER = 0.2


_is_async = lru_cache(1024)(inspect.iscoroutinefunction)


@dataclass(frozen=True, slots=True)
class Phase:
    """One pool of a service made of pools. What `run` returns is handed on; an outcome ends the item there."""

    name: str
    run: Handler
    transfers: bool = False
    """Moves bytes: its workers count in the transfer totals."""

    @property
    def is_async(self) -> bool:
        return _is_async(self.run)


@dataclass(slots=True)
class Service:
    """Made by `@service(...)`; call it like the function it wraps."""

    name: str
    handler: Handler
    workers: int = 1
    planner: Planner | None = None
    batch_size: int = 1
    """More than one: the handler gets a list of up to so many items of one stage, and answers for each by its id."""
    batch_setting: str | None = None
    """The system setting that `batch_size` follows while it runs."""
    linger: float = LINGER
    """Seconds a batch that is not full waits for company."""
    phases: tuple[Phase, ...] = ()
    limit: Limit | None = None
    """How fast it may go until an operator says otherwise."""
    breaker: Breaker | None = None
    """How to tell that the other side is in trouble; without one, every exception is the item's own failure."""
    closing: Callable[[], None] | None = None
    """Called when its engine has stopped, to write what is left and let go of connections."""
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        if not self.name or any(c.isspace() or c in "/\\" for c in self.name):
            raise InputInvalid(problem=f"A service's name has no spaces or slashes: {self.name!r}.")
        if self.workers < 1:
            raise InputInvalid(problem=f'Service "{self.name}" needs at least one worker, not {self.workers}.')
        if self.batch_size < 1 or self.linger < 0:
            raise InputInvalid(problem=f'Service "{self.name}": a batch has at least one item and waits 0 s or more.')
        if self.phases and self.batch_size > 1:
            raise InputInvalid(problem=f'Service "{self.name}" can have phases or batches, not both.')
        names = [phase.name for phase in self.phases]
        if len(set(names)) != len(names) or len(names) == 1:
            raise InputInvalid(problem=f'Service "{self.name}" needs two or more phases with names of their own.')
        self.is_async = inspect.iscoroutinefunction(self.handler)

    @property
    def is_batch(self) -> bool:
        return self.batch_size > 1 or self.batch_setting is not None

    def __call__(self, item: Item) -> Any:
        return self.handler(item)

    def plan(self, planner: Planner) -> Planner:
        """Decorator for the function that lists a stage's items when the stage starts.

        It gets a `Plan` and yields keys, `(key, params)` pairs or mappings with `key` and `params`.
        """
        self.planner = planner
        return planner


def service(
    name: str,
    *,
    workers: int = 1,
    batch_size: int | str = 1,
    linger: float = LINGER,
    limit: Limit | None = None,
    breaker: Breaker | None = None,
) -> Callable[[Handler], Service]:
    """Turn a function of one item into a service.

    The function returns a value (the item is done), an outcome, or raises (the item is retried). With a `batch_size`
    it gets a list of items and returns a mapping from each item's id to its value or outcome; the name of a system
    setting (`queue_batch_size`) instead of a number follows that setting.
    """
    setting = batch_size if isinstance(batch_size, str) else None
    if setting is not None and setting not in SYSTEM_SETTINGS:
        raise InputInvalid(problem=f'There is no system setting "{setting}" for batch_size.')
    size = batch_size if isinstance(batch_size, int) else SYSTEM_SETTINGS[batch_size]

    def wrap(handler: Handler) -> Service:
        return Service(
            name, handler, workers, batch_size=size, batch_setting=setting, linger=linger, limit=limit, breaker=breaker
        )

    return wrap


def phased(
    name: str,
    phases: Iterable[Phase],
    *,
    workers: int = 2,
    limit: Limit | None = None,
    breaker: Breaker | None = None,
) -> Service:
    """A service made of pools joined by bounded queues: `phases=[Phase("resolve", find), Phase("download", fetch)]`."""
    pools = tuple(phases)

    def one_after_the_other(item: Item) -> Any:
        """For one worker, and for tests: the same phases without pools."""
        value: Any = None
        for number, phase in enumerate(pools):
            value = phase.run(item, value) if number else phase.run(item)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
            if isinstance(value, Outcome):
                break
        return value

    return Service(name, one_after_the_other, workers, phases=pools, limit=limit, breaker=breaker)


class Services:
    """The services one process offers, by name."""

    def __init__(self, services: Iterable[Service] = ()) -> None:
        self._by_name: dict[str, Service] = {}
        for each in services:
            if each.name in self._by_name and self._by_name[each.name] is not each:
                raise InputInvalid(problem=f'Two services are called "{each.name}".')
            self._by_name[each.name] = each

    def __iter__(self) -> Iterator[Service]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> list[str]:
        return list(self._by_name)

    def get(self, name: str) -> Service:
        try:
            return self._by_name[name]
        except KeyError:
            raise ServiceUnknown(name=name, hint=did_you_mean(name, self._by_name)) from None


def services_in(module: ModuleType) -> list[Service]:
    """Every service a module defines or imports by name."""
    return [value for value in vars(module).values() if isinstance(value, Service)]
