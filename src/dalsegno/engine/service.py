"""A service: the code that does items of one kind, and how many at a time."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dalsegno.errors import InputInvalid, ServiceUnknown
from dalsegno.model.suggest import did_you_mean

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan

Handler = Callable[["Item"], Any] | Callable[["Item"], Awaitable[Any]]
Planner = Callable[["Plan"], Iterable[Any]]


@dataclass(slots=True)
class Service:
    """Made by `@service(...)`; call it like the function it wraps."""

    name: str
    handler: Handler
    workers: int = 1
    planner: Planner | None = None
    is_async: bool = field(init=False)

    def __post_init__(self) -> None:
        if not self.name or any(c.isspace() or c in "/\\" for c in self.name):
            raise InputInvalid(problem=f"A service's name has no spaces or slashes: {self.name!r}.")
        if self.workers < 1:
            raise InputInvalid(problem=f'Service "{self.name}" needs at least one worker, not {self.workers}.')
        self.is_async = inspect.iscoroutinefunction(self.handler)

    def __call__(self, item: Item) -> Any:
        return self.handler(item)

    def plan(self, planner: Planner) -> Planner:
        """Decorator for the function that lists a stage's items when the stage starts.

        It gets a `Plan` and yields keys, `(key, params)` pairs or mappings with `key` and `params`.
        """
        self.planner = planner
        return planner


def service(name: str, *, workers: int = 1) -> Callable[[Handler], Service]:
    """Turn a function of one item into a service.

    The function returns a value (the item is done), an outcome, or raises (the item is retried).
    """

    def wrap(handler: Handler) -> Service:
        return Service(name, handler, workers)

    return wrap


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
