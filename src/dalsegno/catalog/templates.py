"""The seven templates: what may be asked of the catalog, as workflows on one lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.catalog.scope import Scope, parse_scope
from dalsegno.engine.submit import Submitted, submit
from dalsegno.errors import InputInvalid, WorkflowUnknown
from dalsegno.model.naming import check_template
from dalsegno.model.suggest import did_you_mean
from dalsegno.model.workflow import Lane, Step, Workflow
from dalsegno.objects.errors import StoreRefused
from dalsegno.objects.opening import open_store
from dalsegno.settings import Settings
from dalsegno.sources.registry import Config, Sources
from dalsegno.store.store import Store

LANE = Lane(name="catalog", max_active=1, recovery="pause")
TITLES = {
    "full": "全链路",
    "collect": "仅采集",
    "sync": "仅同步",
    "sync-download": "同步+下载",
    "download": "仅下载",
    "upload": "仅上传",
    "download-upload": "下载+上传",
}
"""What spec and console call them, by the ids that commands and the API take."""


def _chain(*services: str) -> tuple[Step, ...]:
    """One step after the other; uploads follow downloads song by song."""
    return tuple(
        Step(
            key=service,
            service=service,
            depends_on=services[number - 1 : number] if number else (),
            follow="each" if services[number - 1 : number + 1] == ("download", "upload") else "all",
        )
        for number, service in enumerate(services)
    )


TEMPLATES: dict[str, Workflow] = {
    name: Workflow(name=name, lane=LANE, steps=_chain(*services))
    for name, services in {
        "full": ("collect", "sync", "download", "upload"),
        "collect": ("collect",),
        "sync": ("sync",),
        "sync-download": ("sync", "download"),
        "download": ("download",),
        "upload": ("upload",),
        "download-upload": ("download", "upload"),
    }.items()
}


def template(name: str) -> Workflow:
    """By id or by its Chinese title."""
    found = TEMPLATES.get(name) or next((TEMPLATES[key] for key, title in TITLES.items() if title == name), None)
    if found is None:
        raise WorkflowUnknown(name=name, hint=did_you_mean(name, (*TEMPLATES, *TITLES.values())))
    return found


def order(
    store: Store,
    settings: Settings,
    name: str,
    *,
    scope: Any = None,
    options: Mapping[str, Any] | None = None,
    download_sources: list[str] | None = None,
    priority: int = 100,
    requested_by: str | None = None,
    dedupe: str | bool = False,
    revision: int | None = None,
) -> Submitted:
    """Submit a job of a template, its scope checked and its settings frozen; `revision` is that of their file."""
    scope = check(settings, scope, download_sources or [])
    asked = {**(options or {}), **({"download_sources": download_sources} if download_sources else {})}
    return submit(
        store,
        template(name),
        scope=scope.model_dump(),
        options=asked or None,
        snapshot=settings.snapshot(),
        revision=revision,
        priority=priority,
        requested_by=requested_by,
        dedupe=dedupe,
    )


def check(settings: Settings, scope: Any, download_sources: list[str]) -> Scope:
    """The scope, or an error that names what no configuration here can mean."""
    found = parse_scope(scope)
    check_template(settings.name_template)
    if settings.object_store:
        try:
            open_store(settings.object_store, {"S3_ENDPOINT": settings.s3_endpoint}).close()
        except StoreRefused as error:
            raise InputInvalid(problem=str(error)) from None
    sources = Sources(Config(settings.thawed(settings.snapshot())))
    sources.check([*settings.sources, *settings.download_sources, *download_sources, *found.sources])
    return found
