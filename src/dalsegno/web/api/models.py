"""What the API takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StringConstraints,
    model_validator,
)
from pydantic.json_schema import WithJsonSchema

from dalsegno.catalog.scope import Scope
from dalsegno.catalog.templates import TITLES
from dalsegno.engine.item import storable
from dalsegno.engine.orders import ASKED
from dalsegno.insight.items import ItemLine
from dalsegno.insight.jobs import JobDetail, JobLine
from dalsegno.insight.progress import JobProgress, StageProgress
from dalsegno.insight.walk import Page
from dalsegno.model.records import CommandRecord, ItemRecord, JobRecord, ProcessRecord, StageRecord, WorkerRecord
from dalsegno.model.states import JobStatus, StageStatus
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.schema import COUNTERS

Text = Annotated[str, StringConstraints(max_length=2000), AfterValidator(storable)]
Name = Annotated[str, StringConstraints(max_length=200), AfterValidator(storable)]


# --- what it takes --------------------------------------------------------------------------------


class Body(BaseModel):
    """A key nobody knows is a mistake, and most often a misspelt one."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        for key in given if isinstance(given, dict) else ():
            if key not in cls.model_fields:
                name = storable(str(key))[:60]
                raise ValueError(f'There is no "{name}" here.{did_you_mean(name, cls.model_fields)}')
        return given


class NewJob(Body):
    template: Annotated[str, AfterValidator(storable)] = Field(
        description="The id or title of a template, or the name of a stored workflow. `workflow` says the same.",
        examples=["full", "全链路"],
    )
    scope: Annotated[Any, WithJsonSchema(Scope.model_json_schema())] = None
    """Of a template it is checked by the catalog itself, which says in one sentence what is wrong with it."""
    priority: int = Field(default=100, description="Smaller runs first, among all jobs.")
    download_sources: list[Name] = Field(
        default=[], description="Of a template: where songs are fetched from, in order."
    )
    requested_by: Name | None = Field(default=None, description="Who wants it; unless said, where it came from.")
    options: dict[str, Any] = {}
    params: dict[str, Any] | None = Field(
        default=None, description="Of another workflow: what its steps get, over their defaults."
    )
    items: list[Any] | dict[str, list[Any]] | None = Field(
        default=None,
        description="Of another workflow: those of its first step, or of several by step. Others are listed.",
    )

    @model_validator(mode="before")
    @classmethod
    def _as_schedules_have_it(cls, given: Any) -> Any:
        if isinstance(given, dict) and "workflow" in given and "template" not in given:
            return {"template" if key == "workflow" else key: value for key, value in given.items()}
        return given

    @property
    def request(self) -> dict[str, Any]:
        """What is asked of the workflow."""
        return {key: value for key in ASKED if (value := getattr(self, key)) is not None}


class Pause(Body):
    reason: Text | None = Field(default=None, description="Why; shown wherever the job stands still.")
    until: AwareDatetime | None = Field(default=None, description="Go on by itself then; with its zone.")
    stage: Name | None = Field(default=None, description="Only this stage of it.", examples=["download"])
    requested_by: Name | None = None


class Resume(Body):
    overrides: dict[str, Any] = Field(
        default={},
        description="Settings of the job's snapshot that change from here on.",
        examples=[{"LIBRARY_ROOT": "/mnt/bigger"}],
    )
    stage: Name | None = Field(default=None, description="Only this stage, which was paused by itself.")
    requested_by: Name | None = None


class Asked(Body):
    """A command that needs nothing more said."""

    requested_by: Name | None = None


class Priority(Body):
    priority: Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)] = Field(
        description="Smaller runs first, among all jobs.", examples=[50]
    )
    requested_by: Name | None = None


class Clone(Body):
    """What the new job has otherwise; the rest is as the old one was asked for, with the settings of now."""

    priority: Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)] | None = None
    requested_by: Name | None = None


# --- what it gives --------------------------------------------------------------------------------


class Stage(BaseModel):
    id: int
    key: str
    service: str
    status: StageStatus
    counts: dict[str, int]
    """Items by status, and `total`."""
    done: int
    """Ended, whichever way."""
    expected: int | None
    """How many there will be; null while that is not known."""
    fraction: float
    rate: float | None
    """Items a second since it started."""
    seconds_left: float | None
    last_error: str | None
    pause_reason: str | None
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, stage: StageRecord, progress: StageProgress) -> Stage:
        own = ("id", "key", "service", "status", "last_error", "pause_reason", "started_at", "finished_at")
        told = ("done", "expected", "fraction", "rate", "seconds_left")
        return cls(
            counts=_counts([stage]),
            **{name: getattr(stage, name) for name in own},
            **{name: getattr(progress, name) for name in told},
        )


class Job(BaseModel):
    id: int
    template: str
    title: str | None
    """What the template is called in Chinese; null for other workflows."""
    status: JobStatus
    priority: int
    lane: str
    requested_by: str | None
    scope: Any | None
    download_sources: list[str]
    """Those it was started with, else those of its snapshot."""
    options: dict[str, Any] | None
    overrides: Any | None
    progress: float | None
    """From 0 to 1."""
    counts: dict[str, int]
    """Items of all stages by status, and `total`."""
    current_stage: str | None
    pause_reason: str | None
    paused_by: str | None
    paused_at: datetime | None
    pause_until: datetime | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime

    @classmethod
    def of(cls, line: JobLine) -> Job:
        return cls(**_fields(line.job, line.workflow), counts=line.counts)


class JobInFull(Job):
    version: int
    """Of the workflow."""
    reason: str | None
    """Why it does not run, where that is known."""
    stages: list[Stage]
    snapshot: Any | None
    """The settings it runs with, frozen when it was submitted."""

    @classmethod
    def told(cls, detail: JobDetail, progress: JobProgress) -> JobInFull:
        fields = _fields(detail.job, detail.workflow)
        return cls(
            **{**fields, "progress": progress.fraction},
            version=detail.version,
            reason=progress.reason,
            counts=_counts(detail.stages),
            stages=[Stage.of(*pair) for pair in zip(detail.stages, progress.stages, strict=True)],
            snapshot=detail.job.snapshot,
        )


class Jobs(BaseModel):
    jobs: list[Job]
    next_cursor: str | None
    """Ask again with `cursor` for the next page; null on the last one."""
    partial: bool
    """The time was up before the page was full: there may be more, further on."""


class Item(ItemRecord):
    stage: str
    name: str | None = None
    """What it is about, where the catalog knows."""

    @classmethod
    def of(cls, line: ItemLine, names: Mapping[str, str] = MappingProxyType({})) -> Item:
        return cls(stage=line.stage, name=names.get(line.item.key), **dict(line.item))


class Items(BaseModel):
    items: list[Item]
    next_cursor: str | None
    partial: bool = False
    """The time was up before the page was full: there may be more, further on."""

    @classmethod
    def of(cls, page: Page[ItemLine], names: Mapping[str, str]) -> Items:
        lines = [Item.of(line, names) for line in page.lines]
        return cls(items=lines, next_cursor=page.next_cursor, partial=page.partial)


class Command(CommandRecord):
    """What was asked for. Follow it at `/api/commands/{id}` until its status is `applied` or `rejected`."""


class Commands(BaseModel):
    commands: list[Command]


class Worker(WorkerRecord):
    node: str
    alive: bool
    """Its process is: a process that died is listed until what it held was taken back."""


class Workers(BaseModel):
    workers: list[Worker]
    processes: list[ProcessRecord]
    moving: int
    """Workers that transfer bytes right now."""
    speed: float
    """Bytes a second, all together."""


_SHARED = [name for name in Job.model_fields if name in JobRecord.model_fields]


def _fields(job: JobRecord, workflow: str) -> dict[str, Any]:
    options = dict(job.options or {})
    asked = options.pop("download_sources", None) or (job.snapshot or {}).get("DOWNLOAD_SOURCES")
    return {
        **{name: getattr(job, name) for name in _SHARED},
        "template": workflow,
        "title": TITLES.get(workflow),
        "options": options or None,
        "download_sources": [str(name) for name in asked] if isinstance(asked, list) else [],
    }


def _counts(stages: list[StageRecord]) -> dict[str, int]:
    return {str(name): sum(getattr(stage, name) for stage in stages) for name in ("total", *COUNTERS)}
