"""Dal Segno: a durable job engine. Back to the mark, never to the top.

    from dalsegno import Engine, Step, Workflow, open_store, service, submit

Names are imported when they are first asked for, so that the command line answers `--help` without
loading a database driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine, EngineOptions
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan
    from dalsegno.engine.service import Phase, Service, phased, service
    from dalsegno.engine.submit import Submitted, submit
    from dalsegno.model.backoff import Backoff
    from dalsegno.model.breaker import Breaker
    from dalsegno.model.limit import Limit
    from dalsegno.model.outcome import Done, Fail, Outcome, PauseJob, Release, Retry, Skip, Throttled
    from dalsegno.model.quota import QuotaReset
    from dalsegno.model.signal import ProviderError
    from dalsegno.model.workflow import Lane, Step, Workflow, parse_workflow
    from dalsegno.store.open import open_store
    from dalsegno.store.store import Store

__all__ = [
    "Backoff",
    "Breaker",
    "Done",
    "Engine",
    "EngineOptions",
    "Fail",
    "Item",
    "Lane",
    "Limit",
    "Outcome",
    "PauseJob",
    "Phase",
    "Plan",
    "ProviderError",
    "QuotaReset",
    "Release",
    "Retry",
    "Service",
    "Skip",
    "Step",
    "Store",
    "Submitted",
    "Throttled",
    "Workflow",
    "open_store",
    "parse_workflow",
    "phased",
    "service",
    "submit",
]

_HOMES = {
    "Backoff": "dalsegno.model.backoff",
    "Breaker": "dalsegno.model.breaker",
    "Done": "dalsegno.model.outcome",
    "Engine": "dalsegno.engine.engine",
    "EngineOptions": "dalsegno.engine.engine",
    "Fail": "dalsegno.model.outcome",
    "Item": "dalsegno.engine.item",
    "Lane": "dalsegno.model.workflow",
    "Limit": "dalsegno.model.limit",
    "Outcome": "dalsegno.model.outcome",
    "PauseJob": "dalsegno.model.outcome",
    "Phase": "dalsegno.engine.service",
    "Plan": "dalsegno.engine.planner",
    "ProviderError": "dalsegno.model.signal",
    "QuotaReset": "dalsegno.model.quota",
    "Release": "dalsegno.model.outcome",
    "Retry": "dalsegno.model.outcome",
    "Service": "dalsegno.engine.service",
    "Skip": "dalsegno.model.outcome",
    "Step": "dalsegno.model.workflow",
    "Store": "dalsegno.store.store",
    "Submitted": "dalsegno.engine.submit",
    "Throttled": "dalsegno.model.outcome",
    "Workflow": "dalsegno.model.workflow",
    "open_store": "dalsegno.store.open",
    "parse_workflow": "dalsegno.model.workflow",
    "phased": "dalsegno.engine.service",
    "service": "dalsegno.engine.service",
    "submit": "dalsegno.engine.submit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
