"""Dal Segno: a durable job engine. Back to the mark, never to the top.

    from dalsegno import Engine, Step, Workflow, open_store, service, submit
"""

from dalsegno.engine.engine import Engine, EngineOptions
from dalsegno.engine.item import Item
from dalsegno.engine.planner import Plan
from dalsegno.engine.service import Service, service
from dalsegno.engine.submit import Submitted, submit
from dalsegno.model.backoff import Backoff
from dalsegno.model.outcome import Done, Fail, Outcome, PauseJob, Release, Retry, Skip, Throttled
from dalsegno.model.workflow import Lane, Step, Workflow, parse_workflow
from dalsegno.store.open import open_store
from dalsegno.store.store import Store

__all__ = [
    "Backoff",
    "Done",
    "Engine",
    "EngineOptions",
    "Fail",
    "Item",
    "Lane",
    "Outcome",
    "PauseJob",
    "Plan",
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
    "service",
    "submit",
]
