"""The services and workflows at hand: those that come with the package, and those of the modules named."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from dalsegno import telemetry
from dalsegno.archive.keeper import Keeper
from dalsegno.catalog.find import matching
from dalsegno.catalog.orders import preparing
from dalsegno.catalog.services import NAMES as CATALOG
from dalsegno.catalog.services import catalog_services
from dalsegno.catalog.templates import TEMPLATES, TITLES, template
from dalsegno.config.current import Current
from dalsegno.config.revisions import revision_in_force
from dalsegno.engine.engine import Engine, EngineOptions
from dalsegno.engine.service import Service, Services, services_in
from dalsegno.engine.submit import load_workflow
from dalsegno.errors import InputInvalid, ServiceUnknown, WorkflowUnknown
from dalsegno.garbage import look_rarely
from dalsegno.model.backoff import Backoff
from dalsegno.model.suggest import did_you_mean
from dalsegno.model.workflow import Workflow
from dalsegno.requests.services import NAMES as REQUESTS
from dalsegno.requests.services import request_services
from dalsegno.store.store import Store

BUILTIN = ("dalsegno.builtin.scale",)


@dataclass(frozen=True, slots=True)
class Toolbox:
    services: list[Service]
    workflows: dict[str, Workflow]
    catalog: bool = False
    """Offers the services of the catalog and of parse requests too, which need a store and its settings."""

    def names(self) -> list[str]:
        """The services there will be."""
        return [*(service.name for service in self.services), *((*CATALOG, *REQUESTS) if self.catalog else ())]

    def workflow(self, store: Store, name: str) -> Workflow:
        """By name or title: one that a module or the catalog defines, else the newest that was stored."""
        if self.catalog and name in TITLES.values():
            return template(name)
        if name in self.workflows:
            return self.workflows[name]
        try:
            return store.read(lambda tx: load_workflow(tx, name))[1]
        except WorkflowUnknown:
            known = [*self.workflows, *_stored(store)]
            raise WorkflowUnknown(name=name, hint=did_you_mean(name, known)) from None

    def must_serve(self, workflow: Workflow) -> None:
        """Whoever runs a workflow here needs all its services here."""
        names = self.names()
        for step in workflow.steps:
            if step.service not in names:
                raise ServiceUnknown(name=step.service, hint=did_you_mean(step.service, names))

    def engine(self, store: Store, current: Current, *, schedules: bool = True) -> Engine:
        """`schedules`: whether it starts what they say."""
        settings = current.settings
        telemetry.start(settings)
        services = [*self.services]
        if self.catalog:
            services += catalog_services(store, settings, current.steady)
            services += request_services(store, settings, current.steady)
        most = settings.resolve_workers_max
        options = EngineOptions(
            node=settings.node_name,
            labels=settings.node_labels,
            lease_seconds=settings.heartbeat_ttl_sec,
            drain_seconds=settings.drain_sec,
            backoff=Backoff(settings.backoff_base_sec, settings.backoff_cap_sec),
            concurrency=settings.concurrency([service.name for service in services]),
            phase_workers_max={service.name: most for service in services if service.phases and most is not None},
            secrets=current.secrets,
            find=matching,
            retention=lambda lanes: current.settings.retention(lanes),  # noqa: PLW0108 - the settings of then
            archive=Keeper(store, lambda: current.settings) if store.shared else None,
            prepare=preparing(lambda: current.settings, lambda: revision_in_force(store, current), self.workflows)
            if schedules
            else None,
        )
        look_rarely()
        return Engine(store, services, options)


def open_toolbox(modules: Iterable[str], *, builtin: bool = True) -> Toolbox:
    found = [_import(name) for name in dict.fromkeys((*(BUILTIN if builtin else ()), *modules))]
    services = Services(service for module in found for service in services_in(module))
    workflows = {
        value.name: value.check() for module in found for value in vars(module).values() if isinstance(value, Workflow)
    }
    return Toolbox(list(services), {**(TEMPLATES if builtin else {}), **workflows}, catalog=builtin)


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # a script's own folder is on the path, the user's is not
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        problem = f'there is no module "{error.name}" here or among the installed packages.'
        raise InputInvalid(problem=f'The services of "{name}" cannot be loaded: {problem}') from None
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise InputInvalid(problem=f'The services of "{name}" cannot be loaded: {problem}') from error


def _stored(store: Store) -> list[str]:
    from dalsegno.insight.workflows import list_workflows

    return [workflow.name for workflow in store.read(list_workflows)]
