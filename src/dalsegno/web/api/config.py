"""The settings file: read, checked, saved; its revisions, compared and applied again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic import Field as About

from dalsegno.config import model
from dalsegno.config.compare import compare
from dalsegno.config.jobs import job_config
from dalsegno.config.model import Kind, State
from dalsegno.config.revisions import get_revision, list_revisions
from dalsegno.config.save import adopt, apply, save
from dalsegno.config.view import config_view, preview
from dalsegno.errors import (
    ConfigChanged,
    ConfigInvalid,
    ConfigNotWritable,
    ConfigNowhere,
    NotFound,
    PayloadTooLarge,
)
from dalsegno.settings.load import Origin
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import Body as Asked
from dalsegno.web.api.models import Text
from dalsegno.web.api.parameters import Cursor, Limit, Number, place
from dalsegno.web.problems import Mistake
from dalsegno.web.room import Here, Who

router = APIRouter(tags=["config"])

WRITING = refusals(ConfigChanged, ConfigNotWritable, ConfigNowhere, ConfigInvalid, PayloadTooLarge)
Content = Annotated[str, StringConstraints(max_length=300_000)]
Version = Annotated[str, StringConstraints(max_length=100)]
Id = Annotated[int, About(ge=1, lt=2**63)]


# --- what it takes --------------------------------------------------------------------------------


class Draft(Asked):
    content: Content = About(
        description="The whole file. `***` and a blank secret stand for what is stored.",
        examples=["LIBRARY_ROOT=/mnt/music\nSUBSONIC_PASSWORD=***\n"],
    )


class NewConfig(Draft):
    note: Text | None = About(default=None, description="Why, for whoever looks back.", examples=["a bigger disk"])
    base_revision: Id | None = About(
        default=None, description="The revision that was changed: `revision.id` of the file as it was read."
    )
    base_version: Version | None = About(
        default=None,
        description="`version` of the file as it was read: the same guard, which also works for a file that was "
        "edited on disk or is invalid.",
    )


class Application(Asked):
    note: Text | None = About(default=None, description="Why, for whoever looks back.")
    base_revision: Id | None = About(default=None, description="Only if this is still the revision in force.")
    base_version: Version | None = About(default=None, description="Only if the file is still this one.")


class Adoption(Asked):
    note: Text | None = About(default=None, description="What was edited, and why.")
    base_version: Version | None = About(default=None, description="Only if the file is still this one.")


# --- what it gives --------------------------------------------------------------------------------


class Shape(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Setting(Shape):
    key: str
    help: str
    group: str
    kind: Kind
    default: str
    choices: list[str]
    example: str
    secret: bool
    """Write-only."""
    restart_needed: bool
    """A change counts from the next start on, and not from the next job on."""
    value: str
    """In force; of a secret, only whether there is one."""
    origin: Origin
    line: int | None
    in_file: str | None
    errors: list[Mistake]


class RevisionHead(Shape):
    id: int
    file_path: str
    node: str | None
    content_hash: str
    note: str | None
    saved_by: str | None
    created_at: datetime
    applied_at: datetime | None
    """When it last became the file."""
    restores: int | None
    """The revision that it brought back."""


class Revision(RevisionHead):
    content: str
    """With `***` where a secret was."""


class RevisionLine(RevisionHead):
    current: bool
    """The newest: what the file was last saved as."""
    jobs: int
    """How many were made with it."""


class Revisions(BaseModel):
    revisions: list[RevisionLine]
    next_cursor: str | None


class Config(Shape):
    file: str | None
    state: State
    version: str
    revision: RevisionHead | None
    base_revision: int | None
    """Give it back when saving."""
    content: str
    fields: list[Setting]
    errors: list[Mistake]
    restart_pending: list[str]
    """Changed on disk, and still as they were when this process started."""


class Checked(Shape):
    valid: bool
    content: str
    errors: list[Mistake]
    diff: model.Diff
    impact: model.Impact


class SavedConfig(Shape):
    revision: Revision
    created: bool
    """There is a new revision; false where the file said exactly this already."""
    state: State
    version: str
    warnings: list[Mistake]
    diff: model.Diff
    impact: model.Impact


class Compared(Shape):
    before: RevisionHead
    after: RevisionHead
    diff: model.Diff


class JobSettings(Shape):
    job_id: int
    revision: RevisionHead | None
    """The one the job was made with, where that is known."""
    current: RevisionHead | None
    differs: bool
    keys: list[model.JobKey]
    overrides: dict[str, Any]


# --- the file -------------------------------------------------------------------------------------


@router.get("/config/env")
def env_file(here: Here) -> Config:
    """The file as it is on disk, secrets masked, and every key with its value in force and where that comes from."""
    view = config_view(here.store, here.config)
    number = None if view.revision is None else view.revision.id
    return Config.model_validate({**_plain(view), "base_revision": number})


@router.put("/config/env", responses=WRITING)
def save_env_file(here: Here, who: Who, new: NewConfig) -> SavedConfig:
    """Check and write the file, whole, readable for its owner only. Jobs that are there keep what they have."""
    saved = save(
        here.store, here.config, new.content,
        note=new.note, by=who, base_revision=new.base_revision, base_version=new.base_version,
    )  # fmt: skip
    return SavedConfig.model_validate(saved)


@router.post("/config/env/check", responses=refusals(PayloadTooLarge))
def check_env_file(here: Here, draft: Draft) -> Checked:
    """What is wrong with a text, what saving it would change and what that means. Nothing is written."""
    return Checked.model_validate(preview(here.store, here.config, draft.content))


# --- revisions ------------------------------------------------------------------------------------


@router.get("/config/revisions")
def revisions(here: Here, cursor: Cursor = None, limit: Limit = 50) -> Revisions:
    """The file's saved versions, newest first."""
    before = place(cursor)
    found = here.store.read(lambda tx: list_revisions(tx, here.config, before=before, limit=limit + 1))
    lines = [
        RevisionLine.model_validate({**_plain(line.revision), "current": line.current, "jobs": line.jobs})
        for line in found[:limit]
    ]
    return Revisions(revisions=lines, next_cursor=str(lines[-1].id) if len(found) > limit else None)


@router.post("/config/revisions", responses={201: {"model": SavedConfig, "description": "A new revision."}, **WRITING})
def adopt_env_file(
    here: Here, who: Who, response: Response, asked: Annotated[Adoption | None, Body()] = None
) -> SavedConfig:
    """Keep the file as somebody left it on disk as a revision."""
    asked = asked or Adoption()
    saved = adopt(here.store, here.config, note=asked.note, by=who, base_version=asked.base_version)
    response.status_code = 201 if saved.created else 200
    response.headers["Location"] = f"/api/config/revisions/{saved.revision.id}"
    return SavedConfig.model_validate(saved)


@router.get("/config/revisions/{revision_id}", responses=refusals(NotFound))
def revision(here: Here, revision_id: Number) -> Revision:
    """One, with its content; secrets are no part of it."""
    return Revision.model_validate(here.store.read(lambda tx: get_revision(tx, revision_id)))


@router.get("/config/revisions/{revision_id}/diff/{other_id}", responses=refusals(NotFound))
def compare_revisions(here: Here, revision_id: Number, other_id: Number) -> Compared:
    """What differs from one to the other, by key and line by line."""
    return Compared.model_validate(compare(here.store, here.config, revision_id, other_id))


@router.post("/config/revisions/{revision_id}/apply", responses={**WRITING, **refusals(NotFound)})
def apply_revision(
    here: Here, who: Who, revision_id: Number,
    asked: Annotated[Application | None, Body()] = None
) -> SavedConfig:  # fmt: skip
    """Make an old revision the file again. Secrets stay as they are: revisions do not hold them."""
    asked = asked or Application()
    saved = apply(
        here.store, here.config, revision_id,
        note=asked.note, by=who, base_revision=asked.base_revision, base_version=asked.base_version,
    )  # fmt: skip
    return SavedConfig.model_validate(saved)


@router.get("/jobs/{job_id}/config", responses=refusals(NotFound))
def config_of_job(here: Here, job_id: Number) -> JobSettings:
    """The settings a job runs with, beside those that a job made now would get."""
    return JobSettings.model_validate(job_config(here.store, here.config, job_id))


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
